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
    from thread_store.transcript import Transcript, TranscriptEntry

__all__ = ["AmbiguousThread", "Home", "StoredRollout", "Transcript", "TranscriptEntry"]

_HOMES = {
    "AmbiguousThread": "thread_store.errors",
    "Home": "thread_store.home",
    "StoredRollout": "thread_store.home",
    "Transcript": "thread_store.transcript",
    "TranscriptEntry": "thread_store.transcript",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
