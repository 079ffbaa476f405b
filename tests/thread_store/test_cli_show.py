"""`rollout show`: every message once, everything harmless, damage where it is, nothing folded in silence."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rollout import blocking
from tests.thread_store.conftest import THREAD, Run, encoded, line, meta_line, objects, said
from tests.thread_store.histories import base_of, turns, uuid, write_thread
from thread_store.cli.failures import ExitCode
from thread_store.home import Home

Write = Callable[..., Path]


def answer(ordinal: int, **payload: Any) -> dict[str, Any]:
    return line(ordinal, "response_item", payload)


CONVERSATION = (
    meta_line(git={"branch": "main"}),
    line(1, "event_msg", {"type": "task_started", "turn_id": "t"}),
    answer(2, **said("user", "list the files")),
    line(3, "event_msg", {"type": "user_message", "message": "list the files"}),
    answer(4, type="reasoning", summary=[{"type": "summary_text", "text": "ls will do"}]),
    answer(5, type="function_call", name="shell", arguments='{"cmd":"ls -l"}', call_id="c1"),
    line(None, "x_call", {"call_id": "c1", "state": "started"}),
    answer(6, type="function_call_output", call_id="c1", output="\n".join(f"file {n}" for n in range(40))),
    line(None, "x_call", {"call_id": "c1", "state": "completed"}),
    answer(7, **said("assistant", "There are\nforty.")),
    line(8, "event_msg", {"type": "agent_message", "message": "There are\nforty."}),
    answer(9, type="function_call", name="mail", arguments='{"to":"x"}', call_id="c2"),
    line(10, "event_msg", {"type": "turn_aborted", "turn_id": "t", "reason": "interrupted"}),
)


def test_conversation_reads_like_one(rollout: Run, write: Write) -> None:
    """Header, messages once, thinking, calls with their results, and markers, in order."""
    write(*CONVERSATION)
    done = rollout("show", THREAD)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"{THREAD} · /srv/demo (main) · hand 0.0.1 · begun Wed 2026-03-04 05:06:07",
        "#2     05:06:08 you        list the files",
        "#4     05:06:08 thinking   ls will do",
        "#5     05:06:08 ⚙ shell    ls -l  ✓",
        *[f"                           │ file {n}" for n in range(8)],
        f"                           … 32 more lines, 230 more characters (rollout show {THREAD}#5)".replace(
            "230", str(sum(len(f"file {n}") for n in range(8, 40)))
        ),
        "#7     05:06:08 assistant  There are",
        "                           forty.",
        '#9     05:06:08 ⚙ mail     {"to":"x"}  ? no result in this file',
        "#10    05:06:08            ─ turn aborted: interrupted",
    ]


def test_one_item_is_shown_whole(rollout: Run, write: Write) -> None:
    """The command that a fold names shows everything of it."""
    write(*CONVERSATION)
    shown = rollout("show", f"{THREAD}#5").stdout.decode()
    assert "file 39" in shown
    assert "more lines" not in shown
    assert "list the files" not in shown


@pytest.mark.parametrize(
    ("address", "texts"),
    [
        ("#2", ["list the files"]),
        ("#3", ["list the files"]),
        ("#4..7", ["ls will do", "There are\nforty."]),
        ("#7..", ["There are\nforty.", "turn aborted: interrupted"]),
        ("#100..", None),
        ("#77", None),
        ("@77", None),
    ],
)
def test_address_selects_items(rollout: Run, write: Write, address: str, texts: list[str] | None) -> None:
    """Numbers of either track name the item; what isn't there is exit code 3."""
    write(*CONVERSATION)
    done = rollout("show", f"{THREAD}{address}", "--json")
    if texts is None:
        assert done.returncode == ExitCode.NOT_FOUND
        (error,) = objects(done.stderr)
        assert error["code"] == "item_not_found"
        assert address in error["message"]
        return
    assert done.returncode == 0
    assert [each["text"] for each in objects(done.stdout) if each["text"]] == texts


def test_offset_selects_a_record_without_ordinal(rollout: Run, write: Write) -> None:
    """Records that carry no number are named by the byte where they begin."""
    path = write(*CONVERSATION)
    offset = path.read_bytes().index(b'{"timestamp": "2026-03-04T05:06:08.000Z", "type": "x_call"')
    (item,) = objects(rollout("show", f"{path}@{offset}", "--json").stdout)
    assert item["type"] == "tool_call"


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("--view", "tools"), {"shell", "mail"}),
        (("--no-tools",), {"you", "thinking", "assistant", ""}),
        (("--no-thinking",), {"you", "shell", "assistant", "mail", ""}),
        (("--view", "full"), {"event", "you", "thinking", "shell", "assistant", "mail", ""}),
    ],
)
def test_views_leave_out_what_they_say(
    rollout: Run, write: Write, options: tuple[str, ...], kinds: set[str]
) -> None:
    """Each view shows its kinds of items and no others."""
    write(*CONVERSATION)
    shown = rollout("show", THREAD, *options).stdout.decode().splitlines()[1:]
    found = {match[1].strip(" ⚙") for each in shown if (match := re.match(r"[#@]\d+ +\S+ (.{10})", each))}
    assert found == kinds


@pytest.mark.parametrize("lines", [0, 3])
def test_max_output_is_the_number_of_lines(rollout: Run, write: Write, lines: int) -> None:
    """A tool's output is folded to so many lines; 0 folds nothing."""
    write(*CONVERSATION)
    shown = rollout("show", THREAD, "--max-output", str(lines)).stdout.decode()
    assert len(re.findall("│ file", shown)) == (lines or 40)


def test_one_enormous_line_is_folded_too(rollout: Run, write: Write) -> None:
    """Output without newlines is folded by characters, and so are arguments."""
    write(
        meta_line(),
        answer(1, type="function_call", name="t", arguments="a" * 9000, call_id="c"),
        answer(2, type="function_call_output", call_id="c", output="b" * 100_000),
    )
    done = rollout("show", THREAD)
    assert len(done.stdout) < 5000
    assert f"(rollout show {THREAD}#1)" in done.stdout.decode()
    assert b"b" * 100_000 in rollout("show", f"{THREAD}#1").stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("count", [1, 3, 99])
def test_newest_items_from_either_end(
    rollout: Run, write: Write, options: tuple[str, ...], count: int
) -> None:
    """`-n` gives the newest items in order, `--reverse` turns them round."""
    write(*CONVERSATION)

    def lines(*more: str) -> list[str]:
        shown = rollout(
            "show", THREAD, "--max-output", "1", "--view", "full", *options, *more
        ).stdout.decode()
        entries = re.split(r"\n(?=[#@{])", shown.strip())
        return entries if options else entries[1:]

    everything = lines()
    newest = everything[-count:]
    assert lines("-n", str(count)) == newest
    assert lines("-n", str(count), "--reverse") == newest[::-1]
    assert lines("--reverse") == everything[::-1]


def test_items_as_json_have_all_that_is_known(rollout: Run, write: Write) -> None:
    """A call and its result are one object, unfolded, with its address and digest."""
    path = write(*CONVERSATION)
    (item,) = objects(rollout("show", f"{THREAD}#5", "--json").stdout)
    sha256 = item.pop("sha256")
    output = "\n".join(f"file {n}" for n in range(40))
    assert item == {
        "v": 1,
        "kind": "item",
        "thread": THREAD,
        "ordinal": 5,
        "offset": path.read_bytes().index(encoded([CONVERSATION[5]])),
        "ts": "2026-03-04T05:06:08.000Z",
        "type": "tool_call",
        "role": None,
        "text": None,
        "record_type": "response_item",
        "link": f"{THREAD}#5",
        "tool": {"name": "shell", "call_id": "c1", "args": '{"cmd":"ls -l"}'},
        "result": {
            "status": "completed",
            "exit_code": None,
            "ms": None,
            "output": output,
            "bytes": len(output),
            "truncated": False,
        },
    }
    assert re.fullmatch("[0-9a-f]{64}", sha256)


@pytest.mark.case("B06")
@pytest.mark.case("B01")
@pytest.mark.case("B04")
def test_damage_is_told_where_it_is(rollout: Run, write: Write) -> None:
    """A bad line and a torn tail stand in place, hide nothing, and name the command that helps."""
    path = write(
        meta_line(),
        answer(1, **said("user", "before")),
        b'{"bro\n',
        answer(2, **said("user", "after")),
        b'{"torn":',
    )
    done = rollout("show", path)
    before, bad, after, torn = done.stdout.decode().splitlines()[1:]
    assert done.returncode == 0
    assert "before" in before
    assert re.search(r"─ line 3, byte [\d,]+: it is not JSON.*\(rollout check ", bad)
    assert "after" in after
    assert re.search(r"─ torn tail: 8 bytes after #2 are no record \(rollout repair ", torn)
    assert b"2 damaged places. Try: rollout check" in done.stderr


def test_line_that_is_being_written_is_no_damage(rollout: Run, write: Write) -> None:
    """While a writer lives, half a line at the end is in flight: who writes it is told, not how to repair."""
    path = write(meta_line(), answer(1, **said("user", "hi")))
    with blocking.open(path), path.open("ab") as file:
        file.write(b'{"half')
        file.flush()
        done = rollout("show", path)
        os.truncate(path, path.stat().st_size - 6)
    assert f"─ 6 bytes after #1 are still being written by pid {os.getpid()}" in done.stdout.decode()
    assert b"rollout repair" not in done.stdout
    assert done.stderr == b""


def test_damage_as_json_is_an_object_of_its_own(rollout: Run, write: Write) -> None:
    """Programs get the place and the reason."""
    path = write(meta_line(), b"\0\0\0\n", answer(1, **said("user", "hi")))
    damage = objects(rollout("show", path, "--json").stdout)[1]
    assert (damage["kind"], damage["reason"], damage["line"], damage["bytes"]) == (
        "damage",
        "nul_bytes",
        2,
        3,
    )


# Sources


@pytest.mark.parametrize("options", [(), ("--json",), ("-n", "2"), ("--reverse",), ("--raw",)])
def test_every_source_shows_the_same(
    rollout: Run, write: Write, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """By id, path, compressed and through a pipe: one rollout, one answer."""
    path = write(*CONVERSATION)
    data = path.read_bytes()
    packed = tmp_path / "packed.jsonl.zst"
    packed.write_bytes(zstandard.compress(data))

    def shown(name: str | Path, input: bytes = b"") -> list[str]:
        text = rollout("show", name, *options, input=input).stdout.decode()
        text = re.sub("rollout show [^#@]+", "rollout show NAME", text)
        # A stream can't tell whose it is before its first line, and after its last one.
        return [
            re.sub(f'"thread":[^,]+|"link":"({THREAD}|)', "", each)
            for each in text.splitlines()
            if " · " not in each
        ]

    expected = shown(path)
    assert expected
    assert shown(packed) == expected
    assert shown("-", data) == expected
    assert shown("f00d") == expected


def test_raw_lines_are_byte_for_byte(rollout: Run, write: Write) -> None:
    """`--raw` gives the lines as they stand, spaces and all; damaged ones are named on stderr."""
    odd = b'{ "timestamp":"x",  "type":"new", "payload":{"a" : 1.50, "t":"\xc2\x9b"} }\n'
    path = write(meta_line(), b"broken\n", odd)
    done = rollout("show", path, "--raw")
    assert done.stdout == encoded([meta_line()]) + odd
    assert re.fullmatch(rb"rollout: byte [\d,]+ is left out: [^\n]+\n", done.stderr)
    assert rollout("show", f"{path}#0", "--view", "raw").stdout == encoded([meta_line()])


@pytest.mark.case("B114")
@pytest.mark.case("B136")
def test_old_formats_are_shown(rollout: Run, tmp_path: Path) -> None:
    """Lines without envelope and CRLF line ends are read like any other."""
    head = {"id": THREAD, "timestamp": "2025-09-27T18:58:38.331Z", "instructions": None}
    path = tmp_path / "old.jsonl"
    path.write_bytes(
        b"\r\n".join(
            json.dumps(each).encode() for each in (head, {"record_type": "state"}, said("user", "long ago"))
        )
        + b"\r\n"
    )
    assert b"you        long ago" in rollout("show", path).stdout


@pytest.mark.case("B135")
def test_other_grammar_is_named(rollout: Run, tmp_path: Path) -> None:
    """A file of another program is not shown as an empty rollout, from a file or a pipe."""
    data = b'{"type":"thread.started","thread_id":"x"}\n{"type":"turn.completed"}\n'
    (tmp_path / "stream.jsonl").write_bytes(data)
    for done in (rollout("show", "./stream.jsonl"), rollout("show", "-", input=data)):
        assert done.returncode == ExitCode.DAMAGED
        assert b"is not a rollout" in done.stderr
    assert rollout("show", "-", input=b"").returncode == ExitCode.DAMAGED


# Hostile text

HOSTILE = "\x1b[2J\x1b]0;PWNED\x07red\x1b[31m \u202eevil\u2066 \x07\x08\x9b1m nul\x00 \u2028 \ud83d"


@pytest.mark.case("B105")
@pytest.mark.case("B41")
@pytest.mark.parametrize("options", [(), ("--view", "full"), ("--json",), ("--view", "tools"), ("#1..",)])
def test_recorded_text_cannot_speak_to_the_terminal(
    rollout: Run, write: Write, options: tuple[str, ...]
) -> None:
    """Whatever field it is in, no control sequence or turned writing gets through."""
    path = write(
        meta_line(id=HOSTILE, cwd=HOSTILE, originator=HOSTILE, git={"branch": HOSTILE}),
        answer(1, **said("user", HOSTILE)),
        answer(2, **said(HOSTILE, HOSTILE)),
        answer(3, type="function_call", name=HOSTILE, arguments=HOSTILE, call_id=HOSTILE),
        answer(4, type="function_call_output", call_id=HOSTILE, output=HOSTILE),
        answer(5, type="function_call_output", call_id="other" + HOSTILE, output=HOSTILE),
        line(6, HOSTILE, {"type": HOSTILE, HOSTILE: HOSTILE}),
        line(7, "event_msg", {"type": "turn_aborted", "reason": HOSTILE}),
        line(None, "x_check", {"state": HOSTILE, "what": HOSTILE}),
        json.dumps({"timestamp": HOSTILE, "type": "x", "payload": HOSTILE}).encode() + b"\n",
        HOSTILE.encode("utf-8", "surrogatepass") + b"\n",
    )
    address = next((each for each in options if each.startswith("#")), "")
    done = rollout("show", f"{path}{address}", *(each for each in options if not each.startswith("#")))
    assert done.returncode == 0
    for output in (done.stdout.decode(), done.stderr.decode()):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", output)
        # Payloads are shown as JSON, where a sequence is only its name.
        assert "PWNED" not in output or options not in ((), ("--view", "tools"))


@pytest.mark.case("B105")
def test_file_name_cannot_speak_to_the_terminal(rollout: Run, tmp_path: Path) -> None:
    """A planted name is shown harmless too."""
    path = tmp_path / "a\x1b[31m\u202eb.jsonl"
    path.write_bytes(encoded([meta_line(), b"bad\n"]))
    for command in ("show", "check", "repair"):
        done = rollout(command, path)
        assert b"\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("options", [(), ("--utc",)])
def test_times_are_local_unless_asked(rollout: Run, write: Write, options: tuple[str, ...]) -> None:
    """People see their own time."""
    write(*CONVERSATION)
    shown = rollout("show", THREAD, *options, TZ="Asia/Tokyo").stdout.decode()
    assert ("14:06:08" in shown) is not bool(options)
    assert ("05:06:08" in shown) is bool(options)


@pytest.mark.parametrize(
    "stamp",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "yesterday",
        "",
        7,
        None,
    ],
)
def test_odd_timestamps_hide_nothing(rollout: Run, write: Write, stamp: object) -> None:
    """A stamp of any kind costs its own place and no more."""
    write(meta_line(timestamp=stamp), {**answer(1, **said("user", "still here")), "timestamp": stamp})
    done = rollout("show", THREAD)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"still here" in done.stdout
    assert b"unkn " not in done.stdout


def test_change_of_day_is_marked(rollout: Run, write: Write) -> None:
    """A thread that goes on over days shows where a new one begins."""
    later = {**answer(2, **said("user", "next day")), "timestamp": "2026-03-06T00:00:00.000Z"}
    write(meta_line(), answer(1, **said("user", "one day")), later)
    assert "── Fri 2026-03-06" in rollout("show", THREAD).stdout.decode()


# A history that lies in several files


@pytest.fixture
def reference(home: Path) -> Path:
    """A thread that rests on the first turn of another one."""
    source = write_thread(Home(home), PARENT, turns(2))
    end = source.read_bytes().index(b'"turn_id":"t2"')
    offset = source.read_bytes().rindex(b"\n", 0, end) + 1
    base = base_of(source, PARENT, offset, 9)
    return write_thread(Home(home), CHILD, turns(1, first=7, ordinal=10), ordinal=9, history_base=base)


PARENT, CHILD = uuid(0xF1), uuid(0xF2)


def asked(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [each["text"] for each in objects(done.stdout) if each.get("role") == "user"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["question 1", "question 7"]),
        (("--reverse",), ["question 7", "question 1"]),
        (("-n", "200"), ["question 1", "question 7"]),
    ],
)
def test_history_in_several_files_reads_as_one(
    rollout: Run, reference: Path, options: tuple[str, ...], expected: list[str]
) -> None:
    """From either end, what it rests on comes first, and what was not taken over doesn't come at all."""
    done = rollout("show", CHILD, "--json", *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert asked(done) == expected


def test_items_of_older_files_have_their_addresses(rollout: Run, reference: Path) -> None:
    """`THREAD#N` finds a record wherever it lies; ordinals run on."""
    assert asked(rollout("show", f"{CHILD}#2", "--json")) == ["question 1"]
    assert asked(rollout("show", f"{CHILD}#11", "--json")) == ["question 7"]


def test_raw_is_the_one_file_and_says_so(rollout: Run, reference: Path) -> None:
    """`--raw` gives the bytes of the rollout; that there is more elsewhere is a note."""
    done = rollout("show", CHILD, "--raw")
    assert done.stdout == reference.read_bytes()
    assert b"its history begins in another file" in done.stderr


@pytest.mark.parametrize("damage", ["missing", "hash_differs"])
def test_broken_base_is_named_once_and_hides_nothing_younger(
    rollout: Run, home: Path, reference: Path, damage: str
) -> None:
    """One note; what can be read is shown; check has it as an error, and both go on."""
    source = next(home.rglob(f"*{PARENT}.jsonl"))
    if damage == "missing":
        source.unlink()
    else:
        source.write_bytes(
            source.read_bytes().replace(b'"last_agent_message":null', b'"last_agent_message":1234')
        )
    done = rollout("show", CHILD, "--json")
    (note,) = objects(done.stderr)
    assert (done.returncode, note["kind"], note["code"]) == (0, "warning", f"base_{damage}")
    assert asked(done) == ["question 7"]
    checked = rollout("check", CHILD, "--json")
    (finding, summary) = objects(checked.stdout)
    assert (checked.returncode, finding["check"], finding["level"]) == (1, f"base_{damage}", "error")
    assert summary["damaged"] == 1


def test_file_outside_a_home_looks_for_its_base_in_the_home(
    rollout: Run, reference: Path, tmp_path: Path
) -> None:
    """A reference that was moved away still reads with `--home`, and by itself without."""
    alone = reference.rename(tmp_path / reference.name)
    assert asked(rollout("show", alone, "--json")) == ["question 1", "question 7"]
    elsewhere = rollout("show", alone, "--json", "--home", tmp_path / "elsewhere")
    assert asked(elsewhere) == ["question 7"]
    assert b"base_missing" in elsewhere.stderr
    assert rollout("check", alone).returncode == 0


def test_unfinished_tail_of_a_reference_is_shown_from_either_end(rollout: Run, reference: Path) -> None:
    """Torn or in flight, it is no less there than in a file that stands by itself."""
    with reference.open("ab") as file:
        file.write(b'{"timestamp":"20')
    for options in ((), ("--reverse",), ("-n", "3")):
        found = objects(rollout("show", CHILD, "--json", *options).stdout)
        assert [each["reason"] for each in found if each["kind"] == "damage"] == ["torn_tail"]
