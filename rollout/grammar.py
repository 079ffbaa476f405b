"""What a file is that is no rollout: said by its grammar, so that nobody is told "0 records".

Invariant: a file with one line that only a rollout holds is a rollout, however damaged; the
rest is named as well as its first lines allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from protocol.items import CODEX_TYPES
from protocol.line import RolloutLine
from rollout.record import RolloutRecord

__all__ = ["Verdict", "explain", "is_rollout_line"]

_OWN_PREFIX = "x_"


def is_rollout_line(line: RolloutLine) -> bool:
    """Whether a valid line could stand in a rollout and nowhere else that is known."""
    kind = line.type
    if kind is None or not line.payload:
        return False
    return kind in CODEX_TYPES or kind.startswith(_OWN_PREFIX) or line.upcast_from is not None


class Verdict(NamedTuple):
    """Why it is none: `reason` completes "… is not a rollout:", `hint` says what to do."""

    reason: str
    hint: str = ""


_IMPORT = "It can be imported into a rollout, once its format is known to `rollout import`"

_EVENT_STREAM = Verdict(
    "it is the event stream that `codex exec --json` prints",
    "The rollout itself lies in the sessions folder of the Codex home, under the thread id of the first line",
)


def _looks_like_events(values: list[dict[str, Any]]) -> bool:
    kinds = [value.get("type") for value in values]
    return any(isinstance(kind, str) and re.match(r"(?:thread|turn|item)\.\w+\Z", kind) for kind in kinds)


_GRAMMARS: tuple[tuple[frozenset[str], Verdict], ...] = (
    (frozenset({"model", "messages"}), Verdict("it is a log of requests to a model, not of a session")),
    (frozenset({"sessionId", "uuid"}), Verdict("it is a Claude Code transcript", _IMPORT)),
    (frozenset({"sessionId", "message"}), Verdict("it is a Claude Code transcript", _IMPORT)),
    (frozenset({"sessionId", "leafUuid"}), Verdict("it is a Claude Code transcript", _IMPORT)),
    (frozenset({"summary", "leafUuid"}), Verdict("it is a Claude Code transcript", _IMPORT)),
    (frozenset({"sessionId", "projectHash"}), Verdict("it is a Gemini CLI session", _IMPORT)),
    (frozenset({"event_id", "event_type"}), Verdict("it is a MyCodeAgent transcript", _IMPORT)),
    (frozenset({"event_type", "run_id"}), Verdict("it is an event log of rivumi", _IMPORT)),
    (frozenset({"info", "messages"}), Verdict("it is an opencode export", _IMPORT)),
    (frozenset({"id", "thread_name"}), Verdict("it is a session index: the titles of threads")),
    (frozenset({"session_id", "text"}), Verdict("it is a prompt history")),
)

_DOCUMENT_KEY = re.compile(rb'"(\w+)"\s*:')


def explain(records: Iterable[RolloutRecord], head: bytes) -> Verdict:
    """The verdict on a file without one rollout line.

    `records`: its first ones, in order. `head`: its first bytes, decompressed.
    """
    records = list(records)
    values = [value for each in records if each.line and isinstance(value := _value(each.line), dict)]
    if values:
        return _explain_values(values)
    broken = [each.warning for each in records if each.warning and not each.size]
    if broken:
        return Verdict(f"nothing of it can be read: {broken[0].message}")
    if not head:
        return Verdict("it is empty")
    if not head.strip(b"\0"):
        return Verdict("it holds nothing but NUL bytes", "Its content was lost when the system crashed")
    if not head.strip(b"\0 \t\r\n"):
        return Verdict("it is blank")
    return _explain_damage(records, head)


def _value(line: RolloutLine) -> Any:
    return RolloutLine(payload=msgspec.Raw(line.source)).payload_object() if line.source else None


def _explain_values(values: list[dict[str, Any]]) -> Verdict:
    if _looks_like_events(values):
        return _EVENT_STREAM
    for value in values:
        for wanted, verdict in _GRAMMARS:
            if wanted <= value.keys():
                return verdict
    first = values[0]
    if first.get("type") in ("session", "title"):
        return Verdict("it is a session of pi or omp", _IMPORT)
    keys = ", ".join(repr(key[:40]) for key in list(first)[:6]) or "none"
    return Verdict(f"no line has the envelope of one; the keys of the first are {keys}")


def _explain_damage(records: list[RolloutRecord], head: bytes) -> Verdict:
    if head.lstrip().startswith((b"{", b"[")) and b"\n" in head.strip():
        keys = frozenset(key.decode() for key in _DOCUMENT_KEY.findall(head))
        for shown, verdict in _GRAMMARS:
            if shown <= keys:
                return verdict
    warnings = [each.warning for each in records if each.warning is not None]
    if len(warnings) == 1 and warnings[0].reason == "torn_tail" and head.startswith(b"{"):
        return Verdict(
            f"its only line was never finished ({warnings[0].size_bytes:,} bytes)",
            "The process died before its first record was whole; nothing was lost but that line",
        )
    detail = f"; the first: {warnings[0].message}" if warnings else ""
    return Verdict(f"not one of its lines is valid{detail}")
