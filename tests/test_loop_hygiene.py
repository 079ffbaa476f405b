"""The watch on all loops: it finds what blocks a caller's loop, and what asyncio complains of."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop_hygiene import EXCEPTIONS, HANDLES, Hygiene

ROOT = Path(__file__).resolve().parent.parent

_PLANTED = """
import asyncio, logging, os, subprocess, sys, threading

def read(path):
    return os.pread(os.open(path, os.O_RDONLY), 1, 0)

async def read_in_passing(path):
    return read(path)

async def read_in_a_thread(path):
    return await asyncio.to_thread(read, path)

async def call_soon(path):
    asyncio.get_running_loop().call_soon(read, path)
    await asyncio.sleep(0)

async def wait_for_a_thread(path):
    done = threading.Event()
    threading.Timer(0.01, done.set).start()
    done.wait()

async def start_a_process(path):
    subprocess.Popen([sys.executable, "-c", ""]).wait()

async def log(path):
    logging.getLogger("rollout").warning("told")
"""


def plant(module: str) -> dict[str, Callable[[Path], Awaitable[Any]]]:
    """Functions that seem to be of a module of ours."""
    names: dict[str, Any] = {}
    exec(compile(_PLANTED, str(ROOT / module), "exec"), names)
    return names


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a"
    made.write_bytes(b"x")
    return made


@pytest.mark.guarantee("G6")
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("read_in_passing", "os.open"),
        ("read_in_passing", "os.pread"),
        ("call_soon", "os.pread"),
        ("wait_for_a_thread", "lock.acquire"),
        ("start_a_process", "Popen"),
    ],
)
def test_blocking_call_on_a_callers_loop_is_found(
    path: Path, watched_loops: Hygiene, name: str, call: str
) -> None:
    """In a coroutine, and in a callback: with the call, and the function of ours that made it."""

    async def run() -> None:
        await plant("thread_store/planted.py")[name](path)

    asyncio.run(run())
    found = watched_loops.take()
    assert any(call in each.split(" blocks ")[0] for each in found)
    assert all("in thread_store/planted.py " in each for each in found)


@pytest.mark.parametrize("module", ["thread_store/thread.py", "thread_store/turns/turn.py"])
def test_plain_function_of_a_handle_may_not_block_either(
    path: Path, watched_loops: Hygiene, module: str
) -> None:
    """`record_nowait` and its like are called on loops; what blocks by contract is called by tests alone."""

    async def run(module: str) -> None:
        read: Any = plant(module)["read"]
        read(path)

    asyncio.run(run(module))
    assert watched_loops.take()
    asyncio.run(run("rollout/reader.py"))
    assert watched_loops.take() == []


@pytest.mark.parametrize("name", ["read_in_a_thread", "log"])
def test_call_in_a_thread_is_none(path: Path, watched_loops: Hygiene, name: str) -> None:
    """Nor is one of the test itself, nor where a log goes."""

    async def run() -> None:
        await plant("thread_store/planted.py")[name](path)
        os.stat(path)

    asyncio.run(run())
    assert watched_loops.take() == []


def test_loop_of_a_service_may_write(path: Path, watched_loops: Hygiene) -> None:
    """That is what it is for."""

    async def run() -> None:
        await plant("thread_store/planted.py")["read_in_passing"](path)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="rollout-service")
    thread.start()
    thread.join()
    assert watched_loops.take() == []


def test_what_asyncio_says_is_found(watched_loops: Hygiene) -> None:
    """A loop in debug mode refuses calls from other threads, and logs what nobody took."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert loop.get_debug()

        def call() -> None:
            with pytest.raises(RuntimeError, match="Non-thread-safe"):
                loop.call_soon(int)

        await asyncio.to_thread(call)
        loop.call_exception_handler({"message": "nobody took this"})

    asyncio.run(run())
    (said,) = watched_loops.take()
    assert "nobody took this" in said


def test_what_is_named_exists() -> None:
    """Modules and functions that were renamed would be watched no more, or excused for ever."""
    for place in [*HANDLES, *EXCEPTIONS]:
        module, _, name = place.partition(" ")
        assert (ROOT / module).exists(), place
        assert not name or f"def {name}(" in (ROOT / module).read_text(encoding="utf-8"), place
