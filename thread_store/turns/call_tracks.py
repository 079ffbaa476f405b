"""What a tool call leaves on both of Codex's tracks, by its kind: a table, and pure functions.

Invariant: whatever the kind, the model's request and its output are a pair with one call id, and what a
person is shown never says more than is known. A call that was cut short has no end on the display, or
one whose text says that its outcome is unknown (FORMAT.md, Tool calls).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from protocol import tracks
from protocol.items import RolloutItem
from protocol.response_items import ResponseItem
from protocol.tool_safety import Effect

__all__ = ["CALL_KINDS", "CallEnd", "CallSpec", "arguments_text", "end_records", "request_records"]

CALL_KINDS = ("shell", "patch", "mcp", "custom", "web", "agent")
"""The kinds of `x_call`. The last three look alike on the tracks."""


class CallSpec(Struct, frozen=True, kw_only=True):
    """What is called, and what is known of it beforehand."""

    turn_id: str
    call_id: str
    name: str
    arguments: str | Mapping[str, Any]
    """As the model gave them."""
    kind: str
    cwd: str
    """The folder of a command: absolute."""
    namespace: str | None = None
    """`mcp__<server>` for a tool of an MCP server."""
    free_text: bool = False
    """Whether the tool takes a text that is no JSON."""
    effect: Effect | None = None
    """As declared; None: nobody did."""
    key: str | None = None
    attempt: int = 1


class CallEnd(Struct, frozen=True, kw_only=True):
    """How a call ended. `state`: completed, failed, declined or aborted."""

    state: str
    output: Any
    """What the model gets."""
    error: str | None = None
    exit_code: int | None = None
    """Of a command."""
    changes: Mapping[str, Any] = {}
    """Of a patch, by path (`tracks.patch_result`)."""
    result: Mapping[str, Any] | None = None
    """Of an MCP server: its whole answer."""
    seconds: float | None = None


class _Tracks(NamedTuple):
    request: Callable[[CallSpec], list[RolloutItem]]
    result: Callable[[CallSpec, CallEnd, str], list[RolloutItem]]
    """Gets the output as text, too."""
    shows_aborted: bool
    """Whether a call that was cut short can be shown as such."""


def request_records(spec: CallSpec) -> tuple[list[RolloutItem], list[RolloutItem]]:
    """The model's request, and what a person is shown when it begins."""
    records = _tracks_of(spec).request(spec)
    return [each for each in records if _is_model(each)], [each for each in records if not _is_model(each)]


def end_records(spec: CallSpec, end: CallEnd) -> list[RolloutItem]:
    """What a person is shown, then the output that the model gets."""
    made = _output_record(spec, end.output)
    kind = _tracks_of(spec)
    shown = [each for each in kind.result(spec, end, made.text) if not _is_model(each)]
    return [*(shown if end.state != "aborted" or kind.shows_aborted else ()), made]


def _output_record(spec: CallSpec, output: Any) -> Any:
    """The record of the output, of the form that belongs to the request."""
    if spec.free_text or spec.kind == "patch":
        return ResponseItem.custom_tool_call_output(call_id=spec.call_id, output=output)
    return ResponseItem.function_call_output(call_id=spec.call_id, output=output)


def arguments_text(arguments: str | Mapping[str, Any]) -> str:
    """As the model's request holds them."""
    return ResponseItem.function_call(name="", arguments=arguments, call_id="").arguments


def _tracks_of(spec: CallSpec) -> _Tracks:
    return _KINDS.get(spec.kind, _TOOL)


def _is_model(item: RolloutItem) -> bool:
    return item.record_type == "response_item"


def _as_object(arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name; {} if they have none."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return {}
    return value if isinstance(value, dict) else {}


# Commands


def _command(spec: CallSpec) -> list[str]:
    """The command as a person is shown it; a line is one that a shell runs."""
    given = _as_object(spec.arguments)
    command = given.get("command", given.get("cmd"))
    if isinstance(command, Sequence) and not isinstance(command, str) and command:
        return [str(each) for each in command]
    if isinstance(command, str) and command:
        return ["sh", "-c", command]
    return [spec.name]


def _folder(spec: CallSpec) -> str:
    given = _as_object(spec.arguments)
    folder = given.get("workdir", given.get("cwd"))
    return folder if isinstance(folder, str) and folder.startswith("/") else spec.cwd


def _shell_request(spec: CallSpec) -> list[RolloutItem]:
    return tracks.command_call(
        call_id=spec.call_id,
        command=_command(spec),
        cwd=_folder(spec),
        name=spec.name,
        arguments=spec.arguments,
    )


def _shell_result(spec: CallSpec, end: CallEnd, text: str) -> list[RolloutItem]:
    return tracks.command_result(
        call_id=spec.call_id,
        command=_command(spec),
        cwd=_folder(spec),
        output=text,
        exit_code=end.exit_code,
        status=end.state if end.state in ("completed", "declined") else "failed",
        seconds=end.seconds,
    )


# Patches


def _patch_request(spec: CallSpec) -> list[RolloutItem]:
    given = _as_object(spec.arguments)
    patch = given.get("patch", given.get("input"))
    text = patch if isinstance(patch, str) else arguments_text(spec.arguments)
    return tracks.patch_call(call_id=spec.call_id, patch=text, name=spec.name)


def _patch_result(spec: CallSpec, end: CallEnd, text: str) -> list[RolloutItem]:
    return tracks.patch_result(
        call_id=spec.call_id,
        changes=end.changes,
        output=text,
        status=end.state,
        stdout=text if end.error is None else "",
        stderr=end.error or "",
        turn_id=spec.turn_id,
    )


# Tools of MCP servers


def _server(spec: CallSpec) -> str:
    return (spec.namespace or "").removeprefix("mcp__")


def _mcp_request(spec: CallSpec) -> list[RolloutItem]:
    _, *shown = tracks.mcp_call(
        call_id=spec.call_id, server=_server(spec), tool=spec.name, arguments=_as_object(spec.arguments)
    )
    request = ResponseItem.function_call(
        name=spec.name, arguments=spec.arguments, call_id=spec.call_id, namespace=spec.namespace
    )
    return [request, *shown]


def _mcp_result(spec: CallSpec, end: CallEnd, text: str) -> list[RolloutItem]:
    return tracks.mcp_result(
        call_id=spec.call_id,
        server=_server(spec),
        tool=spec.name,
        arguments=_as_object(spec.arguments),
        output=text,
        result=end.result,
        error=end.error,
        seconds=end.seconds or 0.0,
    )


# All other tools


def _tool_request(spec: CallSpec) -> list[RolloutItem]:
    request, *shown = tracks.tool_call(
        call_id=spec.call_id, name=spec.name, arguments=spec.arguments, custom=spec.free_text
    )
    if spec.namespace is not None and not spec.free_text:
        request = ResponseItem.function_call(
            name=spec.name, arguments=spec.arguments, call_id=spec.call_id, namespace=spec.namespace
        )
    return [request, *shown]


def _tool_result(spec: CallSpec, end: CallEnd, text: str) -> list[RolloutItem]:
    return tracks.tool_result(
        call_id=spec.call_id,
        name=spec.name,
        arguments=spec.arguments,
        output=text,
        error=end.error,
        custom=spec.free_text,
    )


_TOOL = _Tracks(_tool_request, _tool_result, shows_aborted=True)
_KINDS = {
    "shell": _Tracks(_shell_request, _shell_result, shows_aborted=True),
    "patch": _Tracks(_patch_request, _patch_result, shows_aborted=False),
    "mcp": _Tracks(_mcp_request, _mcp_result, shows_aborted=False),
}
