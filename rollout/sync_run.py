"""One sync, from its start on the service loop to its end in a thread of its own.

Invariant: those it covers (the riders) are answered by the thread itself, after the sync and
its checks succeeded and after the figures of health were moved; the outcome is left for the
writer, who is woken for it only if it failed or if the writer asked to be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rollout.barrier import Barrier, Receipt, answer_all
from rollout.progress import Covered

__all__ = ["SyncRun"]


class SyncRun:
    """A sync under way. `run` is called once, in any thread; the rest by the writer."""

    def __init__(
        self,
        job: Callable[[], None],
        *,
        covered: Covered,
        riders: list[Barrier],
        note: Callable[[Covered], None],
        wake: Callable[[], None],
    ) -> None:
        self.covered = covered
        self._job = job
        self._riders = riders
        self._note = note
        self._wake = wake
        self._lock = threading.Lock()
        self._done = False
        self._error: BaseException | None = None
        self._wanted = False

    def run(self) -> None:
        """Sync, answer, leave the outcome."""
        try:
            self._job()
            self._note(self.covered)
        except BaseException as error:  # noqa: BLE001  # the writer decides what it means
            self._leave(error)
            return
        receipts = [(barrier, Receipt(barrier.items, self.covered.offset_bytes)) for barrier in self._riders]
        for barrier, receipt in receipts:
            barrier.receipt = receipt
        self._leave(None)
        answer_all(self._riders)

    def _leave(self, error: BaseException | None) -> None:
        with self._lock:
            self._error, self._done = error, True
            wake = self._wanted or error is not None
        if wake:
            self._wake()

    def is_over(self, *, wake: bool = False) -> bool:
        """Whether it ended. `wake`: if it didn't, wake the writer when it does."""
        with self._lock:
            self._wanted = self._wanted or wake
            return self._done

    def outcome(self) -> BaseException | None:
        """Why it failed; None if it succeeded. Only after it is done."""
        return self._error
