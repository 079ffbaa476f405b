"""`rollout context`: the model's context as JSON Lines, byte for byte, and what is missing of it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.thread_store.conftest import (
    COMMAND,
    THREAD,
    Line,
    Run,
    encoded,
    environment,
    line,
    meta_line,
    objects,
    said,
)
from tests.thread_store.histories import Script, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home
from thread_store.locks import ThreadLocks

Write = Callable[..., Path]
OTHER = uuid(0xB1)


def talk(*texts: str) -> list[Line]:
    return [
        meta_line(),
        *(line(number, "response_item", said("user", text)) for number, text in enumerate(texts, 1)),
    ]


def test_each_line_is_a_payload_as_it_was_recorded(rollout: Run, write: Write) -> None:
    """Bytes are kept: the order of keys, spaces, numbers, and what is unknown here."""
    odd = b'{"role":"user", "type":"message","content":[],"x":1.50e2,"y":"\\u00e9\\ud800"}'
    record = b'{"timestamp":"2026-03-04T05:06:08.000Z","ordinal":1,"type":"response_item","payload":%s}\n'
    write(meta_line(), record % odd, line(2, "event_msg", {"type": "user_message", "message": "hi"}))
    done = rollout("context", THREAD)
    assert (done.returncode, done.stdout, done.stderr) == (0, odd + b"\n", b"")


def test_context_begins_with_the_newest_compaction(rollout: Run, write: Write) -> None:
    """Its replacement history, then what came later, without what was rolled back."""
    kept = [said("user", "in short")]
    write(
        *talk("old"),
        line(2, "compacted", {"message": "m", "replacement_history": kept}),
        line(3, "response_item", said("user", "new")),
        line(4, "response_item", said("user", "taken back")),
        line(5, "event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
    )
    done = rollout("context", THREAD)
    assert [each["content"][0]["text"] for each in objects(done.stdout)] == ["in short", "new"]
    assert done.returncode == 0


def test_json_says_where_each_item_stands(rollout: Run, write: Write) -> None:
    """An object an item, its payload last and its numbers as they were; then one with the settings."""
    record = b'{"timestamp":"t","ordinal":1,"type":"response_item","payload":%s}\n'
    payload = b'{"type":"function_call","call_id":"c","name":"n","arguments":"{}","x":1e400}'
    context = {"turn_id": "t1", "model": "m1"}
    path = write(meta_line(base_instructions={"text": "be brief"}), record % payload)
    with path.open("ab") as file:
        file.write(encoded([line(2, "turn_context", context)]))
    done = rollout("context", path, "--json")
    first, last = done.stdout.splitlines()
    item, summary = json.loads(first), json.loads(last)
    assert (done.returncode, done.stderr) == (0, b"")
    assert first.endswith(b',"payload":' + payload + b"}")
    assert (item["v"], item["kind"], item["type"], item["call_id"]) == (
        1,
        "context_item",
        "function_call",
        "c",
    )
    assert (item["path"], item["offset"]) == (str(path), path.read_bytes().index(b'{"timestamp":"t"'))
    assert (summary["kind"], summary["thread"], summary["items"]) == ("context", THREAD, 1)
    assert (summary["base_instructions"], summary["turn_context"]) == ("be brief", context)
    assert (summary["checkpoint"], summary["whole"], summary["problems"]) == (None, True, 0)


def test_json_is_ascii_where_the_locale_is(rollout: Run, write: Write) -> None:
    """Payloads are escaped then, and mean the same."""
    write(*talk("grün \U0001f600 \u202e"))
    item, _ = objects(rollout("context", THREAD, "--json", "--ascii").stdout)
    assert rollout("context", THREAD, "--json", "--ascii").stdout.isascii()
    assert item["payload"] == said("user", "grün \U0001f600 \u202e")


def test_empty_thread_has_an_empty_context(rollout: Run, write: Write) -> None:
    """Nothing is printed, and nothing is wrong."""
    write(meta_line())
    done = rollout("context", THREAD)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.guarantee("G5")
def test_damaged_line_is_told_and_the_rest_comes(rollout: Run, write: Write) -> None:
    """Exit code 1, because something is missing; the place is named on stderr."""
    lines = talk("one", "two")
    path = write(*lines[:2], b"\xff rubbish\n", *lines[2:])
    at = path.read_bytes().index(b"\xff")
    done = rollout("context", THREAD)
    assert done.returncode == ExitCode.PROBLEMS
    assert [each["content"][0]["text"] for each in objects(done.stdout)] == ["one", "two"]
    assert f"rollout: byte {at}: " in done.stderr.decode()
    (warning,) = objects(rollout("context", THREAD, "--json").stderr)
    assert (warning["kind"], warning["code"]) == ("warning", "not_utf8")
    assert (warning["offset_bytes"], warning["path"]) == (at, str(path))


@pytest.mark.case("B49")
def test_invalid_checkpoint_is_told(rollout: Run, write: Write) -> None:
    """The one before it counts, and whoever reads the output learns that."""
    write(
        *talk("old"),
        line(2, "compacted", {"message": "m", "replacement_history": [said("user", "first")]}),
        line(3, "compacted", {"message": 7}),
    )
    done = rollout("context", THREAD)
    assert [each["content"][0]["text"] for each in objects(done.stdout)] == ["first"]
    assert done.returncode == ExitCode.PROBLEMS
    assert b"a compaction that can't be read, so an older one counts" in done.stderr


def test_many_damaged_places_are_counted(rollout: Run, write: Write) -> None:
    """Ten are named; for the others there is a command."""
    write(*talk("one"), *[b"rubbish\n"] * 14)
    complaints = rollout("context", THREAD).stderr.decode().splitlines()
    assert len(complaints) == 11
    assert complaints[-1] == f"rollout: 4 damaged places more. See: rollout check {THREAD}"


@pytest.mark.case("B55")
def test_lost_base_is_told_and_the_rest_comes(rollout: Run, home: Path) -> None:
    """A fork whose source is gone still has what is its own."""
    base = {"thread_id": uuid(0xFF), "end_ordinal_exclusive": 4, "end_byte_offset": 900}
    script = Script(5)
    script.user("mine")
    write_thread(Home(home), OTHER, script.bytes, ordinal=4, history_base=base)
    done = rollout("context", OTHER)
    assert done.returncode == ExitCode.PROBLEMS
    assert len(done.stdout.splitlines()) == 1
    assert b"the beginning of its history can't be read" in done.stderr


@pytest.mark.guarantee("G2")
def test_line_that_is_being_written_is_no_damage(rollout: Run, home: Path, write: Write) -> None:
    """Under a live writer an unfinished line is in flight; without one it is torn."""
    path = write(*talk("one"))
    with path.open("ab") as file:
        file.write(b'{"timestamp":"20')
    lock = ThreadLocks(home).acquire(THREAD)
    done = rollout("context", THREAD)
    lock.release()
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == 1
    assert rollout("context", THREAD).returncode == ExitCode.PROBLEMS


def long_thread(home: Path) -> Path:
    """A checkpoint, and behind it more records than are looked through for an x_memory."""
    script = Script()
    script.add("turn_context", {"model": "m1"})
    script.compacted("so far")
    for number in range(1600):
        script.response("assistant", f"word {number}")
    return write_thread(Home(home), OTHER, script.bytes)


def test_deep_reads_what_was_not_needed(rollout: Run, home: Path) -> None:
    """Without it the command says from where on it looked; the items are the same."""
    long_thread(home)
    short = rollout("context", OTHER)
    deep = rollout("context", OTHER, "--deep", "--json")
    assert (short.returncode, deep.returncode) == (0, 0)
    assert f"Try: rollout context {OTHER} --deep" in short.stderr.decode()
    *items, summary = objects(deep.stdout)
    assert [each["payload"] for each in items] == objects(short.stdout)
    assert (summary["whole"], summary["turn_context"]) == (True, {"model": "m1"})


def test_compressed_rollout_has_the_same_context(rollout: Run, write: Write, tmp_path: Path) -> None:
    """Bytes and exit code, from a file that lies anywhere."""
    path = write(*talk("one", "two"))
    packed = tmp_path / "packed.jsonl.zst"
    packed.write_bytes(zstandard.compress(path.read_bytes()))
    assert rollout("context", packed).stdout == rollout("context", path).stdout != b""


def test_standard_input_is_read(rollout: Run, write: Write) -> None:
    """`-` is a rollout that comes through a pipe; no name of a temporary file is told."""
    path = write(*talk("one"))
    data = path.read_bytes()
    assert rollout("context", "-", input=data).stdout == rollout("context", path).stdout != b""
    for each in objects(rollout("context", "-", "--json", input=data).stdout):
        assert each.get("path") is None
    done = rollout("context", "-", input=b"no rollout\n")
    assert done.returncode == ExitCode.DAMAGED
    assert b"standard input is not a rollout" in done.stderr


def test_older_format_is_refused_with_what_to_do(rollout: Run, tmp_path: Path) -> None:
    """What has no envelope can be shown and imported, not resumed."""
    old = tmp_path / "old.jsonl"
    message = {"type": "message", "role": "user", "content": []}
    head = {"id": THREAD, "timestamp": "2025-05-01T10:00:00.000Z", "instructions": None}
    old.write_text(json.dumps(head) + "\n" + json.dumps(message) + "\n")
    done = rollout("context", old)
    assert (done.returncode, done.stdout) == (ExitCode.DAMAGED, b"")
    assert b"older format" in done.stderr
    assert b"import it" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("@#3",), ("@@100",), ("@", "--format", "openai")])
def test_wrong_arguments_are_usage_errors(rollout: Run, write: Write, arguments: tuple[str, ...]) -> None:
    """An item is no thread, and the exact context has one form."""
    write(*talk("one"))
    done = rollout("context", *arguments)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.decode().rstrip().endswith("Try: rollout context --help")


@pytest.mark.parametrize("name", ["@", "nosuchthread", "01960000", "/no/such/file.jsonl"])
def test_unknown_thread_is_not_found(rollout: Run, home: Path, name: str) -> None:
    """Also in a home that doesn't exist, which stays so."""
    done = rollout("context", name)
    assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, b"")
    assert not home.exists()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_closed_pipe_ends_quietly(home: Path, write: Write, tmp_path: Path, options: tuple[str, ...]) -> None:
    """`rollout context … | head -1`: one line, no complaint, exit code 141."""
    path = write(*talk(*(f"message {number}" for number in range(5000))))
    command = [*COMMAND, "context", str(path), *options]
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


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_full_disk_behind_stdout_is_an_error(
    home: Path, write: Write, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """What could not be printed is not passed over: exit code 8 and one line."""
    path = write(*talk("one"))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "context", str(path), *options],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(home),
            timeout=120,
        )
    assert done.returncode == ExitCode.SYSTEM
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.case("B105")
def test_terminal_gets_the_same_json_made_harmless(home: Path, write: Write, tmp_path: Path) -> None:
    """What turns the writing round or is a control character stands as an escape; parsed it is equal."""
    text = "a\u202eb\x9b31mc\x7f"
    write(*talk(text))
    outer, inner = pty.openpty()
    command = [*COMMAND, "context", THREAD]
    done = subprocess.run(
        command, stdout=inner, cwd=tmp_path, env=environment(home, TERM="xterm"), timeout=60
    )
    os.close(inner)
    printed = os.read(outer, 4096).decode()
    os.close(outer)
    assert done.returncode == 0
    assert printed.strip().isprintable()
    assert json.loads(printed) == said("user", text)
