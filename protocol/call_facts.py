"""Call facts: what one record says of one tool call, whoever wrote it.

Invariant: reading is lenient and says nothing that the record doesn't: a key of a wrong type
counts as absent, a status that is unknown here is no end. Two tables say which records speak of
calls; all others are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from protocol.codec import encode_value
from protocol.errors import ItemNotEncodable
from protocol.tool_verdicts import Seen

__all__ = [
    "EVENT_READERS",
    "ITEM_READERS",
    "RESPONSE_READERS",
    "CallFact",
    "Said",
    "count_of",
    "kind_of_tool",
    "read_call_fact",
    "text_of",
]


class Said(StrEnum):
    """What kind of record speaks of the call."""

    REQUEST = "request"
    """The model asks for it."""
    OUTPUT = "output"
    """The model gets its output."""
    SHOWN = "shown"
    """A person sees how far it got."""


class CallFact(Struct, frozen=True, kw_only=True):
    """What one record of Codex's types says of a call. Own records are `CallItem`s."""

    said: Said
    call_id: str
    turn_id: str | None = None
    """None: the record doesn't name its turn."""
    seen: Seen
    kind: str | None = None
    """shell, patch, mcp, custom, web or agent."""
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    error: str | None = None


# What a model is told of a call whose outcome nobody knows: Codex's guess, Codex's word for a cut by
# the user, and our own (FORMAT.md, Tool calls). Such a text is no end, whoever copied it where.
_GUESS = "aborted"
_CUT_SHORT = ("aborted by user", "outcome unknown")

_AGENT_TOOLS = frozenset({"spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent"})
_SHELL_TOOLS = frozenset({"shell", "exec_command", "local_shell", "container.exec", "shell_command", "bash"})

_STATUSES = {
    "completed": Seen.COMPLETED,
    "failed": Seen.FAILED,
    "declined": Seen.DECLINED,
    "interrupted": Seen.ABORTED,
    "in_progress": Seen.REQUEST,
    "inProgress": Seen.REQUEST,
}

Payload = Mapping[str, Any]


def text_of(value: Any) -> str | None:
    """The value if it is a text that isn't empty."""
    return value if isinstance(value, str) and value else None


def count_of(value: Any) -> int | None:
    """The value if it is an integer above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _as_text(value: Any) -> str | None:
    """A text as it is, any other value as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return encode_value(value).decode()
    except ItemNotEncodable:
        return None


def kind_of_tool(name: str | None, namespace: str | None) -> str:
    """The kind that the names of a tool tell: shell, patch, mcp, agent, else custom."""
    if namespace is not None and namespace.startswith("mcp__"):
        return "mcp"
    if name in _SHELL_TOOLS:
        return "shell"
    if name in _AGENT_TOOLS:
        return "agent"
    return "patch" if name == "apply_patch" else "custom"


def _tagged_turn(payload: Payload) -> str | None:
    """The turn of an item of the model track, where Codex tagged it."""
    tag = payload.get("internal_chat_message_metadata_passthrough")
    return text_of(tag.get("turn_id")) if isinstance(tag, Mapping) else None


def _request(payload: Payload) -> CallFact | None:
    call_id = text_of(payload.get("call_id")) or text_of(payload.get("id"))
    if call_id is None:
        return None
    name, namespace = text_of(payload.get("name")), text_of(payload.get("namespace"))
    given = payload.get("arguments", payload.get("input"))
    return CallFact(
        said=Said.REQUEST,
        call_id=call_id,
        turn_id=_tagged_turn(payload),
        seen=Seen.REQUEST,
        kind=kind_of_tool(name, namespace),
        name=name,
        namespace=namespace,
        arguments=_as_text(given),
    )


def _local_shell(payload: Payload) -> CallFact | None:
    return _request({**payload, "name": "local_shell", "arguments": payload.get("action")})


def _tool_search(payload: Payload) -> CallFact | None:
    # Without a call id it has no output record.
    return _request({**payload, "name": "tool_search"}) if text_of(payload.get("call_id")) else None


def _output(payload: Payload) -> CallFact | None:
    call_id = text_of(payload.get("call_id"))
    if call_id is None:
        return None
    return CallFact(
        said=Said.OUTPUT,
        call_id=call_id,
        turn_id=_tagged_turn(payload),
        seen=Seen.ABORTED if _tells_no_end(payload.get("output")) else Seen.COMPLETED,
    )


def _tells_no_end(output: Any) -> bool:
    """Whether an output, a text or parts, says that the outcome isn't known."""
    if isinstance(output, list) and output and isinstance(output[0], Mapping):
        output = output[0].get("text")
    return isinstance(output, str) and (output == _GUESS or output.startswith(_CUT_SHORT))


RESPONSE_READERS: dict[str, Callable[[Payload], CallFact | None]] = {
    "function_call": _request,
    "custom_tool_call": _request,
    "local_shell_call": _local_shell,
    "tool_search_call": _tool_search,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "tool_search_output": _output,
    "mcp_tool_call_output": _output,
}
"""`response_item` by its `type`. Searches of the web and made images run at the provider's, and never
get an output."""


def _shown(payload: Payload, seen: Seen, **more: Any) -> CallFact | None:
    call_id = text_of(payload.get("call_id")) or text_of(payload.get("callId"))
    if call_id is None:
        return None
    turn_id = text_of(payload.get("turn_id")) or text_of(payload.get("turnId"))
    return CallFact(said=Said.SHOWN, call_id=call_id, turn_id=turn_id, seen=seen, **more)


def _begin(kind: str) -> Callable[[Payload], CallFact | None]:
    return lambda payload: _shown(payload, Seen.BEGUN, kind=kind)


def _seen_by_status(status: Any, success: Any) -> Seen:
    """A status that is unknown here is no end."""
    if isinstance(status, str):
        return _STATUSES.get(status, Seen.BEGUN)
    if success is True:
        return Seen.COMPLETED
    return Seen.FAILED if success is False else Seen.BEGUN


def _command_end(payload: Payload) -> CallFact | None:
    code = payload.get("exit_code")
    return _shown(
        payload,
        _seen_by_status(payload.get("status"), None if code is None else code == 0),
        kind="shell",
        error=_exit_text(code),
    )


def _exit_text(code: Any) -> str | None:
    return f"exit code {code}" if isinstance(code, int) and code != 0 else None


def _patch_end(payload: Payload) -> CallFact | None:
    seen = _seen_by_status(payload.get("status"), payload.get("success"))
    error = None if seen is Seen.COMPLETED else text_of(payload.get("stderr"))
    return _shown(payload, seen, kind="patch", name="apply_patch", error=error)


def _mcp_end(payload: Payload) -> CallFact | None:
    result, invocation = payload.get("result"), payload.get("invocation")
    called: Payload = invocation if isinstance(invocation, Mapping) else {}
    seen, error = _mcp_result(result if isinstance(result, Mapping) else {})
    namespace = _mcp_namespace(called.get("server"))
    return _shown(
        payload, seen, kind="mcp", name=text_of(called.get("tool")), namespace=namespace, error=error
    )


def _mcp_namespace(server: Any) -> str | None:
    return f"mcp__{server}" if text_of(server) else None


def _mcp_result(result: Payload) -> tuple[Seen, str | None]:
    if "Err" in result:
        return Seen.FAILED, _as_text(result["Err"])
    good = result.get("Ok")
    if not isinstance(good, Mapping):
        return Seen.BEGUN, None
    return (Seen.FAILED if good.get("isError") is True else Seen.COMPLETED), None


def _dynamic_end(payload: Payload) -> CallFact | None:
    error = _as_text(payload.get("error"))
    return _shown(payload, _seen_by_status(None, payload.get("success")), kind="custom", error=error)


EVENT_READERS: dict[str, Callable[[Payload], CallFact | None]] = {
    "exec_command_begin": _begin("shell"),
    "patch_apply_begin": _begin("patch"),
    "mcp_tool_call_begin": _begin("mcp"),
    "dynamic_tool_call_request": _begin("custom"),
    "exec_command_end": _command_end,
    "patch_apply_end": _patch_end,
    "mcp_tool_call_end": _mcp_end,
    "dynamic_tool_call_response": _dynamic_end,
}
"""`event_msg` by its `type`."""


def _item_error(item: Payload) -> str | None:
    return _exit_text(item.get("exit_code")) or _as_text(item.get("error"))


def _command_item(item: Payload) -> dict[str, Any]:
    return {"kind": "shell", "name": None, "arguments": _as_text(item.get("command"))}


def _patch_item(item: Payload) -> dict[str, Any]:
    del item
    return {"kind": "patch", "name": "apply_patch"}


def _tool_item(kind: str) -> Callable[[Payload], dict[str, Any]]:
    return lambda item: {
        "kind": kind,
        "name": text_of(item.get("tool")),
        "namespace": text_of(item.get("namespace")),
        "arguments": _as_text(item.get("arguments")),
    }


def _mcp_item(item: Payload) -> dict[str, Any]:
    return {**_tool_item("mcp")(item), "namespace": _mcp_namespace(item.get("server"))}


ITEM_READERS: dict[str, Callable[[Payload], dict[str, Any]]] = {
    "CommandExecution": _command_item,
    "FileChange": _patch_item,
    "DynamicToolCall": _tool_item("custom"),
    "McpToolCall": _mcp_item,
    "CollabAgentToolCall": _tool_item("agent"),
}
"""The turn items that are calls, by their `type`: what they say beside their status."""


def _seen_of_item(item: Payload) -> Seen:
    if _tells_no_end(item.get("content_items")) or _tells_no_end(item.get("aggregated_output")):
        return Seen.ABORTED
    return _seen_by_status(item.get("status"), item.get("success"))


def _item(payload: Payload) -> CallFact | None:
    item = payload.get("item")
    if not isinstance(item, Mapping) or (read := ITEM_READERS.get(text_of(item.get("type")) or "")) is None:
        return None
    call_id = text_of(item.get("id"))
    if call_id is None:
        return None
    return CallFact(
        said=Said.SHOWN,
        call_id=call_id,
        turn_id=text_of(payload.get("turn_id")),
        seen=_seen_of_item(item),
        error=_item_error(item),
        **read(item),
    )


EVENT_READERS["item_completed"] = EVENT_READERS["item_started"] = _item
_READERS = {"response_item": RESPONSE_READERS, "event_msg": EVENT_READERS}


def read_call_fact(record_type: str | None, payload: Payload) -> CallFact | None:
    """What a record of Codex's types says of a call; None if it speaks of none."""
    readers = _READERS.get(record_type or "")
    read = None if readers is None else readers.get(text_of(payload.get("type")) or "")
    return None if read is None else read(payload)
