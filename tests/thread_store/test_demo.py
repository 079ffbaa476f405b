"""`rollout demo`: the agent is really killed inside a tool, and a loss or a repetition would be noticed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.line import decode_line
from protocol.tool_calls import ToolCallFold
from tests.thread_store.conftest import Run, environment, objects
from thread_store.demo import demo
from thread_store.demo.demo import Comparison, DemoFailed, DemoReport, compare, found_digests, run_demo
from thread_store.demo.demo_resume import ResumeReport
from thread_store.demo.demo_tools import OUTBOX, Moment, letter
from thread_store.resume.call_table import ListedCall
from thread_store.resume.resume_refusals import Refusal, RefusalReason


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
    assert (events[0], events[-1]) == ("begun", "inside")
    with pytest.raises(ProcessLookupError):
        os.kill(report.agent_pid, 0)


@pytest.mark.case("B60")
@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    ("moment", "outcome", "ran_again"),
    [(Moment.BEFORE, "not_happened", ["list", "send"]), (Moment.AFTER, "happened", ["list"])],
)
def test_call_killed_before_or_after_its_side_effect_happens_once(
    tmp_path: Path, moment: Moment, outcome: str, ran_again: list[str]
) -> None:
    """The rollout can't tell which it was, so it blocks the resume; a look at the world can. The call that
    only reads is in nobody's way and runs again."""
    report = run_demo(tmp_path, seconds=0, moment=moment)
    resume = report.resume
    assert resume is not None
    assert report.inside == ["call-0-list", "call-0-send"]
    assert {each.call_id: each.verdict for each in resume.open_calls} == {
        "call-0-list": "uncertain",
        "call-0-send": "uncertain",
    }
    assert [each.reason for each in resume.refusals] == ["uncertain_call"]
    assert [each.details["call_id"] for each in resume.refusals] == ["call-0-send"]
    assert [(each.call_id, each.outcome) for each in resume.decisions] == [("call-0-send", outcome)]
    assert resume.ran_again == ran_again
    assert resume.letters_sent == [letter(report.thread_id, "call-0-send")]
    assert report.holds


def demo_resume_report(**changes: Any) -> ResumeReport:
    """One that holds, but for the changes."""
    call = ToolCallFold()
    for line in (
        b'{"type":"x_call","payload":{"call_id":"send","state":"started","effect":"unsafe"}}',
        b'{"type":"x_call","payload":{"call_id":"list","state":"started","effect":"none"}}',
    ):
        call.add(decode_line(line))
    where = {"request_path": None, "requested_at": None, "last_path": None, "last_at": None}
    refusal = Refusal.make(RefusalReason.UNCERTAIN_CALL, "m", call_id="send")
    parts = {
        "calls": [ListedCall(call=each, **where) for each in call.calls()],
        "refusals": (refusal,),
        "letters_sent": ["a"],
        "letters_wanted": ["a"],
    }
    return ResumeReport(**{**parts, **changes})


_OF_THE_READER = Refusal.make(RefusalReason.UNCERTAIN_CALL, "m", call_id="list")
_OF_DAMAGE = Refusal.make(RefusalReason.DAMAGED_RANGE, "m")


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"refusals": ()}, False),
        ({"refusals": (_OF_THE_READER,)}, False),
        ({"refusals": (*demo_resume_report().refusals, _OF_THE_READER)}, False),
        ({"refusals": (*demo_resume_report().refusals, _OF_DAMAGE)}, False),
        ({"calls": []}, False),
        ({"letters_sent": []}, False),
        ({"letters_sent": ["a", "a"]}, False),
        ({"letters_sent": ["a", "b"]}, False),
    ],
)
def test_each_broken_promise_of_the_resume_is_noticed(changes: dict[str, Any], holds: bool) -> None:
    """A resume that nothing stood against, or the wrong thing; a letter that is lost, doubled or unknown."""
    assert demo_resume_report(**changes).holds is holds


def test_agent_that_was_told_nothing_proves_nothing() -> None:
    """Without an acknowledged record there is no promise to hold."""
    nothing = compare([], [])
    report = DemoReport(home="h", after_kill=nothing, resume=demo_resume_report(), after_resume=nothing)
    assert not report.holds
    report.acknowledged = ["a"]
    assert report.holds


def test_agent_ends_when_nobody_watches_it_any_more(tmp_path: Path) -> None:
    """Its standard input ends with its parent: then its tools end, and so does it."""
    command = [sys.executable, "-m", "thread_store.demo.demo_agent", str(tmp_path), "0", "before"]
    agent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment(tmp_path)
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert any(json.loads(line)["event"] == "inside" for line in agent.stdout)
    agent.stdin.close()
    with agent.stdout as rest:
        rest.read()
    assert agent.wait(120) == 0
    assert len((tmp_path / OUTBOX).read_text().splitlines()) == 1


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


def test_agent_killed_in_its_first_turn_can_be_forked(tmp_path: Path) -> None:
    """What was open in it has an end since the resume, so it keeps nobody from making a fork."""
    report = run_demo(tmp_path, seconds=0)
    assert report.holds
    (fork,) = [path for path in tmp_path.rglob("rollout-*.jsonl") if str(path) != report.path]
    assert report.fork_id in fork.name


def test_agent_that_can_not_work_is_an_error(rollout: Run, tmp_path: Path) -> None:
    """Where nothing can be recorded the demo doesn't claim success."""
    (tmp_path / "sessions").write_text("in the way")
    done = rollout("demo", "--seconds", "0.1", "--keep", tmp_path)
    assert done.returncode == 8
    assert b"the agent acknowledged nothing" in done.stderr


def test_agent_that_never_gets_into_its_tools_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all patience it is killed all the same, and no success is claimed."""
    monkeypatch.setattr(demo, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(demo.random, "uniform", lambda low, high: 0.0)
    with pytest.raises(DemoFailed, match=r"acknowledged nothing|never got into its last tools"):
        run_demo(tmp_path, seconds=1)


def test_demo_tells_its_story_and_what_to_try(rollout: Run, tmp_path: Path) -> None:
    """Seven chapters, a verdict, and commands that work as they are printed."""
    done = rollout("demo", "--seconds", "0.5", TMPDIR=str(tmp_path))
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.search(r"✓ (\d+) of \1 acknowledged records are there: 0 missing, 0 doubled, in order", text)
    assert re.findall(r"^(\d)  ", text, re.MULTILINE) == [*"1234567"]
    assert re.search(r"call-\d+-send +unsafe +uncertain: it started and has no result", text)
    assert "list is in nobody's way" in text
    assert "✗ uncertain_call: send (call-" in text
    assert re.search(r"rollout tools \S+ --resolve call-\d+-send (not_)?happened\n", text)
    assert re.search(
        r"✓ (\d+) letters are in outbox.txt, \1 calls sent one: none lost, none sent twice", text
    )
    assert "✓ not one acknowledged record is missing or doubled, no side effect was repeated" in text
    (home,) = tmp_path.glob("rollout-demo-*")
    assert home.stat().st_mode & 0o777 == 0o700
    commands = re.findall(r"^  \S+ -m thread_store (--home .*)$", text, re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["show", "check", "tools", "resume", "tree"]
    for command in commands:
        assert rollout(*command.split()).returncode == 0
    shutil.rmtree(home)


def test_demo_as_json_is_one_object(rollout: Run, tmp_path: Path) -> None:
    """The figures for programs, and nothing else on stdout."""
    (found,) = objects(rollout("demo", "--seconds", "0.2", "--json", "--keep", tmp_path / "kept").stdout)
    assert (found["kind"], found["ok"]) == ("demo", True)
    assert found["after_kill"]["missing"] == found["after_resume"]["missing"] == 0
    assert [each["effect"] for each in found["calls"] if each["verdict"] == "uncertain"] == ["none", "unsafe"]
    assert [each["reason"] for each in found["resume"]["refused"]] == ["uncertain_call"]
    assert found["resume"]["decisions"][0]["outcome"] in ("happened", "not_happened")
    assert found["resume"]["letters_sent"] == found["resume"]["letters_wanted"] > 0
    assert Path(found["path"]).is_relative_to(tmp_path / "kept")


def test_fork_of_the_demo_stands_below_the_thread(rollout: Run, tmp_path: Path) -> None:
    """The tree that it prints is the one of `rollout tree`, and the fork ends where it says."""
    done = rollout("demo", "--seconds", "0.2", "--keep", tmp_path / "kept")
    shown = re.search(r"^7 .* up to #(\d+)\n   (.*)\n   (.*)\n", done.stdout.decode(), re.MULTILINE)
    assert shown is not None
    tree = rollout("--home", tmp_path / "kept", "tree")
    assert tree.stdout.decode().splitlines() == [shown[2], shown[3]]
    assert f"(at #{shown[1]})" in shown[3]
