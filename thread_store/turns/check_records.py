"""One verification of a turn: what to record of it. No waiting.

Invariant: a check passes only if its body said so. One whose body raised has failed; one whose body told
nothing was skipped. One that was cancelled stays unfinished on purpose: nobody knows what it would have
found, and an unfinished check forbids an automatic resume (FORMAT.md, Tool calls). Doing it again under
the same check id ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.own import CheckItem
from protocol.timestamps import now_ms

__all__ = ["CheckRecords"]

_NOTHING_TOLD = "its result was not told"


class CheckRecords:
    """A check in the hands of whoever runs it. Tell the result with one of its methods."""

    def __init__(self, check_id: str, turn_id: str, what: str, call_ids: Sequence[str]) -> None:
        self.check_id = check_id
        self.turn_id = turn_id
        self.what = what
        self.call_ids = tuple(call_ids)
        self._result: tuple[str, str | None] | None = None

    def passed(self, evidence: str | None = None) -> None:
        """It found what it should. `evidence`: what shows that."""
        self._result = ("passed", evidence)

    def failed(self, evidence: str | None = None) -> None:
        """It did not."""
        self._result = ("failed", evidence)

    def skipped(self, reason: str) -> None:
        """It was not done, or says nothing."""
        self._result = ("skipped", reason)

    def start(self) -> CheckItem:
        """What must be on stable storage before the body runs."""
        return self._item("started", None)

    def never_begun(self, error: BaseException) -> CheckItem:
        """That the body won't run, because `error` came before it."""
        return self._item("skipped", f"never begun: {type(error).__name__}: {error}")

    def end(self, error: BaseException | None) -> CheckItem | None:
        """The result, where the body raised `error`; None: it stays unfinished."""
        if error is not None and not isinstance(error, Exception):
            return None if self._result is None else self._item(*self._result)
        if error is not None:
            return self._item("failed", f"{type(error).__name__}: {error}")
        return self._item(*(self._result or ("skipped", _NOTHING_TOLD)))

    def _item(self, state: str, evidence: str | None) -> CheckItem:
        return CheckItem(
            check_id=self.check_id,
            turn_id=self.turn_id,
            call_ids=list(self.call_ids) or None,
            state=state,
            what=self.what,
            evidence=evidence,
            at_ms=now_ms(),
        )
