"""The live file: descriptor, lock and inode belong together, whatever happens to the path."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter, RolloutExists, RolloutMoved, RolloutReplaced
from rollout.file_lock import lock_rollout
from rollout.live_file import LiveFile
from rollout.sink import SinkDisturbed
from tests.rollout.faulty import CALLS, EIO, ENOSPC, FaultyCalls, fails, fails_after, short
from tests.rollout.sinking import META, lines

CONTENT = META + lines(1, 2, 3)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveFile]:
    """A file that was made, written and synced, on calls that can be made to fail."""
    file = LiveFile(os.fspath(tmp_path / "a.jsonl"), FaultyCalls(), lock=True)
    assert file.create()
    os.write(file.descriptor, CONTENT)
    yield file
    file.close()


def find_again(live: LiveFile, durable: int = len(CONTENT)) -> None:
    live.find_again(first_line=META, durable_offset=durable)


def is_held(path: Path) -> bool:
    """Whether another descriptor would be refused the lock."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        lock_rollout(descriptor, os.fspath(path))
    except ActiveWriter:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.case("B101")
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_file_and_folders_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    """0600 for the file and 0700 for each folder that is made."""
    path = tmp_path / "deep" / "deeper" / "a.jsonl"
    live = LiveFile(os.fspath(path), FaultyCalls(), lock=True)
    before = os.umask(umask)
    try:
        live.create()
    finally:
        os.umask(before)
    live.close()
    modes = [stat.S_IMODE(os.stat(each).st_mode) for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_each_new_folder_and_its_parent_are_to_be_synced(tmp_path: Path) -> None:
    """The entry of every folder that was made, and of the file, must reach the disk."""
    live = LiveFile(os.fspath(tmp_path / "x" / "y" / "a.jsonl"), FaultyCalls(), lock=False)
    live.create()
    live.close()
    assert set(live.unsynced_folders) == {os.fspath(tmp_path / part) for part in ("", "x", "x/y")}


@pytest.mark.parametrize("call", ["make_folder", "open_new", "fstat", "dup"])
@pytest.mark.parametrize("effect", [fails(EIO), fails_after(EIO)], ids=["fails", "done but fails"])
@pytest.mark.guarantee("G2")
def test_create_that_failed_half_way_is_completed_and_syncs_all_folders(
    tmp_path: Path, call: str, effect: object
) -> None:
    """Whatever an earlier try left, the next one ends with the file held and every folder to be synced."""
    calls = FaultyCalls()
    live = LiveFile(os.fspath(tmp_path / "x" / "y" / "a.jsonl"), calls, lock=True)
    before = descriptors()
    for first in (1, 2):
        calls.arm(call, effect, first=first)  # type: ignore[arg-type]
    for _ in range(3):
        try:
            live.create()
        except OSError:
            assert not live.is_open
        else:
            break
    assert live.is_open
    assert {os.fspath(tmp_path / part) for part in ("", "x", "x/y")} <= set(live.unsynced_folders)
    assert is_held(tmp_path / "x" / "y" / "a.jsonl")
    live.close()
    assert descriptors() == before


@pytest.mark.case("B97")
@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo"])
def test_create_refuses_what_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    """A planted link is not followed, a pipe doesn't hang, nothing is changed or left open."""
    path, target = tmp_path / "a.jsonl", tmp_path / "target"
    if kind == "link":
        target.write_bytes(b"")
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    before = descriptors()
    live = LiveFile(os.fspath(path), FaultyCalls(), lock=True)
    with pytest.raises((OSError, RolloutExists)):
        live.create()
    assert not live.is_open
    assert descriptors() == before
    assert kind == "link" or not target.exists()


def test_verify_passes_while_all_is_as_we_left_it(live: LiveFile) -> None:
    """The check before each write and each answer."""
    live.verify(len(CONTENT))


@pytest.mark.case("B108")
@pytest.mark.parametrize("change", ["unlink", "rename", "replace", "link", "truncate", "append", "folder"])
def test_verify_sees_every_change_that_others_make(live: LiveFile, change: str, tmp_path: Path) -> None:
    """Writing to an unlinked or renamed file succeeds: only this check tells."""
    path = tmp_path / "a.jsonl"
    if change in ("unlink", "folder"):
        path.unlink()
        if change == "folder":
            path.mkdir()
    elif change == "rename":
        path.rename(tmp_path / "b.jsonl")
    elif change == "replace":
        (tmp_path / "new").write_bytes(CONTENT)
        (tmp_path / "new").replace(path)
    elif change == "link":
        path.rename(tmp_path / "b.jsonl")
        path.symlink_to("b.jsonl")
    elif change == "truncate":
        os.truncate(path, len(CONTENT) - 1)
    else:
        with path.open("ab") as file:
            file.write(b"x")
    with pytest.raises(SinkDisturbed):
        live.verify(len(CONTENT))


@pytest.mark.case("B108")
def test_unlinked_file_is_rebuilt_with_all_its_bytes(live: LiveFile, tmp_path: Path) -> None:
    """It stands at its path again, whole, private, synced, locked, and its name is to be synced."""
    path = tmp_path / "a.jsonl"
    path.unlink()
    live.unsynced_folders.clear()
    find_again(live)
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.path.samestat(os.fstat(live.descriptor), path.stat())
    assert live._calls.made["datasync"] == 1  # type: ignore[attr-defined]
    assert live.unsynced_folders == [os.fspath(tmp_path)]
    assert is_held(path)
    assert live.may_cut
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.case("B108")
def test_unlinked_file_is_rebuilt_where_its_folder_is_gone_too(live: LiveFile, tmp_path: Path) -> None:
    """A whole tree that was removed is made again."""
    nested = LiveFile(os.fspath(tmp_path / "x" / "y" / "a.jsonl"), FaultyCalls(), lock=True)
    nested.create()
    os.write(nested.descriptor, CONTENT)
    shutil.rmtree(tmp_path / "x")
    find_again(nested)
    nested.close()
    assert (tmp_path / "x" / "y" / "a.jsonl").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "call", ["open_new", "pread", "write", "datasync", "dup", "link", "unlink", "fstat", "lstat"]
)
@pytest.mark.parametrize("effect", [fails(ENOSPC), fails_after(EIO)], ids=["fails", "done but fails"])
def test_rebuild_that_fails_leaves_all_as_it_was_and_can_be_done_again(
    live: LiveFile, tmp_path: Path, call: str, effect: object
) -> None:
    """No half copy at the path, no descriptor lost, the old one still good; the next try succeeds."""
    path = tmp_path / "a.jsonl"
    path.unlink()
    before = descriptors()
    live._calls.arm(call, effect)  # type: ignore[attr-defined]
    try:
        find_again(live)
    except OSError:
        assert not path.exists() or path.read_bytes() == CONTENT
        assert os.pread(live.descriptor, 1 << 20, 0) == CONTENT
        assert descriptors() == before
        live._calls.lift()  # type: ignore[attr-defined]
        find_again(live)
    assert path.read_bytes() == CONTENT
    assert os.path.samestat(os.fstat(live.descriptor), path.stat())
    assert is_held(path)
    assert descriptors() == before
    assert live.may_cut, "an inode that we made counts as somebody else's"
    find_again(live)
    assert os.listdir(tmp_path) == ["a.jsonl"]
    path.unlink()
    find_again(live)
    assert path.read_bytes() == CONTENT


def test_rebuild_goes_on_after_short_writes(live: LiveFile, tmp_path: Path) -> None:
    """A copy that is written a byte at a time is the same copy."""
    (tmp_path / "a.jsonl").unlink()
    live._calls.arm("write", short(lambda size: 1), times=None)  # type: ignore[attr-defined]
    find_again(live)
    assert (tmp_path / "a.jsonl").read_bytes() == CONTENT


def test_file_that_came_to_the_path_while_it_was_rebuilt_is_left_alone(
    live: LiveFile, tmp_path: Path
) -> None:
    """The rebuilt copy never replaces anything."""
    path = tmp_path / "a.jsonl"
    path.unlink()

    def appears(calls: FaultyCalls, name: str, arguments: tuple[object, ...]) -> object:
        path.write_bytes(b"somebody's")
        return calls.perform(name, arguments)

    live._calls.arm("link", appears)  # type: ignore[attr-defined]
    before = descriptors()
    with pytest.raises(RolloutReplaced):
        find_again(live)
    assert path.read_bytes() == b"somebody's"
    assert descriptors() == before
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.case("B108")
def test_renamed_file_is_named_and_not_rebuilt(live: LiveFile, tmp_path: Path) -> None:
    """Rebuilding it would leave two live twins; moved back, it goes on."""
    path, away = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.rename(away)
    with pytest.raises(RolloutMoved) as caught:
        find_again(live)
    assert (caught.value.path, caught.value.moved_to) == (os.fspath(path), os.fspath(away))
    assert not path.exists()
    away.rename(path)
    find_again(live)
    live.verify(len(CONTENT))


@pytest.mark.case("B108")
def test_second_name_that_a_killed_process_left_is_no_rename(live: LiveFile, tmp_path: Path) -> None:
    """It died between linking a rebuilt file to its place and removing the temporary name."""
    path = tmp_path / "a.jsonl"
    os.link(path, tmp_path / ".a.jsonl.0123456789ab.tmp")
    path.unlink()
    find_again(live)
    assert path.read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["a.jsonl"]
    (tmp_path / ".a.jsonl.0123456789ab.tmp").write_bytes(b"somebody else's")
    path.rename(tmp_path / "b.jsonl")
    with pytest.raises(RolloutMoved):
        find_again(live)
    assert sorted(os.listdir(tmp_path)) == [".a.jsonl.0123456789ab.tmp", "b.jsonl"]


@pytest.mark.case("B108")
def test_rebuilt_file_that_was_renamed_is_told_without_a_wrong_name(live: LiveFile, tmp_path: Path) -> None:
    """The system knows a rebuilt file by its temporary name, which is gone."""
    path = tmp_path / "a.jsonl"
    path.unlink()
    find_again(live)
    path.rename(tmp_path / "b.jsonl")
    with pytest.raises(RolloutMoved) as caught:
        find_again(live)
    assert caught.value.moved_to is None


@pytest.mark.case("B108")
def test_copy_at_the_path_is_gone_on_in_and_never_cut(live: LiveFile, tmp_path: Path) -> None:
    """An editor saved it: same first line, same bytes before the last sync. The lock goes along."""
    path = tmp_path / "a.jsonl"
    shutil.copy(path, tmp_path / "new")
    (tmp_path / "new").replace(path)
    before = descriptors()
    find_again(live)
    assert os.path.samestat(os.fstat(live.descriptor), path.stat())
    assert not live.may_cut
    assert is_held(path)
    assert descriptors() == before
    live.verify(len(CONTENT))


@pytest.mark.case("B108")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"something else\n",
        META.replace(b"0100", b"0200") + lines(1, 2, 3),
        META + lines(1, 2, 4),
        META + lines(1, 2),
    ],
    ids=["empty", "other", "other thread", "other end", "shorter"],
)
def test_other_file_at_the_path_is_refused_and_untouched(
    live: LiveFile, tmp_path: Path, content: bytes
) -> None:
    """What isn't a copy is somebody else's; put the right one back and all is well."""
    path = tmp_path / "a.jsonl"
    path.rename(tmp_path / "aside")
    path.write_bytes(content)
    before = descriptors()
    with pytest.raises(RolloutReplaced):
        find_again(live)
    assert path.read_bytes() == content
    assert descriptors() == before
    (tmp_path / "aside").replace(path)
    find_again(live)
    live.verify(len(CONTENT))


@pytest.mark.case("B97")
@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_odd_thing_at_the_path_is_refused(live: LiveFile, tmp_path: Path, kind: str) -> None:
    """A link to our own file too: it is not followed."""
    path = tmp_path / "a.jsonl"
    path.rename(tmp_path / "b.jsonl")
    if kind == "link":
        path.symlink_to("b.jsonl")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(RolloutReplaced, match="no regular file"):
        find_again(live)


@pytest.mark.guarantee("G4")
def test_copy_that_another_writer_holds_is_left_to_it(live: LiveFile, tmp_path: Path) -> None:
    """Two writers never share an inode, however it came to the path."""
    path = tmp_path / "a.jsonl"
    shutil.copy(path, tmp_path / "new")
    (tmp_path / "new").replace(path)
    other = os.open(path, os.O_RDWR)
    lock_rollout(other, os.fspath(path))
    before = descriptors()
    try:
        with pytest.raises(ActiveWriter) as caught:
            find_again(live)
        assert caught.value.holder.pid == os.getpid()
        assert descriptors() == before
    finally:
        os.close(other)


def test_same_inode_gets_a_fresh_descriptor_and_keeps_its_lock(live: LiveFile, tmp_path: Path) -> None:
    """Reopening never lets go of the lock, not for a moment."""
    before = descriptors()
    find_again(live)
    assert descriptors() == before
    assert is_held(tmp_path / "a.jsonl")


def test_old_descriptor_goes_on_where_no_fresh_one_is_to_be_had(live: LiveFile) -> None:
    """No descriptor left, or no permission any more: what is open stays good."""
    live._calls.arm("open_append", fails(errno.EMFILE))  # type: ignore[attr-defined]
    find_again(live)
    live.verify(len(CONTENT))


def test_file_that_changed_while_it_was_reopened_is_refused(live: LiveFile, tmp_path: Path) -> None:
    """Between the look at the path and the opening somebody put another file there."""
    path = tmp_path / "a.jsonl"
    before = descriptors()

    def replaced(calls: FaultyCalls, name: str, arguments: tuple[object, ...]) -> object:
        path.rename(tmp_path / "aside")
        path.write_bytes(CONTENT)
        return calls.perform(name, arguments)

    live._calls.arm("open_append", replaced)  # type: ignore[attr-defined]
    with pytest.raises(RolloutReplaced):
        find_again(live)
    assert descriptors() == before
    assert os.pread(live.descriptor, 1 << 20, 0) == CONTENT


def test_folder_that_another_process_made_first_is_used_and_synced(tmp_path: Path) -> None:
    """Two recorders begin in a new folder at once."""

    def quicker(calls: FaultyCalls, name: str, arguments: tuple[str, ...]) -> object:
        os.mkdir(arguments[0])
        return calls.perform(name, arguments)

    calls = FaultyCalls()
    calls.arm("make_folder", quicker)
    live = LiveFile(os.fspath(tmp_path / "x" / "a.jsonl"), calls, lock=True)
    live.create()
    live.close()
    assert set(live.unsynced_folders) == {os.fspath(tmp_path), os.fspath(tmp_path / "x")}


@pytest.mark.parametrize("situation", ["same", "copy", "unlinked"])
def test_thread_whose_lock_is_kept_elsewhere_takes_none_on_the_file(tmp_path: Path, situation: str) -> None:
    """The store holds the thread's lock: the rollout itself stays free of one."""
    path = tmp_path / "a.jsonl"
    live = LiveFile(os.fspath(path), FaultyCalls(), lock=False)
    live.create()
    os.write(live.descriptor, CONTENT)
    if situation == "copy":
        shutil.copy(path, tmp_path / "new")
        (tmp_path / "new").replace(path)
    elif situation == "unlinked":
        path.unlink()
    find_again(live)
    live.verify(len(CONTENT))
    assert not is_held(path)
    live.close()


@pytest.mark.parametrize("situation", ["same", "copy", "unlinked"])
def test_close_that_reports_an_error_closes_all_the_same(
    live: LiveFile, tmp_path: Path, situation: str
) -> None:
    """close(2) lets go of the descriptor whatever it says: the number may already be somebody else's."""
    path = tmp_path / "a.jsonl"
    if situation == "copy":
        shutil.copy(path, tmp_path / "new")
        (tmp_path / "new").replace(path)
    elif situation == "unlinked":
        path.unlink()
    before = descriptors()
    live._calls.arm("close", fails_after(EIO), times=None)  # type: ignore[attr-defined]
    find_again(live)
    assert os.path.samestat(os.fstat(live.descriptor), path.stat())
    assert descriptors() == before
    live.close()
    assert descriptors() == before - 2
    assert not is_held(path)


def test_lock_file_calls_are_all_scripted() -> None:
    """A system call that tests can't make fail is one that nobody has seen fail."""
    from rollout.syscalls import FileCalls

    names = {name for name in vars(FileCalls) if not name.startswith("_")}
    assert names - {"current_path", "is_regular"} == set(CALLS)
