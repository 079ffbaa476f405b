"""Whatever dies or fails in the midst of it: each thread is whole, before or after, and listed once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from protocol.errors import RolloutError
from tests.thread_store.processes import ROOT
from tests.thread_store.upkeep.interrupted import Cut, raises
from tests.thread_store.upkeep.works import WORKS, check_cut, check_done_again, place_with, threads_in
from thread_store.home import Home

FAILURES = [(errno.ENOSPC, False), (errno.EACCES, False), (errno.EIO, True)]
"""What the system answers, and whether it did its work all the same."""

MENDED = frozenset({"archive_twins", "compress_twins", "delete_twins"})
"""Works that begin with leftovers."""

NEED_ROOM = frozenset({"compress", "expand", "expand_to_append", "cascade", "delete"})
"""Works that need room; of the deletions that of a single thread with several rollouts: a journal is written.
Where there are twins, their room is enough."""

KILLS_MIN = 12
"""Fewer calls than that none of them makes: the kills would miss something."""


@pytest.mark.case("B108")
@pytest.mark.parametrize("name", WORKS)
def test_kill_at_each_call_leaves_threads_whole(tmp_path: Path, name: str) -> None:
    """Before or after, listed once; and the next one leaves nothing of the first attempt."""
    work, folder = WORKS[name], tmp_path / "killed"
    reference = Home(tmp_path / "reference")
    work.prepare(reference)
    before = threads_in(reference)
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "tests.thread_store.upkeep.kill_worker", str(folder), name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr.decode()
    homes = sorted(folder.iterdir())
    assert len(homes) >= 2 * KILLS_MIN
    for each in homes:
        home = Home(each)
        check_cut(work, home, before)
        check_done_again(work, home, before)


@pytest.mark.case("B139")
@pytest.mark.parametrize(("number", "after"), FAILURES, ids=["full", "refused", "done_and_broken"])
@pytest.mark.parametrize("name", WORKS)
def test_failure_of_each_call_leaves_threads_whole(
    tmp_path: Path, name: str, number: int, after: bool
) -> None:
    """Whether the call had done its work or not: an error that says so, or success; then all goes well."""
    work = WORKS[name]
    for at in count(1):
        home = Home(tmp_path / str(at))
        work.prepare(home)
        before = threads_in(home)
        cut = Cut(at, raises(number), after=after)
        try:
            work.do(place_with(home, cut))
        except RolloutError as error:
            assert cut.struck is not None, error
        if name not in MENDED:
            assert not [*home.path.rglob("*.tmp")], cut.struck
        check_cut(work, home, before)
        check_done_again(work, home, before)
        if cut.struck is None:
            return


@pytest.mark.case("B139")
@pytest.mark.parametrize("name", WORKS)
def test_disk_without_a_free_byte_leaves_threads_whole(name: str) -> None:
    """A real one. What makes room succeeds; what needs some says so, and succeeds when there is."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.thread_store.upkeep.full_disk_worker", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("ENOSPC" if name in NEED_ROOM else "done")
