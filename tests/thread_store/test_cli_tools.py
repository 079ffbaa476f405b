"""`rollout tools`: what became of each call, and what stands against going on by itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import Script, base_of, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.locks import ThreadLocks

THREAD, CHILD = uuid(0xE1), uuid(0xE2)


def own(script: Script, call_id: str, state: str, **keys: Any) -> None:
    script.add("x_call", {"call_id": call_id, "state": state, "name": "mail", "kind": "custom", **keys})


def every_verdict() -> Script:
    """A turn with one call of each verdict."""
    script = Script()
    script.start("0000-turn-one")
    script.call("done")
    script.output("done")
    own(script, "broken", "started", effect="none")
    own(script, "broken", "failed", error="no such file")
    own(script, "refused", "started")
    own(script, "refused", "declined")
    own(script, "waits", "intended", effect="unsafe")
    own(script, "reads", "started", effect="none")
    own(script, "sends", "started", effect="unsafe")
    return script


@pytest.fixture
def thread(home: Path) -> Path:
    return write_thread(Home(home), THREAD, every_verdict().bytes)


def rows(stdout: bytes) -> list[list[str]]:
    """The cells of the table, without its headings."""
    return [each.split() for each in stdout.decode().splitlines()[1:]]


@pytest.mark.case("B60")
def test_each_call_has_a_verdict_the_open_ones_first(rollout: Run, thread: Path) -> None:
    """Mark, address, time, tool, call, turn, effect, verdict, and why."""
    done = rollout("tools", THREAD)
    assert done.stdout.decode().splitlines()[0].split() == [
        *("ITEM", "WHEN", "TOOL", "CALL", "TURN", "EFFECT", "VERDICT", "WHY")
    ]
    assert [row[0] for row in rows(done.stdout)] == ["–", "?", "?", "✓", "✗", "✗"]
    text = done.stdout.decode()
    order = ["waits", "reads", "sends", "done", "broken", "refused"]
    assert sorted(order, key=lambda name: text.index(f"  {name}")) == order
    lines = {name: next(each for each in text.splitlines() if f"  {name}" in each) for name in order}
    assert "#2 " in lines["done"]
    assert "turn-one" in lines["done"]
    assert "unsafe (assumed)  completed  its result is recorded" in lines["done"]
    assert "none " in lines["reads"]
    assert lines["reads"].endswith("uncertain  it started and has no result; it may run again")
    assert "pending    it was recorded as not yet run" in lines["waits"]
    assert "uncertain  it started and has no result" in lines["sends"]
    assert "failed     it failed (no such file)" in lines["broken"]
    assert "declined   it was declined" in lines["refused"]


def test_unsafe_call_in_doubt_is_exit_code_1_and_names_the_command(rollout: Run, thread: Path) -> None:
    """It is what has to be decided; the read-only one is not."""
    done = rollout("tools", THREAD)
    assert done.returncode == ExitCode.PROBLEMS
    assert done.stderr.decode() == (
        "rollout: 1 call may have run, so no resume goes on by itself. "
        f"Decide: rollout tools {THREAD} --resolve sends happened|not_happened|retry\n"
    )


def test_calls_that_stand_against_nothing_are_exit_code_0(rollout: Run, home: Path) -> None:
    """Known ends, pending calls, and open ones that may run twice."""
    script = Script()
    script.turn(1, calls=["a"])
    own(script, "reads", "started", effect="none")
    write_thread(Home(home), THREAD, script.bytes)
    done = rollout("tools", THREAD)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(rows(done.stdout)) == 2


def test_thread_without_calls_says_so(rollout: Run, home: Path) -> None:
    """On stderr: there is no table."""
    write_thread(Home(home), THREAD, Script().bytes)
    done = rollout("tools", THREAD)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"rollout: no tool calls in {THREAD}\n"


def test_json_is_an_object_a_call_and_a_summary(rollout: Run, thread: Path) -> None:
    """The same verdicts for programs, and nothing else on stdout."""
    done = rollout("tools", THREAD, "--json")
    *calls, summary = objects(done.stdout)
    assert (done.returncode, done.stderr) == (ExitCode.PROBLEMS, b"")
    assert {each["kind"] for each in calls} == {"tool_call"}
    verdicts = {each["call_id"]: each["verdict"] for each in calls}
    assert verdicts == {
        "waits": "pending",
        "reads": "uncertain",
        "sends": "uncertain",
        "done": "completed",
        "broken": "failed",
        "refused": "declined",
    }
    done_call = next(each for each in calls if each["call_id"] == "done")
    assert (done_call["link"], done_call["ordinal"], done_call["turn"]) == (f"{THREAD}#2", 2, "0000-turn-one")
    assert (done_call["tool"]["name"], done_call["effect"]) == ("shell", "unsafe")
    assert (done_call["requested"], done_call["path"]) == ("2026-03-04T05:06:07.000Z", str(thread))
    assert [each["call_id"] for each in calls if each["blocks_resume"]] == ["sends"]
    counts = {"calls": 6, "completed": 1, "failed": 1, "declined": 1, "pending": 1, "uncertain": 2}
    assert summary == {
        "v": 1,
        "kind": "summary",
        "thread": THREAD,
        **counts,
        "blocking": 1,
        "damage": 0,
        "omitted": False,
        "whole": True,
    }


def test_link_of_a_call_shows_it(rollout: Run, thread: Path) -> None:
    """Its address is the one of `rollout show`."""
    *calls, _ = objects(rollout("tools", THREAD, "--json").stdout)
    (link,) = [each["link"] for each in calls if each["call_id"] == "done"]
    assert b"shell" in rollout("show", link).stdout


def test_decision_is_told_with_who_made_it(rollout: Run, home: Path) -> None:
    """Outcome, person and note, in the row and in the object."""
    script = every_verdict()
    own(script, "sends", "resolved", outcome="happened", by="ada@host", note="saw the mail")
    write_thread(Home(home), THREAD, script.bytes)
    done = rollout("tools", THREAD)
    assert done.returncode == 0
    assert "completed  it was decided that it happened, by ada@host (saw the mail)" in done.stdout.decode()
    decisions = [each.get("decision") for each in objects(rollout("tools", THREAD, "--json").stdout)]
    wanted = {"outcome": "happened", "by": "ada@host", "note": "saw the mail", "at_ms": None}
    assert [each for each in decisions if each] == [wanted]


def test_all_shows_what_the_table_leaves_out(rollout: Run, home: Path) -> None:
    """By default the newest that ended; the command for the others is named."""
    script = Script()
    script.turn(1, calls=[f"c{number}" for number in range(40)])
    write_thread(Home(home), THREAD, script.bytes)
    done = rollout("tools", THREAD)
    assert len(rows(done.stdout)) == 32
    assert done.stderr.decode().endswith(f"Try: rollout tools {THREAD} --all\n")
    everything = rollout("tools", THREAD, "--all")
    assert len(rows(everything.stdout)) == 40
    assert everything.stderr == b""
    assert objects(rollout("tools", THREAD, "--json").stdout)[-1]["omitted"] is True


@pytest.mark.guarantee("G8")
def test_damage_is_told_and_exit_code_1(rollout: Run, home: Path) -> None:
    """A call may have stood in a line that can't be read, whatever the others say."""
    script = Script()
    script.turn(1, calls=["a"])
    path = write_thread(Home(home), THREAD, script.bytes + b"rubbish\n")
    at = path.stat().st_size - 8
    done = rollout("tools", THREAD)
    assert done.returncode == ExitCode.PROBLEMS
    said = f"rollout: a line can't be read: not_json at byte {at:,}; a call may have stood there\n"
    assert done.stderr.decode() == said
    (damage,) = [
        each for each in objects(rollout("tools", THREAD, "--json").stdout) if each["kind"] == "damage"
    ]
    assert (damage["reason"], damage["offset"], damage["bytes"]) == ("not_json", at, 8)
    assert (damage["path"], damage["hides_calls"], damage["accepted"]) == (str(path), True, False)


def test_damage_that_somebody_went_on_knowing_of_is_not_in_the_way(rollout: Run, home: Path) -> None:
    """A recovery behind it accepted it; it is still told to programs."""
    script = Script()
    script.lines.append(b"rubbish\n")
    script.add("x_writer", {"event": "recovered"})
    write_thread(Home(home), THREAD, script.bytes)
    done = rollout("tools", THREAD)
    assert done.returncode == 0
    assert b"damage" not in done.stderr
    damage = objects(rollout("tools", THREAD, "--json").stdout)[0]
    assert (damage["kind"], damage["accepted"]) == ("damage", True)


def test_many_damaged_places_are_counted(rollout: Run, home: Path) -> None:
    """Five are named; for the others there is a command."""
    write_thread(Home(home), THREAD, b"rubbish\n" * 9)
    complaints = rollout("tools", THREAD).stderr.decode().splitlines()
    assert f"rollout: 4 damaged places more. See: rollout check {THREAD}" in complaints
    assert sum("can't be read" in each for each in complaints) == 5


@pytest.mark.case("B55")
def test_lost_base_is_damage(rollout: Run, home: Path) -> None:
    """What a fork rests on may have held a call."""
    base = {"thread_id": uuid(0xFF), "end_ordinal_exclusive": 4, "end_byte_offset": 900}
    write_thread(Home(home), THREAD, b"", ordinal=4, history_base=base)
    done = rollout("tools", THREAD)
    assert done.returncode == ExitCode.PROBLEMS
    assert b"the beginning of its history can't be read; a call may have stood there" in done.stderr


def test_calls_of_what_a_fork_rests_on_are_listed(rollout: Run, home: Path) -> None:
    """With the number that they have there too, which is the same in the fork."""
    script = Script()
    script.turn(1, calls=["a"])
    parent = write_thread(Home(home), THREAD, script.bytes)
    assert script.next_ordinal is not None
    base = base_of(parent, THREAD, parent.stat().st_size, script.next_ordinal)
    write_thread(Home(home), CHILD, b"", ordinal=script.next_ordinal, history_base=base)
    (row,) = rows(rollout("tools", CHILD).stdout)
    assert row[1] == "#5"


def test_live_writer_is_no_damage(rollout: Run, home: Path) -> None:
    """The line that it is writing is not torn."""
    script = Script()
    script.turn(1, calls=["a"])
    write_thread(Home(home), THREAD, script.bytes + b'{"timestamp":"20')
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("tools", THREAD)
    lock.release()
    assert (done.returncode, done.stderr) == (0, b"")
    torn = rollout("tools", THREAD)
    assert torn.returncode == ExitCode.PROBLEMS
    assert b"the last line was never finished" in torn.stderr


def test_compressed_rollout_and_pipe_have_the_same_table(rollout: Run, thread: Path, tmp_path: Path) -> None:
    """A `.zst` anywhere, and `-`, whose copy is named nowhere."""
    packed = tmp_path / "packed.jsonl.zst"
    packed.write_bytes(zstandard.compress(thread.read_bytes()))
    expected = rollout("tools", thread).stdout
    assert rollout("tools", packed).stdout == expected != b""
    piped = rollout("tools", "-", input=packed.read_bytes())
    assert piped.stdout == expected
    assert b"--resolve" not in piped.stderr
    for each in objects(rollout("tools", "-", "--json", input=thread.read_bytes()).stdout):
        assert each.get("path") is None


def test_older_format_is_refused_with_what_to_do(rollout: Run, tmp_path: Path) -> None:
    """What has no envelope can be shown and imported, not resumed."""
    old = tmp_path / "old.jsonl"
    head = {"id": THREAD, "timestamp": "2025-05-01T10:00:00.000Z", "instructions": None}
    old.write_text(json.dumps(head) + "\n" + json.dumps({"type": "message", "role": "user", "content": []}))
    done = rollout("tools", old)
    assert (done.returncode, done.stdout) == (ExitCode.DAMAGED, b"")
    assert b"older format" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("@#3",), ("@", "@2"), ("@", "--verdict", "failed")])
def test_wrong_arguments_are_usage_errors(rollout: Run, thread: Path, arguments: tuple[str, ...]) -> None:
    """An item is no thread."""
    done = rollout("tools", *arguments)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.decode().rstrip().endswith("Try: rollout tools --help")


@pytest.mark.parametrize("name", ["@", "nosuchthread", "/no/such/file.jsonl"])
def test_unknown_thread_is_not_found(rollout: Run, home: Path, name: str) -> None:
    """Also in a home that doesn't exist, which stays so."""
    done = rollout("tools", name)
    assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, b"")
    assert not home.exists()


@pytest.mark.case("B105")
def test_names_are_made_harmless(rollout: Run, home: Path) -> None:
    """Tool, call, turn, error and note can only be read."""
    evil = "\x1b]0;owned\x07\u202e\x9b2J\nx"
    script = Script()
    script.start(f"turn{evil}")
    own(script, f"call{evil}", "started", name=f"tool{evil}")
    own(script, f"call{evil}", "failed", error=f"error{evil}")
    own(script, f"open{evil}", "started", name=f"tool{evil}")
    write_thread(Home(home), THREAD, script.bytes)
    done = rollout("tools", THREAD)
    shown = done.stdout.decode() + done.stderr.decode()
    assert all(each.isprintable() for each in shown.splitlines())
    assert len(shown.splitlines()) == 4
    assert "<U+202E>" in shown
    printed = rollout("tools", THREAD, "--json").stdout.decode()
    assert all(each.isprintable() for each in printed.splitlines())
    assert objects(printed.encode())[0]["call_id"] == f"open{evil}"


def test_ascii_table_has_signs_in_ascii(rollout: Run, thread: Path) -> None:
    """Marks have a plain form."""
    done = rollout("tools", THREAD, "--ascii")
    assert done.stdout.isascii()
    assert [row[0] for row in rows(done.stdout)] == ["-", "?", "?", "ok", "!!", "!!"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_closed_pipe_ends_quietly(home: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """`rollout tools … | head -1`: no complaint, exit code 141."""
    script = Script()
    script.turn(1, calls=[f"call-{number}" for number in range(3000)])
    write_thread(Home(home), THREAD, script.bytes)
    command = [*COMMAND, "tools", THREAD, "--all", *options]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(home)
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline()
    running.stdout.close()
    complaints = running.stderr.read()
    running.stderr.close()
    assert (running.wait(120), complaints) == (ExitCode.CLOSED_PIPE, b"")
