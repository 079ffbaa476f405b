"""How a writer ended, and what its callers are told then. No I/O.

Invariant: every caller gets an error of its own, made from the one reason for the end: a bug,
a lock that was lost, a deadline that passed, or a plain close. Nobody who waits for the end is
forgotten, also who asks after it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

from protocol.errors import RecorderClosed, RolloutError, RolloutWriteError, WriterFenced
from rollout.barrier import Barrier, Goal, Receipt, answer_all

__all__ = ["Ending", "fresh_copy"]


def fresh_copy(error: RolloutError) -> RolloutError:
    """The same error for another caller: a traceback belongs to one raise."""
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


class Ending:
    """What is known of the end of one writer; all unset while it lives."""

    def __init__(self, path: str) -> None:
        self.discarding = False
        """What is pending is dropped."""
        self.forked = False
        """This is a forked child: the writer belongs to the parent."""
        self.fenced: WriterFenced | None = None
        self.bug: BaseException | None = None
        self.bug_kept: str | None = None
        """Where the items of a writer that died of a bug are."""
        self.error: RolloutError | None = None
        """What `aclose()` raises."""
        self._path = path
        self._closers: list[Barrier] = []
        self._callbacks: list[Callable[[], None]] = []

    @property
    def drains(self) -> bool:
        """Whether what is pending is still to be written: nobody discards, and the lock is held."""
        return not self.discarding and self.fenced is None

    def why(self) -> RolloutError:
        """The error of a call that came too late."""
        if self.bug is not None:
            kept = f"; its items are kept in {self.bug_kept}" if self.bug_kept else ""
            error = RolloutWriteError(
                path=self._path,
                operation="write",
                message=f"the writer failed: {self.bug!r}{kept}",
                hint="This is a bug in rollout-recorder; please report it with its traceback",
            )
            error.__cause__ = self.bug
            return error
        if self.forked:
            return RecorderClosed(path=self._path, reason="closed here: it belongs to the parent process")
        return RecorderClosed(path=self._path, reason="discarded" if self.discarding else "closed")

    # Who waits for it

    def await_end(self, closers: Iterable[Barrier]) -> None:
        """These asked to close; they are answered at the end."""
        self._closers += closers

    def call_at_end(self, callback: Callable[[], None]) -> None:
        """Somebody who can't wait is called instead; from any thread."""
        self._callbacks.append(callback)

    def answer_all(self, left_over: Iterable[Barrier], receipt: Receipt) -> None:
        """The end: answer who asked to close, and the barriers that are left over."""
        for barrier in (*left_over, *self._closers):
            self.answer(barrier, receipt)

    def answer(self, barrier: Barrier, receipt: Receipt) -> None:
        """Answer a barrier that is left over; `receipt` for who only waits for the end."""
        if barrier.goal is Goal.CLOSE and (self.forked or (self.bug is None and self.error is None)):
            barrier.receipt = receipt
        elif self.bug is None and self.error is not None:
            barrier.error = fresh_copy(self.error)
        else:
            barrier.error = self.why()
        answer_all([barrier])

    def call_back(self) -> None:
        """Call who asked for it; again whenever somebody asked after the end."""
        while self._callbacks:
            self._callbacks.pop()()
