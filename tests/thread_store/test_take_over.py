"""Threads taken by force from real processes that hang: at rest, before a write, before a sync."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from protocol.errors import ActiveWriter, RolloutWriteError, ThreadNotFound, WriterFenced
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import Message, ResponseItem
from rollout.kept import find_kept
from rollout.unwritten import read_unwritten
from tests.rollout.recorded import json_lines, texts
from tests.thread_store.processes import Child, child
from thread_store.chain.history import ThreadHistory
from thread_store.errors import ThreadsUnwritten
from thread_store.forks.fork_copy import ForkCalls
from thread_store.local_store import LocalThreadStore

pytestmark = pytest.mark.asyncio

THREAD = "01960000-0000-7000-8000-0000000000bb"

OLD = """
import fcntl, threading

def stop_here():
    # To this very thread: it stands before it executes anything more.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

def stop_before(name):
    real = getattr(FileCalls, name)

    def call(*arguments):
        setattr(FileCalls, name, real)
        stop_here()
        return real(*arguments)

    setattr(FileCalls, name, call)

def refuse(*arguments):
    raise OSError(38, os.strerror(38))

async def outcome(call):
    try:
        await call()
    except WriterFenced as error:
        return f"WriterFenced:{error.holder.pid if error.holder else None}"
    return "fine"

async def main(home, thread_id, mode, where, locks):
    if locks == "lease":
        fcntl.flock = refuse
    async with store_of(home, config=RecorderConfig(sync_seconds=3600.0)) as store:
        thread = await store.create_thread(SessionMeta(cwd="/srv", id=thread_id, history_mode=mode))
        for number in (1, 2):
            async with thread.turn() as turn:
                turn.user_message(f"question {number}")
        await thread.sync()
        tell("holds", thread.path)
        await told()
        if where != "rest":
            stop_before(where)
            thread.record_nowait(said("late"))
            tell("went on", await outcome(thread.sync))
        await told()
        async def record():
            thread.record_nowait(said("later"))
        tell("later", await outcome(record))
        tell("flush", await outcome(thread.flush))
        tell("record", await outcome(record))
        tell("close", await outcome(thread.aclose))

asyncio.run(main(*sys.argv[1:]))
"""


def said(text: str) -> RolloutItem:
    return ResponseItem.message("user", text)


def texts_in(history: ThreadHistory) -> list[str]:
    """The texts on the model's track."""
    return [item.content[0].text for item in history.items() if isinstance(item, Message)]  # type: ignore[union-attr]


@asynccontextmanager
async def store_in(home: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(home, collect_git=False) as store:
        yield store


@contextmanager
def old_writer(
    home: Path, *, mode: str = "paginated", where: str = "rest", locks: str = "flock"
) -> Iterator[Child]:
    """A process that has written two turns and stands still now."""
    with child(OLD, home, THREAD, mode, where, locks) as old:
        old.path = Path(old.expect("holds"))  # type: ignore[attr-defined]
        if where == "rest":
            old.stop()
        else:
            old.tell()
            old.wait_until_stopped()
        yield old


def let_go_on(old: Child, *, where: str = "rest") -> dict[str, str]:
    """It wakes up as if nothing had happened; returns what became of each of its calls."""
    old.go_on()
    told = {}
    if where == "rest":
        old.tell()
    else:
        told["sync"] = old.expect("went")
    old.tell()
    told |= {name: old.expect(name) for name in ("later", "flush", "record", "close")}
    assert old.end() == 0
    return told


@pytest.fixture
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kind = getattr(request, "param", "flock")
    if kind == "lease":

        def refuse(*arguments: object) -> NoReturn:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr("fcntl.flock", refuse)
    return str(kind)


@pytest.mark.case("B93")
@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("locks", ["flock", "lease"], indirect=True)
@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("where", ["rest", "write", "datasync"])
async def test_nothing_of_a_stopped_writer_gets_into_what_was_taken_from_it(
    home: Path, where: str, mode: str, locks: str
) -> None:
    """Wherever it stood, what it does later changes nothing; it is told so, and its items are kept."""
    with old_writer(home, mode=mode, where=where, locks=locks) as old:
        async with store_in(home) as store:
            with pytest.raises(ActiveWriter) as caught:
                await store.open_thread(THREAD)
            assert caught.value.holder.pid == old.pid
            async with await store.take_over_thread(THREAD) as thread:
                thread.record_nowait(said("new"))
                await thread.sync()
                told = let_go_on(old, where=where)
                thread.record_nowait(said("newer"))
            history = await store.read_thread(THREAD)
    was_written = ["late"] if where == "datasync" else []
    assert texts_in(history) == ["question 1", "question 2", *was_written, "new", "newer"]
    assert (history.warnings, history.problem) == ([], None)
    accepted = told.pop("later") == "fine"  # unless it had found out before
    fenced = f"WriterFenced:{os.getpid()}"
    assert {name: word.removeprefix("on ") for name, word in told.items()} == dict.fromkeys(told, fenced)
    kept = b"".join(line for each in find_kept(old.path) for line in read_unwritten(each.path).lines)  # type: ignore[attr-defined]
    assert (b'"late"' in kept) == (where != "rest")
    assert (b'"later"' in kept) == accepted
    assert_late(history, mode=mode, where=where)


def assert_late(history: ThreadHistory, *, mode: str, where: str) -> None:
    """Of a paginated thread it is named what was written behind the base; a legacy one's is in no file."""
    if mode == "legacy" or where != "write":
        assert history.late == ()
        return
    [late] = history.late
    data = Path(late.path).read_bytes()
    assert late.path == history.rollouts[0]
    assert late.offset_bytes + late.size_bytes == len(data)
    assert b'"late"' in data[late.offset_bytes :]
    assert b'"late"' not in data[: late.offset_bytes]


async def test_thread_that_is_taken_over_says_from_whom(home: Path) -> None:
    """The new rollout rests on the old one and names the writer that had it."""
    with old_writer(home) as old:
        async with store_in(home) as store:
            thread = await store.take_over_thread(THREAD)
            meta = json_lines(Path(thread.path))[0]["payload"]
            await thread.aclose()
        assert meta["id"] == THREAD
        assert meta["x_takeover"]["pid"] == old.pid
        assert meta["x_takeover"]["host"] == os.uname().nodename
        assert Path(thread.path) != old.path  # type: ignore[attr-defined]


async def test_taken_thread_can_be_taken_again(home: Path) -> None:
    """From the second writer as from the first: the late bytes of both are named, none is in the thread."""
    with old_writer(home, where="write") as old:
        async with store_in(home) as first:
            second = await first.take_over_thread(THREAD)
            second.record_nowait(said("second"))
            await second.sync()
            async with store_in(home) as store:
                async with await store.take_over_thread(THREAD) as third:
                    third.record_nowait(said("third"))
                with pytest.raises(WriterFenced):
                    second.record_nowait(said("too late"))
                    await second.flush()
                let_go_on(old, where="write")
                history = await store.read_thread(THREAD)
            with pytest.raises(WriterFenced):
                await second.aclose()
    assert texts_in(history) == ["question 1", "question 2", "second", "third"]
    assert len(history.rollouts) == 3
    assert [each.path for each in history.late] == [history.rollouts[0]]


async def test_thread_taken_from_a_handle_of_the_same_store_fences_that(home: Path) -> None:
    """The store closes both, and tells of the one that lost its lock."""
    store = await LocalThreadStore(home, collect_git=False).__aenter__()
    mine = await store.create_thread(SessionMeta(cwd="/srv"))
    mine.record_nowait(said("a"))
    await mine.sync()
    taken = await store.take_over_thread(mine.thread_id)
    taken.record_nowait(said("b"))
    with pytest.raises(WriterFenced):
        await mine.flush()
    with pytest.raises(ThreadsUnwritten) as caught:
        await store.aclose()
    assert {name: type(error) for name, error in caught.value.errors.items()} == {
        mine.thread_id: WriterFenced
    }
    async with store_in(home) as again:
        assert texts_in(await again.read_thread(mine.thread_id)) == ["a", "b"]


@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_thread_that_nobody_holds_is_just_opened(home: Path, how: str) -> None:
    """There is nothing to be safe from: it goes on in its rollout."""
    with old_writer(home) as old:
        if how == "killed":
            old.kill()
        else:
            let_go_on(old)
        async with store_in(home) as store:
            async with await store.take_over_thread(THREAD) as thread:
                thread.record_nowait(said("new"))
            assert Path(thread.path) == old.path  # type: ignore[attr-defined]
            assert len((await store.read_thread(THREAD)).rollouts) == 1


async def test_thread_without_a_record_has_nothing_to_take_over(home: Path) -> None:
    """Its holder keeps it."""
    async with store_in(home) as store:
        thread = await store.create_thread(SessionMeta(cwd="/srv"))
        with pytest.raises(ThreadNotFound):
            await store.take_over_thread(thread.thread_id)
        thread.record_nowait(said("a"))
        await thread.aclose()
        assert texts(Path(thread.path)) == ["a"]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_taken_thread_is_forked_and_reverted_as_any(home: Path, mode: str) -> None:
    """Late bytes get into no fork, and are no late bytes of a revert to before them."""
    with old_writer(home, where="write", mode=mode) as old:
        async with store_in(home) as store:
            async with await store.take_over_thread(THREAD) as thread, thread.turn() as turn:
                turn.user_message("question 3")
            let_go_on(old, where="write")
            modes: list[Any] = ["copy"] if mode == "legacy" else ["copy", "reference"]
            for each in modes:
                async with await store.fork_thread(THREAD, mode=each) as fork:
                    fork.record_nowait(said(each))
                history = await store.read_thread(fork.thread_id)
                assert texts_in(history) == ["question 1", "question 2", "question 3", each]
                assert history.meta.x_takeover is None
            await (await store.revert_thread(THREAD, before_turn=3)).aclose()
            if mode == "paginated":
                assert texts_in(await store.read_thread(THREAD)) == ["question 1", "question 2"]
            await (await store.revert_thread(THREAD, before_turn=2)).aclose()
            history = await store.read_thread(THREAD)
            if mode == "paginated":
                assert texts_in(history) == ["question 1"]
            assert history.late == ()


async def test_what_a_revert_leaves_behind_is_not_late(home: Path) -> None:
    """Nobody wrote it out of turn."""
    async with store_in(home) as store:
        async with await store.create_thread(SessionMeta(cwd="/srv")) as thread:
            for number in (1, 2):
                async with thread.turn() as turn:
                    turn.user_message(f"question {number}")
        await (await store.revert_thread(thread.thread_id, before_turn=2)).aclose()
        history = await store.read_thread(thread.thread_id)
    assert (texts_in(history), history.late) == (["question 1"], ())


@pytest.mark.case("B94")
async def test_legacy_thread_that_cannot_be_replaced_is_left_as_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the rename is refused nothing is lost, nothing lies about, and nobody holds the thread."""

    def refuse(self: ForkCalls, source: str, target: str) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with old_writer(home, mode="legacy") as old:
        before = sorted((path, path.read_bytes()) for path in home.rglob("*.jsonl*"))
        async with store_in(home) as store:
            with monkeypatch.context() as patched:
                patched.setattr(ForkCalls, "rename", refuse)
                with pytest.raises(RolloutWriteError):
                    await store.take_over_thread(THREAD)
            assert sorted((path, path.read_bytes()) for path in home.rglob("*.jsonl*")) == before
            assert not (home / "thread-writer-locks" / f"{THREAD}.lock").exists()
        told = let_go_on(old)
    assert told["record"] == told["close"] == "WriterFenced:None"
