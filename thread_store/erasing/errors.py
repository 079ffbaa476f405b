"""Errors of erasing. The root is `protocol.errors`."""

from __future__ import annotations

import os

from protocol.errors import RolloutError

__all__ = ["EraseRefused"]


class EraseRefused(RolloutError):
    """It can't be erased so; nothing was changed."""

    code = "erase_refused"

    def __init__(
        self,
        reason: str,
        *,
        hint: str = "",
        path: str | os.PathLike[str] | None = None,
        thread_id: str | None = None,
        offset_bytes: int | None = None,
    ) -> None:
        super().__init__(
            f"can't erase: {reason}",
            hint=hint,
            path=path,
            thread_id=thread_id,
            offset_bytes=offset_bytes,
        )
        self.reason = reason
