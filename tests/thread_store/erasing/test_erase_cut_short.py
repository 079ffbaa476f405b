"""An erasure that is cut short: killed at each system call, or refused one by the system."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from protocol.errors import ActiveWriter, NotARollout, RolloutError, RolloutWriteError
from rollout.erase_journal import EraseCalls, find_journals, read_journal, write_journal
from rollout.recorder import RolloutRecorder
from rollout.repair import repair_rollout
from tests.thread_store.conftest import ROOT
from tests.thread_store.erasing.homes import (
    CHILD,
    NEEDLE,
    PARENT,
    QUIET,
    erased_offsets,
    files_holding,
    full_home,
    tree,
    unpacked,
)
from tests.thread_store.erasing.scripted_calls import ScriptedCalls, fail_with
from tests.thread_store.histories import line, meta, place_of, uuid
from thread_store import LocalThreads
from thread_store.chain.lineage import Lineage
from thread_store.cli.commands.check import check_erasures
from thread_store.erasing.erase import Erasure, finish_in_home
from thread_store.home import Home


@pytest.fixture
def template(tmp_path: Path) -> Path:
    home = Home(tmp_path / "template")
    full_home(home)
    return home.path


def erase(home: Path, calls: EraseCalls) -> None:
    Erasure(Home(home), needle=NEEDLE, reason="pasted", calls=calls).carry_out()


def contents(home: Path) -> dict[str, bytes]:
    """The truth in a home: without locks, derived files, journals and what is being made."""
    found = {}
    for path in tree(home):
        name = os.path.relpath(path, home)
        derived = name.startswith(("thread-writer-locks", "thread-store/derived"))
        if not derived and not name.endswith((".erasing", ".tmp")):
            found[name] = path.read_bytes()
    return found


def reopen(home: Path, thread_id: str = PARENT) -> None:
    """As the next writer does."""
    with LocalThreads(Home(home)) as store:
        store.open(thread_id).core.writer.discard()


def lines_are_before_or_after(before: bytes, now: bytes, after: bytes) -> bool:
    """Whether each line is the one or the other, or a mix of just these two."""
    sizes = len(before) == len(now) == len(after)
    return sizes and all(byte in (old, new) for old, byte, new in zip(before, now, after, strict=True))


def masked_times(data: bytes) -> bytes:
    import re

    return re.sub(rb'"at":"[^"]*"', b'"at":""', data)


@pytest.mark.guarantee("G6")
def test_killed_at_any_system_call_it_is_finished_by_the_next_opening(template: Path, tmp_path: Path) -> None:
    """Until the journal stands nothing has changed; then each line is before or after, and the next opening
    of any of its threads ends it: no byte of the home holds it."""
    before = contents(template)
    after_home = tmp_path / "done"
    shutil.copytree(template, after_home)
    erase(after_home, EraseCalls())
    parent = os.path.relpath(place_of(Home(template), PARENT), template)
    worker = subprocess.run(
        [sys.executable, "-m", "tests.thread_store.erasing.kill_worker", str(template), str(tmp_path / "k")],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    runs = [json.loads(each) for each in worker.stdout.splitlines()]
    assert sum(each["killed"] for each in runs) > 100
    for run in runs:
        home = Path(run["home"])
        begun = bool(find_journals(home / "sessions" / "any")) or not run["killed"]
        now = contents(home)
        if not begun and NEEDLE.is_in(now[parent]):
            assert now == before, run
            continue
        assert len(now[parent]) == len(before[parent])
        reopen(home, (PARENT, CHILD, QUIET)[run["at"] % 3])
        assert files_holding(Home(home)) == [], run
        assert find_journals(home / "sessions" / "any") == []
        wanted = erased_offsets(before[parent], (after_home / parent).read_bytes())
        assert erased_offsets(before[parent], contents(home)[parent]) == wanted
        with Lineage.resolve(place_of(Home(home), CHILD), Home(home)) as lineage:
            assert lineage.problem is None
        shutil.rmtree(home)


@pytest.mark.parametrize(("number", "times"), [(errno.EIO, 1), (errno.ENOSPC, 1), (errno.EIO, 10_000)])
def test_each_refused_call_leaves_it_undone_or_written_down(
    template: Path, tmp_path: Path, number: int, times: int
) -> None:
    """The caller is told; with the disk well again the rest is done, or all of it by erasing again."""
    before = contents(template)
    at, step = 1, 1 if times == 1 else 7
    while True:
        home = tmp_path / "home"
        shutil.copytree(template, home)
        calls = ScriptedCalls(at, fail_with(number), times=times)
        failed: RolloutError | None = None
        try:
            erase(home, calls)
        except RolloutError as error:
            failed = error
        if not calls.reached:
            assert failed is None
            assert files_holding(Home(home)) == []
            break
        journals = find_journals(home / "sessions" / "any")
        if failed is not None and not journals and NEEDLE.is_in(place_of(Home(home), PARENT).read_bytes()):
            assert contents(home) == before
        finish_in_home(home)
        Erasure(Home(home), needle=NEEDLE).carry_out()
        assert files_holding(Home(home)) == [], at
        assert find_journals(home / "sessions" / "any") == []
        shutil.rmtree(home)
        at += step


def cut_short(home: Path) -> str:
    """All that is left after a kill right behind the journal. Returns where that is."""

    class Stop(Exception):
        pass

    class Calls(EraseCalls):
        def pwrite(self, descriptor: int, data: memoryview | bytes, offset: int) -> int:
            raise Stop

    with pytest.raises(Stop):
        erase(home, Calls())
    (journal,) = find_journals(home / "sessions" / "any")
    return journal


def test_finishing_that_is_cut_short_too_is_finished_later(template: Path, tmp_path: Path) -> None:
    """Wherever that was, and as often as it takes."""
    cut_short(template)
    at = 1
    while True:
        home = tmp_path / "again"
        shutil.copytree(template, home)
        rewrite_journal(home, template)
        calls = ScriptedCalls(at, stop)
        try:
            finish_in_home(home, calls=calls)
        except Stopped:
            with pytest.raises(Stopped):
                finish_in_home(home, calls=ScriptedCalls(3, stop))
            finish_in_home(home)
        assert files_holding(Home(home)) == [], at
        assert find_journals(home / "sessions" / "any") == []
        if not calls.reached:
            break
        shutil.rmtree(home)
        at += 7


class Stopped(BaseException):
    """As good as a kill: nothing but the end of the process would catch it."""


def stop(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    raise Stopped


def rewrite_journal(home: Path, template: Path) -> None:
    """The same journal for a copy of its home, whose files are others."""
    (path,) = find_journals(home / "sessions" / "any")
    read = read_journal(path, calls=EraseCalls())
    assert read is not None
    files = []
    for each in read.files:
        moved = os.path.join(home, os.path.relpath(each.path, template))
        status = os.lstat(moved)
        files.append(replace(each, path=moved, device=status.st_dev, inode=status.st_ino))
    os.unlink(path)
    write_journal(home / "sessions" / "any", files, derived=None, calls=EraseCalls())
    shutil.rmtree(home / "thread-store" / "derived")


def test_journal_holds_nothing_of_it(template: Path) -> None:
    """It names places and hashes, and what takes their place."""
    journal = cut_short(template)
    assert not NEEDLE.is_in(Path(journal).read_bytes())
    read = read_journal(journal, calls=EraseCalls())
    assert read is not None
    assert len(read.files) > 5
    assert os.stat(journal).st_mode & 0o777 == 0o600


def test_check_tells_what_waits_to_be_erased(template: Path) -> None:
    """As damage, with the command that ends it."""
    cut_short(template)
    (finding,) = check_erasures(place_of(Home(template), PARENT))
    assert finding.code == "erase_unfinished"
    assert finding.fix == "rollout erase --finish"
    assert finish_in_home(template) == (1, [])
    assert list(check_erasures(place_of(Home(template), PARENT))) == []


def test_what_was_archived_or_compressed_since_is_found_again(template: Path) -> None:
    """The file went elsewhere between the kill and the next opening."""
    import zstandard

    cut_short(template)
    path = place_of(Home(template), PARENT)
    moved = place_of(Home(template), PARENT, archived=True)
    moved.with_name(moved.name + ".zst").write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    assert finish_in_home(template) == (1, [])
    assert files_holding(Home(template)) == []


def test_what_another_program_changed_since_is_left_and_told(template: Path) -> None:
    """Its bytes are not what was written down: nobody knows whose they are."""
    cut_short(template)
    path = place_of(Home(template), PARENT)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(b" " * 7 + b"\n" + data)
    before = path.read_bytes()
    finished, left = finish_in_home(template)
    assert finished == 0
    assert any(os.fspath(path) in each for each in left)
    assert path.read_bytes() == before
    Erasure(Home(template), needle=NEEDLE).carry_out()
    assert files_holding(Home(template)) == []


def test_fork_and_repair_finish_before_they_copy(template: Path) -> None:
    """Else what waits to be erased would be in the copy, or with the kept files."""
    for copy in (fork_it, repair_it):
        home = template.with_name(copy.__name__)
        shutil.copytree(template, home)
        cut_short(home)
        copy(Home(home))
        assert find_journals(home / "sessions" / "any") == []
        assert files_holding(Home(home)) == []


def fork_it(home: Home) -> None:
    with LocalThreads(home) as store:
        store.fork(PARENT).core.writer.discard()


def repair_it(home: Home) -> None:
    repair_rollout(place_of(home, PARENT), dry_run=False)


def test_stretch_that_was_cut_off_needs_nothing(template: Path) -> None:
    """Another program shortened the file: what is gone is gone, what is left of the stretch goes."""
    cut_short(template)
    path = place_of(Home(template), PARENT)
    size = path.stat().st_size
    os.truncate(path, size - 3)
    assert finish_in_home(template) == (1, [])
    assert path.stat().st_size == size - 3
    assert files_holding(Home(template)) == []


def test_file_that_cannot_be_written_is_refused_before_anything_is_begun(template: Path) -> None:
    """All or nothing, as far as that can be told beforehand."""
    before = contents(template)

    class Calls(EraseCalls):
        def open_overwrite(self, path: str) -> int:
            if path.endswith("history.jsonl"):
                raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
            return super().open_overwrite(path)

    with pytest.raises(RolloutWriteError) as caught:
        erase(template, Calls())
    assert "Nothing was changed" in caught.value.hint
    assert contents(template) == before
    assert find_journals(template / "sessions" / "any") == []


def test_open_thread_is_left_until_its_writer_has_gone(template: Path) -> None:
    """Who holds the lock now is left alone."""
    cut_short(template)
    home = Home(template)
    with LocalThreads(home) as store:
        lock = store.locks.acquire(PARENT)
        before = place_of(home, PARENT).read_bytes()
        finished, left = finish_in_home(template)
        assert (finished, len(left)) == (0, 1)
        assert place_of(home, PARENT).read_bytes() == before
        lock.release()
    assert finish_in_home(template)[0] == 1
    assert files_holding(home) == []


@pytest.mark.asyncio
async def test_recorder_by_itself_finishes_what_lies_beside_its_file(tmp_path: Path) -> None:
    """Without a home the journal lies beside the rollout, and the next recorder of it goes on."""
    path = tmp_path / "alone.jsonl"
    path.write_bytes(meta(uuid(1)) + line("event_msg", {"type": "agent_message", "message": "secret-9"}, 1))
    from thread_store.erasing.needle import Needle

    class Stop(Exception):
        pass

    class Calls(EraseCalls):
        def pwrite(self, descriptor: int, data: memoryview | bytes, offset: int) -> int:
            raise Stop

    with pytest.raises(Stop):
        Erasure(None, path=path, needle=Needle.text("secret-9"), calls=Calls()).carry_out()
    assert b"secret-9" in path.read_bytes()
    recorder = await RolloutRecorder.open(path)
    await recorder.aclose()
    assert b"secret-9" not in path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["alone.jsonl"]


def test_failed_erasure_is_told_as_a_write_error(template: Path) -> None:
    """With where and what to do."""
    cut_short(template)

    class Calls(EraseCalls):
        def datasync(self, descriptor: int) -> None:
            raise OSError(errno.EIO, "bad disk")

    with pytest.raises(RolloutWriteError) as caught:
        finish_in_home(template, calls=Calls())
    assert caught.value.errno == errno.EIO
    assert "--finish" in caught.value.hint
    assert not isinstance(caught.value, ActiveWriter)


def test_unpacked_reads_both_forms(template: Path) -> None:
    """The look for it sees through compression."""
    assert any(path.suffix == ".zst" and NEEDLE.is_in(unpacked(path)) for path in tree(template))


@pytest.mark.parametrize("content", [b"", b"[" * 5000, b"7\n", b'{"kind":"erasing"}\n', b"\xff\n"])
def test_journal_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    """Its checksum is right, and yet it says nothing: an error of ours, not one of json."""
    path = tmp_path / "journal"
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    with pytest.raises(NotARollout):
        read_journal(os.fspath(path), calls=EraseCalls())


@pytest.mark.parametrize("call", ["pwrite", "datasync", "sync_folder"])
def test_erasing_again_while_the_disk_refuses_makes_no_second_plan(template: Path, call: str) -> None:
    """What is half overwritten would be written down as it is, and found again by neither journal; what is
    overwritten in the cache alone would not be found at all, and told as done."""

    class Calls(EraseCalls):
        """After the journal was written nothing is."""

    def refuse(*_: object) -> None:
        if find_journals(str(template / "sessions" / "any")):
            raise OSError(errno.EIO, "bad disk")

    honest = getattr(EraseCalls, call)
    setattr(Calls, call, lambda self, *given: (refuse(), honest(self, *given))[1])
    for _ in range(3):
        with pytest.raises(RolloutWriteError):
            erase(template, Calls())
    assert len(find_journals(str(template / "sessions" / "any"))) == 1
    erase(template, EraseCalls())
    assert not find_journals(str(template / "sessions" / "any"))
    assert not files_holding(Home(template))
