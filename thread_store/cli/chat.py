"""The chat view: transcript entries as lines for a person.

Invariant: every text that came from a file has gone through `safe_text`. What is folded says
how much it was and which command shows it; nothing is left out in silence.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from rollout.record import LineWarning, RolloutRecord
from thread_store.cli.reading import find_writer
from thread_store.cli.safe_text import safe_line, safe_text
from thread_store.cli.target import Target
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import CLOCK, DAY, DAY_AND_CLOCK, format_time
from thread_store.transcript import FactKind, ToolResult, TranscriptEntry

__all__ = ["ChatView"]

_ADDRESS_WIDTH = 6
_SPEAKER_WIDTH = 10
_FOLD_CHARACTERS_PER_LINE = 250
_LINE_CHARACTERS = 160
"""Arguments and events are one line of at most this many characters."""

_SPEAKERS = {
    FactKind.USER: ("you", "cyan"),
    FactKind.ASSISTANT: ("assistant", "green"),
    FactKind.THINKING: ("thinking", "dim"),
    FactKind.CONTEXT: ("context", "dim"),
    FactKind.EVENT: ("event", "dim"),
}
_FOLDED = {FactKind.CONTEXT: 1, FactKind.EVENT: 1, FactKind.THINKING: 6}
"""Lines shown of what is not the conversation itself."""


class ChatView:
    """Prints entries with `write`. `output_lines_max`: of a tool's output; 0 shows everything."""

    def __init__(
        self, terminal: Terminal, target: Target, *, write: Callable[[str], None], output_lines_max: int
    ) -> None:
        self._terminal = terminal
        self._target = target
        self._write = write
        self._output_lines_max = output_lines_max
        self._whole = output_lines_max == 0 or target.selects_one
        self._day = ""
        self._last_address = ""
        self.damaged = 0
        """Damaged places shown so far; a line that is still being written is none."""

    def show_header(self, payload: Any) -> None:
        """One line on whose rollout this is, from its session_meta."""
        if not isinstance(payload, dict):
            return
        git = payload.get("git")
        branch = git.get("branch") if isinstance(git, dict) else None
        where = f"{payload.get('cwd') or 'no folder'}{f' ({branch})' if branch else ''}"
        forked = payload.get("forked_from_id")
        words = [
            str(payload.get("id") or "no id"),
            where,
            " ".join(str(payload[key]) for key in ("originator", "cli_version") if payload.get(key)),
            f"begun {self._format_time(payload.get('timestamp'), DAY_AND_CLOCK) or 'at an unknown time'}",
            f"fork of {forked}" if forked else "",
        ]
        dot = f" {self._terminal.mark('dot')} "
        self._write(self._terminal.style(safe_line(dot.join(filter(None, words))), "bold"))

    def show(self, entry: TranscriptEntry) -> None:
        """Print one entry."""
        if entry.kind is None:
            self._show_damage(entry.record)
            return
        self._show_day(entry)
        self._last_address = _address(entry)
        if entry.kind is FactKind.MARKER:
            self._line(self._lead(entry, "", "dim"), self._rule(safe_line(entry.text)))
        elif entry.kind is FactKind.TOOL:
            self._show_tool(entry)
        else:
            self._show_text(entry, entry.kind)

    def _show_text(self, entry: TranscriptEntry, kind: FactKind) -> None:
        speaker, style = _SPEAKERS[kind]
        text = entry.text
        if kind is FactKind.EVENT:
            text = f"{entry.name} {_compact(entry.facts[0].payload)}"
        elif kind in (FactKind.CONTEXT, FactKind.ASSISTANT) and entry.name not in ("user", ""):
            speaker = entry.name  # developer, system, another agent
        lines = safe_text(text).strip("\n").split("\n")
        shown = self._fold(lines, _FOLDED.get(kind, 0))
        lead = self._lead(entry, safe_line(speaker), style)
        # Thoughts that only the model's maker can read have no text here.
        nothing = "(encrypted)" if kind is FactKind.THINKING else "(empty)"
        first = shown[0] if shown and shown[0].strip() else self._terminal.style(nothing, "dim")
        self._line(lead, first)
        for line in shown[1:]:
            self._line(" " * self._indent, line)
        self._show_fold(entry, lines, shown)

    def _show_tool(self, entry: TranscriptEntry) -> None:
        name = safe_line(entry.name) or "tool"
        lead = self._lead(entry, f"{self._terminal.mark('tool')} {name}", "blue")
        said = safe_text(_arguments_text(entry.text)).strip()
        argument_lines = said.split("\n") if self._whole else [safe_line(said)]
        cut = not self._whole and len(argument_lines[0]) > _LINE_CHARACTERS
        if cut:
            argument_lines = [argument_lines[0][:_LINE_CHARACTERS] + self._terminal.mark("more")]
        if not entry.has_call:
            argument_lines = [f"result of {safe_line(entry.call_id or 'a call without id')}"]
        ending = self._describe_result(entry.result) if entry.result or entry.has_call else ""
        self._line(lead, f"{argument_lines[0]}  {ending}".strip())
        for line in argument_lines[1:]:
            self._line(" " * self._indent, line)
        self._show_output(entry, cut_arguments=cut)

    def _show_output(self, entry: TranscriptEntry, *, cut_arguments: bool) -> None:
        output = safe_text(entry.result.output or "").strip("\n") if entry.result else ""
        lines = output.split("\n") if output else []
        shown = self._fold(lines, self._output_lines_max)
        bar = f"{self._terminal.style(self._terminal.mark('bar'), 'dim')} "
        for line in shown:
            self._line(" " * self._indent, bar + line)
        if len(shown) == len(lines) and shown == lines and cut_arguments:
            self._fold_note(entry, f"arguments of {len(entry.text):,} characters")
        else:
            self._show_fold(entry, lines, shown)

    def _fold(self, lines: list[str], lines_max: int) -> list[str]:
        """As many whole lines as fit; the last one may be cut within."""
        if self._whole or not lines_max:
            return lines
        left = lines_max * _FOLD_CHARACTERS_PER_LINE
        shown: list[str] = []
        for line in lines[:lines_max]:
            shown.append(line[:left])
            left -= len(line)
            if left <= 0:
                break
        return shown

    def _show_fold(self, entry: TranscriptEntry, lines: list[str], shown: list[str]) -> None:
        if shown == lines:
            return
        hidden_lines = len(lines) - len(shown)
        hidden = sum(map(len, lines)) - sum(map(len, shown))
        words = f"{hidden_lines:,} more lines, " if hidden_lines else ""
        self._fold_note(entry, f"{words}{hidden:,} more characters")

    def _fold_note(self, entry: TranscriptEntry, what: str) -> None:
        more = self._terminal.mark("more")
        command = self._target.command("show", _address(entry))
        self._line(" " * self._indent, self._terminal.style(f"{more} {what} ({command})", "dim"))

    def _describe_result(self, result: ToolResult | None) -> str:
        terminal = self._terminal
        if result is None:
            return terminal.style(f"{terminal.mark('unknown')} no result in this file", "yellow")
        words = []
        if result.exit_code is not None or result.status in ("completed", "failed"):
            good = result.status != "failed" and not result.exit_code
            mark = terminal.style(terminal.mark("good" if good else "bad"), "green" if good else "red")
            words.append(
                f"{mark} {safe_line(result.exit_code if result.exit_code is not None else '')}".rstrip()
            )
        if result.status not in (None, "completed") and (
            result.exit_code is None or result.status != "failed"
        ):
            words.append(safe_line(result.status))
        if result.milliseconds is not None:
            words.append(_format_duration(result.milliseconds))
        return "  ".join(words)

    def _show_damage(self, record: RolloutRecord) -> None:
        warning = record.warning
        if warning is None:
            return
        text = self._rule(self._terminal.style(f"{self._damage_text(warning)}", "yellow"))
        self._line(" " * (_ADDRESS_WIDTH + 1), text)

    def _damage_text(self, warning: LineWarning) -> str:
        after = f" after {self._last_address}" if self._last_address else ""
        writer = find_writer(self._target) if warning.reason == "torn_tail" else None
        if writer is not None:
            return f"{warning.size_bytes:,} bytes{after} are still being written by {safe_line(writer)}"
        self.damaged += 1
        if warning.reason == "torn_tail":
            what = f"torn tail: {warning.size_bytes:,} bytes{after} are no record"
            return f"{what} ({self._target.command('repair')})"
        place = f"line {warning.line_no:,}, " if warning.line_no is not None else ""
        message = safe_line(warning.message)
        return f"{place}byte {warning.offset_bytes:,}: {message} ({self._target.command('check')})"

    def _rule(self, text: str) -> str:
        return f"{self._terminal.mark('rule')} {text}"

    # The columns

    @property
    def _indent(self) -> int:
        return _ADDRESS_WIDTH + 1 + 8 + 1 + _SPEAKER_WIDTH + 1

    def _lead(self, entry: TranscriptEntry, speaker: str, style: str) -> str:
        line = entry.record.line
        moment = self._format_time(line.timestamp if line else None)
        colored = self._terminal.style(speaker, style)
        padding = " " * (_SPEAKER_WIDTH - len(speaker))
        return f"{_address(entry):<{_ADDRESS_WIDTH}} {moment:<8} {colored}{padding} "

    def _line(self, lead: str, text: str) -> None:
        self._write(f"{lead}{text}".rstrip())

    def _show_day(self, entry: TranscriptEntry) -> None:
        line = entry.record.line
        day = self._format_time(line.timestamp if line else None, DAY)
        if day and self._day and day != self._day:
            self._write(self._terminal.style(f"{self._terminal.mark('rule') * 2} {day}", "dim"))
        self._day = day or self._day

    def _format_time(self, stamp: Any, form: str = CLOCK) -> str:
        return format_time(stamp, form, utc=self._terminal.utc)


def _address(entry: TranscriptEntry) -> str:
    line = entry.record.line
    return f"@{entry.record.offset}" if line is None or line.number is None else f"#{line.number}"


def _arguments_text(arguments: str) -> str:
    """The command where the arguments are one, else the arguments as they are."""
    if not arguments.startswith("{"):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    command = value.get("cmd", value.get("command")) if isinstance(value, dict) else None
    if isinstance(command, str):
        return command
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return shlex.join(command)
    return arguments


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _format_duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"
