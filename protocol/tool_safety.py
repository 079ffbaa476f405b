"""Tool safety: which tools may run a second time without harm.

Invariant: a tool is unsafe unless somebody said otherwise. A name counts as it stands, case
included; a tool of a namespace (an MCP server, say) is known by `namespace__name` only, so that
no server's tool is taken for another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

__all__ = ["DEFAULT_TOOL_SAFETY", "KNOWN_TOOLS", "Effect", "ToolSafety", "worse_effect"]


class Effect(StrEnum):
    """What running a tool does to the world, and so what running it twice would do."""

    NONE = "none"
    """None outside the agent: it reads, or notes down its plan."""
    IDEMPOTENT = "idempotent"
    """Once or twice is the same."""
    UNSAFE = "unsafe"
    """Anything else, and all that nobody knows."""


_SEVERITY = {Effect.NONE: 0, Effect.IDEMPOTENT: 1, Effect.UNSAFE: 2}


def worse_effect(one: Effect, other: Effect) -> Effect:
    """The less harmless of two effects."""
    return max(one, other, key=_SEVERITY.__getitem__)


def _names(none: str, idempotent: str = "") -> dict[str, Effect]:
    return {
        **dict.fromkeys(none.split(), Effect.NONE),
        **dict.fromkeys(idempotent.split(), Effect.IDEMPOTENT),
    }


KNOWN_TOOLS: Mapping[str, Mapping[str, Effect]] = {
    "codex": _names(
        "view_image list_dir read_file grep_files tool_search list_mcp_resources "
        "list_mcp_resource_templates read_mcp_resource web_search update_plan"
    ),
    "claude-code": _names(
        "Read Glob Grep LS NotebookRead TodoRead TodoWrite WebSearch ListMcpResourcesTool "
        "ReadMcpResourceTool",
        "WebFetch",
    ),
    "pi": _names("read grep find ls"),
    "opencode": _names("read grep glob list todoread todowrite websearch codesearch", "webfetch"),
    "gemini-cli": _names(
        "read_file read_many_files list_directory glob search_file_content grep_search google_web_search "
        "write_todos",
        "web_fetch",
    ),
}
"""The usual harmless tools of known agents. Shells are never among them: a command may do anything.
Fetching a page counts as idempotent: it only asks, but somebody else is asked."""


class ToolSafety:
    """A registry of the tools that may run again. Immutable: `with_tools` makes a larger one."""

    __slots__ = ("_effects",)

    def __init__(self, effects: Mapping[str, Effect | str] = {}) -> None:
        """`effects` by the names of tools; raises ValueError for one that is no `Effect`."""
        self._effects = {name: Effect(effect) for name, effect in effects.items()}

    def with_tools(self, effects: Mapping[str, Effect | str]) -> ToolSafety:
        """A registry that knows these tools too; where both know one, what is given here counts."""
        return ToolSafety({**self._effects, **effects})

    def effect_of(self, name: str | None, namespace: str | None = None) -> Effect:
        """What the tool does; unsafe if it isn't known."""
        return self.find(name, namespace) or Effect.UNSAFE

    def find(self, name: str | None, namespace: str | None = None) -> Effect | None:
        """The same, and None if it isn't known."""
        if name is None:
            return None
        return self._effects.get(f"{namespace}__{name}" if namespace else name)

    def names(self) -> Iterable[str]:
        """The tools that it knows, sorted."""
        return sorted(self._effects)


def _merged(agents: Iterable[Mapping[str, Effect]]) -> dict[str, Effect]:
    """Two agents may have a tool of one name: then the less harmless of the two counts."""
    effects: dict[str, Effect] = {}
    for tools in agents:
        for name, effect in tools.items():
            effects[name] = worse_effect(effect, effects.get(name, effect))
    return effects


DEFAULT_TOOL_SAFETY = ToolSafety(_merged(KNOWN_TOOLS.values()))
"""All of `KNOWN_TOOLS`."""
