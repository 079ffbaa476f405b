"""The text of a session memory: what a model reads between its system prompt and its history.

Invariant: nothing that was recorded can end the block or begin a line of its own in it, and as the
memory is bounded, so is the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from protocol.memory_entries import Entry
from protocol.plans import Todo

__all__ = ["MemoryView", "render_memory"]

_TAG = "session_memory"
_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}


class MemoryView(Protocol):
    """What is read of a memory."""

    @property
    def goal(self) -> str | None:
        """The last message that the user typed."""

    @property
    def state(self) -> str | None:
        """The state that the newest `x_state` went to."""

    @property
    def todos(self) -> list[Todo]:
        """The steps of the newest plan."""

    @property
    def verifications(self) -> list[Entry]:
        """The state of each check."""

    @property
    def warnings(self) -> list[Entry]:
        """All warnings."""

    @property
    def failures(self) -> list[Entry]:
        """What failed."""

    @property
    def decisions(self) -> list[Entry]:
        """What was decided."""

    @property
    def completed(self) -> list[Entry]:
        """What was completed."""

    @property
    def transitions(self) -> list[Entry]:
        """Changes of state."""


def render_memory(memory: MemoryView) -> str:
    """The whole block; empty if there is nothing to remember."""
    lines = [*_heads(memory), *_todos(memory.todos)]
    for title, entries in (
        ("Verification", memory.verifications),
        ("Warnings", memory.warnings),
        ("Failures", memory.failures),
        ("Decisions", memory.decisions),
        ("Completed", memory.completed),
        ("State changes", memory.transitions),
    ):
        lines += _section(title, [_entry(each) for each in entries])
    if not lines:
        return ""
    safe = [each.replace(f"<{_TAG}>", f"[{_TAG}]").replace(f"</{_TAG}", f"[/{_TAG}") for each in lines]
    return "\n".join([f"<{_TAG}>", *safe, f"</{_TAG}>"])


def _heads(memory: MemoryView) -> Iterator[str]:
    for title, text in (("Goal", memory.goal), ("State", memory.state)):
        if text:
            yield f"{title}: {_one_line(text)}"


def _todos(todos: Iterable[Todo]) -> list[str]:
    return _section("Plan", [f"[{_MARKS.get(each.status, '?')}] {each.step}" for each in todos])


def _section(title: str, texts: Sequence[str]) -> list[str]:
    return [f"{title}:", *(f"- {_one_line(each)}" for each in texts)] if texts else []


def _entry(entry: Entry) -> str:
    times = f" (x{entry.count})" if entry.count > 1 else ""
    address = f" [{entry.address}]" if entry.address else ""
    return f"{entry.text}{times}{address}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
