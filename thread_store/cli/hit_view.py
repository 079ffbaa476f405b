"""Hits as lines for a person: under a heading for each thread, what was found marked.

Invariant: every text that came from a file has gone through `safe_text`; what was found is marked by colour
where there is one, else by » «.
"""

from __future__ import annotations

from itertools import islice

from protocol.errors import RolloutError
from rollout.reader import read_rollout
from thread_store.cli.safe_text import safe_line, safe_text
from thread_store.cli.short_ids import ShortIds
from thread_store.cli.terminal import Terminal
from thread_store.cli.times import age_seconds, format_age
from thread_store.search.search_hit import Passage, SearchHit
from thread_store.search.thread_search import ThreadSearch
from thread_store.transcript.fact import FactKind
from thread_store.transcript.facts import fact_of

__all__ = ["HitView"]

_ADDRESS_WIDTH = 6
_SPEAKER_WIDTH = 10
_TITLE_CHARS = 60
_TITLE_RECORDS_MAX = 100
_TITLE_BYTES_MAX = 1 << 20

_SPEAKERS = {"user": ("you", "cyan"), "assistant": ("assistant", "green"), "tool": ("tool", "blue")}


class HitView:
    """Prints the hits of a search."""

    def __init__(self, terminal: Terminal, search: ThreadSearch) -> None:
        self._terminal = terminal
        self._search = search
        self._short: ShortIds | None = None
        self._thread = ""
        self._last: tuple[str, int, str] | None = None
        self._marks = (">>", "<<") if terminal.ascii else ("»", "«")

    def show(self, hit: SearchHit) -> None:
        """Print one hit, and the heading if it is of another thread than the last one."""
        if hit.thread_id != self._thread:
            self._thread = hit.thread_id
            self._last = None
            self._terminal.print(self._heading(hit))
        passage = hit.passage
        where = (hit.path, hit.offset, hit.field)
        if self._last == where and (passage.before or passage.after):
            self._terminal.print(f"  {'':<{_ADDRESS_WIDTH}} --")
        lead = self._lead(hit) if self._last != where else " " * (_ADDRESS_WIDTH + _SPEAKER_WIDTH + 4)
        self._last = where
        margin = " " * (_ADDRESS_WIDTH + _SPEAKER_WIDTH + 4)
        lines = [
            *(self._terminal.style(_one_line(each), "dim") for each in passage.before),
            *self._marked(passage),
            *(self._terminal.style(_one_line(each), "dim") for each in passage.after),
        ]
        for number, text in enumerate(lines):
            self._terminal.print(f"{lead if number == 0 else margin}{text}".rstrip())
        self._terminal.stdout.flush()

    def _lead(self, hit: SearchHit) -> str:
        address = f"@{hit.offset}" if hit.ordinal is None else f"#{hit.ordinal}"
        speaker, style = _SPEAKERS.get(hit.role, (hit.role, "dim"))
        if hit.role == "tool":
            speaker = f"{self._terminal.mark('tool')} {safe_line(hit.tool or 'tool')}"
        padding = " " * max(0, _SPEAKER_WIDTH - len(speaker))
        return f"  {address:<{_ADDRESS_WIDTH}} {self._terminal.style(speaker, style)}{padding} "

    def _marked(self, passage: Passage) -> list[str]:
        """The lines of a passage, what was found marked."""
        begin_mark, end_mark = "\ue000", "\ue001"  # of nobody's: taken out of the text first
        parts, at = [], 0
        for begin, end in passage.spans:
            parts += [passage.text[at:begin], begin_mark, passage.text[begin:end], end_mark]
            at = end
        plain = [part if part in (begin_mark, end_mark) else _without_marks(part) for part in parts]
        text = "".join([*plain, _without_marks(passage.text[at:])])
        more = self._terminal.mark("more")
        text = f"{more if passage.cut_before else ''}{text}{more if passage.cut_after else ''}"
        return [self._with_marks(line) for line in safe_text(text).split("\n")]

    def _with_marks(self, line: str) -> str:
        line = _one_line(line)
        if self._terminal.has_colors:
            return line.replace("\ue000", "\x1b[1;31m").replace("\ue001", "\x1b[0m")
        return line.replace("\ue000", self._marks[0]).replace("\ue001", self._marks[1])

    def _heading(self, hit: SearchHit) -> str:
        dot = f" {self._terminal.mark('dot')} "
        age = age_seconds(hit.timestamp)
        when = "" if age is None else "now" if age < 60 else format_age(age)
        words = [_title_of(hit.path), when, "archived" if hit.archived else ""]
        if self._short is None:
            self._short = ShortIds(self._search.thread_ids)
        heading = f"{self._short(hit.thread_id)} {dot.join(filter(None, words))}".rstrip()
        return self._terminal.style(safe_line(heading), "bold")


def _one_line(text: str) -> str:
    """The line, harmless, with its indentation."""
    return safe_text(text).replace("\n", " ").expandtabs(4)


def _without_marks(text: str) -> str:
    return text.replace("\ue000", "").replace("\ue001", "")


def _title_of(path: str) -> str:
    """What the user typed first, if it stands near the start; else nothing."""
    try:
        with read_rollout(path, end_offset=_TITLE_BYTES_MAX) as records:
            for record in islice(records, _TITLE_RECORDS_MAX):
                fact = None if record.line is None else fact_of(record.line)
                if fact is not None and fact.kind is FactKind.USER and fact.text.strip():
                    line = safe_line(fact.text.strip())
                    return line if len(line) <= _TITLE_CHARS else line[:_TITLE_CHARS] + "…"
    except RolloutError:
        return ""  # it went away since
    return ""
