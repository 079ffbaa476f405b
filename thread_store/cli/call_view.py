"""Tool calls on the command line: as rows of a table, as JSON objects, and what is said of them.

Invariant: every text that came from a file has gone through `safe_line`, but the objects, which are
made harmless when they are printed. A call is marked by a word, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.damage import Damage
from protocol.tool_calls import Decision, ToolCall
from protocol.tool_verdicts import ToolVerdict
from thread_store.cli.piped_file import ReadableFile
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import age_seconds, format_time
from thread_store.resume.call_table import CallTable, ListedCall, ListedDamage

__all__ = ["call_object", "damage_object", "describe_damage", "summary_object", "table_lines"]

_HEADINGS = ("", "ITEM", "WHEN", "TOOL", "CALL", "TURN", "EFFECT", "VERDICT", "WHY")
_NAME_CHARACTERS = 30
_TURN_CHARACTERS = 8
_DAY_SECONDS = 86_400
_LOOKS = {
    ToolVerdict.COMPLETED: ("good", "green"),
    ToolVerdict.FAILED: ("bad", "red"),
    ToolVerdict.DECLINED: ("bad", "dim"),
    ToolVerdict.PENDING: ("nothing", "dim"),
    ToolVerdict.UNCERTAIN: ("unknown", "yellow"),
}


def table_lines(terminal: Terminal, calls: Iterable[ListedCall], own_path: str) -> list[str]:
    """The table, headings first. Calls of files other than `own_path` that have no number get no address."""
    rows = [_HEADINGS, *(_row(terminal, each, own_path) for each in calls)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(terminal, row, widths, is_head=index == 0) for index, row in enumerate(rows)]


def _line(terminal: Terminal, row: tuple[str, ...], widths: list[int], *, is_head: bool) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    if not is_head:
        _, style = _LOOKS[ToolVerdict(row[7])]
        cells[0], cells[7] = terminal.style(cells[0], style), terminal.style(cells[7], style)
    return "  ".join(cells).rstrip()


def _row(terminal: Terminal, listed: ListedCall, own_path: str) -> tuple[str, ...]:
    call, nothing = listed.call, terminal.mark("nothing")
    name = safe_line(f"{call.namespace}/{call.name}" if call.namespace else call.name or "")
    mark, _ = _LOOKS[call.verdict]
    return (
        terminal.mark(mark),
        _address(listed, own_path) or nothing,
        _moment(terminal, listed.requested_at or listed.last_at) or nothing,
        _cut(terminal, name, _NAME_CHARACTERS) or nothing,
        safe_line(call.call_id),  # whole: it is what --resolve takes
        safe_line(call.turn_id or nothing)[-_TURN_CHARACTERS:],
        call.effect + ("" if call.effect_declared else " (assumed)"),
        str(call.verdict),
        _why(call),
    )


def _address(listed: ListedCall, own_path: str) -> str:
    call = listed.call
    if call.request_ordinal is not None:
        return f"#{call.request_ordinal}"
    if call.request_offset is not None:
        return f"@{call.request_offset}" if listed.request_path == own_path else ""
    # Only own records speak of it, which have no number.
    return f"@{call.last_offset}" if listed.last_path == own_path and call.last_offset is not None else ""


def _moment(terminal: Terminal, stamp: str | None) -> str:
    age = age_seconds(stamp)
    form = "%H:%M:%S" if age is not None and age < _DAY_SECONDS else "%m-%d %H:%M"
    return format_time(stamp, form, utc=terminal.utc)


def _cut(terminal: Terminal, text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + terminal.mark("more")


def _why(call: ToolCall) -> str:
    words = [call.reason]
    if call.decision is not None:
        words.append(_decided(call.decision))
    elif call.error:
        words.append(f" ({safe_line(call.error)})")
    if call.may_run_again and not call.result_known:
        words.append("; it may run again")
    if call.attempt > 1:
        words.append(f" (attempt {call.attempt})")
    return "".join(words)


def _decided(decision: Decision) -> str:
    by = f", by {safe_line(decision.by)}" if decision.by else ""
    return by + (f" ({safe_line(decision.note)})" if decision.note else "")


# Objects


def call_object(listed: ListedCall, thread: str | None, file: ReadableFile) -> dict[str, Any]:
    """The members of `{"kind":"tool_call"}`."""
    call = listed.call
    address = f"#{call.request_ordinal}" if call.request_ordinal is not None else f"@{call.request_offset}"
    linked = call.request_ordinal is not None or call.request_offset is not None
    return {
        "thread": thread,
        "turn": call.turn_id,
        "call_id": call.call_id,
        "tool": {"name": call.name, "namespace": call.namespace, "kind": call.kind, "args": call.arguments},
        "effect": call.effect,
        "effect_declared": call.effect_declared,
        "verdict": call.verdict,
        "reason": call.reason,
        "blocks_resume": call.blocks_resume,
        "may_run_again": call.may_run_again,
        "attempt": call.attempt,
        "key": call.key,
        "error": call.error,
        "decision": None if call.decision is None else _decision_object(call.decision),
        "requested": listed.requested_at,
        "updated": listed.last_at,
        "ordinal": call.request_ordinal,
        "offset": call.request_offset,
        "path": file.named(listed.request_path or listed.last_path),
        "link": f"{thread or ''}{address}" if linked else None,
    }


def _decision_object(decision: Decision) -> dict[str, Any]:
    return {name: getattr(decision, name) for name in ("outcome", "by", "note", "at_ms")}


# Damage


def describe_damage(listed: ListedDamage, own_path: str) -> str:
    """What is wrong and where, in one line. A file is named if it is not the one at `own_path`."""
    damage = listed.damage
    where = "" if damage.offset is None else f" at byte {damage.offset:,}"
    place = f"{safe_line(listed.path)}: " if listed.path not in (None, own_path) else ""
    detail = f" ({safe_line(damage.detail)})" if damage.detail else ""
    count = f", and {damage.count - 1:,} places more" if damage.count > 1 else ""
    return f"{place}{_said(damage)}{detail}{where}{count}"


_REASONS = {
    "ordinal_gap": "records are missing",
    "gap": "another program destroyed bytes",
    "cut_tail": "a torn tail was cut",
    "torn_tail": "the last line was never finished",
    "unreadable_call": "a record of a call can't be read",
    "reused_call_id": "one call id was used for two calls",
    "too_many_calls": "more calls are open than are kept track of",
    "damaged_frame": "a compressed file is broken",
}


def _said(damage: Damage) -> str:
    if damage.reason.startswith("base_"):
        return "the beginning of its history can't be read"
    return _REASONS.get(damage.reason, f"a line can't be read: {damage.reason}")


def damage_object(listed: ListedDamage, thread: str | None, file: ReadableFile) -> dict[str, Any]:
    """The members of `{"kind":"damage"}`, as far as a fold knows them."""
    damage = listed.damage
    known = damage.offset is not None and damage.end is not None
    return {
        "thread": thread,
        "reason": damage.reason,
        "message": describe_damage(listed, file.path),
        "line": None,
        "offset": damage.offset,
        "bytes": damage.end - damage.offset if known else None,  # type: ignore[operator]
        "path": file.named(listed.path),
        "count": damage.count,
        "hides_calls": damage.hides_calls,
        "accepted": damage.accepted,
    }


def summary_object(table: CallTable, thread: str | None) -> dict[str, Any]:
    """The members of `{"kind":"summary"}`."""
    verdicts = [each.call.verdict for each in (*table.open, *table.ended)]
    return {
        "thread": thread,
        "calls": len(verdicts),
        **{str(verdict): verdicts.count(verdict) for verdict in ToolVerdict},
        "blocking": len(table.blocking),
        "damage": sum(each.blocks for each in table.damage),
        "omitted": table.omitted,
        "whole": table.whole,
    }
