"""Resume host: what an agent framework must be able to take back, as `ResumeState.apply_to` hands it over.

Invariant: each method is called once, in the order in which they stand here, and none before it is known
that nothing stands against the resume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from protocol.plans import Todo
from protocol.session_memory import SessionMemory
from protocol.tool_calls import ToolCall
from thread_store.chain.lineage import Place
from thread_store.context.model_view import ModelView

__all__ = ["ResumeHost"]


class ResumeHost(Protocol):
    """An agent framework that a thread is resumed in."""

    def restore_task(self, task: Any) -> None:
        """The contract that the agent was given; None if none was recorded."""

    def restore_history(self, view: ModelView, checkpoint: Place | None) -> None:
        """What the model sees, and the checkpoint that it begins with."""

    def restore_calls(self, calls: Sequence[ToolCall]) -> None:
        """The tool calls with their verdicts. Only one with `may_run_again` may run again, as a further
        attempt with the same key."""

    def restore_todos(self, todos: Sequence[Todo]) -> None:
        """The plan as it stood."""

    def restore_files(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """By path, the files that were read, as they were then."""

    def restore_memory(self, memory: SessionMemory) -> None:
        """What to remember; `memory.render()` is the text to put before the history."""

    def restore_agents(self, agents: Mapping[str, Mapping[str, Any]]) -> None:
        """By thread id, the sub-agents and what each did last."""
