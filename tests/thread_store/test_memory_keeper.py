"""The keeper of an open thread's fold: its records are true whatever happens to the file."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import EventMsg, ResponseItem, SessionMeta, ToolVerdict, tracks
from protocol.own import MemoryItem
from rollout import RecorderConfig
from rollout.syscalls import FileCalls
from tests.thread_store.processes import child
from thread_store import LocalThreadStore, Thread
from thread_store.chain.lineage import Lineage, LineageRecord
from thread_store.folding.memory_keeper import MEMORY_EVERY_RECORDS, MemoryKeeper
from thread_store.folding.thread_folding import fold_lineage
from thread_store.home import Home

pytestmark = pytest.mark.asyncio

META = SessionMeta(cwd="/srv")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as opened:
        yield opened


def said(number: int) -> Any:
    return ResponseItem.message("assistant", f"step {number}")


def types(path: str) -> list[str]:
    """Of all lines, in order."""
    with Lineage.resolve(path, home_of(path)) as lineage:
        return [str(found.record.line.type) for found in lineage.forward() if found.record.line is not None]


def home_of(path: str) -> Home:
    return Home(Path(path).parents[4])


def memories(lineage: Lineage) -> list[LineageRecord]:
    return [
        each
        for each in lineage.forward()
        if each.record.line is not None and each.record.line.type == "x_memory"
    ]


def require_true(path: str) -> int:
    """Each `x_memory` of a rollout alone leads to the state that all lines give; returns how many."""
    with Lineage.resolve(path, home_of(path)) as lineage:
        whole = fold_lineage(lineage, deep=True).fold.snapshot(0)
        found = memories(lineage)
        for memory in found:
            assert fold_lineage(lineage, [memory]).fold.snapshot(0) == whole
            # It covers no byte that stands behind it.
            line = memory.record.line
            item = None if line is None else line.item()
            assert isinstance(item, MemoryItem)
            assert item.upto_offset <= memory.record.offset
        return len(found)


async def test_long_thread_has_a_memory_near_its_end(store: LocalThreadStore) -> None:
    """At most a thousand records before it, and what was accepted while the last one was made."""
    thread = await store.create_thread(META)
    for number in range(10_000):
        await thread.record(said(number))
        if number % 500 == 0:
            await thread.flush()
    await thread.aclose()
    kinds = types(thread.path)
    assert require_true(thread.path) >= 2
    behind = kinds[::-1].index("x_memory")
    assert behind <= MEMORY_EVERY_RECORDS + 500


@pytest.mark.parametrize("how", ["closed", "store closed", "flushed"])
async def test_memory_follows_a_checkpoint(tmp_path: Path, how: str) -> None:
    """Also where the thread is closed right behind it."""
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
        thread = await store.create_thread(META)
        thread.record_nowait(tracks.user_message("go"))
        thread.record_nowait(tracks.compaction("short", []))
        if how == "flushed":
            await thread.flush()
        if how != "store closed":
            await thread.aclose()
    kinds = types(thread.path)
    assert "x_memory" in kinds[kinds.index("compacted") :]
    assert require_true(thread.path) == 1


async def test_thousands_of_tiny_flushes_make_no_more_memories(store: LocalThreadStore) -> None:
    """It is the records that count, not the writes."""
    thread = await store.create_thread(META)
    for number in range(2_500):
        await thread.record(said(number))
        await thread.flush()
    await thread.aclose()
    assert 1 <= require_true(thread.path) <= 3


def unlink(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace_by_copy(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    os.replace(copy, path)


def add_foreign_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"warning",')
        file.write(b'"message":"foreign"}}\n')


@pytest.mark.parametrize(
    "disturb", [unlink, cut, replace_by_copy, add_foreign_line], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("seed", [1, 2])
async def test_memory_claims_nothing_that_is_not_so(store: LocalThreadStore, disturb: Any, seed: int) -> None:
    """Another program meddles with the file between checkpoints; every memory is the fold of its lines."""
    rng = random.Random(seed)
    thread = await store.create_thread(META)
    for number in range(12):
        thread.record_nowait(EventMsg.user_message(f"ask {number}"))
        thread.record_nowait([said(each) for each in range(rng.randint(1, 30))])
        if rng.random() < 0.6:
            thread.record_nowait(tracks.compaction(f"short {number}", []))
        if number in (4, 8):
            await thread.flush()
            disturb(Path(thread.path))
        if rng.random() < 0.5:
            await thread.flush()
    await thread.sync()
    await thread.aclose()
    assert require_true(thread.path) >= 1


async def test_full_disk_costs_no_memory_its_truth(store: LocalThreadStore, monkeypatch: Any) -> None:
    """Writes fail for a while, short ones among them: what comes then is true, and the last one is there."""
    thread = await store.create_thread(META, config=RecorderConfig(retry_seconds_min=0.01))
    thread.record_nowait(tracks.user_message("go"))
    await thread.sync()
    real, rng = FileCalls.write, random.Random(3)

    def fail(self: FileCalls, descriptor: int, data: Any) -> int:
        if rng.random() < 0.5:
            raise OSError(28, "No space left on device")
        return real(self, descriptor, bytes(data)[: max(1, len(data) // 2)])

    monkeypatch.setattr(FileCalls, "write", fail)
    for number in range(5):
        thread.record_nowait(tracks.compaction(f"short {number}", []))
        thread.record_nowait(said(number))
        await asyncio.sleep(0)
    monkeypatch.setattr(FileCalls, "write", real)
    await thread.sync()
    await thread.aclose()
    kinds = types(thread.path)
    assert "x_memory" in kinds[len(kinds) - 1 - kinds[::-1].index("compacted") :]
    assert require_true(thread.path) >= 1


KILLED = """
import random
from protocol import EventMsg, ResponseItem, tracks

async def main(home, seed):
    rng = random.Random(seed)
    store = store_of(home)
    await store.__aenter__()
    thread = await store.create_thread()
    thread.record_nowait(tracks.user_message("go"))
    await thread.flush()
    tell("path", thread.path)
    number = 0
    while True:
        number += 1
        thread.record_nowait(EventMsg.user_message(f"ask {number}"))
        thread.record_nowait(tracks.tool_call(call_id=f"c{number}", name="send_mail", arguments={}))
        if rng.random() < 0.3:
            thread.record_nowait(tracks.compaction("short", []))
        if rng.random() < 0.3:
            await thread.flush()
        if number % 50 == 0:
            tell("at", number)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("seed", range(4))
async def test_killed_process_leaves_only_true_memories(tmp_path: Path, seed: int) -> None:
    """kill -9 around memories and checkpoints: what stands there is the fold of what stands before it."""
    home = tmp_path / "home"
    with child(KILLED, home, str(seed)) as other:
        path = other.expect("path")
        for _ in range(2 + seed):
            other.expect("at")
        while b'"x_memory"' not in Path(path).read_bytes():  # a loaded machine takes longer
            other.expect("at")
        os.kill(other.pid, signal.SIGKILL)
        other.end()
    assert require_true(path) >= 1


async def test_many_threads_closed_at_once_have_their_memories(tmp_path: Path) -> None:
    """The store closes two hundred threads, each right behind a checkpoint."""
    threads = []
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as store:
        for number in range(200):
            thread = await store.create_thread(META)
            thread.record_nowait(tracks.user_message(f"go {number}"))
            thread.record_nowait(tracks.compaction("short", []))
            threads.append(thread)
    for thread in threads:
        assert require_true(thread.path) == 1
    assert os.listdir(tmp_path / "home" / "thread-writer-locks") == [".coordination.lock"]


def keeper_of(thread: Thread) -> MemoryKeeper:
    keeper = thread._core.writer._place.follower
    assert isinstance(keeper, MemoryKeeper)
    return keeper


async def test_memory_is_at_hand_while_the_thread_is_open(store: LocalThreadStore) -> None:
    """What was flushed is in it, and asking changes nothing."""
    thread = await store.create_thread(META)
    for text in ("first", "second"):
        thread.record_nowait(tracks.user_message(text))
        await thread.flush()
        memory = await asyncio.to_thread(keeper_of(thread).memory)
        assert memory.goal == text
    before = Path(thread.path).read_bytes()
    await asyncio.to_thread(keeper_of(thread).memory)
    assert Path(thread.path).read_bytes() == before
    await thread.aclose()


async def test_forked_child_has_a_memory_of_its_own(store: LocalThreadStore) -> None:
    """Whoever held the keeper when the process forked goes on in the parent only."""
    thread = await store.create_thread(META)
    thread.record_nowait(tracks.user_message("go"))
    await thread.flush()
    keeper = keeper_of(thread)
    with keeper._reading:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if keeper.memory().goal == "go" else 1)
    assert await asyncio.to_thread(os.waitpid, pid, 0) == (pid, 0)
    thread.record_nowait(tracks.compaction("short", []))
    await thread.aclose()
    assert require_true(thread.path) == 1


async def test_open_call_is_in_the_memory_behind_its_checkpoint(store: LocalThreadStore) -> None:
    """What a compaction takes out of the model's sight blocks all the same."""
    thread = await store.create_thread(META)
    thread.record_nowait(tracks.tool_call(call_id="c1", name="send_mail", arguments={}))
    thread.record_nowait(tracks.compaction("short", []))
    await thread.aclose()
    with Lineage.resolve(thread.path, store.home) as lineage:
        (memory,) = memories(lineage)
        folded = fold_lineage(lineage, [memory])
    assert [(each.call_id, each.verdict) for each in folded.fold.calls.open_calls()] == [
        ("c1", ToolVerdict.UNCERTAIN)
    ]
