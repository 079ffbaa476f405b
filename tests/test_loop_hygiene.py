"""The watch on all loops: it finds what blocks a caller's loop, and what asyncio complains of."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from rollout.service import Service
from rollout.source import open_source
from tests.loop_hygiene import BLOCKS, Hygiene
from thread_store.git_info import find_git_info


async def _read_in_passing(path: Path) -> bytes:
    """As a coroutine of ours would that forgot to leave the loop."""
    return open_source(path).read(10)


@pytest.mark.guarantee("G6")
def test_blocking_call_on_a_callers_loop_is_found(tmp_path: Path, watched_loops: Hygiene) -> None:
    """With the call and the function of ours that made it."""
    path = tmp_path / "a"
    path.write_bytes(b"x")
    asyncio.run(_read_in_passing(path))
    found = watched_loops.take()
    assert any(
        each.startswith("os.open blocks a caller's loop, in rollout/source.py open_source") for each in found
    )
    assert any(each.startswith("os.pread blocks a caller's loop") for each in found)


def test_same_call_in_a_thread_or_without_a_loop_is_none(tmp_path: Path, watched_loops: Hygiene) -> None:
    """Nor is one of the test's own."""
    path = tmp_path / "a"
    path.write_bytes(b"x")

    async def run() -> None:
        await asyncio.to_thread(lambda: open_source(path).read(1))
        os.stat(path)

    asyncio.run(run())
    open_source(path).read(1)
    assert watched_loops.take() == []


def test_loop_of_a_service_may_write(tmp_path: Path, watched_loops: Hygiene) -> None:
    """That is what it is for."""
    path = tmp_path / "a"
    path.write_bytes(b"x")
    thread = threading.Thread(target=asyncio.run, args=(_read_in_passing(path),), name="rollout-service")
    thread.start()
    thread.join()
    assert watched_loops.take() == []


def test_wait_for_another_thread_on_a_loop_is_found(watched_loops: Hygiene) -> None:
    """A service that starts waits for its thread: recorders let it do so in another one."""
    made: list[Service] = []

    async def run() -> None:
        made.append(Service("other-loop").start())

    asyncio.run(run())
    made[0].stop()
    assert any("acquire" in each for each in watched_loops.take())


def test_process_that_is_started_on_a_loop_is_found(tmp_path: Path, watched_loops: Hygiene) -> None:
    """Asking git takes as long as git takes."""

    async def run() -> None:
        find_git_info(tmp_path)

    asyncio.run(run())
    assert any("Popen" in each for each in watched_loops.take())


def test_what_asyncio_says_is_found(watched_loops: Hygiene) -> None:
    """A loop in debug mode refuses calls from other threads, and logs what nobody took."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert loop.get_debug()
        refused: list[BaseException] = []

        def call() -> None:
            try:
                loop.call_soon(int)
            except RuntimeError as error:
                refused.append(error)

        await asyncio.to_thread(call)
        assert len(refused) == 1
        loop.call_exception_handler({"message": "nobody took this"})

    asyncio.run(run())
    (said,) = watched_loops.take()
    assert "nobody took this" in said


def test_functions_that_may_block_exist() -> None:
    """The list of what tests may call on their loops names functions that are there."""
    root = Path(__file__).resolve().parent.parent
    for place in BLOCKS:
        module, name = place.split()
        assert f"def {name}(" in (root / module).read_text(encoding="utf-8"), place
