"""Tool calls: a call, its result, its states, in the many forms in which records tell them.

Invariant: all forms of one call have the key `tool` + call id in common. Nothing here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from thread_store.transcript.fact import Fact, FactKind, Form, ToolResult
from thread_store.transcript.payload_text import (
    as_integer,
    as_text,
    command_text,
    content_text,
    first_text,
    milliseconds_of,
)

__all__ = ["completed_item", "own_call", "response_call", "response_output", "tool_ended"]


def response_call(kind: str, payload: Mapping[str, Any]) -> Fact:
    """A call as the model made it; `kind` ends in `_call`."""
    call_id = payload.get("call_id") or payload.get("id")
    if kind in ("function_call", "custom_tool_call"):
        names = [as_text(payload[key]) for key in ("namespace", "name") if payload.get(key)]
        arguments = payload.get("arguments") if kind == "function_call" else payload.get("input")
        return _call(call_id, Form.RESPONSE, ".".join(names), as_text(arguments))
    if kind == "local_shell_call":
        action = payload.get("action")
        command = action.get("command") if isinstance(action, dict) else None
        return _call(call_id, Form.RESPONSE, "shell", command_text(command))
    arguments = payload.get("arguments", payload.get("action", payload.get("revised_prompt")))
    call = _call(call_id, Form.RESPONSE, kind.removesuffix("_call"), as_text(arguments))
    if kind in ("web_search_call", "image_generation_call"):  # their results never get a record
        call.result = ToolResult(output="", status=as_text(payload.get("status")) or None)
    return call


def response_output(payload: Mapping[str, Any]) -> Fact:
    """The result that went back to the model."""
    return _tool(payload.get("call_id"), Form.RESPONSE, result=_output_result(payload.get("output")))


def tool_ended(kind: str, payload: Mapping[str, Any]) -> Fact:
    """An event `…_end`, which tells call and result at once."""
    result = ToolResult(
        status=as_text(payload.get("status")) or None,
        exit_code=as_integer(payload.get("exit_code")),
        milliseconds=milliseconds_of(payload.get("duration")),
        output=first_text(payload, "aggregated_output", "stdout"),
    )
    name, arguments = kind.removesuffix("_end"), command_text(payload.get("command"))
    outcome = payload.get("result")
    if kind == "mcp_tool_call_end":
        invocation = payload.get("invocation")
        name, arguments = _mcp_name(invocation if isinstance(invocation, dict) else {})
        result.status, result.output = _mcp_outcome(outcome)
    elif result.status is None and isinstance(payload.get("success"), bool):
        result.status = "completed" if payload["success"] else "failed"
    fact = _call(payload["call_id"], Form.EVENT, name, arguments)
    fact.result = result
    return fact


def _mcp_name(invocation: Mapping[str, Any]) -> tuple[str, str]:
    names = [as_text(invocation[key]) for key in ("server", "tool") if invocation.get(key)]
    return ".".join(names), as_text(invocation.get("arguments"))


def _mcp_outcome(outcome: Any) -> tuple[str | None, str | None]:
    if not isinstance(outcome, dict):
        return None, None
    if "Err" in outcome:
        return "failed", as_text(outcome["Err"])
    inner = outcome.get("Ok")
    if not isinstance(inner, dict):
        return "completed", None
    return "failed" if inner.get("isError") else "completed", content_text(inner.get("content"))


def completed_item(item: Mapping[str, Any]) -> Fact | None:
    """A tool call as the reader's track tells it, running or ended; None if the item is no call."""
    describe = _ITEM_CALLS.get(as_text(item.get("type")))
    if describe is None or not item.get("id"):
        return None
    name, arguments = describe(item)
    fact = _call(item["id"], Form.ITEM, name, arguments)
    status = as_text(item.get("status"))
    if status not in ("in_progress", "inProgress"):
        fact.result = ToolResult(
            status=status or None,
            exit_code=as_integer(item.get("exit_code")),
            milliseconds=milliseconds_of(item.get("duration")),
            output=first_text(item, "aggregated_output", "error"),
        )
    return fact


_ITEM_CALLS: dict[str, Callable[[Mapping[str, Any]], tuple[str, str]]] = {
    "CommandExecution": lambda item: ("shell", command_text(item.get("command"))),
    "DynamicToolCall": lambda item: (as_text(item.get("tool")), as_text(item.get("arguments"))),
    "McpToolCall": _mcp_name,
    "FileChange": lambda item: ("apply_patch", ", ".join(_names(item.get("changes")))),
    "WebSearch": lambda item: ("web_search", as_text(item.get("query"))),
    "CollabAgentToolCall": lambda item: (as_text(item.get("tool")), as_text(item.get("prompt"))),
}


def own_call(payload: Mapping[str, Any]) -> Fact:
    """A state of a call (`x_call`)."""
    state = as_text(payload.get("state"))
    fact = _call(payload.get("call_id"), Form.OWN, as_text(payload.get("name")), "")
    if state not in ("intended", "started"):
        fact.result = ToolResult(status=state or None)
    return fact


def _tool(call_id: Any, form: Form, *, result: ToolResult | None = None) -> Fact:
    keys = (f"tool\0{as_text(call_id)}",) if call_id else ()
    return Fact(FactKind.TOOL, form, keys=keys, result=result, repeats=form is not Form.RESPONSE)


def _call(call_id: Any, form: Form, name: str, arguments: str) -> Fact:
    fact = _tool(call_id, form)
    fact.name, fact.text, fact.is_call = name, arguments, True
    return fact


_EXIT_CODE = re.compile(r"(?:\A|\n)(?:Process exited with code|[Ee]xit code:?) (-?\d{1,6})\s*(?:\n|\Z)")
_HEAD_CHARACTERS = 400


def _output_result(output: Any) -> ToolResult:
    """A result as the model saw it. Old ones are JSON in a string; new ones tell the code in a headline."""
    if isinstance(output, dict):
        return ToolResult(output=content_text(output.get("content")))
    text = content_text(output)
    if text.startswith("{"):
        unpacked = _unpack_result(text)
        if unpacked is not None:
            return unpacked
    found = _EXIT_CODE.search(text[:_HEAD_CHARACTERS])
    return ToolResult(output=text, exit_code=None if found is None else int(found[1]))


def _unpack_result(text: str) -> ToolResult | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("output"), str):
        return None
    metadata = value.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return ToolResult(
        output=value["output"],
        exit_code=as_integer(known.get("exit_code")),
        milliseconds=milliseconds_of(known.get("duration_seconds")),
    )


def _names(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, dict) else []
