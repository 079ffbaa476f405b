"""Plans: the todo list as the agent keeps it, from its tool call or Codex's event.

Invariant: only tools in `PLAN_TOOLS` are read as plans, and a plan that can't be read is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from protocol.call_facts import text_of
from protocol.plain_values import squeezed

__all__ = [
    "PLAN_STEPS_MAX",
    "PLAN_TOOLS",
    "STEP_CHARS_MAX",
    "Plan",
    "Todo",
    "plan_of_arguments",
    "plan_of_event",
]

PLAN_STEPS_MAX = 64
STEP_CHARS_MAX = 240

PLAN_TOOLS: Mapping[str, tuple[str, str]] = {
    "update_plan": ("plan", "step"),
    "TodoWrite": ("todos", "content"),
    "todowrite": ("todos", "content"),
    "write_todos": ("todos", "description"),
}
"""By the name of the tool: the key of the list in its arguments, and the key of a step's text."""


class Todo(Struct, frozen=True):
    """A step of a plan. `status`: pending, in_progress or completed (others pass as they are)."""

    step: str
    status: str


class Plan(Struct, frozen=True):
    """A plan as it stood at one time."""

    steps: list[Todo]
    explanation: str | None = None

    def done_since(self, earlier: Plan | None) -> list[str]:
        """The steps that are completed here and were not in the earlier plan."""
        before = {each.step for each in earlier.steps if each.status == "completed"} if earlier else set()
        return [each.step for each in self.steps if each.status == "completed" and each.step not in before]


def plan_of_event(payload: Mapping[str, Any]) -> Plan | None:
    """The plan of a `plan_update`."""
    return _plan(payload, "plan", "step")


def plan_of_arguments(tool: str, arguments: Any) -> Plan | None:
    """The plan in the arguments of a tool, given as JSON text; None if that is no tool for plans."""
    keys = PLAN_TOOLS.get(tool)
    if keys is None or not isinstance(arguments, str):
        return None
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return _plan(value, *keys) if isinstance(value, dict) else None


def _plan(value: Mapping[str, Any], list_key: str, text_key: str) -> Plan | None:
    given = value.get(list_key)
    if not isinstance(given, list):
        return None
    steps = [_todo(each, text_key) for each in given[:PLAN_STEPS_MAX] if isinstance(each, dict)]
    explanation = text_of(value.get("explanation"))
    return Plan(
        [each for each in steps if each.step], squeezed(explanation, STEP_CHARS_MAX) if explanation else None
    )


def _todo(step: Mapping[str, Any], text_key: str) -> Todo:
    text = text_of(step.get(text_key)) or ""
    return Todo(squeezed(text, STEP_CHARS_MAX), squeezed(text_of(step.get("status")) or "pending", 40))
