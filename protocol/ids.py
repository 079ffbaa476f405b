"""Thread ids: parsed before they ever become a path.

Invariant: a `ThreadId` is the canonical lower-case text of a UUID, so it holds no
separator, no NUL and no dot. Text that is no UUID (old files have such ids) stays a
plain `str`; it may be shown, it is never made a path.
"""

from __future__ import annotations

import os
import re
import threading
import time

from protocol.errors import InvalidThreadId

__all__ = ["ThreadId"]

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_COUNTER_BITS = 74  # rand_a (12) and rand_b (62) of RFC 9562, section 5.7

_lock = threading.Lock()
_last_ms = 0
_last_tail = 0


def _fresh_tail() -> int:
    # The top bit stays clear, so that the counter has room to grow within one millisecond.
    return int.from_bytes(os.urandom(10), "big") >> (80 - _COUNTER_BITS + 1)


def _next_uuid7() -> int:
    """The next UUIDv7 as an integer, greater than every earlier one of this process."""
    global _last_ms, _last_tail
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _last_tail = now_ms, _fresh_tail()
        else:  # same millisecond, or the clock stepped back: count on
            _last_tail += 1 + int.from_bytes(os.urandom(4), "big")
            if _last_tail >> _COUNTER_BITS:
                _last_ms, _last_tail = _last_ms + 1, _fresh_tail()
        milliseconds, tail = _last_ms, _last_tail
    high, low = tail >> 62, tail & ((1 << 62) - 1)
    return milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low


def _new_lock() -> None:
    """In a forked child: the lock may be held by a thread that doesn't exist here."""
    global _lock
    _lock = threading.Lock()


# Not there on Windows, where no process forks.
_register_at_fork = getattr(os, "register_at_fork", None)
if _register_at_fork is not None:
    _register_at_fork(after_in_child=_new_lock)


class ThreadId(str):
    """The identity of a thread across files: a UUID in its canonical text form.

    Raises:
        InvalidThreadId: the text is anything else (a path, an empty string, a prefix).
    """

    __slots__ = ()

    def __new__(cls, text: str) -> ThreadId:
        lowered = text.lower() if isinstance(text, str) else ""
        if not _CANONICAL.match(lowered):
            raise InvalidThreadId(text)
        return str.__new__(cls, lowered)

    @classmethod
    def new(cls) -> ThreadId:
        """Make a UUIDv7 (RFC 9562, section 5.7), increasing within this process."""
        digits = f"{_next_uuid7():032x}"
        return cls("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))

    @classmethod
    def parse(cls, text: str) -> ThreadId:
        """Take the text of a UUID of any version, upper or lower case, with its hyphens.

        Raises:
            InvalidThreadId: the text is anything else (a path, an empty string, a prefix).
        """
        return cls(text)

    def __repr__(self) -> str:
        return f"ThreadId({str(self)!r})"
