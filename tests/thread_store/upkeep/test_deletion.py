"""Deleting: everything of a thread or nothing, and never what another one rests on."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import zstandard

from protocol.errors import ActiveWriter, ForkRefused, RolloutWriteError, ThreadNotFound, ThreadReferenced
from protocol.response_items import ResponseItem
from rollout.barrier import Goal
from tests.thread_store.histories import history, metas, place_of, turns, uuid, write_thread
from tests.thread_store.upkeep.interrupted import Cut, raises
from tests.thread_store.upkeep.works import begin, place_with, remains_in, threads_in
from thread_store.doomed import DoomedFile, DoomedThread, Journal, journal_folder
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.locks import ThreadLocks
from thread_store.open_threads import hand_over
from thread_store.upkeep.deletion import delete_threads, look_at_deletion
from thread_store.upkeep.references import References
from thread_store.upkeep.removal import finish_deletions
from thread_store.upkeep.threads import Place

A, B, C, D = uuid(0xA), uuid(0xB), uuid(0xC), uuid(0xD)
A2 = uuid(0xA2)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def place(home: Home) -> Place:
    return Place.of(home)


def reference(home: Home, source: Path | str, child: str) -> str:
    return make_fork(source, place_of(home, child), thread_id=child, home=home, mode="reference").path


def test_everything_of_a_thread_goes_and_nothing_else(home: Home, place: Place) -> None:
    """Rollouts, kept files, title, snapshot; not those of its neighbour."""
    begin(home)
    derived = home.path / "thread-store" / "derived"
    derived.mkdir()
    for thread_id in (A, B):
        (derived / f"{thread_id}.snapshot").write_bytes(b"x")
    done = delete_threads(place, [A])
    assert done.thread_ids == (A,)
    assert done.bytes > 4000
    assert remains_in(home, frozenset({A})) == []
    assert list(threads_in(home)) == [B]
    assert B in (home.path / "session_index.jsonl").read_text()
    assert os.listdir(derived) == [f"{B}.snapshot"]


def test_archived_and_compressed_files_go_too(home: Home, place: Place) -> None:
    """In both places and both forms."""
    path = write_thread(home, A, turns(1))
    Path(f"{path}.zst").write_bytes(zstandard.compress(b"something else"))
    place_of(home, A, archived=True).write_bytes(path.read_bytes())
    delete_threads(place, [A])
    assert list(home.path.rglob("rollout-*")) == []


def test_live_thread_is_refused(home: Home) -> None:
    """Its writer is named; nothing goes, not even what was named beside it."""
    write_thread(home, A, turns(1))
    with LocalThreads(home) as threads:
        opened = threads.create()
        opened.core.pending.append(ResponseItem.message("user", "a"))
        hand_over(opened, Goal.FLUSH)
        with pytest.raises(ActiveWriter) as caught:
            delete_threads(Place.of(home), [A, opened.core.thread_id])
        assert caught.value.holder.pid == os.getpid()
    assert set(threads_in(home)) == {A, opened.core.thread_id}


def test_thread_that_a_fork_rests_on_is_refused(home: Home, place: Place) -> None:
    """The error names the fork; together with it, it goes."""
    source = write_thread(home, A, turns(2))
    reference(home, source, C)
    with pytest.raises(ThreadReferenced, match=C):
        delete_threads(place, [A])
    assert set(threads_in(home)) == {A, C}
    delete_threads(place, [A, C])
    assert threads_in(home) == {}


@pytest.mark.parametrize("reverted", [False, True])
def test_cascade_makes_forks_self_contained_first(home: Home, place: Place, reverted: bool) -> None:
    """The child, and what rests on the child; same ids, same records, same metas but for the base."""
    source = write_thread(home, A, turns(2))
    child = reference(home, source, C)
    grandchild = reference(home, child, D)
    before, meta = threads_in(home), metas(child)[0]
    os.utime(child, ns=(5, 1_600_000_000_000_000_005))
    done = delete_threads(place, [A], cascade=True)
    assert done.made_self_contained == (grandchild, child)
    assert threads_in(home) == {C: before[C], D: before[D]}
    now = metas(child)[0]
    assert now.pop("x_pad").strip() == ""
    assert now == {key: value for key, value in meta.items() if key != "history_base"}
    assert os.stat(child).st_mtime_ns == 1_600_000_000_000_000_005
    assert len(Path(child).read_bytes().split(b"\n")[0]) + 1 == 4096


def test_cascade_keeps_an_unfinished_last_line(home: Home, place: Place) -> None:
    """Whoever opens the thread next decides about it."""
    child = reference(home, write_thread(home, A, turns(1)), C)
    with open(child, "ab") as file:
        file.write(b'{"torn')
    delete_threads(place, [A], cascade=True)
    assert Path(child).read_bytes().endswith(b'\n{"torn')


def test_cascade_reaches_compressed_and_archived_forks(home: Home, place: Place) -> None:
    """They stay where they are, plain from now on."""
    child = Path(reference(home, write_thread(home, A, turns(1)), C))
    records = history(child, home)
    packed = home.path / "archived_sessions" / f"{child.name}.zst"
    packed.parent.mkdir()
    packed.write_bytes(zstandard.compress(child.read_bytes()))
    child.unlink()
    delete_threads(place, [A], cascade=True)
    assert history(home.find_thread(C), home) == records
    assert home.find_thread(C) == packed.with_suffix("")


def test_cascade_waits_for_no_writer_of_a_fork(home: Home, place: Place) -> None:
    """Refused before the first fork is touched."""
    source = write_thread(home, A, turns(1))
    first, second = reference(home, source, C), reference(home, source, D)
    data = Path(first).read_bytes(), Path(second).read_bytes()
    lock = ThreadLocks(home.path).acquire(C)
    try:
        with pytest.raises(ActiveWriter):
            delete_threads(place, [A], cascade=True)
    finally:
        lock.release()
    assert (Path(first).read_bytes(), Path(second).read_bytes()) == data
    assert set(threads_in(home)) == {A, C, D}


def test_cascade_refuses_a_fork_that_it_can_not_read(home: Home, place: Place) -> None:
    """Cutting it off for good would hide what is wrong."""
    source = write_thread(home, A, turns(1))
    reference(home, source, C)
    data = source.read_bytes()
    source.write_bytes(data.replace(b"answer 1", b"ANSWER 1"))
    source.write_bytes(data[:-30] + b"\n")
    with pytest.raises(ForkRefused):
        delete_threads(place, [A], cascade=True)
    assert source.exists()


def test_reference_that_is_made_meanwhile_is_seen(home: Home, place: Place) -> None:
    """The look that counts is made under the lock that its maker needs."""
    source = write_thread(home, A, turns(1))
    references = References(home)
    references.look()
    reference(home, source, C)
    with pytest.raises(ThreadReferenced):
        delete_threads(place, [A], references=references)


def test_second_time_it_is_not_found(home: Home, place: Place) -> None:
    """And no lock file is made for it."""
    write_thread(home, A, turns(1))
    delete_threads(place, [A])
    with pytest.raises(ThreadNotFound):
        delete_threads(place, [A])
    assert os.listdir(home.path / "thread-writer-locks") == [".coordination.lock"]


def test_what_can_not_go_may_be_skipped(home: Home, place: Place) -> None:
    """The others go all the same; for each that stays it is told why."""
    for each in (A, B):
        write_thread(home, each, turns(1))
    child = reference(home, home.find_thread(A), C)
    lock = ThreadLocks(home.path).acquire(B)
    other = write_thread(home, D, turns(1))
    try:
        done = delete_threads(place, [A, B, D, uuid(0xE)], skip=True)
    finally:
        lock.release()
    assert done.thread_ids == (D,)
    assert {type(each) for each in done.skipped} == {ThreadReferenced, ActiveWriter, ThreadNotFound}
    assert not other.exists()
    assert Path(child).exists()


def test_look_tells_what_would_go_and_changes_nothing(home: Home, place: Place) -> None:
    """All files, what they weigh, who writes it and what rests on it."""
    begin(home)
    child = reference(home, home.find_thread(A), C)
    before = sorted(home.path.rglob("*"))
    references = References(home)
    references.look()
    lock = ThreadLocks(home.path).acquire(A)
    try:
        (look,) = look_at_deletion(place, [A], references)
    finally:
        lock.release()
    assert len(look.paths) == 3
    assert look.bytes == sum(os.stat(each).st_size for each in look.paths)
    assert look.holder is not None
    assert look.children == (C,)
    assert Path(child).exists()
    assert sorted(home.path.rglob("*")) == [*before, *_locks(home)] or set(before) <= {*home.path.rglob("*")}


def _locks(home: Home) -> list[Path]:
    return sorted((home.path / "thread-writer-locks").rglob("*"))


# Deletions that were begun


def _journal(home: Home, *threads: DoomedThread) -> Path:
    path = journal_folder(home.path) / "0123456789abcdef.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(Journal(threads=threads).encode())
    return path


def _doomed(home: Home, thread_id: str) -> DoomedThread:
    paths = [each.path for each in home.rollouts() if each.name.thread_id == thread_id]
    return DoomedThread(thread_id=thread_id, rollouts=tuple(DoomedFile.of(each, home.path) for each in paths))


def test_thread_of_a_begun_deletion_is_gone(home: Home, place: Place) -> None:
    """Nobody finds it, though its files are there; the next one takes them away."""
    begin(home)
    journal = _journal(home, _doomed(home, A))
    assert list(threads_in(home)) == [B]
    finish_deletions(place)
    assert not journal.exists()
    assert not list(home.path.rglob(f"*{A}*jsonl"))


def test_file_that_went_on_is_another_file_and_stays(home: Home, place: Place) -> None:
    """A program that knows nothing of the journal has appended to it."""
    path = write_thread(home, A, turns(1))
    journal = _journal(home, _doomed(home, A))
    with path.open("ab") as file:
        file.write(turns(1, first=2, ordinal=9))
    assert list(threads_in(home)) == [A]
    finish_deletions(place)
    assert path.exists()
    assert not journal.exists()


def test_thread_that_came_back_stays(home: Home, place: Place) -> None:
    """Restored from a backup it has the name, and not the identity."""
    path = write_thread(home, A, turns(1))
    data = path.read_bytes()
    _journal(home, _doomed(home, A))
    keep = path.with_name("keeps the inode number")
    path.rename(keep)
    path.write_bytes(data)
    finish_deletions(place)
    assert path.read_bytes() == data


def test_deletion_that_somebody_is_at_is_left_to_them(home: Home, place: Place) -> None:
    """Whoever deletes holds the locks of the threads."""
    begin(home)
    journal = _journal(home, _doomed(home, A))
    lock = ThreadLocks(home.path).acquire(A)
    try:
        finish_deletions(place)
        assert journal.exists()
    finally:
        lock.release()
    finish_deletions(place)
    assert not journal.exists()


def test_thread_that_is_rested_on_by_now_stays(home: Home, place: Place) -> None:
    """Another program has forked it, between the kill and now."""
    path = write_thread(home, A, turns(1))
    doomed = _doomed(home, A)
    reference(home, path, C)
    _journal(home, doomed)
    finish_deletions(place)
    assert set(threads_in(home)) == {A, C}


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version":1}', b'{"version":9,"threads":[]}', b"[" * 99_999]
)
def test_journal_that_can_not_be_read_counts_for_nothing(home: Home, place: Place, content: bytes) -> None:
    """It stays, and hides no thread."""
    write_thread(home, A, turns(1))
    journal = _journal(home)
    journal.write_bytes(content)
    finish_deletions(place)
    assert list(threads_in(home)) == [A]
    assert journal.exists()


@pytest.mark.parametrize(
    "place_of_it", ["outside", f"../rollout-x-{A}.jsonl", f"sessions/../../rollout-x-{A}.jsonl"]
)
def test_journal_never_leads_out_of_the_home(home: Home, place: Place, place_of_it: str) -> None:
    """Nor to anything in it that is no rollout of the thread."""
    write_thread(home, A, turns(1))
    target = home.path / place_of_it
    target.write_bytes(b"mine")
    file = DoomedFile.of(target, home.path)
    named = DoomedFile(place_of_it, file.device, file.inode, file.size, file.mtime_ns)
    _journal(home, DoomedThread(thread_id=A, rollouts=(named,)))
    finish_deletions(place)
    assert target.read_bytes() == b"mine"


# A full disk


@pytest.mark.case("B139")
def test_full_disk_lets_threads_of_one_file_go(home: Home) -> None:
    """There may be no room for a journal; unlinking one file needs none."""
    for each in (A, B):
        write_thread(home, each, turns(1))
    done = delete_threads(place_with(home, _full_for_journals(99)), [A, B])
    assert done.thread_ids == (A, B)
    assert threads_in(home) == {}


@pytest.mark.case("B139")
def test_full_disk_gets_room_for_a_journal_by_what_needs_none(home: Home) -> None:
    """First those of one file; then there is room for the others."""
    begin(home)
    delete_threads(place_with(home, _full_for_journals(1)), [A, B])
    assert threads_in(home) == {}


@pytest.mark.case("B139")
def test_full_disk_leaves_a_reverted_thread_whole(home: Home) -> None:
    """Without a journal it would not go in one step."""
    begin(home)
    before = threads_in(home)
    with pytest.raises(RolloutWriteError) as caught:
        delete_threads(place_with(home, _full_for_journals(99)), [A])
    assert caught.value.errno == errno.ENOSPC
    assert threads_in(home) == before


def _full_for_journals(times: int) -> Cut:
    cut, left = Cut(0, raises(errno.EIO)), iter(range(times))
    make = cut.calls.open_new

    def open_new(path: str) -> int:
        if "/deleting/" in path and next(left, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        descriptor: int = make(path)
        return descriptor

    cut.calls.open_new = open_new
    return cut


def test_name_with_odd_characters_goes(home: Home, place: Place) -> None:
    """Also one that is no UTF-8, in the journal as on the disk."""
    folder = home.path / "sessions"
    folder.mkdir(parents=True)
    first = folder / os.fsdecode(b"rollout-\xff\n-" + A.encode() + b".jsonl")
    second = folder / os.fsdecode(b"rollout-\xff\n-" + f"{A}_{A2}".encode() + b".jsonl")
    for path in (first, second):
        path.write_bytes(write_thread(home, B, turns(1)).read_bytes())
    journal = Journal(threads=(_doomed(home, A),)).encode()
    assert json.loads(journal)["threads"][0]["thread_id"] == A
    delete_threads(place, [A])
    assert not first.exists()
    assert not second.exists()
