"""`rollout fork`: a new thread with the history up to a point; where there is none, an answer that helps."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import Script, body_lines, history, metas, turns, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.locks import ThreadLocks

SOURCE = uuid(0xA1)


def only_other(home: Path, *known: Path) -> Path:
    (path,) = set(home.rglob("rollout-*.jsonl")) - set(known)
    return path


@pytest.fixture
def source(home: Path) -> Path:
    """A thread of three turns, eight numbered records each."""
    return write_thread(Home(home), SOURCE, turns(3))


def test_fork_prints_the_new_thread_and_leaves_the_source(rollout: Run, home: Path, source: Path) -> None:
    """The id alone is on stdout, and it names a thread with the same records; the source's bytes stay."""
    before = source.read_bytes()
    done = rollout("fork", SOURCE)
    made = only_other(home, source)
    assert done.returncode == 0
    assert done.stdout.decode() == f"{made.stem[-36:]}\n"
    assert body_lines(made.read_bytes())[-1] == before.splitlines()[-1]
    assert history(made, Home(home)) == history(source, Home(home))
    assert source.read_bytes() == before


@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_fork_is_a_good_rollout(rollout: Run, source: Path, mode: str) -> None:
    """`rollout check` has nothing to say of it, nor of the fork of a fork."""
    first = rollout("fork", SOURCE, "--mode", mode).stdout.decode().strip()
    second = rollout("fork", first, "--mode", mode).stdout.decode().strip()
    done = rollout("check", first, second)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("mode", ["copy", "reference"])
def test_fork_as_json_tells_where_it_left_its_parent(
    rollout: Run, home: Path, source: Path, mode: str
) -> None:
    """`THREAD#N` takes everything up to that item, which the answer names again."""
    done = rollout("fork", f"{SOURCE}#8", "--mode", mode, "--json")
    (found,) = objects(done.stdout)
    made = only_other(home, source)
    assert (done.returncode, done.stderr) == (0, b"")
    assert found == {
        "v": 1,
        "kind": "forked",
        "thread": made.stem[-36:],
        "parent": {"id": SOURCE, "ordinal": 8},
        "mode": mode,
        "path": str(made),
        "bytes": made.stat().st_size,
        "subagents": [],
    }
    assert b'"ordinal":8,' in history(made, Home(home))[-1]


@pytest.mark.parametrize(
    ("arguments", "last"),
    [((f"{SOURCE}#8",), 8), ((SOURCE, "--turn", "2"), 16), ((SOURCE, "--turn", "0"), 0), ((SOURCE,), 24)],
)
@pytest.mark.case("B72")
def test_each_way_to_name_a_point_ends_there(
    rollout: Run, source: Path, arguments: tuple[str, ...], last: int
) -> None:
    """An item, a number of turns, nothing at all."""
    (found,) = objects(rollout("fork", *arguments, "--json").stdout)
    assert found["parent"]["ordinal"] == last


def test_fork_at_a_checkpoint_ends_with_it(rollout: Run, home: Path) -> None:
    """`--checkpoint` takes everything up to the newest compaction."""
    script = Script()
    script.turn(1)
    script.compacted("so far")
    script.turn(2)
    write_thread(Home(home), SOURCE, script.bytes)
    (found,) = objects(rollout("fork", SOURCE, "--checkpoint", "--json").stdout)
    assert b'"compacted"' in history(found["path"], Home(home))[-1]


def test_fork_at_an_offset_ends_with_the_record_there(rollout: Run, home: Path, source: Path) -> None:
    """`THREAD@B` is for records without an ordinal: the one that begins at that byte is the last."""
    data = source.read_bytes()
    last = data.index(b'"state":"completed"')
    begin = data.rindex(b"\n", 0, data.index(b"\n", last)) + 1
    # The call is answered behind it, so the nearest points are told instead.
    done = rollout("fork", f"{SOURCE}@{begin}")
    assert done.returncode == ExitCode.USAGE
    assert f"the point @{begin} can't be taken" in done.stderr.decode()
    first = data.index(b"\n") + 1
    (found,) = objects(rollout("fork", f"{SOURCE}@{first}", "--json").stdout)
    assert found["parent"]["ordinal"] == 1


@pytest.mark.case("B72")
def test_point_inside_a_call_names_commands_that_work(rollout: Run, home: Path, source: Path) -> None:
    """The nearest possible points are there to be pasted, and each of them is one."""
    done = rollout("fork", f"{SOURCE}#5")
    message = done.stderr.decode()
    assert done.returncode == ExitCode.USAGE
    assert "the point #5 can't be taken: it is between the call 'c1' and its result. Try: rollout" in message
    commands = message.rstrip("\n").partition("Try: ")[2].split(" or: ")
    assert commands == [f"rollout fork {SOURCE}#4", f"rollout fork {SOURCE}#6"]
    for command in commands:
        assert rollout(*command.split()[1:]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((f"{SOURCE}#99",), f"rollout fork {SOURCE}#24"),
        ((SOURCE, "--turn", "7"), f"rollout fork {SOURCE} --turn 3"),
        ((SOURCE, "--checkpoint"), f"rollout show {SOURCE}"),
        ((f"{SOURCE}@5",), f"rollout show {SOURCE}"),
    ],
)
def test_point_that_is_not_there_names_the_last_one(
    rollout: Run, home: Path, source: Path, arguments: tuple[str, ...], hint: str
) -> None:
    """What is beyond the end, or nowhere, is answered with what there is; nothing is made."""
    done = rollout("fork", *arguments)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.decode().rstrip("\n").endswith(f": {hint}")
    assert list(home.rglob("rollout-*.jsonl")) == [source]


@pytest.mark.parametrize(
    "arguments",
    [(f"{SOURCE}#1..4",), (f"{SOURCE}#4", "--turn", "1"), (SOURCE, "--turn", "1", "--checkpoint")],
)
def test_more_points_than_one_are_wrong_usage(rollout: Run, source: Path, arguments: tuple[str, ...]) -> None:
    """A range, or two ways at once, is no point."""
    assert rollout("fork", *arguments).returncode == ExitCode.USAGE


def test_subagents_are_forked_too(rollout: Run, home: Path, source: Path) -> None:
    """`--with-subagents` makes a copy of each, below the copy of its parent."""
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": SOURCE, "depth": 1}}}
    write_thread(Home(home), uuid(0xA2), turns(1), parent_thread_id=SOURCE, source=spawned)
    (found,) = objects(rollout("fork", SOURCE, "--with-subagents", "--json").stdout)
    (subagent,) = found["subagents"]
    (path,) = home.rglob(f"*{subagent}.jsonl")
    assert metas(path)[0]["parent_thread_id"] == found["thread"]


def test_file_outside_a_home_is_copied_into_it(
    rollout: Run, home: Path, source: Path, tmp_path: Path
) -> None:
    """A rollout that somebody sent becomes a thread; nothing can rest on it, and it has no sub-agents."""
    alone = source.rename(tmp_path / source.name)
    (found,) = objects(rollout("fork", alone, "--json").stdout)
    assert Path(found["path"]).is_relative_to(home)
    assert history(found["path"], Home(home)) == history(alone, Home(home))
    assert rollout("fork", alone, "--mode", "reference").returncode == ExitCode.REFUSED
    assert rollout("fork", alone, "--with-subagents").returncode == ExitCode.REFUSED


@pytest.mark.case("B68")
def test_thread_that_is_being_written_is_forked(rollout: Run, home: Path, source: Path) -> None:
    """The lock of the source is not needed."""
    lock = ThreadLocks(home).acquire(SOURCE)
    assert rollout("fork", SOURCE).returncode == 0
    lock.release()


def test_broken_source_is_refused(rollout: Run, home: Path) -> None:
    """A thread whose beginning is gone is not copied as if it were whole."""
    base = {"thread_id": uuid(0xFF), "end_ordinal_exclusive": 4, "end_byte_offset": 900}
    write_thread(Home(home), SOURCE, turns(1, ordinal=5), ordinal=4, history_base=base)
    done = rollout("fork", SOURCE)
    assert done.returncode == ExitCode.REFUSED
    assert b"the beginning of its history can't be read" in done.stderr


def test_interrupted_fork_leaves_nothing(home: Path, source: Path, tmp_path: Path) -> None:
    """Ctrl-C while it copies: exit code 130, and no half of a thread."""
    script = (
        "import os, signal, sys\nfrom thread_store.cli import main\nfrom thread_store.forks import fork\n"
        "fork.copy_range = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\nsys.exit(main())\n"
    )
    command = [COMMAND[0], "-c", script, "fork", SOURCE]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment(home), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")
    assert [each for each in source.parent.iterdir() if each != source] == []
    assert os.path.getsize(source) > 0
