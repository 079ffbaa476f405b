"""Derived snapshots: coming back reads one small file, and never believes it where the log says otherwise."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import SessionMeta, tracks
from protocol.ids import ThreadId
from protocol.own import MemoryItem
from rollout.syscalls import FileCalls
from tests.thread_store.histories import Script, line, turns, uuid, write_thread
from thread_store import LocalThreadStore
from thread_store.chain.lineage import Lineage
from thread_store.folding.derived_folder import DerivedFolder
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.thread_folding import FoldedThread, fold_lineage
from thread_store.forks.fork import make_fork
from thread_store.home import Home

A, B = uuid(0xA), uuid(0xB)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def told(folded: FoldedThread) -> tuple[MemoryItem, bool, Any]:
    """All that a fold knows."""
    return folded.fold.snapshot(0), folded.whole, folded.upto


def keep(path: Path, home: Home, **options: Any) -> bool:
    """As the keeper does at the end."""
    with Lineage.resolve(path, home) as lineage:
        return DerivedSnapshots(home, **options).write(fold_lineage(lineage), lineage)


def fold(path: Path, home: Home, **options: Any) -> FoldedThread:
    with Lineage.resolve(path, home) as lineage:
        return DerivedSnapshots(home).fold(lineage, **options)


def is_used(path: Path, home: Home) -> bool:
    with Lineage.resolve(path, home) as lineage:
        return DerivedSnapshots(home).find(lineage) is not None


def whole(path: Path, home: Home) -> FoldedThread:
    with Lineage.resolve(path, home) as lineage:
        return fold_lineage(lineage, deep=True)


def file_of(home: Home, thread_id: str = A) -> Path:
    return home.path / "thread-store" / "derived" / f"{thread_id}.snapshot"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def open_call(ordinal: int) -> bytes:
    script = Script(ordinal)
    script.start("late")
    script.user("and now?")
    script.call("late")
    return script.bytes


@pytest.fixture
def kept(home: Home) -> Path:
    """A rollout whose snapshot stands at its end."""
    path = write_thread(home, A, turns(3) + open_call(25))
    assert keep(path, home)
    return path


@pytest.mark.guarantee("G9")
def test_snapshot_and_what_was_added_give_what_all_lines_give(home: Home, kept: Path) -> None:
    """At its end, and behind the log by some lines."""
    assert is_used(kept, home)
    assert told(fold(kept, home)) == told(whole(kept, home))
    append(kept, turns(1, first=9, ordinal=30))
    assert is_used(kept, home)
    assert told(fold(kept, home)) == told(whole(kept, home))


def test_snapshot_ahead_of_the_log_is_replaced(home: Home, kept: Path) -> None:
    """The log lost its last line in a crash: the log is what counts."""
    data = kept.read_bytes()
    kept.write_bytes(data[: data[:-1].rfind(b"\n") + 1])
    assert not is_used(kept, home)
    assert told(fold(kept, home, repair=True)) == told(whole(kept, home))
    assert is_used(kept, home)
    assert told(fold(kept, home)) == told(whole(kept, home))


def test_reader_that_was_not_asked_to_repair_writes_nothing(home: Home, kept: Path) -> None:
    """Nor does one that finds none."""
    data = kept.read_bytes()
    kept.write_bytes(data[: data[:-1].rfind(b"\n") + 1])
    before = file_of(home).read_bytes()
    fold(kept, home)
    assert file_of(home).read_bytes() == before
    file_of(home).unlink()
    fold(kept, home, repair=True)
    assert not file_of(home).exists()


def other_content(path: Path, home: Home) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], lines[-1].replace(b"late", b"LATE")]))


def other_inode(path: Path, home: Home) -> None:
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def other_version(path: Path, home: Home) -> None:
    rewrite(home, lambda content: content.replace(b'"version":1', b'"version":2', 1))


def garbage(path: Path, home: Home) -> None:
    file_of(home).write_bytes(os.urandom(500))


def empty(path: Path, home: Home) -> None:
    file_of(home).write_bytes(b"")


def flipped(path: Path, home: Home) -> None:
    data = bytearray(file_of(home).read_bytes())
    data[-40] ^= 1
    file_of(home).write_bytes(data)


def shortened(path: Path, home: Home) -> None:
    data = file_of(home).read_bytes()
    file_of(home).write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def link(path: Path, home: Home) -> None:
    file_of(home).rename(home.path / "elsewhere")
    file_of(home).symlink_to(home.path / "elsewhere")


def folder(path: Path, home: Home) -> None:
    file_of(home).unlink()
    file_of(home).mkdir()


def pipe(path: Path, home: Home) -> None:
    file_of(home).unlink()
    os.mkfifo(file_of(home))


def no_memory(path: Path, home: Home) -> None:
    rewrite(home, lambda content: content.split(b"\n")[0] + b"\n" + line("x_memory", {"version": 1}))


def rewrite(home: Home, change: Any) -> None:
    """Somebody changed it and its checksum."""
    derived = DerivedFolder(home.path)
    content = derived.read(ThreadId.parse(A))
    assert content is not None
    assert derived.replace(ThreadId.parse(A), change(content), gives_way=lambda _: True)


SPOILED = (other_content, other_inode, other_version, garbage, empty, flipped, shortened, link, folder, pipe)


@pytest.mark.parametrize("spoil", [*SPOILED, no_memory], ids=lambda each: each.__name__)
def test_snapshot_that_does_not_count_is_as_if_there_were_none(home: Home, kept: Path, spoil: Any) -> None:
    """Another file, another version, not whole, no plain file: the log is read, and nothing raises."""
    spoil(kept, home)
    assert not is_used(kept, home)
    assert told(fold(kept, home)) == told(whole(kept, home))


def test_older_snapshot_never_replaces_a_newer_one(home: Home, kept: Path) -> None:
    """Whoever looked before the other wrote keeps its own to itself."""
    with Lineage.resolve(kept, home) as lineage:
        early = fold_lineage(lineage)
        append(kept, turns(1, first=9, ordinal=30))
        assert keep(kept, home)
        before = file_of(home).read_bytes()
        assert not DerivedSnapshots(home).write(early, lineage)
    assert file_of(home).read_bytes() == before


def test_files_are_private_and_nothing_else_is_left(home: Home, kept: Path) -> None:
    """Mode 0600 in folders of 0700, no temporary file."""
    del kept
    for each in (home.path / "thread-store", file_of(home).parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    assert {each.name for each in file_of(home).parent.iterdir()} == {".guard", file_of(home).name}
    assert {stat.S_IMODE(each.stat().st_mode) for each in file_of(home).parent.iterdir()} == {0o600}


@pytest.mark.parametrize("place", ["thread-store", "thread-store/derived"])
def test_folder_that_is_a_link_is_refused(home: Home, tmp_path: Path, place: str) -> None:
    """Nothing is written where a link leads."""
    path = write_thread(home, A, turns(1))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home.path / place).parent.mkdir(exist_ok=True)
    (home.path / place).symlink_to(elsewhere)
    assert not keep(path, home)
    assert list(elsewhere.iterdir()) == []


def test_disk_that_takes_nothing_is_told_of_once(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """It costs nothing but the snapshot; what was there stays, and no temporary file does."""

    class Full(FileCalls):
        def write(self, descriptor: int, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    path = write_thread(home, A, turns(2))
    assert keep(path, home)
    before = file_of(home).read_bytes()
    append(path, turns(1, first=9, ordinal=17))
    snapshots = DerivedSnapshots(home, calls=Full())
    with caplog.at_level(logging.WARNING), Lineage.resolve(path, home) as lineage:
        for _ in range(3):
            assert not snapshots.write(fold_lineage(lineage), lineage)
    assert len(caplog.records) == 1
    assert file_of(home).read_bytes() == before
    assert {each.name for each in file_of(home).parent.iterdir()} == {".guard", file_of(home).name}


def test_list_reads_no_byte_of_an_idle_thread(home: Home, kept: Path, monkeypatch: Any) -> None:
    """One small file tells all that a list shows; of one that goes on nothing is claimed."""
    reads: list[int] = []
    real = os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        data = real(descriptor, size, offset)
        reads.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", count)
    summary = DerivedSnapshots(home).summary(kept)
    assert summary is not None
    assert sum(reads) == file_of(home).stat().st_size
    assert (summary.first_message, summary.last_message) == ("question 1", "and now?")
    assert (summary.cwd, summary.open_calls, summary.blocking_calls) == ("/srv/demo", 1, 1)
    append(kept, turns(1, first=9, ordinal=30))
    assert DerivedSnapshots(home).summary(kept) is None


def test_coming_back_to_a_long_idle_thread_reads_its_end_alone(home: Home, monkeypatch: Any) -> None:
    """However long it is: the start of the file, its last block, the small file, and what was added."""
    sizes = []
    for number, thread_id in ((200, A), (4_000, B)):
        path = write_thread(home, thread_id, turns(number))
        assert keep(path, home)
        append(path, turns(1, first=9, ordinal=8 * number + 1))
        read = 0
        real = os.pread

        def count(descriptor: int, size: int, offset: int, real: Any = real) -> bytes:
            nonlocal read
            data: bytes = real(descriptor, size, offset)
            read += len(data)
            return data

        monkeypatch.setattr(os, "pread", count)
        fold(path, home)
        monkeypatch.setattr(os, "pread", real)
        sizes.append(read)
        assert told(fold(path, home)) == told(whole(path, home))
    assert abs(sizes[1] - sizes[0]) < 1_000
    assert sizes[1] < 2 << 20 < (home.path / "sessions").stat().st_size + path.stat().st_size


def test_reference_is_taken_up_from_its_snapshot_with_its_base(home: Home) -> None:
    """And not where the base is gone: then what it held is unknown, whatever the snapshot remembers."""
    source = write_thread(home, A, turns(2))
    target = home.path / f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
    made = make_fork(source, target, thread_id=B, home=home, mode="reference")
    path = Path(made.path)
    append(path, turns(1, first=10, ordinal=(made.border.end_ordinal or 0) + 1))
    assert keep(path, home)
    assert is_used(path, home)
    assert told(fold(path, home)) == told(whole(path, home))
    source.unlink()
    assert not is_used(path, home)
    assert told(fold(path, home)) == told(whole(path, home))


@pytest.mark.guarantee("G9")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_state_is_the_same_whatever_became_of_the_derived_files(tmp_path_factory: Any, seed: int) -> None:
    """Present, stale, corrupt, of another copy of the home, ahead, or deleted: as without them."""
    rng = random.Random(seed)
    home = Home(tmp_path_factory.mktemp("home"))
    path, ordinal, older = write_thread(home, A, turns(1)), 9, b""
    for number in range(8):
        what = rng.randrange(7)
        if what == 0 and file_of(home).exists():
            older = file_of(home).read_bytes()
        elif what == 1 and file_of(home).exists():
            data = bytearray(file_of(home).read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            file_of(home).write_bytes(data)
        elif what == 2 and file_of(home).exists():
            file_of(home).unlink()
        elif what == 3 and older:
            file_of(home).write_bytes(older)
        elif what == 4:
            data = path.read_bytes()
            lines = data.splitlines(keepends=True)
            os.truncate(path, len(b"".join(lines[: max(2, len(lines) - rng.randint(0, 3))])))
        elif what == 5:
            other_inode(path, home)
        else:
            append(
                path, rng.choice([turns(1, first=number + 2, ordinal=ordinal), open_call(ordinal), b'{"x\n'])
            )
            ordinal += 8
        if rng.random() < 0.5:
            keep(path, home)
        assert told(fold(path, home, repair=rng.random() < 0.5)) == told(whole(path, home))


@pytest.mark.asyncio
async def test_closing_a_thread_keeps_its_snapshot_if_something_was_recorded(home: Home) -> None:
    """One that was only opened leaves it as it is, and the store's own rollouts are taken up from it."""
    async with LocalThreadStore(home.path, collect_git=False) as store:
        async with await store.create_thread(SessionMeta(cwd="/srv")) as thread:
            thread.record_nowait(tracks.user_message("go"))
        path, kept = Path(thread.path), file_of(home, thread.thread_id)
        first = kept.stat()
        summary = DerivedSnapshots(home).summary(path)
        assert summary is not None
        assert (summary.first_message, summary.cwd) == ("go", "/srv")
        async with await store.open_thread(thread.thread_id):
            pass
        assert kept.stat() == first
        async with await store.open_thread(thread.thread_id) as again:
            again.record_nowait(tracks.user_message("and on"))
        summary = DerivedSnapshots(home).summary(path)
        assert summary is not None
        assert (summary.first_message, summary.last_message) == ("go", "and on")
        assert is_used(path, home)
        assert told(fold(path, home)) == told(whole(path, home))


@pytest.mark.asyncio
async def test_checkpoint_keeps_a_snapshot_while_the_thread_is_open(home: Home) -> None:
    """Whoever dies behind it is taken up from there."""
    async with LocalThreadStore(home.path, collect_git=False) as store:
        thread = await store.create_thread(SessionMeta(cwd="/srv"))
        thread.record_nowait([*tracks.user_message("go"), *tracks.compaction("short", [])])
        await thread.flush()
        kept = file_of(home, thread.thread_id)
        for _ in range(1_000):
            if kept.exists():
                break
            await thread.flush()
            await asyncio.sleep(0.01)
        path = Path(thread.path)
        assert is_used(path, home)
        assert told(fold(path, home)) == told(whole(path, home))
        await thread.aclose()


@pytest.mark.asyncio
async def test_home_whose_derived_folder_takes_nothing_works_as_any(home: Home, tmp_path: Path) -> None:
    """Recording, closing and opening again lack nothing but the snapshot."""
    (home.path / "thread-store").mkdir(parents=True)
    (home.path / "thread-store" / "derived").write_bytes(b"in the way")
    async with LocalThreadStore(home.path, collect_git=False) as store:
        async with await store.create_thread(SessionMeta(cwd="/srv")) as thread:
            thread.record_nowait(tracks.compaction("short", []))
        async with await store.open_thread(thread.thread_id) as again:
            again.record_nowait(tracks.user_message("and on"))
    path = Path(thread.path)
    assert b'"x_memory"' in path.read_bytes()
    assert told(fold(path, home)) == told(whole(path, home))
