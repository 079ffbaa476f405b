"""Tool safety: unknown is unsafe."""

from __future__ import annotations

import pytest

from protocol.tool_safety import DEFAULT_TOOL_SAFETY, KNOWN_TOOLS, Effect, ToolSafety


@pytest.mark.case("B60")
@pytest.mark.parametrize("name", ["send_mail", "exec_command", "shell", "Bash", "bash", "READ", "", None])
def test_tool_that_nobody_registered_is_unsafe(name: str | None) -> None:
    """No name is guessed at, shells are never harmless, and case counts."""
    assert DEFAULT_TOOL_SAFETY.effect_of(name) is Effect.UNSAFE


@pytest.mark.parametrize("agent", KNOWN_TOOLS)
def test_known_tools_are_never_less_harmless_than_listed(agent: str) -> None:
    """The default registry knows the tools of every agent listed."""
    for name, effect in KNOWN_TOOLS[agent].items():
        known = DEFAULT_TOOL_SAFETY.effect_of(name)
        assert known is not Effect.UNSAFE
        assert known is effect or known is Effect.IDEMPOTENT


def test_tool_of_a_namespace_is_known_by_its_whole_name_only() -> None:
    """A server's `read` may send a read receipt: it isn't the agent's own `read`."""
    assert DEFAULT_TOOL_SAFETY.effect_of("read") is Effect.NONE
    assert DEFAULT_TOOL_SAFETY.effect_of("read", "mcp__mail") is Effect.UNSAFE
    safety = DEFAULT_TOOL_SAFETY.with_tools({"mcp__files__read": "none"})
    assert safety.effect_of("read", "mcp__files") is Effect.NONE
    assert safety.effect_of("mcp__files__read") is Effect.NONE


def test_registry_is_extended_without_being_changed() -> None:
    """What a user adds counts more than what was known, and in the new registry only."""
    safety = DEFAULT_TOOL_SAFETY.with_tools({"read": "unsafe", "lookup": Effect.IDEMPOTENT})
    assert safety.effect_of("read") is Effect.UNSAFE
    assert safety.effect_of("lookup") is Effect.IDEMPOTENT
    assert DEFAULT_TOOL_SAFETY.effect_of("read") is Effect.NONE
    assert "lookup" in safety.names()


def test_registry_refuses_an_effect_that_is_none() -> None:
    """A misspelled effect isn't taken for a harmless one."""
    with pytest.raises(ValueError, match="readonly"):
        ToolSafety({"lookup": "readonly"})
