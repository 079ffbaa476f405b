"""The ids under which foreign conversations are recorded here.

Invariant: an id follows from the format and the conversation's own id, and from when it began: whoever
imports it, wherever the file lies, gets the same thread.
"""

from __future__ import annotations

import hashlib

from protocol.ids import ThreadId
from thread_store.importing.source import SourceThread

__all__ = ["derived_uuid", "thread_id_of"]


def thread_id_of(thread: SourceThread) -> ThreadId:
    """Under which id it is recorded: a new one also where its own is a UUID, which a Codex home may hold."""
    return ThreadId(derived_uuid(thread.created_ms, thread.format, thread.id))


def derived_uuid(created_ms: int, *names: str) -> str:
    """A UUID of version 7 that follows from a time and names: the same whenever it is asked for."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    tail = int.from_bytes(digest[:10], "big")
    number = (created_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (tail >> 68 & 0xFFF) << 64
    number |= 0b10 << 62 | (tail & ((1 << 62) - 1))
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
