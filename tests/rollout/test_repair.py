"""Repair and replay: the end of a rollout mended, nothing before it touched, nothing lost or doubled."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ActiveWriter, NotARollout, RolloutReplaced, RolloutWriteError, ThreadNotFound
from rollout.check import check_rollout
from rollout.kept import find_kept, keep_unwritten, kept_folder
from rollout.reader import read_rollout
from rollout.repair import RepairReport, repair_rollout
from rollout.syscalls import FileCalls
from tests.rollout.written import THREAD_ID, line, message, meta, rollout, texts

NAME = f"rollout-2026-11-29T10-11-12-{THREAD_ID}.jsonl"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def kinds(report: RepairReport) -> list[str]:
    return [action.kind for action in report.actions]


def read_texts(path: Path) -> list[str]:
    return texts(list(read_rollout(path)))


def keep(path: Path, *lines: bytes, offset: int | None = None) -> Path:
    offset = path.stat().st_size if offset is None else offset
    kept = keep_unwritten(path, lines, thread_id=THREAD_ID, offset_bytes=offset, items=len(lines))
    assert kept is not None
    return kept


def replay(path: Path, calls: FileCalls | None = None) -> RepairReport:
    return repair_rollout(path, dry_run=False, replay=True, calls=calls)


# The tail


@pytest.mark.case("B04")
@pytest.mark.case("B08")
@pytest.mark.guarantee("G6")
def test_cut_at_every_byte_of_the_last_record_is_mended(path: Path) -> None:
    """Cut anywhere: what stood before stays a prefix, the fragment is kept, appending is clean."""
    whole = rollout("one", "two") + message("drei, 三, 🦀", 3)
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole) + 1):
        path.write_bytes(whole[:cut])
        report = repair_rollout(path, dry_run=False)
        mended = path.read_bytes()
        if cut in (start, len(whole)):
            assert (kinds(report), mended) == ([], whole[:cut])
        elif cut == len(whole) - 1:
            assert (kinds(report), mended) == (["end_line"], whole)
        else:
            assert kinds(report) == ["cut_tail"]
            assert mended.startswith(whole[:start])
            kept = report.actions[0].kept_path
            assert kept is not None
            assert Path(kept).read_bytes() == whole[start:cut]
            os.unlink(kept)
        with path.open("ab") as file:
            file.write(message("appended", 4))
        expected = ["one", "two", *(["drei, 三, 🦀"] if cut >= len(whole) - 1 else []), "appended"]
        assert read_texts(path) == expected
        assert not [record for record in read_rollout(path) if record.warning]


@pytest.mark.case("B10")
def test_stray_fragment_of_an_older_version_goes_to_a_kept_file(path: Path) -> None:
    """What an older, longer version left at the tail is set aside whole."""
    stray = message("an older one", 9)[30:-1] + b"}]}}"
    path.write_bytes(rollout("one") + stray)
    report = repair_rollout(path, dry_run=False)
    (kept,) = find_kept(path)
    assert Path(kept.path).read_bytes() == stray
    assert report.actions[0].kept_path == kept.path
    assert read_texts(path) == ["one"]


def test_cut_leaves_a_trace_in_the_rollout(path: Path) -> None:
    """A record says that something was cut, how much, and where it is: a resume must be able to know."""
    path.write_bytes(rollout("one") + b'{"half')
    repair_rollout(path, dry_run=False)
    last = list(read_rollout(path))[-1].line
    assert last is not None
    assert (last.type, last.ordinal) == ("x_writer", None)
    payload = last.payload_object()
    (kept,) = find_kept(path)
    assert payload["event"] == "repaired"
    assert (payload["cut_bytes"], payload["quarantine"]) == (6, os.path.basename(kept.path))


@pytest.mark.guarantee("G6")
def test_dry_run_changes_nothing(path: Path) -> None:
    """It says what would be done; neither the file nor its folder is touched."""
    path.write_bytes(rollout("one") + b'{"half')
    keep(path, message("two", 2))
    before = (path.read_bytes(), sorted(os.listdir(path.parent)), path.stat().st_mtime_ns)
    report = repair_rollout(path, replay=True)
    assert report.dry_run
    assert kinds(report) == ["cut_tail", "replay"]
    assert report.actions[0].offset_bytes == len(rollout("one"))
    assert (path.read_bytes(), sorted(os.listdir(path.parent)), path.stat().st_mtime_ns) == before


@pytest.mark.case("B08")
def test_good_rollout_is_left_alone(path: Path) -> None:
    """Nothing to mend: bytes and mtime stay as they are."""
    path.write_bytes(rollout("one"))
    os.utime(path, ns=(1, 1))
    assert repair_rollout(path, dry_run=False).actions == []
    assert path.read_bytes() == rollout("one")
    assert path.stat().st_mtime_ns == 1


def test_mending_leaves_the_time_of_the_last_activity(path: Path) -> None:
    """Lists sort by mtime: a repair is no activity."""
    path.write_bytes(rollout("one") + b'{"half')
    os.utime(path, ns=(1000, 1000))
    repair_rollout(path, dry_run=False)
    assert path.stat().st_mtime_ns == 1000


@pytest.mark.guarantee("G6")
@pytest.mark.case("B08")
def test_damage_in_the_middle_stays_where_it_is(path: Path) -> None:
    """Nothing before the last newline is ever changed: damaged lines are passed over by readers."""
    data = rollout("one") + b"garbage\n" + b"\0" * 600 + b"\n" + b"\xff\n" + message("two", 2)
    path.write_bytes(data)
    assert repair_rollout(path, dry_run=False).actions == []
    assert path.read_bytes() == data


@pytest.mark.case("B05")
def test_tail_of_nuls_is_set_aside_and_cut(path: Path) -> None:
    """A padded tail, larger than what readers take for a line."""
    path.write_bytes(rollout("one"))
    os.truncate(path, len(rollout("one")) + (300 << 20))
    report = repair_rollout(path, dry_run=False)
    assert kinds(report) == ["cut_tail"]
    assert report.actions[0].size_bytes == 300 << 20
    assert path.read_bytes().startswith(rollout("one"))
    assert path.stat().st_size < 4096
    (kept,) = find_kept(path)
    assert kept.size_bytes == 300 << 20


@pytest.mark.parametrize("space", [b" ", b"\t \r"])
def test_blank_tail_is_ended(path: Path, space: bytes) -> None:
    """White space without a newline is a blank line that lacks its end; nothing is cut."""
    path.write_bytes(rollout("one") + space)
    assert kinds(repair_rollout(path, dry_run=False)) == ["end_line"]
    assert path.read_bytes() == rollout("one") + space + b"\n"


class NoCutting(FileCalls):
    """A file system that only lets files grow."""

    def truncate(self, descriptor: int, size: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")


def test_where_cutting_is_forbidden_a_newline_ends_the_tail(path: Path) -> None:
    """An append-only file: the torn tail is kept aside all the same, and stays as one damaged line."""
    data = rollout("one") + b'{"half'
    path.write_bytes(data)
    report = repair_rollout(path, dry_run=False, calls=NoCutting())
    assert "forbidden" in report.actions[0].message
    assert path.read_bytes().startswith(data + b"\n")
    (kept,) = find_kept(path)
    assert Path(kept.path).read_bytes() == b'{"half'
    assert read_texts(path) == ["one"]


def test_append_only_attribute_is_met(path: Path) -> None:
    """The same with the real attribute, where this system lets us set it."""
    path.write_bytes(rollout("one") + b'{"half')
    done = subprocess.run(["chattr", "+a", str(path)], capture_output=True, check=False)
    try:
        repair_rollout(path, dry_run=False)
    finally:
        subprocess.run(["chattr", "-a", str(path)], capture_output=True, check=False)
    assert (b'{"half\n' in path.read_bytes()) == (done.returncode == 0)
    assert read_texts(path) == ["one"]


@pytest.mark.case("B101")
def test_kept_tail_is_private(path: Path) -> None:
    """Mode 0600 under a umask that would allow everything."""
    path.write_bytes(rollout("one") + b'{"half')
    before = os.umask(0)
    try:
        repair_rollout(path, dry_run=False)
    finally:
        os.umask(before)
    (kept,) = find_kept(path)
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o600


class FullDisk(FileCalls):
    """Room for so many bytes, over all files; `give` makes more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(descriptor, data[: self.room])
        self.room -= written
        return written


def test_tail_that_finds_no_room_elsewhere_is_not_cut(path: Path) -> None:
    """ENOSPC while it is set aside: the error says so, and the rollout is as it was."""
    data = rollout("one") + b'{"half'
    path.write_bytes(data)
    with pytest.raises(RolloutWriteError, match="No space left"):
        repair_rollout(path, dry_run=False, calls=FullDisk(3))
    assert path.read_bytes() == data
    assert find_kept(path) == []


def test_failed_sync_is_an_error_and_repairing_again_works(path: Path) -> None:
    """EIO at the sync: an error; a second repair finds a whole file."""

    class NoSync(FileCalls):
        def datasync(self, descriptor: int) -> None:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".jsonl"):
                raise OSError(errno.EIO, "Input/output error")
            super().datasync(descriptor)

    path.write_bytes(rollout("one") + b'{"half')
    with pytest.raises(RolloutWriteError, match="sync"):
        repair_rollout(path, dry_run=False, calls=NoSync())
    assert repair_rollout(path, dry_run=False).actions == []
    assert read_texts(path) == ["one"]


def test_file_that_grows_without_a_lock_is_not_cut(path: Path) -> None:
    """A program that takes no lock appended meanwhile: its bytes are not cut."""
    path.write_bytes(rollout("one") + b'{"half')

    class Racing(FileCalls):
        def sync_folder(self, folder: str) -> None:
            super().sync_folder(folder)
            with path.open("ab") as file:
                file.write(b'-way"}\n' + message("late", 2))

    with pytest.raises(RolloutWriteError, match="without a lock"):
        repair_rollout(path, dry_run=False, calls=Racing())
    assert path.read_bytes() == rollout("one") + b'{"half-way"}\n' + message("late", 2)


# What is refused


@pytest.mark.case("B56")
def test_what_is_no_rollout_is_refused(tmp_path: Path) -> None:
    """Absent, folder, empty, another grammar, a torn first line: refused, and nothing is changed."""
    with pytest.raises(ThreadNotFound):
        repair_rollout(tmp_path / "no.jsonl", dry_run=False)
    with pytest.raises(NotARollout, match="folder"):
        repair_rollout(tmp_path, dry_run=False)
    for data in (b"", b'{"type":"turn.started"}\n{', meta()[:30]):
        path = tmp_path / "some.jsonl"
        path.write_bytes(data)
        for dry_run in (True, False):
            with pytest.raises(NotARollout):
                repair_rollout(path, dry_run=dry_run)
        assert path.read_bytes() == data


def test_compressed_rollout_is_refused(tmp_path: Path) -> None:
    """Nothing can be mended inside frames: the error says what to do instead."""
    path = tmp_path / f"{NAME}.zst"
    data = zstandard.compress(rollout("one") + b'{"half')
    path.write_bytes(data)
    with pytest.raises(NotARollout, match=r"compressed.*expand it first"):
        repair_rollout(path, dry_run=False)
    assert path.read_bytes() == data


@pytest.mark.case("B97")
def test_link_is_refused(path: Path, tmp_path: Path) -> None:
    """A link at the path is not followed to write."""
    real = tmp_path / "real.jsonl"
    real.write_bytes(rollout("one") + b"{")
    path.symlink_to(real)
    for dry_run in (True, False):
        with pytest.raises(NotARollout, match="symbolic link"):
            repair_rollout(path, dry_run=dry_run)
    assert real.read_bytes() == rollout("one") + b"{"


def test_pipe_at_the_path_is_refused(path: Path) -> None:
    """A FIFO neither hangs the repair nor is taken for a rollout."""
    os.mkfifo(path)
    for dry_run in (True, False):
        with pytest.raises(NotARollout, match="no regular file"):
            repair_rollout(path, dry_run=dry_run)


@pytest.mark.case("B11")
@pytest.mark.guarantee("G4")
def test_live_writer_keeps_repair_out(path: Path) -> None:
    """While a recorder holds the file a repair raises ActiveWriter, which names it; so does a dry run."""
    path.write_bytes(rollout("one") + b"{")
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for dry_run in (True, False):
            with pytest.raises(ActiveWriter) as caught:
                repair_rollout(path, dry_run=dry_run)
            assert caught.value.holder.pid == os.getpid()
    assert path.read_bytes() == rollout("one") + b"{"
    assert kinds(repair_rollout(path, dry_run=False)) == ["cut_tail"]


@pytest.mark.guarantee("G4")
def test_lock_of_the_thread_keeps_repair_out(tmp_path: Path) -> None:
    """In a home a writer (Codex, say) holds the thread's lock file: respected, held meanwhile, and left."""
    path = tmp_path / "sessions" / NAME
    lock = tmp_path / "thread-writer-locks" / f"{THREAD_ID}.lock"
    for each in (path, lock):
        each.parent.mkdir()
    path.write_bytes(rollout("one") + b"{")
    lock.touch()

    class Watching(FileCalls):
        def truncate(self, descriptor: int, size: int) -> None:
            with lock.open("w") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            super().truncate(descriptor, size)

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for dry_run in (True, False):
            with pytest.raises(ActiveWriter):
                repair_rollout(path, dry_run=dry_run)
        assert path.read_bytes() == rollout("one") + b"{"
    assert kinds(repair_rollout(path, dry_run=False, calls=Watching())) == ["cut_tail"]
    assert lock.exists()


def test_caller_that_holds_the_threads_lock_may_repair(tmp_path: Path) -> None:
    """A store that has taken the thread's lock says so."""
    path = tmp_path / "sessions" / NAME
    lock = tmp_path / "thread-writer-locks" / f"{THREAD_ID}.lock"
    for each in (path, lock):
        each.parent.mkdir()
    path.write_bytes(rollout("one") + b"{")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        report = repair_rollout(path, dry_run=False, holds_thread_lock=True)
    assert kinds(report) == ["cut_tail"]


def test_file_that_is_replaced_while_it_is_opened_is_left_alone(path: Path) -> None:
    """The lock must be on the file that stands at the path."""
    path.write_bytes(rollout("one") + b"{")

    class Replacing(FileCalls):
        def open_append(self, name: str) -> int:
            descriptor = super().open_append(name)
            os.unlink(name)
            Path(name).write_bytes(rollout("other") + b"{")
            return descriptor

    with pytest.raises(RolloutReplaced):
        repair_rollout(path, dry_run=False, calls=Replacing())
    assert path.read_bytes() == rollout("other") + b"{"


def replay_at_once(path: Path, count: int) -> list[RepairReport | ActiveWriter]:
    """What so many repairs, begun together, come to."""
    outcomes: list[RepairReport | ActiveWriter] = []
    start = threading.Barrier(count)

    def run() -> None:
        start.wait()
        try:
            outcomes.append(replay(path))
        except ActiveWriter as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return outcomes


@pytest.mark.case("B11")
def test_repairs_at_once_lose_nothing(path: Path) -> None:
    """Many repairs of one file at once: one does it, the others are told, the fragment is kept once."""
    for round_no in range(10):
        path.write_bytes(rollout("one") + b'{"half')
        keep(path, message("two", 2), offset=len(rollout("one")))
        outcomes = replay_at_once(path, 4)
        assert len(outcomes) == 4
        assert [each for each in outcomes if isinstance(each, RepairReport) and each.actions]
        assert read_texts(path) == ["one", "two"]
        torn = [each.path for each in find_kept(path)]
        assert [Path(each).read_bytes() for each in torn] == [b'{"half']
        os.unlink(torn[0])
        assert len(list(path.parent.glob("*.replayed"))) == round_no + 1


# Replay


def test_unwritten_items_wait_until_asked_for(path: Path) -> None:
    """Without `replay` they are named and stay."""
    path.write_bytes(rollout("one"))
    kept = keep(path, message("two", 2))
    report = repair_rollout(path, dry_run=False)
    assert (report.actions, report.waiting) == ([], [str(kept)])
    assert kept.exists()


def test_replay_appends_the_lines_and_sets_the_file_aside(path: Path) -> None:
    """The lines follow as they were set aside; the kept file is renamed; check finds nothing more."""
    path.write_bytes(rollout("one"))
    kept = keep(path, message("two", 2), line("x_call", {"state": "started"}), message("three", 3))
    report = replay(path)
    expected = rollout("one", "two")[:-1] + b"\n" + line("x_call", {"state": "started"}) + message("three", 3)
    assert path.read_bytes() == expected
    assert kinds(report) == ["replay"]
    assert report.actions[0].kept_path == str(kept)
    assert Path(f"{kept}.replayed").exists()
    assert check_rollout(path).ok
    assert replay(path).actions == []
    assert path.read_bytes() == expected


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("present", range(4))
def test_lines_that_stand_there_already_are_not_doubled(path: Path, present: int) -> None:
    """A writer keeps what was not durable: some of it may have reached the file after all."""
    lines = [message("a", 2), message("b", 3), message("c", 4)]
    offset = len(rollout("one"))
    path.write_bytes(rollout("one") + b"".join(lines[:present]))
    keep(path, *lines, offset=offset)
    replay(path)
    assert path.read_bytes() == rollout("one") + b"".join(lines)


@pytest.mark.guarantee("G1")
def test_part_of_a_line_that_stands_there_is_set_aside_first(path: Path) -> None:
    """A torn tail that is the beginning of a kept line: cut, then the line comes whole, once."""
    path.write_bytes(rollout("one"))
    keep(path, message("two", 2), message("three", 3))
    with path.open("ab") as file:
        file.write(message("two", 2)[:-9])
    assert kinds(replay(path)) == ["cut_tail", "replay"]
    assert read_texts(path) == ["one", "two", "three"]


@pytest.mark.guarantee("G1")
def test_equal_lines_are_replayed_as_often_as_they_were_kept(path: Path) -> None:
    """Two records may be equal to the byte: each is there exactly once."""
    twin = line("x_check", {"state": "passed"})
    path.write_bytes(rollout("one") + twin)
    keep(path, twin, twin, twin, offset=len(rollout("one")))
    replay(path)
    assert path.read_bytes() == rollout("one") + twin * 3


def test_equal_line_from_before_is_another_record(path: Path) -> None:
    """What stood in the rollout before the kept lines began is not theirs."""
    twin = line("x_check", {"state": "passed"})
    path.write_bytes(rollout("one") + twin)
    keep(path, twin)
    replay(path)
    assert path.read_bytes() == rollout("one") + twin * 2


@pytest.mark.case("B33")
def test_ordinals_go_on_from_another_writers_records(path: Path) -> None:
    """Another writer took the numbers meanwhile: the replayed records go on from the maximum, in order."""
    path.write_bytes(rollout("one"))
    keep(path, message("kept 2", 2), line("x_call", {}), message("kept 3", 3))
    with path.open("ab") as file:
        file.write(message("other 2", 2) + message("other 3", 3) + message("other 4", 4))
    replay(path)
    records = list(read_rollout(path))
    assert texts(records) == ["one", "other 2", "other 3", "other 4", "kept 2", "kept 3"]
    assert [each.line.ordinal for each in records if each.line] == [0, 1, 2, 3, 4, 5, None, 6]
    assert check_rollout(path).findings == []


def test_numbers_that_are_free_stay(path: Path) -> None:
    """Numbers are only changed where they must be: a gap stays a gap."""
    path.write_bytes(rollout("one"))
    keep(path, message("seven", 7), message("eight", 8))
    replay(path)
    assert path.read_bytes() == rollout("one") + message("seven", 7) + message("eight", 8)


def test_renumbering_changes_nothing_but_the_number(path: Path) -> None:
    """Every other byte of a line stays, even where its text looks like an envelope."""
    odd = line("event_msg", {"type": "x", "text": '{"timestamp":"t","ordinal":1,', "n": 1.50}, 2)
    path.write_bytes(rollout("one", "two"))
    keep(path, odd)
    replay(path)
    changed = line("event_msg", {"type": "x", "text": '{"timestamp":"t","ordinal":1,', "n": 1.50}, 3)
    assert path.read_bytes() == rollout("one", "two") + changed


def test_derived_memory_is_not_replayed(path: Path) -> None:
    """An x_memory tells of offsets that no longer hold: it is left out, everything else comes."""
    path.write_bytes(rollout("one"))
    memory = line("x_memory", {"version": 1, "upto_offset": 10, "max_ordinal": 2, "epoch": 1})
    keep(path, message("two", 2), memory, message("three", 3))
    replay(path)
    assert path.read_bytes() == rollout("one", "two", "three")


def test_several_kept_files_are_replayed_oldest_first(path: Path) -> None:
    """In the order in which they were set aside."""
    path.write_bytes(rollout("one"))
    first, second = keep(path, message("two", 2)), keep(path, message("three", 3))
    older, newer = (Path(f"{path}.{at}-{at}-0000000{at}.unwritten") for at in (1, 2))
    os.rename(second, newer)
    os.rename(first, older)
    assert kinds(replay(path)) == ["replay", "replay"]
    assert read_texts(path) == ["one", "two", "three"]


@pytest.mark.guarantee("G1")
def test_replay_that_runs_out_of_space_is_completed_by_the_next(path: Path) -> None:
    """ENOSPC after any number of bytes: whole lines and an error; the next replay brings the rest once."""
    lines = [message(f"kept {number}", number) for number in range(2, 6)]
    data = rollout("one")
    for room in range(0, sum(map(len, lines)), 7):
        path.write_bytes(data)
        for old in path.parent.glob("*.replayed"):
            os.unlink(old)
        kept = keep(path, *lines)
        with pytest.raises(RolloutWriteError, match="No space left"):
            replay(path, FullDisk(room))
        assert kept.exists()
        assert path.read_bytes().endswith(b"\n")
        with path.open("ab") as file:
            file.write(message("between", 9))
        replay(path)
        found = read_texts(path)
        assert sorted(found) == sorted(["one", "between", *(f"kept {number}" for number in range(2, 6))])
        assert [each for each in found if each.startswith("kept")] == [f"kept {n}" for n in range(2, 6)]
        assert not kept.exists()


@pytest.mark.guarantee("G1")
def test_replay_cut_short_where_cutting_is_forbidden_is_completed_too(path: Path) -> None:
    """The broken line can't be cut: it stays as one damaged line, and its record comes once, whole."""

    class FullAppendOnly(FullDisk, NoCutting):
        pass

    path.write_bytes(rollout("one"))
    keep(path, message("two", 2), message("three", 3))
    with pytest.raises(RolloutWriteError):
        replay(path, FullAppendOnly(len(message("two", 2)) + 20))
    replay(path, NoCutting())
    assert read_texts(path) == ["one", "two", "three"]


def test_kept_lines_that_are_none_come_as_they_are(path: Path) -> None:
    """A newline that the file lacked is no line; a fragment goes in as it was set aside, once."""
    path.write_bytes(rollout("one")[:-1])
    keep(path, b"\n", b'the rest of a line"}\n', message("two", 2))
    replay(path)
    assert path.read_bytes() == rollout("one") + b'the rest of a line"}\n' + message("two", 2)
    assert replay(path).actions == []


@pytest.mark.parametrize("junk", [b"half a line", b"a line\n", b'{"half":\n{"a line', b"\0\0\0\n"])
def test_rollout_that_never_began_for_the_bytes_of_others_begins_behind_them(path: Path, junk: bytes) -> None:
    """Another program wrote into the file before its first line could be: what is no line is in no way."""
    path.write_bytes(junk)
    keep(path, meta(), message("one", 1), offset=0)
    replay(path)
    whole = junk[: junk.rfind(b"\n") + 1]
    assert path.read_bytes().startswith(whole)
    assert read_texts(path) == ["one"]
    assert replay(path).actions == []


def test_file_of_another_program_is_not_begun_behind(path: Path) -> None:
    """Its lines are valid, and of no rollout: the kept lines stay kept."""
    path.write_bytes(b'{"hello":1}\n')
    kept = keep(path, meta(), message("one", 1), offset=0)
    with pytest.raises(NotARollout):
        replay(path)
    assert path.read_bytes() == b'{"hello":1}\n'
    assert kept.exists()


@pytest.mark.parametrize("content", [None, b"", meta()[:30]])
def test_rollout_that_never_got_its_header_is_made_from_the_kept_lines(
    tmp_path: Path, content: bytes | None
) -> None:
    """The disk was full from the start: no file, an empty one, or a piece of the meta line."""
    path = tmp_path / "home" / "sessions" / "2026" / NAME
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    keep(path, meta(), message("one", 1), offset=0)
    assert kinds(repair_rollout(path, replay=True))[-1] == "replay"
    assert path.exists() == (content is not None)
    replay(path)
    assert path.read_bytes() == rollout("one")
    if content is None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_damaged_kept_file_is_not_replayed(path: Path) -> None:
    """Lines that aren't what was set aside don't get in; the tail is mended all the same."""
    path.write_bytes(rollout("one") + b"{")
    kept = keep(path, message("two", 2))
    data = kept.read_bytes()
    kept.write_bytes(data[:-5])
    with pytest.raises(NotARollout, match="checksum"):
        replay(path)
    assert read_texts(path) == ["one"]
    assert kept.exists()


def test_lines_of_a_spill_folder_are_replayed(path: Path, tmp_path: Path) -> None:
    """What found no room beside the rollout is looked for where it went."""
    spill = tmp_path / "spill"
    spill.mkdir()
    path.write_bytes(rollout("one"))

    class NoRoomHere(FileCalls):
        def open_new(self, name: str) -> int:
            if not name.startswith(str(spill)):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open_new(name)

    keep_unwritten(
        path,
        [message("two", 2)],
        thread_id=THREAD_ID,
        offset_bytes=len(rollout("one")),
        items=1,
        spill_folders=[spill],
        calls=NoRoomHere(),
    )
    assert kept_folder(path) != spill
    repair_rollout(path, dry_run=False, replay=True, spill_folders=[spill])
    assert read_texts(path) == ["one", "two"]


@given(
    kept=st.lists(st.sampled_from("abc"), max_size=8),
    present=st.integers(0, 8),
    between=st.lists(st.sampled_from("xyz"), max_size=4),
    torn=st.integers(0, 40),
)
@pytest.mark.guarantee("G1")
def test_replay_brings_each_line_once_whatever_stands_there(
    tmp_path_factory: pytest.TempPathFactory, kept: list[str], present: int, between: list[str], torn: int
) -> None:
    """Lines there already, another writer's records behind them, a torn tail: each once, in order."""
    path = tmp_path_factory.mktemp("replay") / "r.jsonl"
    lines = [message(text, number) for number, text in enumerate(kept, 2)]
    there = lines[:present]
    others = [message(text, 2 + number) for number, text in enumerate(between)]
    path.write_bytes(rollout("one") + b"".join(there + others) + message("torn", 99)[:torn])
    keep(path, *lines, offset=len(rollout("one")))
    replay(path)
    found = read_texts(path)
    assert [text for text in found if text in "abc"] == kept
    assert [text for text in found if text in "xyz"] == between
    replay(path)
    assert read_texts(path) == found


def test_report_is_json(path: Path) -> None:
    """A report goes through JSON and back."""
    path.write_bytes(rollout("one") + b"{")
    report = repair_rollout(path)
    assert msgspec.json.decode(msgspec.json.encode(report), type=RepairReport) == report
    assert json.loads(msgspec.json.encode(report))["dry_run"] is True


def test_open_descriptors_are_closed(path: Path) -> None:
    """Success or error: no descriptor, and so no lock, stays behind."""
    path.write_bytes(rollout("one") + b"{")
    before = len(os.listdir("/proc/self/fd"))
    attempts: list[Callable[[], object]] = [
        lambda: repair_rollout(path),
        lambda: repair_rollout(path, dry_run=False, calls=FullDisk(0)),
        lambda: repair_rollout(path, dry_run=False),
        lambda: repair_rollout(path.parent, dry_run=False),
    ]
    for attempt in attempts:
        try:
            attempt()
        except (RolloutWriteError, NotARollout):
            continue
    assert len(os.listdir("/proc/self/fd")) == before
