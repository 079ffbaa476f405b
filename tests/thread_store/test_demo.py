"""`rollout demo`: the agent is really killed, and the comparison would really notice a loss."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.thread_store.conftest import Run, objects
from thread_store import demo
from thread_store.demo import Comparison, compare, found_digests, run_demo


@pytest.mark.parametrize(
    ("acknowledged", "found", "verdict"),
    [
        (["a", "b"], ["a", "b"], Comparison(2, 2, missing=0, doubled=0, in_order=True)),
        (["a", "b"], ["a", "b", "c"], Comparison(2, 3, missing=0, doubled=0, in_order=True)),
        (["a", "b"], ["a"], Comparison(2, 1, missing=1, doubled=0, in_order=False)),
        (["a", "b"], ["b", "a"], Comparison(2, 2, missing=0, doubled=0, in_order=False)),
        (["a", "b"], ["a", "b", "b"], Comparison(2, 3, missing=0, doubled=1, in_order=True)),
        (["a", "b"], ["a", "x", "b"], Comparison(2, 3, missing=0, doubled=0, in_order=False)),
        ([], [], Comparison(0, 0, missing=0, doubled=0, in_order=True)),
    ],
)
def test_comparison_notices_every_broken_promise(
    acknowledged: list[str], found: list[str], verdict: Comparison
) -> None:
    """Loss, doubling and disorder each break the promise; more than was promised doesn't."""
    assert compare(acknowledged, found) == verdict
    assert verdict.holds is (verdict.missing == verdict.doubled == 0 and verdict.in_order)


@pytest.mark.case("B18")
@pytest.mark.guarantee("G2")
def test_killed_agent_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A real agent, a real SIGKILL: each record whose sync returned is in the file once, in order."""
    events: list[str] = []
    report = run_demo(tmp_path, seconds=0.5, watch=lambda message: events.append(message["event"]))
    assert report.holds
    assert report.after_kill is not None
    assert report.after_kill.acknowledged == len(report.acknowledged) > 0
    assert report.file_bytes >= report.synced_bytes
    assert events[0] == "begun"
    with pytest.raises(ProcessLookupError):
        os.kill(report.agent_pid, 0)


@pytest.mark.parametrize("damage", ["lose", "double", "swap", "change"])
def test_planted_loss_is_noticed(tmp_path: Path, damage: str) -> None:
    """The same comparison over a file that was tampered with says that the promise was broken."""
    report = run_demo(tmp_path, seconds=0.1)
    path = Path(report.path)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(index for index, each in enumerate(lines) if b'"user_message"' in each)
    match damage:
        case "lose":
            del lines[at]
        case "double":
            lines.insert(at, lines[at])
        case "swap":
            lines[at - 1], lines[at] = lines[at], lines[at - 1]
        case "change":
            lines[at] = lines[at].replace(b"files", b"fires")
    path.write_bytes(b"".join(lines))
    assert not compare(report.acknowledged, found_digests(path)[0]).holds


def test_torn_tail_is_counted_and_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kill leaves half a record, the demo says how much, and the next open sets it aside."""
    end = demo._end

    def end_and_tear(agent: object) -> None:
        end(agent)  # type: ignore[arg-type]
        (path,) = tmp_path.rglob("rollout-*.jsonl")
        with path.open("ab") as file:
            file.write(b'{"timestamp":"20')

    monkeypatch.setattr(demo, "_end", end_and_tear)
    report = run_demo(tmp_path, seconds=0.1)
    assert report.torn_bytes == 16
    assert report.holds
    assert [Path(each).read_bytes() for each in report.kept_files] == [b'{"timestamp":"20']


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.05])
def test_agent_killed_in_its_first_turn_is_forked_before_the_open_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A call that never ended stays out of the fork, and keeps nobody from making one."""
    monkeypatch.setattr(demo.random, "uniform", lambda low, high: seconds)
    report = run_demo(tmp_path, seconds=1)
    assert report.holds
    (fork,) = [path for path in tmp_path.rglob("rollout-*.jsonl") if str(path) != report.path]
    assert report.fork_id in fork.name


def test_agent_that_can_not_work_is_an_error(rollout: Run, tmp_path: Path) -> None:
    """Where nothing can be recorded the demo doesn't claim success."""
    (tmp_path / "sessions").write_text("in the way")
    done = rollout("demo", "--seconds", "0.1", "--keep", tmp_path)
    assert done.returncode == 8
    assert b"the agent acknowledged nothing" in done.stderr


def test_demo_tells_its_story_and_what_to_try(rollout: Run, tmp_path: Path) -> None:
    """Five chapters, a verdict, and commands that work as they are printed."""
    done = rollout("demo", "--seconds", "0.5", TMPDIR=str(tmp_path))
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.search(r"✓ (\d+) of \1 acknowledged records are there: 0 missing, 0 doubled, in order", text)
    assert "✓ not one acknowledged record is missing or doubled" in text
    (home,) = tmp_path.glob("rollout-demo-*")
    assert home.stat().st_mode & 0o777 == 0o700
    commands = re.findall(r"^  \S+ -m thread_store (--home .*)$", text, re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["show", "check", "tree"]
    for command in commands:
        assert rollout(*command.split()).returncode == 0
    shutil.rmtree(home)


def test_demo_as_json_is_one_object(rollout: Run, tmp_path: Path) -> None:
    """The figures for programs, and nothing else on stdout."""
    (found,) = objects(rollout("demo", "--seconds", "0.2", "--json", "--keep", tmp_path / "kept").stdout)
    assert (found["kind"], found["ok"]) == ("demo", True)
    assert found["after_kill"]["missing"] == found["after_reopen"]["missing"] == 0
    assert Path(found["path"]).is_relative_to(tmp_path / "kept")


def test_fork_of_the_demo_stands_below_the_thread(rollout: Run, tmp_path: Path) -> None:
    """The tree that it prints is the one of `rollout tree`, and the fork ends where it says."""
    done = rollout("demo", "--seconds", "0.2", "--keep", tmp_path / "kept")
    shown = re.search(r"^5 .* up to #(\d+)\n   (.*)\n   (.*)\n", done.stdout.decode(), re.MULTILINE)
    assert shown is not None
    tree = rollout("--home", tmp_path / "kept", "tree")
    assert tree.stdout.decode().splitlines() == [shown[2], shown[3]]
    assert f"(at #{shown[1]})" in shown[3]
