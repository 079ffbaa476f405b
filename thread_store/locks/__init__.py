"""Locks: one writer a thread, over processes.

The names below are loaded when they are first asked for, so that a program pays only for what
it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thread_store.locks.calls import LockCalls
    from thread_store.locks.errors import LocksBusy
    from thread_store.locks.holder import LockHolder
    from thread_store.locks.seen import LockState, SeenLock
    from thread_store.locks.thread_locks import ThreadLocks
    from thread_store.locks.writer_lock import WriterLock

__all__ = [
    "LockCalls",
    "LockHolder",
    "LockState",
    "LocksBusy",
    "SeenLock",
    "ThreadLocks",
    "WriterLock",
]

_HOMES = {
    "LockCalls": "thread_store.locks.calls",
    "LockHolder": "thread_store.locks.holder",
    "LockState": "thread_store.locks.seen",
    "LocksBusy": "thread_store.locks.errors",
    "SeenLock": "thread_store.locks.seen",
    "ThreadLocks": "thread_store.locks.thread_locks",
    "WriterLock": "thread_store.locks.writer_lock",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
