"""Loop hygiene: no blocking call of the product runs on a caller's loop, and asyncio has nothing to say.

Invariant: a call counts if the product made it: the frame of ours that is nearest to the loop is a coroutine
or a callback, or a plain function of one of `HANDLES`, and it isn't one of `EXCEPTIONS`. The loops of our own
services are no callers' loops: to write is what they are for. Nothing is raised where it happens, where
something might catch it; each test looks for what was noted while it ran.

blockbuster knows what blocks, and replaces it; `_MORE` are the calls on which a recorder rests besides.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import logging
import math
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from blockbuster import BlockBuster
from blockbuster.blockbuster import BlockBusterFunction

__all__ = ["EXCEPTIONS", "HANDLES", "Hygiene", "watch_loops"]

_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_ROOT / name}{os.sep}" for name in ("protocol", "rollout", "thread_store"))
_COROUTINES = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LOOP = f"{os.sep}asyncio{os.sep}events.py"

_MORE: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("open", "close", "fstat", "lstat", "fsync", "fdatasync", "pread", "pwrite")),
    *((os, name) for name in ("ftruncate", "fchmod", "chmod", "utime", "copy_file_range", "waitpid")),
    (fcntl, "flock"),
    (fcntl, "lockf"),
    (subprocess.Popen, "__init__"),
    (subprocess.Popen, "wait"),
)

_SERVICE = tuple(os.path.join("rollout", name) for name in ("service.py", "timers.py", "writer.py"))
"""What runs on the loop of a service only, whatever thread that has: a test may turn it by itself."""

_QUICK = frozenset({"os.getcwd", "os.path.abspath"})
"""No disk is asked: the system knows the working folder."""

HANDLES = (
    *(f"rollout/{name}.py" for name in ("recorder", "pending", "core")),
    *(f"thread_store/{name}.py" for name in ("local_store", "store", "streams", "subagents", "thread")),
    *("thread_store/in_memory/", "thread_store/testing/", "thread_store/turns/"),
)
"""What is used on a loop, by module or package: not even its plain functions block. Of all else only
coroutines and callbacks promise that; a plain function that a test calls by itself is the test's affair."""

EXCEPTIONS: dict[str, str] = {
    "rollout/core.py create_core": "recorders call it in a thread; tests give it faults",
    "rollout/core.py open_core": "the same, for a rollout that is there",
    "thread_store/demo/demo_resume.py _resume": "its tools are its own work",
    "thread_store/turns/blocking_turn.py": "the handles for code without a loop",
}
"""What may block all the same, and why: by module, or module and name."""


class Hygiene:
    """What was noted since it was asked last. Safe from any thread."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """Blocking calls on callers' loops, each with its stack."""
        self.said: list[str] = []
        """What asyncio logged."""

    def take(self) -> list[str]:
        """What was noted; it is forgotten."""
        found = [*self.calls, *self.said]
        self.calls.clear()
        self.said.clear()
        return found

    def judge(self, name: str) -> None:
        """A call that may block is made on a loop, right here."""
        if _is_service():
            return
        frame = _nearest_to_loop(sys._getframe(1))
        if frame is None:
            return
        module = os.path.relpath(frame.f_code.co_filename, _ROOT)
        if module in _SERVICE:
            return
        place = f"{module} {frame.f_code.co_name}"
        if _promises(frame, module) and module not in EXCEPTIONS and place not in EXCEPTIONS:
            stack = "".join(traceback.format_stack(sys._getframe(3), limit=12))
            self.calls.append(f"{name} blocks a caller's loop, in {place}:\n{stack}")


def _promises(frame: FrameType, module: str) -> bool:
    """Whether this function must not block."""
    is_callback = frame.f_back is not None and frame.f_back.f_code.co_filename.endswith(_LOOP)
    return is_callback or bool(frame.f_code.co_flags & _COROUTINES) or module.startswith(HANDLES)


def _is_service() -> bool:
    name = threading.current_thread().name
    return name.startswith("rollout-") or name.endswith("-service")


def _nearest_to_loop(frame: FrameType | None) -> FrameType | None:
    """The outermost frame of ours above the loop."""
    found = None
    while frame is not None and not frame.f_code.co_filename.endswith(_LOOP):
        if frame.f_code.co_filename.startswith(_OURS):
            found = frame
        frame = frame.f_back
    return found


class _Listener(logging.Handler):
    def __init__(self, hygiene: Hygiene) -> None:
        super().__init__(logging.WARNING)
        self._hygiene = hygiene

    def emit(self, record: logging.LogRecord) -> None:
        self._hygiene.said.append(f"asyncio says: {self.format(record)}")


@contextmanager
def watch_loops() -> Iterator[Hygiene]:
    """Watch all loops of this process, which run in asyncio's debug mode from now on."""
    hygiene = Hygiene()
    watched = _functions(hygiene)
    listener = _Listener(hygiene)
    with _debugging():
        logging.getLogger("asyncio").addHandler(listener)
        for each in watched:
            each.activate()
        try:
            yield hygiene
        finally:
            for each in watched:
                each.deactivate()
            logging.getLogger("asyncio").removeHandler(listener)


def _functions(hygiene: Hygiene) -> list[BlockBusterFunction]:
    functions = [
        *BlockBuster().functions.values(),
        *(BlockBusterFunction(owner, name) for owner, name in _MORE if hasattr(owner, name)),
    ]
    for each in functions:
        each.can_block_predicate = _noting(hygiene, each)
    return functions


def _noting(hygiene: Hygiene, function: BlockBusterFunction) -> Callable[..., bool]:
    is_harmless, name = function.can_block_predicate, function.full_name

    def note(*arguments: Any, **options: Any) -> bool:
        if name not in _QUICK and not is_harmless(*arguments, **options) and not _is_allowed(function):
            hygiene.judge(name)
        return True

    return note


def _is_allowed(function: BlockBusterFunction) -> bool:
    """Whether it is made where blockbuster lets it pass, such as the start of a thread."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == logging.__file__:
            return True  # where a log goes is its owner's choice
        for file, names in function.can_block_functions:
            if frame.f_code.co_filename.endswith(file) and frame.f_code.co_name in names:
                return True
        frame = frame.f_back
    return False


@contextmanager
def _debugging() -> Iterator[None]:
    """Every loop that is made is in debug mode; that one is slow says nothing on a busy machine."""
    honest = asyncio.BaseEventLoop.__init__

    def begin(self: asyncio.BaseEventLoop) -> None:
        honest(self)
        self.set_debug(True)
        self.slow_callback_duration = math.inf

    asyncio.BaseEventLoop.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        asyncio.BaseEventLoop.__init__ = honest  # type: ignore[method-assign]
