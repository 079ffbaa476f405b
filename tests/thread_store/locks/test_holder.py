"""The holder of a lock: read whole or not at all, and called dead only where that is sure."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from thread_store.locks import holder as holder_module
from thread_store.locks import processes
from thread_store.locks.holder import (
    HOLDER_BYTES_MAX,
    LockHolder,
    Verdict,
    decode_holder,
    describe_self,
    encode_holder,
    judge,
)
from thread_store.locks.processes import is_dead, start_ticks


@pytest.fixture
def own() -> LockHolder:
    return describe_self(fence=7)


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_holder_reads_back_as_it_was_written(own: LockHolder) -> None:
    """One line of JSON, and every field of it."""
    line = encode_holder(own)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert decode_holder(line) == own


def test_keys_of_a_later_version_are_passed_over(own: LockHolder) -> None:
    """What we don't know is no reason not to know the holder."""
    assert decode_holder(encode_holder(own).replace(b"{", b'{"later":[1],', 1)) == own


@pytest.mark.case("B30")
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"4121\n", b"{}", b"null", b"[" * 4000, b"\xff\xfe", b"\0" * 100, b'{"pid":1'],
    ids=["empty", "newline", "pid", "object", "null", "nested", "no utf-8", "nul", "torn"],
)
def test_anything_else_names_nobody(data: bytes) -> None:
    """Empty, garbage and half a holder are no holder."""
    assert decode_holder(data) is None


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": 1 << 31},
        {"fence": -1},
        {"fence": 1 << 62},
        {"token": "../../etc/passwd"},
        {"token": "0" * 31},
        {"token": "0" * 32 + "\n"},
        {"started": -1},
    ],
    ids=str,
)
def test_holder_with_an_impossible_value_is_none(own: LockHolder, change: dict[str, Any]) -> None:
    """A token becomes a file's name and a pid is asked for: neither is taken unchecked."""
    assert decode_holder(encode_holder(replace(own, **change))) is None


def test_overlong_content_is_no_holder(own: LockHolder) -> None:
    """More than a lock file ever holds isn't parsed."""
    assert decode_holder(encode_holder(replace(own, command="x" * HOLDER_BYTES_MAX))) is None


def test_command_that_is_no_utf8_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are bytes; those that are no text are shown as such, and the command is cut."""
    monkeypatch.setattr(sys, "orig_argv", ["agent", os.fsdecode(b"\xff\xfe"), "x" * 1000])
    described = describe_self(fence=0)
    assert described.command is not None
    assert described.command.startswith("agent ")
    assert len(described.command) <= 200
    assert decode_holder(encode_holder(described)) == described


def test_tokens_differ(own: LockHolder) -> None:
    """No two acquisitions have one, not even of one process."""
    assert describe_self(fence=7).token != own.token


def test_this_process_lives(own: LockHolder) -> None:
    """Asked about itself."""
    assert judge(own) is Verdict.LIVE


@pytest.mark.case("B28")
def test_dead_process_is_dead(own: LockHolder) -> None:
    """Same host, boot and namespace, and no process of that number."""
    assert judge(replace(own, pid=ended_process())) is Verdict.DEAD


@pytest.mark.case("B28")
def test_number_in_use_again_is_another_process(own: LockHolder) -> None:
    """The start time tells: a reused pid, and our own one of an earlier life."""
    assert own.started is not None
    assert judge(replace(own, started=own.started - 1)) is Verdict.DEAD


@pytest.mark.case("B28")
def test_process_of_another_boot_is_dead(own: LockHolder) -> None:
    """No process outlives its system, whatever has its number now."""
    assert judge(replace(own, boot_id="00000000-0000-0000-0000-000000000000")) is Verdict.DEAD


@pytest.mark.case("B28")
@pytest.mark.parametrize(
    "change",
    [{"host": "elsewhere"}, {"pid_ns": "pid:[1]"}, {"boot_id": None}, {"pid_ns": None}],
    ids=str,
)
def test_what_cannot_be_known_here_is_unknown(own: LockHolder, change: dict[str, Any]) -> None:
    """Another host or pid namespace, or a holder that doesn't say: nobody is called dead for it."""
    assert judge(replace(own, pid=ended_process(), **change)) is Verdict.UNKNOWN


def test_holder_without_start_time_may_be_anybody(own: LockHolder) -> None:
    """A number alone proves no life, and no death while it is in use."""
    assert judge(replace(own, started=None)) is Verdict.UNKNOWN


def test_zombie_is_dead() -> None:
    """It has ended, and only waits to be asked how."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = start_ticks(process.pid)
        assert is_dead(process.pid, started) is False
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(process.pid, started) is True


def test_process_whose_first_thread_ended_lives() -> None:
    """It looks like a zombie, and its other threads run on."""
    words = ["0"] * 30
    words[0], words[17] = "Z", "3"
    assert not processes._has_ended(words)
    words[17] = "1"
    assert processes._has_ended(words)


def test_process_that_may_not_be_signalled_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's process is a process."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_dead(os.getpid(), start_ticks(os.getpid())) is False


def test_system_without_proc_knows_only_the_dead(own: LockHolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is told of processes, one whose number is in use may be anybody."""

    class NoProc:
        def __init__(self, path: str) -> None:
            self.path = path

        def read_text(self, **named: object) -> str:
            raise FileNotFoundError(self.path)

    def no_link(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(processes, "Path", NoProc)
    monkeypatch.setattr(os, "readlink", no_link)
    assert is_dead(os.getpid(), 1) is None
    assert processes.surroundings()[1:] == (None, None)
    assert holder_module.judge(describe_self(fence=1)) is Verdict.UNKNOWN
    assert judge(own) is Verdict.UNKNOWN
