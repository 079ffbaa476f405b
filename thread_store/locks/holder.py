"""The holder of a lock, as its file names it: one line of JSON (FORMAT.md, Locks).

Invariant: a `LockHolder` was checked as a whole; half of one, or anything else, is no holder. `judge`
says `DEAD` only where the same host, boot and pid namespace show that the process can't act any
more; everything that can't be known here is `UNKNOWN`, and counts as live.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from protocol.errors import RolloutError, WriterHolder
from protocol.timestamps import format_timestamp, now_ms
from thread_store.locks.processes import Surroundings, is_dead, start_ticks, surroundings

__all__ = [
    "HOLDER_BYTES_MAX",
    "LockHolder",
    "Verdict",
    "decode_holder",
    "describe_self",
    "encode_holder",
    "judge",
    "redact_own_command",
    "shares_processes",
]

HOLDER_BYTES_MAX = 4096
"""More than that in a lock file is no holder."""

_COMMAND_CHARACTERS = 200

Pid = Annotated[int, Meta(ge=1, lt=1 << 31)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Token = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]


class LockHolder(Struct, frozen=True, kw_only=True):
    """Who holds a lock, and by which of its acquisitions."""

    pid: Pid
    started: Count | None = None
    """Start of the process, in clock ticks since boot; None where the system doesn't tell."""
    boot_id: str | None = None
    pid_ns: str | None = None
    host: str
    token: Token
    """Random: no other acquisition ever has it."""
    since: str
    """When it was acquired, RFC 3339 in UTC."""
    command: str | None = None
    lease: bool = False
    """Held without flock: the file alone is the lock, and being able to flock it proves nothing."""
    fence: Count
    """Greater than that of every earlier holder whose file was seen."""

    @property
    def writer(self) -> WriterHolder:
        """As the errors name it."""
        return WriterHolder(self.pid, self.host, self.since, self.command)

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(self.host, self.boot_id, self.pid_ns)


class Verdict(StrEnum):
    """Whether a holder can still act."""

    LIVE = "live"
    DEAD = "dead"
    UNKNOWN = "unknown"


def describe_self(*, fence: int, lease: bool = False) -> LockHolder:
    """This process as the holder of something new."""
    host, boot_id, pid_ns = surroundings()
    return LockHolder(
        pid=os.getpid(),
        started=start_ticks(os.getpid()),
        boot_id=boot_id,
        pid_ns=pid_ns,
        host=host,
        token=secrets.token_hex(16),
        since=format_timestamp(now_ms()),
        command=_own_command(),
        lease=lease,
        fence=fence,
    )


_redact_command: Callable[[str], str] | None = None
"""For the whole process: a secret of its command line is one in every home."""


def redact_own_command(redact: Callable[[str], str]) -> None:
    """From now on this process tells of its command what `redact` leaves; nothing, if that fails."""
    global _redact_command
    _redact_command = redact


def _own_command() -> str | None:
    command = " ".join(_without_secrets(sys.orig_argv))
    if _redact_command is not None:
        try:
            command = _redact_command(command)
        except RolloutError:
            return None
    # An argument that was no UTF-8 is held as lone surrogates, which JSON can't take.
    return command[:_COMMAND_CHARACTERS].encode(errors="replace").decode() or None


_SECRET_OPTION = "--text"
"""Of `rollout erase`: what must go from the home must not come into it by the lock."""


def _without_secrets(arguments: list[str]) -> list[str]:
    if "erase" not in arguments:
        return arguments
    shown, hide = [], False
    for each in arguments:
        name, given, _ = each.partition("=")
        is_option = len(name) > len("--t") and _SECRET_OPTION.startswith(name)
        shown.append("***" if hide else f"{name}=***" if is_option and given else each)
        hide = is_option and not given
    return shown


def encode_holder(holder: LockHolder) -> bytes:
    """The content of a lock file."""
    return msgspec.json.encode(holder) + b"\n"


def decode_holder(data: bytes) -> LockHolder | None:
    """Read the content of a lock file; None: it names nobody (Codex leaves it empty)."""
    if len(data) > HOLDER_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(data, type=LockHolder)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def shares_processes(holder: LockHolder) -> bool | None:
    """Whether its process number means here what it means there; None: unknown."""
    there, here = holder.surroundings, surroundings()
    if there.host != here.host or None in (*there, *here):
        return None
    if there.boot_id != here.boot_id:
        return False
    return True if there.pid_ns == here.pid_ns else None


def judge(holder: LockHolder) -> Verdict:
    """Whether it can still act, as far as that shows from here."""
    shares = shares_processes(holder)
    if shares is None:
        return Verdict.UNKNOWN
    dead = True if shares is False else is_dead(holder.pid, holder.started)
    return {True: Verdict.DEAD, False: Verdict.LIVE, None: Verdict.UNKNOWN}[dead]
