"""What only files and real processes can show of a store: modes, links, locks, forks, deaths, full disks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import (
    ActiveWriter,
    RolloutExists,
    RolloutUnreadable,
    RolloutWriteError,
    ThreadNotFound,
    UnwrittenItems,
)
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import GitInfo, SessionMeta
from protocol.response_items import ResponseItem
from rollout.config import RecorderConfig
from rollout.kept import find_kept
from rollout.state import WriterState
from rollout.syscalls import FileCalls
from rollout.unwritten import read_unwritten
from tests.rollout.faulty import EIO, FaultyCalls, Gate, waits_before
from tests.rollout.recorded import eventually, json_lines, texts
from tests.thread_store.conftest import THREAD, line, meta_line
from tests.thread_store.conftest import said as said_by
from tests.thread_store.processes import child
from thread_store.errors import StoreClosed, ThreadsUnwritten
from thread_store.forks.fork import ForkMode
from thread_store.git_info import find_git_info
from thread_store.home import Home
from thread_store.local_store import LocalThreadStore
from thread_store.locks import ThreadLocks, WriterLock
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio

META = SessionMeta(cwd="/srv/demo")

KNOWN = "01960000-0000-7000-8000-0000000000aa"
"""An id that a test fixes, so that both processes know it."""


MODES: tuple[ForkMode, ...] = ("copy", "reference")


def said(text: str) -> RolloutItem:
    return ResponseItem.message("user", text)


@pytest.fixture
def store_of(home: Path) -> Callable[..., LocalThreadStore]:
    def make(folder: Path = home, **how: Any) -> LocalThreadStore:
        return LocalThreadStore(folder, **{"collect_git": False, **how})

    return make


@pytest_asyncio.fixture
async def store(store_of: Callable[..., LocalThreadStore]) -> AsyncIterator[LocalThreadStore]:
    async with store_of() as store:
        yield store


def locks_in(home: Path) -> list[str]:
    """The lock files of threads."""
    return sorted(each.name for each in (home / "thread-writer-locks").glob("*.lock") if each.name[0] != ".")


def files_in(home: Path) -> list[Path]:
    """What must not be deleted, beside the coordination lock."""
    files = sorted(each for each in home.rglob("*") if each.is_file() and each.name != ".coordination.lock")
    return [each for each in files if each.parent != home / "thread-store" / "derived"]


async def begin(store: LocalThreadStore, *texts: str, **how: Any) -> Thread:
    """An open thread that has this on stable storage."""
    thread = await store.create_thread(META, **how)
    thread.record_nowait([said(text) for text in texts])
    await thread.sync()
    return thread


# What is on disk


async def test_thread_that_never_spoke_leaves_nothing(
    store_of: Callable[..., LocalThreadStore], home: Path
) -> None:
    """No rollout, no folder for one, no lock file; while it is open it has its lock."""
    async with store_of() as store:
        thread = await store.create_thread(META)
        assert locks_in(home) == [f"{thread.thread_id}.lock"]
        await thread.aclose()
        discarded = await store.create_thread(META)
        discarded.discard()
        await discarded.aclose()
        assert files_in(home) == []
    assert not (home / "sessions").exists()


@pytest.mark.case("B101")
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
async def test_everything_that_is_made_is_private(
    store_of: Callable[..., LocalThreadStore], home: Path, umask: int
) -> None:
    """Rollouts, locks, forks and reverts are 0600, their folders 0700, whatever the umask."""
    before = os.umask(umask)
    try:
        async with store_of() as store:
            thread = await store.create_thread(META)
            for number in (1, 2):
                async with thread.turn() as turn:
                    turn.user_message(f"question {number}")
            opened = [await store.fork_thread(thread.thread_id, mode=mode) for mode in MODES]
            await thread.aclose()
            opened.append(await store.revert_thread(thread.thread_id, before_turn=2))
            modes = {each: stat.S_IMODE(each.stat().st_mode) for each in [home, *home.rglob("*")]}
            for fork in opened:
                await fork.aclose()
    finally:
        os.umask(before)
    assert [each.suffix for each in modes].count(".jsonl") == 4
    assert [each.suffix for each in modes].count(".lock") == 3 + len([".coordination.lock"])
    assert {
        each.name: mode for each, mode in modes.items() if mode != (0o700 if each.is_dir() else 0o600)
    } == {}


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_home_of_codex_is_a_home(
    store: LocalThreadStore, home: Path, write: Callable[..., Path], mode: str
) -> None:
    """Its threads are found, read and continued as they are; what else it keeps there stays untouched."""
    legacy = mode == "legacy"
    path = write(*codex_thread(legacy=legacy))
    others = {
        home / "state_5.sqlite": b"SQLite format 3\0",
        home / "session_index.jsonl": b'{"id":"x","thread_name":"n","updated_at":"2026-03-04T05:06:07Z"}\n',
        home / "thread-writer-locks" / "notes.txt": b"not a lock",
    }
    for other, data in others.items():
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(data)
    (home / "thread-writer-locks" / f"{THREAD}.lock").touch(mode=0o644)
    before = path.read_bytes()
    async with await store.open_thread(THREAD) as thread:
        thread.record_nowait(said("ours"))
    assert await store.list_ids() == [THREAD]
    history = await store.read_thread(THREAD)
    assert (history.meta.originator, history.warnings) == ("codex_cli_rs", [])
    assert texts(path) == ["theirs", "ours"]
    assert path.read_bytes().startswith(before)
    added = [each for each in json_lines(path) if each["type"] == "response_item"][-1]
    assert added.get("ordinal") == (None if legacy else 5)
    assert {other: other.read_bytes() for other in others} == others
    assert locks_in(home) == []


def codex_thread(*, legacy: bool) -> list[Any]:
    """A thread of one turn as Codex leaves it."""
    lines = [
        meta_line(originator="codex_cli_rs", cli_version="0.171.0"),
        line(1, "event_msg", {"type": "task_started", "turn_id": "t1", "model_context_window": 1000}),
        line(2, "response_item", said_by("user", "theirs")),
        line(3, "event_msg", {"type": "user_message", "message": "theirs"}),
        line(4, "event_msg", {"type": "task_complete", "turn_id": "t1", "last_agent_message": None}),
    ]
    if legacy:
        lines[0]["payload"]["history_mode"] = "legacy"
        for each in lines:
            del each["ordinal"]
    return lines


@pytest.mark.case("B97")
@pytest.mark.parametrize("planted", ["lock", "folder of locks", "rollout"])
async def test_planted_link_is_refused(
    store: LocalThreadStore, home: Path, tmp_path: Path, write: Callable[..., Path], planted: str
) -> None:
    """Nothing is written through it, whatever it stands for."""
    path = write(*codex_thread(legacy=False))
    target = tmp_path / "elsewhere"
    places = {
        "lock": home / "thread-writer-locks" / f"{THREAD}.lock",
        "folder of locks": home / "thread-writer-locks",
        "rollout": path,
    }
    place = places[planted]
    place.parent.mkdir(exist_ok=True)
    if planted == "rollout":
        path.rename(target)
    elif planted == "lock":
        target.write_bytes(b"precious")
    else:
        target.mkdir()
    place.symlink_to(target)
    before = target.read_bytes() if target.is_file() else None
    with pytest.raises((RolloutUnreadable, ThreadNotFound)):
        await store.open_thread(THREAD)
    if before is None:
        assert list(target.iterdir()) == []
    else:
        assert target.read_bytes() == before


async def test_revert_of_a_legacy_thread_is_on_disk_when_it_is_reported(
    store: LocalThreadStore, home: Path
) -> None:
    """As that of a paginated one is."""
    async with await store.create_thread(SessionMeta(cwd="/srv", history_mode="legacy")) as thread:
        for number in (1, 2):
            async with thread.turn() as turn:
                turn.user_message(f"question {number}")
    slow = RecorderConfig(linger_seconds=3600.0, sync_seconds=3600.0)
    reverted = await store.revert_thread(thread.thread_id, before_turn=2, config=slow)
    last = json_lines(Path(thread.path))[-1]
    assert last["payload"] == {"type": "thread_rolled_back", "num_turns": 1}
    assert reverted.health.pending_items == 0
    await reverted.aclose()


# Several processes

HOLD = """
async def main(home, thread_id):
    async with store_of(home) as store:
        async with await store.create_thread(SessionMeta(cwd="/srv", id=thread_id)) as thread:
            thread.record_nowait(said("a"))
            await thread.sync()
            tell("holds")
            await told()
    tell("closed")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.case("B32")
@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("linked", [False, True], ids=["same path", "through a link"])
async def test_second_process_is_told_who_writes(
    store_of: Callable[..., LocalThreadStore], home: Path, tmp_path: Path, linked: bool
) -> None:
    """Also if it comes through a linked home; once the first has closed, it gets in."""
    second_way = tmp_path / "link"
    second_way.symlink_to(home)
    with child(HOLD, home, KNOWN) as other:
        other.expect("holds")
        async with store_of(second_way if linked else home) as store:
            with pytest.raises(ActiveWriter) as caught:
                await store.open_thread(KNOWN)
            holder = caught.value.holder
            assert (holder.pid, holder.host) == (other.pid, os.uname().nodename)
            assert holder.since is not None
            assert "python" in (holder.command or "")
            assert caught.value.thread_id == KNOWN
            other.tell()
            other.expect("closed")
            async with await store.open_thread(KNOWN) as thread:
                thread.record_nowait(said("b"))
            assert texts(Path(thread.path)) == ["a", "b"]


@pytest.mark.case("B28")
@pytest.mark.guarantee("G4")
async def test_lock_of_a_killed_process_is_had_at_once(store: LocalThreadStore, home: Path) -> None:
    """Nobody waits for a time to pass, and no lock file stays behind."""
    with child(HOLD, home, KNOWN) as other:
        other.expect("holds")
        other.kill()
        async with await store.open_thread(KNOWN) as thread:
            thread.record_nowait(said("b"))
    assert texts(Path(thread.path)) == ["a", "b"]
    assert locks_in(home) == []


async def test_store_removes_the_locks_of_the_dead(
    store_of: Callable[..., LocalThreadStore], home: Path
) -> None:
    """When it opens; those of the living stay."""
    with child(HOLD, home, KNOWN) as living, child(HOLD, home, ThreadId.new()) as dead:
        living.expect("holds")
        dead.expect("holds")
        dead.kill()
        assert len(locks_in(home)) == 2
        async with store_of():
            assert locks_in(home) == [f"{KNOWN}.lock"]


KILLED = """
from thread_store.locks.calls import LockCalls

def deadly(owner, name, nth, when):
    real, left = getattr(owner, name), int(nth)

    def call(*arguments, **how):
        nonlocal left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **how)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)

async def main(home, thread_id, what, owner, name, nth, when):
    async with store_of(home) as store:
        if what == "open":
            async with await store.create_thread(SessionMeta(cwd="/srv", id=thread_id)) as thread:
                thread.record_nowait(said("a"))
        deadly({"file": FileCalls, "lock": LockCalls}[owner], name, nth, when)
        if what == "open":
            thread = await store.open_thread(thread_id)
        else:
            thread = await store.create_thread(SessionMeta(cwd="/srv", id=thread_id))
        thread.record_nowait(said("b"))
        await thread.sync()
        await thread.aclose()
    tell("survived")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.guarantee("G4")
@pytest.mark.parametrize(
    ("what", "owner", "name", "nth"),
    [
        ("create", "lock", "flock", 2),
        ("create", "lock", "overwrite", 1),
        ("create", "file", "make_folder", 2),
        ("create", "file", "open_new", 1),
        ("create", "file", "write", 1),
        ("create", "file", "datasync", 1),
        ("create", "lock", "unlink", 1),
        ("open", "lock", "flock", 2),
        ("open", "lock", "overwrite", 1),
        ("open", "file", "open_append", 1),
        ("open", "file", "write", 1),
        ("open", "lock", "unlink", 1),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_process_killed_anywhere_leaves_a_thread_that_goes_on(
    store_of: Callable[..., LocalThreadStore],
    home: Path,
    what: str,
    owner: str,
    name: str,
    nth: int,
    when: str,
) -> None:
    """Around each call of its beginning and its end: its id can be used at once, nothing is lost or twice."""
    with child(KILLED, home, KNOWN, what, owner, name, nth, when) as other:
        assert other.end() == -signal.SIGKILL
        assert other.line() == ""
    async with store_of() as store:
        assert locks_in(home) == []
        async with await open_or_create(store, KNOWN) as thread:
            thread.record_nowait(said("c"))
        found = texts(Path(thread.path))
        assert found in (["c"], ["b", "c"]) if what == "create" else (["a", "c"], ["a", "b", "c"])
        assert await store.list_ids() == [KNOWN]
        assert (await store.read_thread(KNOWN)).warnings == []
    assert locks_in(home) == []


async def open_or_create(store: LocalThreadStore, thread_id: str) -> Thread:
    """As a program does that was restarted and knows its id."""
    try:
        return await store.create_thread(SessionMeta(cwd="/srv", id=thread_id))
    except RolloutExists:
        return await store.open_thread(thread_id)


# The end of a process

LEAVE = """
async def main(home, how):
    store = store_of(home)
    await store.__aenter__()
    threads = [await store.create_thread() for _ in range(3)]
    for thread in threads:
        thread.record_nowait(said(thread.thread_id))
    return store, threads

warnings.simplefilter("ignore", ResourceWarning)
store, threads = asyncio.run(main(*sys.argv[1:]))
print(*(thread.thread_id for thread in threads))
if sys.argv[2] == "dropped":
    del threads
elif sys.argv[2] == "raised":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("how", ["held", "dropped", "raised"])
async def test_process_that_forgets_to_close_loses_nothing(home: Path, how: str) -> None:
    """At its exit all threads are drained, and no lock file stays."""
    with child(LEAVE, home, how) as other:
        ids = other.line().split()
        assert other.end() == (3 if how == "raised" else 0)
    assert locks_in(home) == []
    found = {texts(path)[0]: json_lines(path)[-1] for path in files_in(home)}
    assert sorted(found) == sorted(ids)
    assert {last["payload"]["event"] for last in found.values()} == {"closed"}


LATE_RELEASE = """
import atexit, gc

async def begin(home):
    store = store_of(home)
    await store.__aenter__()
    thread = await store.create_thread()
    thread.record_nowait(said("a"))
    await thread.sync()
    return store, thread

warnings.simplefilter("ignore", ResourceWarning)
store, thread = asyncio.run(begin(sys.argv[1]))
path = thread.path
tell("holds", path)
sys.stdin.readline()
del thread
gc.collect()
atexit.register(tell, "exiting")
"""


async def test_process_waits_at_its_exit_for_the_locks_that_it_gives_back(home: Path) -> None:
    """Somebody may hold the coordination lock just then; the lock file goes away all the same."""
    with child(LATE_RELEASE, home) as other:
        path = Path(other.expect("holds"))
        with ThreadLocks(home).coordinated():
            other.tell()
            other.expect("exiting")
            await eventually(lambda: b'"closed"' in path.read_bytes())
        assert other.end() == 0
    assert locks_in(home) == []
    assert texts(path) == ["a"]


async def test_dropped_handle_is_drained_and_frees_its_lock(store: LocalThreadStore, home: Path) -> None:
    """It warns, and the thread can be opened again as soon as that is done."""
    thread = await store.create_thread(META)
    thread.record_nowait(said("a"))
    path, thread_id = Path(thread.path), thread.thread_id
    with pytest.warns(ResourceWarning, match=thread_id):
        del thread
        gc.collect()
    await eventually(lambda: locks_in(home) == [])
    async with await store.open_thread(thread_id) as again:
        again.record_nowait(said("b"))
    assert texts(path) == ["a", "b"]


# Forks of the process

FORKED = """
import thread_store.thread
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks
thread_store.thread.RELEASE_SECONDS_MAX = 3600.0    # who waits for it in the child waits for ever

async def begin(home, thread_id):
    store = store_of(home)
    await store.__aenter__()
    thread = await store.create_thread(SessionMeta(cwd="/srv", id=thread_id))
    thread.record_nowait(said("a"))
    await thread.flush()
    thread.record_nowait(said("pending"))
    return store, thread

async def try_all(store, thread):
    async def record():
        thread.record_nowait(said("child"))

    for kind, call in [
        (RecorderClosed, record),
        (RecorderClosed, thread.sync),
        (StoreClosed, store.create_thread),
        (StoreClosed, lambda: store.open_thread(thread.thread_id)),
        (StoreClosed, lambda: store.read_thread(thread.thread_id)),
        (StoreClosed, store.aclose),
    ]:
        try:
            await call()
        except kind:
            continue
        tell("no error", kind, call)
    await thread.aclose()
    tell("tried")

async def own_store(home):
    async with store_of(home) as store, await store.create_thread(SessionMeta(cwd="/own")) as thread:
        thread.record_nowait(said("own"))
    tell("tried")

async def finish(store, thread):
    thread.record_nowait(said("parent"))
    await thread.aclose()
    await store.aclose()
    tell("closed")

home, thread_id, how = sys.argv[1:]
store, thread = asyncio.run(begin(home, thread_id))
pid = os.fork()
if pid == 0:
    if how == "own store":
        asyncio.run(own_store(home))
    else:
        asyncio.run(try_all(store, thread))
    if how == "stays":
        signal.pause()
    sys.exit(0) if how == "exits" else os._exit(0)
if how != "stays":
    os.waitpid(pid, 0)
tell("forked")
sys.stdin.readline()
asyncio.run(finish(store, thread))
sys.stdin.readline()
os.kill(pid, signal.SIGKILL) if how == "stays" else None
"""


@pytest.mark.case("B36")
@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("how", ["exits", "leaves", "stays", "own store"])
async def test_forked_child_is_closed_and_its_parent_goes_on(
    store: LocalThreadStore, home: Path, how: str
) -> None:
    """In the child the store and its threads are closed; the parent keeps its lock as long as it wants, and
    no longer, though the child lives on; nothing is written twice."""
    with child(FORKED, home, KNOWN, how) as other:
        words = [other.line(), other.line()]
        assert sorted(words) == ["forked", "tried"]
        with pytest.raises(ActiveWriter) as caught:
            await store.open_thread(KNOWN)
        assert caught.value.holder.pid == other.pid
        other.tell()
        other.expect("closed")
        async with await store.open_thread(KNOWN) as thread:
            thread.record_nowait(said("after"))
        other.tell()
        assert other.end() == 0
    assert texts(Path(thread.path)) == ["a", "pending", "parent", "after"]
    assert locks_in(home) == []


INHERITED = """
import subprocess

async def main(home, thread_id):
    async with store_of(home) as store:
        async with await store.create_thread(SessionMeta(cwd="/srv", id=thread_id)) as thread:
            thread.record_nowait(said("a"))
            await thread.sync()
            for name in os.listdir("/proc/self/fd"):
                try:
                    os.set_inheritable(int(name), True)
                except OSError:  # the one that listed them
                    continue
            heir = subprocess.Popen(["sleep", "600"], close_fds=False)
            tell("inherited", heir.pid)
        tell("closed")
        await told()
    heir.kill()
    heir.wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.case("B37")
async def test_subprocess_with_our_descriptors_keeps_no_lock(store: LocalThreadStore, home: Path) -> None:
    """Whoever closes a thread gives its locks up for every descriptor, inherited ones too."""
    with child(INHERITED, home, KNOWN) as other:
        other.expect("inherited")
        other.expect("closed")
        async with await store.open_thread(KNOWN) as thread:
            thread.record_nowait(said("b"))
        other.tell()
        assert other.end() == 0
    assert texts(Path(thread.path)) == ["a", "b"]


# Closing the store

SOON = RecorderConfig(
    close_seconds=0.2, retry_seconds_min=0.001, retry_seconds_max=0.005, sync_seconds=3600.0
)
"""Gives a disk that hangs up soon; syncs only when asked to."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyCalls:
    """The system calls of all rollouts that are created."""
    calls = FaultyCalls()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: calls)
    return calls


@pytest.mark.case("B27")
async def test_store_on_a_stuck_disk_tells_of_each_thread(
    store_of: Callable[..., LocalThreadStore], disk: FaultyCalls
) -> None:
    """It closes all the same, and says of each where its items are, which are whole there."""
    store = await store_of(config=SOON).__aenter__()
    threads = [await begin(store, "durable") for _ in range(3)]
    gate = Gate()
    disk.arm("datasync", waits_before(gate), times=None)
    for thread in threads:
        thread.record_nowait(said("pending"))
    with pytest.raises(ThreadsUnwritten) as caught:
        await store.aclose()
    errors = caught.value.errors
    assert sorted(errors) == sorted(thread.thread_id for thread in threads)
    for thread in threads:
        error = errors[thread.thread_id]
        assert isinstance(error, UnwrittenItems)
        assert [each.path for each in find_kept(thread.path)] == [error.kept_path]
        kept = read_unwritten(error.kept_path or "")
        assert kept.header.thread_id == thread.thread_id
        assert b"pending" in b"".join(kept.lines)
        assert b"durable" not in b"".join(kept.lines)
    gate.open()


async def test_store_closes_its_threads_at_the_same_time(
    store_of: Callable[..., LocalThreadStore], disk: FaultyCalls
) -> None:
    """So one deadline holds for all: a sync that waits for the others' is no trouble."""
    store = await store_of(config=RecorderConfig(sync_seconds=3600.0)).__aenter__()
    threads = [await begin(store, "a") for _ in range(4)]
    meeting = threading.Barrier(len(threads))

    def meet(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        meeting.wait(60)
        return calls.perform(name, arguments)

    disk.arm("datasync", meet, times=None)
    for thread in threads:
        thread.record_nowait(said("b"))
    await store.aclose()
    assert [texts(Path(thread.path)) for thread in threads] == [["a", "b"]] * len(threads)


async def test_disk_that_refuses_one_thread_keeps_no_other_from_closing(
    store_of: Callable[..., LocalThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error tells of that one alone."""
    store = await store_of(config=SOON).__aenter__()
    fine, poor = await begin(store, "a"), await begin(store, "a")
    real, refused = FileCalls.write, os.stat(poor.path).st_ino

    def write(self: FileCalls, descriptor: int, data: memoryview | bytes) -> int:
        if os.fstat(descriptor).st_ino == refused:
            raise OSError(EIO, os.strerror(EIO))
        return real(self, descriptor, data)

    monkeypatch.setattr(FileCalls, "write", write)
    for thread in (fine, poor):
        thread.record_nowait(said("b"))
    with pytest.raises(ThreadsUnwritten) as caught:
        await store.aclose()
    assert list(caught.value.errors) == [poor.thread_id]
    assert [texts(Path(each.path)) for each in (fine, poor)] == [["a", "b"], ["a"]]


async def test_cancelled_close_goes_on(
    store_of: Callable[..., LocalThreadStore], disk: FaultyCalls, home: Path
) -> None:
    """Its caller stops waiting; a second call waits for the same end."""
    store = await store_of().__aenter__()
    thread = await begin(store, "a")
    gate = Gate()
    disk.arm("datasync", waits_before(gate))
    thread.record_nowait(said("b"))
    closing = asyncio.create_task(store.aclose())
    await eventually(gate.reached.is_set)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    gate.open()
    await store.aclose()
    assert texts(Path(thread.path)) == ["a", "b"]
    assert locks_in(home) == []


@pytest.mark.case("B22")
async def test_bug_in_one_writer_takes_no_other_thread_with_it(
    store_of: Callable[..., LocalThreadStore], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own calls raise the bug, its items are kept and its lock is free; the others go on."""
    store = await store_of().__aenter__()
    sick, sound = await begin(store, "a"), await begin(store, "a")
    real = FileCalls.write

    def write(self: FileCalls, descriptor: int, data: memoryview | bytes) -> int:
        if b"sick" in bytes(data):
            raise ZeroDivisionError
        return real(self, descriptor, data)

    monkeypatch.setattr(FileCalls, "write", write)
    sick.record_nowait(said("sick"))
    with pytest.raises(RolloutWriteError, match="ZeroDivisionError"):
        await sick.flush()
    monkeypatch.undo()
    with pytest.raises(RolloutWriteError, match="ZeroDivisionError"):
        sick.record_nowait(said("more"))
    sound.record_nowait(said("b"))
    await sound.sync()
    assert texts(Path(sound.path)) == ["a", "b"]
    await eventually(lambda: locks_in(home) == [f"{sound.thread_id}.lock"])
    async with await store.open_thread(sick.thread_id) as again:
        again.record_nowait(said("after"))
    await store.aclose()
    assert texts(Path(sick.path)) == ["a", "after"]


async def test_thread_that_is_begun_while_the_store_closes_is_closed_too(
    store_of: Callable[..., LocalThreadStore], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller is told, or gets a closed thread; no lock and no OS thread stays behind."""
    gate = Gate()
    real = Home.new_rollout_path

    def wait(self: Home, *arguments: Any, **how: Any) -> Path:
        gate.wait()
        return real(self, *arguments, **how)

    before = threading.active_count()
    store = await store_of().__aenter__()
    monkeypatch.setattr(Home, "new_rollout_path", wait)
    creating = asyncio.create_task(store.create_thread(META))
    await eventually(gate.reached.is_set)
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0)
    gate.open()
    await closing
    [outcome] = await asyncio.gather(creating, return_exceptions=True)
    assert isinstance(outcome, StoreClosed) or outcome.health.state is WriterState.CLOSED  # type: ignore[union-attr]
    assert locks_in(home) == []
    await eventually(lambda: threading.active_count() <= before)


async def test_store_closes_though_all_its_openings_hang(
    store_of: Callable[..., LocalThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that keeps everybody who opens waiting doesn't keep the store from closing what is open."""
    monkeypatch.setattr("thread_store.open_threads.RELEASE_SECONDS_MAX", 0.05)
    store = await store_of().__aenter__()
    thread = await begin(store, "a")
    gate = Gate()
    real = Home.find_thread

    def wait(self: Home, thread_id: str) -> Path:
        gate.wait()
        return real(self, thread_id)

    monkeypatch.setattr(Home, "find_thread", wait)
    opening = [asyncio.create_task(store.open_thread(KNOWN)) for _ in range(8)]
    await eventually(gate.reached.is_set)
    thread.record_nowait(said("b"))
    await store.aclose()
    assert texts(Path(thread.path)) == ["a", "b"]
    gate.open()
    outcomes = await asyncio.gather(*opening, return_exceptions=True)
    assert {type(each) for each in outcomes} <= {StoreClosed, ThreadNotFound}


async def test_cancelled_entry_leaves_no_service(store_of: Callable[..., LocalThreadStore]) -> None:
    """Nor does one that fails."""
    before = threading.active_count()
    entering = asyncio.create_task(store_of().__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await eventually(lambda: threading.active_count() <= before)


async def test_failed_entry_leaves_no_service(store_of: Callable[..., LocalThreadStore], home: Path) -> None:
    """A home whose locks can't be looked at is refused, and nothing runs on."""
    before = threading.active_count()
    home.mkdir()
    (home / "thread-writer-locks").write_text("no folder")
    with pytest.raises(RolloutUnreadable):
        await store_of().__aenter__()
    await eventually(lambda: threading.active_count() <= before)


async def test_store_is_entered_once(store: LocalThreadStore) -> None:
    """It says so; a new one is a line away."""
    with pytest.raises(StoreClosed):
        await store.__aenter__()


async def test_many_threads_leave_no_descriptor_and_no_os_thread(store: LocalThreadStore) -> None:
    """300 times written and closed: as many descriptors as before, and no thread too many."""
    service, files, syncs = 1, 4, 8

    async def cycle() -> None:
        async with await store.create_thread(META) as thread:
            thread.record_nowait(said("a"))

    for _ in range(8):
        await cycle()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(300):
        await cycle()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    own = [each for each in threading.enumerate() if each.name.startswith("rollout-store")]
    assert len(own) <= service + files + syncs


# Where the agent works


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit on a branch, and an origin whose URL holds a password."""
    folder = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", "-b", "work", str(folder)], check=True)
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(folder, "remote", "add", "origin", "https://me:secret@example.org/demo.git")
    return folder


async def test_meta_says_what_git_says(
    store_of: Callable[..., LocalThreadStore], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit, branch and origin as they are when the thread begins; what the caller gives goes first."""
    monkeypatch.setattr("thread_store.local_store.GIT_SECONDS_MAX", 30.0)
    given = GitInfo("0" * 40, "elsewhere", None)
    async with store_of(collect_git=True) as store:
        thread = await store.create_thread(SessionMeta(cwd=str(repository)))
        git(repository, "checkout", "-q", "-b", "later")
        thread.record_nowait(said("a"))
        await thread.flush()
        told = await store.create_thread(SessionMeta(cwd=str(repository), git=given))
        assert told.meta.git == given
        meta = json_lines(Path(thread.path))[0]["payload"]
        await told.aclose()
        await thread.aclose()
    assert meta["git"] == {
        "commit_hash": git(repository, "rev-parse", "HEAD"),
        "branch": "work",
        "repository_url": "https://example.org/demo.git",
    }


@pytest.mark.case("B111")
@pytest.mark.parametrize("script", ["exec sleep 600", "exit 3", None], ids=["slow", "failing", "absent"])
async def test_git_keeps_no_thread_waiting(
    store_of: Callable[..., LocalThreadStore],
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str | None,
) -> None:
    """Twelve threads begin at once: each has asked git for its time at most, and knows nothing of it."""
    monkeypatch.setattr("thread_store.local_store.GIT_SECONDS_MAX", 0.3)
    folder = tmp_path / "bin"
    folder.mkdir()
    if script is not None:
        (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin" if script else str(folder))
    asked: list[float] = []
    real = find_git_info

    def find(*arguments: Any, seconds_max: float) -> GitInfo | None:
        asked.append(seconds_max)
        return real(*arguments, seconds_max=seconds_max)

    monkeypatch.setattr("thread_store.local_threads.find_git_info", find)
    async with store_of(collect_git=True) as store:
        meta = SessionMeta(cwd=str(repository))
        threads = await asyncio.gather(*(store.create_thread(meta) for _ in range(12)))
        assert {thread.meta.git for thread in threads} == {None}
        for thread in threads:
            await thread.aclose()
    if script == "exec sleep 600":
        assert len(asked) <= 8, "who comes late has no time left to ask"
    assert all(0 < seconds <= 0.3 for seconds in asked)


@pytest.mark.case("B110")
@pytest.mark.parametrize("fate", ["gone", "moved", "never there"])
async def test_folder_of_a_thread_may_go_away(
    store_of: Callable[..., LocalThreadStore], tmp_path: Path, fate: str
) -> None:
    """The thread is begun, listed, read, continued and forked all the same, and says where it was."""
    folder = tmp_path / "project"
    if fate != "never there":
        folder.mkdir()
    async with store_of(collect_git=True) as store:
        thread = await store.create_thread(SessionMeta(cwd=str(folder)))
        if fate == "gone":
            folder.rmdir()
        elif fate == "moved":
            folder.rename(tmp_path / "moved")
        thread.record_nowait(said("a"))
        await thread.aclose()
        async with await store.open_thread(thread.thread_id) as again:
            again.record_nowait(said("b"))
        fork = await store.fork_thread(thread.thread_id)
        assert (again.meta.cwd, fork.meta.cwd) == (str(folder), str(folder))
        await fork.aclose()
        assert sorted(await store.list_ids()) == sorted([thread.thread_id, fork.thread_id])
    assert texts(Path(thread.path)) == texts(Path(fork.path)) == ["a", "b"]


async def test_own_folder_that_is_gone_is_an_error_of_the_caller(home: Path, tmp_path: Path) -> None:
    """A process whose working folder was removed begins threads with a `cwd` of its choice."""
    script = """
async def main(home):
    async with LocalThreadStore(home) as store:
        try:
            await store.create_thread()
        except FileNotFoundError:
            tell("refused")
        async with await store.create_thread(SessionMeta(cwd="/srv")) as thread:
            thread.record_nowait(said("a"))
    tell("closed")

asyncio.run(main(sys.argv[1]))
"""
    folder = tmp_path / "working"
    folder.mkdir()
    with child(f"os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})\n{script}", home) as other:
        other.expect("refused")
        other.expect("closed")
        assert other.end() == 0


async def test_lock_that_cannot_be_looked_at_leaves_nothing_open(
    store: LocalThreadStore, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening fails with an error of ours, and the next one finds the thread free: file, lock and all."""
    thread = await begin(store, "first")
    await thread.aclose()
    before = len(os.listdir("/proc/self/fd"))

    def fail(lock: WriterLock, minimum: int) -> None:
        raise OSError(EIO, os.strerror(EIO), lock.path)

    with monkeypatch.context() as patched, pytest.raises(RolloutUnreadable):
        patched.setattr(WriterLock, "raise_fence", fail)
        await store.open_thread(thread.thread_id)
    assert locks_in(home) == []
    assert len(os.listdir("/proc/self/fd")) == before
    async with await store.open_thread(thread.thread_id) as again:
        again.record_nowait(said("second"))
    assert texts(Path(thread.path)) == ["first", "second"]


@pytest.mark.parametrize("mode", ["copy", "reference"])
async def test_fork_that_cannot_be_opened_is_not_made(
    store: LocalThreadStore, home: Path, monkeypatch: pytest.MonkeyPatch, mode: ForkMode
) -> None:
    """Who is told that it failed tries again: there must not be two."""
    thread = await begin(store, "a")
    before = files_in(home)

    def refuse(self: WriterLock, minimum: int) -> None:
        raise OSError(EIO, "bad disk")

    with monkeypatch.context() as patch:
        patch.setattr(WriterLock, "raise_fence", refuse)
        with pytest.raises(RolloutUnreadable):
            await store.fork_thread(thread.thread_id, mode=mode)
    assert files_in(home) == before
    fork = await store.fork_thread(thread.thread_id, mode=mode)
    await fork.aclose()
