"""Many threads: where they are kept and found, and the command line over them.

The names below are loaded when they are first asked for, so that a program pays only for what
it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thread_store.errors import AmbiguousThread
    from thread_store.home import Home, StoredRollout
    from thread_store.local_store import LocalThreadStore
    from thread_store.store import ThreadStore
    from thread_store.streams import EventStreams
    from thread_store.thread import Thread, Turn
    from thread_store.transcript import Transcript, TranscriptEntry

__all__ = [
    "AmbiguousThread",
    "EventStreams",
    "Home",
    "LocalThreadStore",
    "StoredRollout",
    "Thread",
    "ThreadStore",
    "Transcript",
    "TranscriptEntry",
    "Turn",
]

_HOMES = {
    "AmbiguousThread": "thread_store.errors",
    "EventStreams": "thread_store.streams",
    "Home": "thread_store.home",
    "LocalThreadStore": "thread_store.local_store",
    "StoredRollout": "thread_store.home",
    "Thread": "thread_store.thread",
    "ThreadStore": "thread_store.store",
    "Transcript": "thread_store.transcript",
    "TranscriptEntry": "thread_store.transcript",
    "Turn": "thread_store.thread",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
