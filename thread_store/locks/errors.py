"""Errors of the locks that the floors below can't meet. The root is `protocol.errors`."""

from __future__ import annotations

from protocol.errors import PathText, RolloutError, WriterHolder

__all__ = ["LocksBusy"]


class LocksBusy(RolloutError):
    """Somebody holds the coordination lock of a home for too long; `holder` names them where known."""

    code = "locks_busy"

    def __init__(self, *, path: PathText, seconds: float, holder: WriterHolder | None = None) -> None:
        self.holder = holder or WriterHolder()
        who = "another process" if self.holder.pid is None else str(self.holder)
        super().__init__(
            f"no lock of this home can be taken or given back: {who} held {path} for {seconds:g} s",
            hint="It is held for moments only; look whether its process hangs",
            path=path,
        )
        self.seconds = seconds
