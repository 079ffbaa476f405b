"""Whatever fails while a fork is made: nothing is left behind, and nothing is replaced."""

from __future__ import annotations

import errno
import os
import stat
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import RolloutExists, RolloutWriteError
from tests.rollout.faulty import Fault, fails, fails_after
from tests.thread_store.histories import body_lines, history, place_of, turns, uuid, write_thread
from tests.thread_store.scripted import ScriptedCalls
from thread_store.forks.fork import ForkMode, make_fork
from thread_store.forks.fork_copy import ForkCalls
from thread_store.forks.new_file import make_file
from thread_store.home import Home

A, B = uuid(0xA), uuid(0xB)
TARGET = f"sessions/2031/01/02/rollout-2031-01-02T03-04-05-{B}.jsonl"
CALLS = (
    *("open_new", "open_overwrite", "close", "fstat", "write", "datasync", "link", "unlink", "sync_folder"),
    *("make_folder", "copy_file_range"),
)


def everything_in(folder: Path) -> dict[str, bytes]:
    """All files below a folder, whatever they are called."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("effect", [fails, fails_after])
@pytest.mark.parametrize("mode", ["copy", "reference"])
@pytest.mark.parametrize("call", CALLS)
def test_failure_of_any_call_leaves_nothing_behind(
    tmp_path: Path, call: str, mode: ForkMode, effect: Any, number: int
) -> None:
    """No child and no temporary file, whether the call had done its work or not; or the fork is whole."""
    if call == "copy_file_range" and effect is fails_after:
        effect = fails
    for first in count(1):
        home = Home(tmp_path / str(first))
        source = write_thread(home, A, turns(1))
        before = everything_in(home.path)
        fault = Fault(call, effect(number), first)
        try:
            made = make_fork(
                source, home.path / TARGET, thread_id=B, home=home, mode=mode, calls=ScriptedCalls(fault)
            )
        except RolloutWriteError as error:
            assert error.errno == number
            assert everything_in(home.path) == before
        else:
            # The bytes were synced before the close; a link that was made is one, whatever was said; and the
            # temporary name that can't be removed is tried again, and else is left to who mends.
            assert not fault.struck or call in ("close", "unlink") or (call, effect) == ("link", fails_after)
            assert len(everything_in(home.path)) == len(before) + 1
            assert history(made.path, home) == body_lines(source.read_bytes())
        if not fault.struck:
            return


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
def test_disk_that_fills_up_during_the_copy_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    """A full disk is no reason to try another way of copying."""

    class Full(ForkCalls):
        def copy_file_range(self, source: int, target: int, size: int, offset: int) -> int:
            if offset:
                raise OSError(number, os.strerror(number))
            return super().copy_file_range(source, target, 100, offset)

    home = Home(tmp_path)
    source = write_thread(home, A, turns(1))
    before = everything_in(tmp_path)
    with pytest.raises(RolloutWriteError) as caught:
        make_fork(source, place_of(home, B), thread_id=B, home=home, calls=Full())
    assert caught.value.errno == number
    assert everything_in(tmp_path) == before


def test_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    """Not even a BaseException from the progress callback does."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    home = Home(tmp_path)
    source = write_thread(home, A, turns(1))
    before = everything_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make_fork(source, place_of(home, B), thread_id=B, home=home, progress=stop)
    assert everything_in(tmp_path) == before


def test_file_system_without_links_gets_its_file_by_a_rename(tmp_path: Path) -> None:
    """A placeholder holds the name meanwhile, so nothing is replaced; the file is as private as ever."""
    path = tmp_path / "new"
    make_file(str(path), lambda descriptor: None, calls=ScriptedCalls(Fault("link", fails(errno.EPERM))))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("call", ["rename", "sync_folder"])
def test_failure_without_links_leaves_no_placeholder(tmp_path: Path, call: str) -> None:
    """What was made to hold the name goes again."""
    calls = ScriptedCalls(Fault("link", fails(errno.EOPNOTSUPP)), Fault(call, fails(errno.EIO)))
    with pytest.raises(RolloutWriteError):
        make_file(str(tmp_path / "new"), lambda descriptor: None, calls=calls)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_file_that_appears_meanwhile_is_left_alone(tmp_path: Path, links: bool) -> None:
    """Another program was quicker: its file stays, ours goes."""
    path = tmp_path / "new"
    faults = () if links else (Fault("link", fails(errno.EPERM)),)
    with pytest.raises(RolloutExists):
        make_file(str(path), lambda _: path.write_bytes(b"mine") and None, calls=ScriptedCalls(*faults))
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["new"]


def test_temporary_file_that_can_not_be_removed_is_no_rollout(tmp_path: Path) -> None:
    """Where even that fails the error is the first one, and no listing takes the rest for a thread."""
    home = Home(tmp_path)
    source = write_thread(home, A, turns(1))
    calls = ScriptedCalls(Fault("write", fails(errno.ENOSPC)), Fault("unlink", fails(errno.EIO), times=None))
    with pytest.raises(RolloutWriteError) as caught:
        make_fork(source, place_of(home, B), thread_id=B, home=home, calls=calls)
    assert caught.value.errno == errno.ENOSPC
    assert [each.path for each in home.rollouts()] == [source]
