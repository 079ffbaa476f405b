"""`rollout resume`: what would be resumed, and why not; `rollout tools --resolve`: what somebody decides."""

from __future__ import annotations

import getpass
import json
import os
import pty
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.thread_store.conftest import COMMAND, Run, environment, objects
from tests.thread_store.histories import Script, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.locks import ThreadLocks

OLDER, THREAD = uuid(0xA1), uuid(0xA2)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder that the agent worked in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def own(script: Script, call_id: str, state: str, **keys: Any) -> None:
    script.add(
        "x_call",
        {"call_id": call_id, "turn_id": "t1", "state": state, "name": "mail", "kind": "custom", **keys},
    )


def talk(*, effect: str | None = None, calls: tuple[str, ...] = ("call-one",)) -> Script:
    """Somebody asked for something; with `effect` calls were begun that have no end."""
    script = Script()
    script.start("t1")
    script.user("send the mail")
    for call_id in calls if effect is not None else ():
        script.call(call_id)
        own(script, call_id, "started", effect=effect)
    return script


def write(home: Path, work: Path, script: Script, thread_id: str = THREAD, **keys: Any) -> Path:
    return write_thread(Home(home), thread_id, script.bytes, cwd=str(work), **keys)


@pytest.fixture
def open_call(home: Path, work: Path) -> Path:
    """A thread with an unsafe call that may have run."""
    return write(home, work, talk(effect="unsafe"))


# What would be resumed


def test_thread_that_nothing_stands_against_is_explained(rollout: Run, home: Path, work: Path) -> None:
    """Folder, goal, history; exit code 0."""
    path = write(home, work, talk())
    before = path.read_bytes()
    done = rollout("resume", THREAD)
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert text.startswith(f"Thread {THREAD} in {work}\n")
    assert "Goal: send the mail" in text
    assert text.endswith("Nothing stands against resuming it\n")
    assert path.read_bytes() == before
    assert not (home / "thread-writer-locks").exists()


@pytest.mark.guarantee("G8")
@pytest.mark.case("B60")
def test_unsafe_call_in_doubt_refuses_and_names_the_command(rollout: Run, open_call: Path) -> None:
    """Exit code 7, the call and what to type."""
    done = rollout("resume", THREAD)
    text = done.stdout.decode()
    assert done.returncode == ExitCode.REFUSED
    assert "uncertain_call: mail (call-one) may have had a side effect" in text
    assert f"rollout tools {THREAD} --resolve call-one happened|not_happened|retry" in text


@pytest.mark.parametrize("effect", ["none", "idempotent"])
def test_call_that_may_run_twice_does_not_refuse(rollout: Run, home: Path, work: Path, effect: str) -> None:
    """It is told as open, and that it may run again."""
    write(home, work, talk(effect=effect))
    done = rollout("resume", THREAD)
    assert done.returncode == 0
    assert b"it may run again, as attempt 2" in done.stdout


def test_check_is_silent_when_good_and_one_line_a_reason_when_not(
    rollout: Run, home: Path, work: Path, open_call: Path
) -> None:
    """For scripts: the exit code is the answer."""
    done = rollout("resume", THREAD, "--check")
    assert (done.returncode, done.stderr) == (ExitCode.REFUSED, b"")
    (line,) = done.stdout.decode().splitlines()
    assert line.startswith("uncertain_call: mail (call-one)")
    write(home, work, talk(), OLDER)
    done = rollout("resume", OLDER, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_json_is_one_object(rollout: Run, open_call: Path, work: Path) -> None:
    """All of it for programs, refusals included; nothing on stderr."""
    done = rollout("resume", THREAD, "--json")
    (found,) = objects(done.stdout)
    assert (done.returncode, done.stderr) == (ExitCode.REFUSED, b"")
    assert (found["v"], found["kind"], found["thread"], found["path"]) == (
        1,
        "resume",
        THREAD,
        str(open_call),
    )
    assert (found["can_resume"], found["cwd"], found["goal"]) == (False, str(work), "send the mail")
    assert (found["items"], found["turn"], found["checkpoint"], found["whole"]) == (2, "t1", None, True)
    (refusal,) = found["refusals"]
    assert (refusal["reason"], refusal["details"]["call_id"]) == ("uncertain_call", "call-one")
    (call,) = found["open_calls"]
    assert (call["verdict"], call["effect"], call["may_run_again"]) == ("uncertain", "unsafe", False)


def test_history_gives_each_call_a_result(rollout: Run, open_call: Path) -> None:
    """As the model would see it; what stands against it is on stderr, and in the exit code."""
    done = rollout("resume", THREAD, "--history")
    message, call, result = objects(done.stdout)
    assert done.returncode == ExitCode.REFUSED
    assert (message["type"], call["call_id"], result["call_id"]) == ("message", "call-one", "call-one")
    assert result["output"].startswith("outcome unknown")
    assert b"rollout: uncertain_call: " in done.stderr
    first, _, _, state = objects(rollout("resume", THREAD, "--history", "--json").stdout)
    assert (first["kind"], first["payload"]) == ("context_item", message)
    assert state["kind"] == "resume"


def test_memory_is_the_block_that_the_model_reads(rollout: Run, home: Path, work: Path) -> None:
    """Between the system prompt and the history."""
    write(home, work, talk())
    done = rollout("resume", THREAD, "--memory")
    assert done.stdout.decode() == "<session_memory>\nGoal: send the mail\n</session_memory>\n"
    (found,) = objects(rollout("resume", THREAD, "--memory", "--json").stdout)
    assert found["memory"] == done.stdout.decode().rstrip()


def test_nothing_to_remember_is_said(rollout: Run, home: Path, work: Path) -> None:
    """On stderr: there is no block."""
    write(home, work, Script())
    done = rollout("resume", THREAD, "--memory")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"rollout: there is nothing to remember yet\n"


@pytest.mark.parametrize(
    ("form", "keys"), [("messages", ["input"]), ("openai", ["messages"]), ("anthropic", ["messages"])]
)
def test_format_is_one_object_of_a_request(
    rollout: Run, home: Path, work: Path, form: str, keys: list[str]
) -> None:
    """One line, with the keys of that API; with --json in an object of ours."""
    write(home, work, talk(effect="none"))
    done = rollout("resume", THREAD, "--format", form)
    (body,) = objects(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(body) == keys
    assert "send the mail" in json.dumps(body)
    (wrapped,) = objects(rollout("resume", THREAD, "--format", form, "--json").stdout)
    assert (wrapped["kind"], wrapped["format"], wrapped["payload"]) == ("request", form, body)
    with_memory = rollout("resume", THREAD, "--format", form, "--memory")
    assert b"<session_memory>" in with_memory.stdout


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_format_is_not_given_to_whom_it_would_mislead(
    rollout: Run, open_call: Path, options: tuple[str, ...]
) -> None:
    """Whoever pipes it into an agent gets nothing while something stands against that."""
    done = rollout("resume", THREAD, "--format", "openai", *options)
    assert (done.returncode, done.stdout) == (ExitCode.REFUSED, b"")
    assert b"resume_refused" in done.stderr or b"resume refused" in done.stderr
    assert f"rollout tools {THREAD} --resolve call-one".encode() in done.stderr
    allowed = rollout("resume", THREAD, "--format", "openai", "--allow", "uncertain_call", *options)
    assert allowed.returncode == 0
    assert b"outcome unknown" in allowed.stdout


def test_format_tells_what_has_no_counterpart(rollout: Run, home: Path, work: Path) -> None:
    """On stderr, counted by kind."""
    script = talk()
    script.add("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"})
    write(home, work, script)
    done = rollout("resume", THREAD, "--format", "anthropic")
    assert done.returncode == 0
    assert done.stderr.decode() == "rollout: left out: 1 x reasoning, which has no counterpart there\n"


def test_allowed_reason_does_not_count(rollout: Run, home: Path, work: Path, open_call: Path) -> None:
    """By its name, each for itself; one that can't be waived is no choice."""
    work.rmdir()
    assert rollout("resume", THREAD, "--check", "--allow", "uncertain_call").returncode == ExitCode.REFUSED
    both = ("--allow", "uncertain_call", "--allow", "workspace_missing")
    assert rollout("resume", THREAD, "--check", *both).returncode == 0
    (found,) = objects(rollout("resume", THREAD, "--json", *both).stdout)
    assert (found["can_resume"], found["allowed"]) == (True, ["uncertain_call", "workspace_missing"])
    assert rollout("resume", THREAD, "--allow", "live_writer").returncode == ExitCode.USAGE


@pytest.mark.parametrize("options", [(), ("--check",), ("--format", "openai")])
def test_live_writer_is_busy(rollout: Run, home: Path, work: Path, options: tuple[str, ...]) -> None:
    """Exit code 6, and who it is."""
    write(home, work, talk())
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("resume", THREAD, *options)
    lock.release()
    assert done.returncode == ExitCode.BUSY
    assert f"it is being written by pid {os.getpid()}".encode() in done.stdout + done.stderr
    assert (done.stdout == b"") is (options == ("--format", "openai"))


def test_deep_looks_at_what_was_not_examined(rollout: Run, home: Path, work: Path) -> None:
    """A thread without x_memory and with a compaction is examined in part; --deep is the way out."""
    script = talk()
    script.compacted("so far")
    for number in range(1600):
        script.response("assistant", f"word {number}")
    write(home, work, script)
    done = rollout("resume", THREAD, "--check")
    assert done.returncode == ExitCode.REFUSED
    assert "unexamined_range: what stands before byte " in done.stdout.decode()
    assert f"rollout resume {THREAD} --deep" in done.stdout.decode()
    assert rollout("resume", THREAD, "--check", "--deep").returncode == 0


@pytest.mark.guarantee("G8")
def test_damaged_range_refuses(rollout: Run, home: Path, work: Path) -> None:
    """A call may have stood there; where, and the command that tells more."""
    script = talk()
    script.lines.append(b"rubbish\n")
    path = write(home, work, script)
    done = rollout("resume", THREAD, "--check")
    assert done.returncode == ExitCode.REFUSED
    (line,) = done.stdout.decode().splitlines()
    assert line.startswith("damaged_range: ")
    assert line.endswith(f"rollout check {path}")


# Which thread


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_last_passes_over_live_threads_and_says_so(
    rollout: Run, home: Path, work: Path, options: tuple[str, ...]
) -> None:
    """The newest that nobody writes."""
    write(home, work, talk(), OLDER)
    write(home, work, talk(), THREAD)
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("resume", "--last", *options)
    lock.release()
    assert done.returncode == 0
    assert OLDER in done.stdout.decode()
    note = f"rollout: {THREAD} is passed over: it is being written by pid {os.getpid()}"
    assert note in done.stderr.decode()
    if options:
        (found,) = objects(done.stdout)
        assert [(each["thread"], each["writer"]["pid"]) for each in found["passed_over"]] == [
            (THREAD, os.getpid())
        ]
    assert THREAD in rollout("resume", "--last").stdout.decode()


def test_last_in_an_empty_home_is_not_found(rollout: Run, home: Path) -> None:
    """And the home is not made."""
    done = rollout("resume", "--last")
    assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, b"")
    assert not home.exists()


@pytest.mark.parametrize("name", ["@", "nosuchthread", "/no/such/file.jsonl"])
def test_unknown_thread_is_not_found(rollout: Run, home: Path, name: str) -> None:
    """In a home that doesn't exist, too."""
    done = rollout("resume", name)
    assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-",),
        ("@", "--last"),
        ("@#3",),
        ("@", "--memory", "--history"),
        ("@", "--check", "--history"),
        ("@", "--check", "--format", "openai"),
        ("@", "--format", "mistral"),
        ("@", "--allow", "everything"),
    ],
)
def test_wrong_arguments_are_usage_errors(rollout: Run, open_call: Path, arguments: tuple[str, ...]) -> None:
    """One line, and nothing on stdout."""
    done = rollout("resume", *arguments)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert len(done.stderr.splitlines()) == 1
    assert b"Try: rollout" in done.stderr


def test_file_outside_a_home_is_looked_at(rollout: Run, open_call: Path, tmp_path: Path) -> None:
    """Compressed too: what somebody sent can be judged before it is forked into the home."""
    packed = tmp_path / "sent.jsonl.zst"
    packed.write_bytes(zstandard.compress(open_call.read_bytes()))
    done = rollout("resume", packed, "--check")
    assert done.returncode == ExitCode.REFUSED
    assert done.stdout.startswith(b"uncertain_call: ")


def test_file_that_its_thread_no_longer_goes_on_in_is_refused(rollout: Run, home: Path, work: Path) -> None:
    """The current one is named."""
    script = talk()
    script.turn(2)
    path = write(home, work, script)
    assert rollout("revert", THREAD, "--turn", "1", "-y").returncode == 0
    done = rollout("resume", path)
    assert done.returncode == ExitCode.REFUSED
    assert b"goes on in" in done.stderr


def test_older_format_is_refused_with_what_to_do(rollout: Run, tmp_path: Path) -> None:
    """It can be shown and imported."""
    old = tmp_path / "old.jsonl"
    head = {"id": THREAD, "timestamp": "2025-05-01T10:00:00.000Z", "instructions": None}
    old.write_text(json.dumps(head) + "\n" + json.dumps({"type": "message", "role": "user", "content": []}))
    done = rollout("resume", old)
    assert (done.returncode, done.stdout) == (ExitCode.DAMAGED, b"")
    assert b"older format" in done.stderr


@pytest.mark.case("B105")
@pytest.mark.parametrize("options", [(), ("--check",), ("--memory",), ("--json",)])
def test_recorded_texts_are_made_harmless(
    rollout: Run, home: Path, work: Path, options: tuple[str, ...]
) -> None:
    """Goal, names, ids and reasons can only be read."""
    evil = "\x1b]0;owned\x07\u202e\x9b2J"
    script = Script()
    script.start("t1")
    script.user(f"goal{evil}")
    own(script, f"call{evil}", "started", name=f"tool{evil}")
    script.add("x_check", {"check_id": "k", "state": "started", "what": f"check{evil}"})
    write(home, work, script)
    done = rollout("resume", THREAD, *options)
    shown = done.stdout.decode() + done.stderr.decode()
    assert shown
    assert all(each.isprintable() for each in shown.splitlines())


def test_closed_pipe_ends_quietly(home: Path, work: Path, tmp_path: Path) -> None:
    """`rollout resume … --history | head -1`: no complaint, exit code 141."""
    script = talk()
    for number in range(5000):
        script.response("assistant", f"word {number}")
    write(home, work, script)
    command = [*COMMAND, "resume", THREAD, "--history"]
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


# A person decides


def decisions(path: Path) -> list[dict[str, Any]]:
    """The decisions that stand in a rollout."""
    lines = [json.loads(each) for each in path.read_bytes().splitlines()]
    return [
        each["payload"]
        for each in lines
        if each["type"] == "x_call" and each["payload"]["state"] == "resolved"
    ]


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize(
    ("outcome", "verdict", "again"),
    [("happened", "completed", False), ("not_happened", "failed", False), ("retry", "pending", True)],
)
def test_decision_is_recorded_and_unblocks_the_resume(
    rollout: Run, open_call: Path, outcome: str, verdict: str, again: bool
) -> None:
    """Who, when and why stand in the rollout; what may be done now is said."""
    done = rollout("tools", THREAD, "--resolve", "call-one", outcome, "--note", "asked them", "-y", "--json")
    (found,) = objects(done.stdout)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    assert (done.returncode, done.stderr) == (0, b"")
    assert (found["kind"], found["call_id"], found["outcome"], found["by"]) == (
        "resolved",
        "call-one",
        outcome,
        by,
    )
    assert (found["verdict"], found["may_run_again"], found["can_resume"]) == (verdict, again, True)
    (recorded,) = decisions(open_call)
    assert (recorded["outcome"], recorded["by"], recorded["note"]) == (outcome, by, "asked them")
    assert recorded["at_ms"] > 0
    assert rollout("resume", THREAD, "--check").returncode == 0
    assert rollout("check", THREAD).returncode == 0


def test_decision_in_words_says_what_comes_next(rollout: Run, open_call: Path) -> None:
    """A further attempt has a number and a key; the resume has a command."""
    done = rollout("tools", THREAD, "--resolve", "call-one", "retry", "--yes")
    recorded, advice = done.stdout.decode().splitlines()
    assert recorded.startswith("call-one: recorded that it may run again, as a further attempt (by ")
    assert advice == "It may run again, as attempt 2 with the key t1/call-one"
    assert done.stderr.decode() == (
        f"rollout: nothing stands against resuming it. See: rollout resume {THREAD}\n"
    )


def test_what_still_stands_against_the_resume_is_told(rollout: Run, home: Path, work: Path) -> None:
    """One decision may not be all that is wanted."""
    write(home, work, talk(effect="unsafe", calls=("call-one", "call-two")))
    done = rollout("tools", THREAD, "--resolve", "call-one", "happened", "-y")
    assert done.returncode == 0
    assert b"it is still not resumed automatically: uncertain_call: mail (call-two)" in done.stderr


@pytest.mark.parametrize("name", ["call-o", "-one"])
def test_call_is_found_by_the_beginning_or_end_of_its_id(rollout: Run, open_call: Path, name: str) -> None:
    """Four characters or more, if no other call has them."""
    assert rollout("tools", THREAD, "--resolve", name, "happened", "-y").returncode == 0
    assert [each["call_id"] for each in decisions(open_call)] == ["call-one"]


@pytest.mark.parametrize("name", ["call-", "one", "nothing-like-it"])
def test_call_that_is_not_meant_for_sure_is_refused(rollout: Run, home: Path, work: Path, name: str) -> None:
    """Several fit, or it is too short, or there is none: the candidates are named, nothing is recorded."""
    path = write(home, work, talk(effect="unsafe", calls=("call-one", "call-two")))
    before = path.read_bytes()
    done = rollout("tools", THREAD, "--resolve", name, "happened", "-y")
    assert done.returncode == ExitCode.USAGE
    assert b"call-one, call-two" in done.stderr
    assert path.read_bytes() == before


def test_call_id_of_two_turns_wants_the_turn(rollout: Run, home: Path, work: Path) -> None:
    """`--turn` says which."""
    script = talk(effect="unsafe")
    script.start("t2")
    own(script, "call-one", "started", turn_id="t2")
    path = write(home, work, script)
    done = rollout("tools", THREAD, "--resolve", "call-one", "happened", "-y")
    assert done.returncode == ExitCode.USAGE
    assert b"in the turns t1, t2" in done.stderr
    assert rollout("tools", THREAD, "--resolve", "call-one", "happened", "--turn", "t2", "-y").returncode == 0
    assert [each["turn_id"] for each in decisions(path)] == ["t2"]


def test_decision_stands(rollout: Run, open_call: Path) -> None:
    """A second one is refused: the call is not uncertain any more."""
    arguments = ("tools", THREAD, "--resolve", "call-one", "happened", "-y")
    assert rollout(*arguments).returncode == 0
    again = rollout(*arguments)
    assert again.returncode == ExitCode.USAGE
    assert b"it is completed: it was decided that it happened" in again.stderr
    assert len(decisions(open_call)) == 1


def test_command_without_a_terminal_is_the_decision(rollout: Run, open_call: Path) -> None:
    """A script that names the call and the outcome has said all there is to say."""
    done = rollout("tools", THREAD, "--resolve", "call-one", "happened")
    assert done.returncode == 0, done.stderr
    assert len(decisions(open_call)) == 1


@pytest.mark.parametrize(("answer", "code", "count"), [(b"y\n", 0, 1), (b"n\n", 7, 0), (b"\n", 7, 0)])
def test_person_at_a_terminal_is_asked(
    home: Path, open_call: Path, tmp_path: Path, answer: bytes, code: int, count: int
) -> None:
    """What the call was given and what would be recorded; only a yes records it."""
    control, terminal = pty.openpty()
    command = [*COMMAND, "tools", THREAD, "--resolve", "call-one", "not_happened"]
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env=environment(home, TERM="dumb"),
    ) as process:
        os.close(terminal)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(control, 1 << 12)
        os.write(control, answer)
        with suppress(OSError):  # Linux says EIO when the other side is gone
            while os.read(control, 1 << 12):
                continue
        assert process.wait(120) == code
    os.close(control)
    assert b"mail (call-one), unsafe: it started and has no result" in asked
    assert b"it was given {}" in asked
    assert b"Record that it did not happen; the model is told so?" in asked
    assert len(decisions(open_call)) == count


def test_thread_that_is_being_written_is_busy(rollout: Run, home: Path, open_call: Path) -> None:
    """Nobody is asked, and nothing is recorded."""
    before = open_call.read_bytes()
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("tools", THREAD, "--resolve", "call-one", "happened", "-y")
    lock.release()
    assert done.returncode == ExitCode.BUSY
    assert f"is being written by pid {os.getpid()}".encode() in done.stderr
    assert open_call.read_bytes() == before


def test_file_outside_a_home_can_not_be_decided_on(rollout: Run, open_call: Path, tmp_path: Path) -> None:
    """It is no thread; as `revert` has it."""
    alone = open_call.rename(tmp_path / open_call.name)
    assert rollout("tools", alone, "--resolve", "call-one", "happened", "-y").returncode == ExitCode.REFUSED


@pytest.mark.parametrize(
    "options",
    [
        ("--resolve", "call-one"),
        ("--resolve", "call-one", "maybe"),
        ("--resolve", "call-one", "happened", "--all"),
        ("--note", "x"),
        ("--turn", "t1"),
        ("-y",),
    ],
)
def test_wrong_decisions_are_usage_errors(rollout: Run, open_call: Path, options: tuple[str, ...]) -> None:
    """Nothing is recorded."""
    done = rollout("tools", THREAD, *options)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert len(done.stderr.splitlines()) == 1
    assert decisions(open_call) == []
