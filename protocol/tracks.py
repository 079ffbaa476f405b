"""One fact, all its records: what the model saw, and what a person sees.

Invariant: each function returns every record that a reader of either kind needs (FORMAT.md,
Tracks). A legacy rollout shows messages from `user_message` and `agent_message`, a paginated
one from `item_completed`, the model gets `response_item`; each ignores the others' form. The
records of one call belong together: `record(*tracks.user_message("…"))`.

Thread and turn of `item_completed` are filled in when the records are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from protocol.content import InputImage, InputText, OutputText
from protocol.context import Compacted, TurnContext
from protocol.events import EventMsg, PlanStep
from protocol.items import RolloutItem
from protocol.response_items import Message, ResponseItem
from protocol.timestamps import now_ms
from protocol.turn_items import (
    ContextCompactionItem,
    FileChangeItem,
    McpToolCallItem,
    ReasoningItem,
    TimeSpan,
    TurnItem,
    new_item_id,
)

__all__ = [
    "agent_message",
    "agent_reasoning",
    "command_call",
    "command_result",
    "compaction",
    "mcp_call",
    "mcp_result",
    "patch_call",
    "patch_result",
    "plan_update",
    "tool_call",
    "tool_result",
    "turn_aborted",
    "turn_completed",
    "turn_started",
    "user_message",
]


def user_message(text: str, *, images: Sequence[str] = (), item_id: str | None = None) -> list[RolloutItem]:
    """What the user typed, with images by URL (also `data:`)."""
    content: list[Any] = [InputText(text)]
    content += [InputImage(image_url=url) for url in images]
    return [
        Message("user", content),
        EventMsg.user_message(text, images=images or None),
        _completed(TurnItem.user_message(text, images=images, item_id=item_id)),
    ]


def agent_message(text: str, *, phase: str | None = None, item_id: str | None = None) -> list[RolloutItem]:
    """What the agent said. `phase`: commentary, partial_answer or final_answer."""
    return [
        EventMsg.agent_message(text, phase=phase),
        _completed(TurnItem.agent_message(text, phase=phase, item_id=item_id)),
        Message("assistant", [OutputText(text)], phase),
    ]


def agent_reasoning(
    summary: str | Sequence[str], *, encrypted_content: str | None = None, item_id: str | None = None
) -> list[RolloutItem]:
    """What the agent thought: the texts of its summary."""
    texts = [summary] if isinstance(summary, str) else list(summary)
    return [
        *(EventMsg.agent_reasoning(text) for text in texts),
        _completed(ReasoningItem(id=item_id or new_item_id(), summary_text=texts)),
        ResponseItem.reasoning(texts, encrypted_content=encrypted_content),
    ]


def command_call(
    *,
    call_id: str,
    command: Sequence[str],
    cwd: str,
    name: str = "shell",
    arguments: str | Mapping[str, Any] | None = None,
) -> list[RolloutItem]:
    """The model asks for a command of the shell. `arguments`: the model's own, if they differ from
    {"command": command}. `cwd` is absolute."""
    return [
        ResponseItem.function_call(
            name=name,
            arguments={"command": list(command)} if arguments is None else arguments,
            call_id=call_id,
        ),
        _completed(TurnItem.command_execution(call_id=call_id, command=command, cwd=cwd)),
    ]


def command_result(
    *,
    call_id: str,
    command: Sequence[str],
    cwd: str,
    output: str,
    exit_code: int | None,
    status: str | None = None,
    seconds: float | None = None,
) -> list[RolloutItem]:
    """A command of the shell ended. `status`: completed, failed or declined; by default the exit code
    decides. Codex has no other place for it than the item and the text."""
    return [
        _completed(
            TurnItem.command_execution(
                call_id=call_id,
                command=command,
                cwd=cwd,
                status=status or ("completed" if exit_code == 0 else "failed"),
                output=output,
                exit_code=exit_code,
                seconds=seconds,
            )
        ),
        ResponseItem.function_call_output(call_id=call_id, output=output),
    ]


def tool_call(
    *, call_id: str, name: str, arguments: str | Mapping[str, Any], custom: bool = False
) -> list[RolloutItem]:
    """The model asks for a tool that has no kind of its own.

    `custom`: it takes free text (`arguments` is that text) and not JSON.
    """
    return [
        ResponseItem.custom_tool_call(name=name, input=_free_text(arguments), call_id=call_id)
        if custom
        else ResponseItem.function_call(name=name, arguments=arguments, call_id=call_id),
        _completed(TurnItem.tool_call(call_id=call_id, name=name, arguments=_as_value(arguments))),
    ]


def tool_result(
    *,
    call_id: str,
    name: str,
    arguments: str | Mapping[str, Any],
    output: Any,
    error: str | None = None,
    custom: bool = False,
) -> list[RolloutItem]:
    """Such a tool gave something back; with an `error` it failed.

    `arguments` again: the item replaces the one of the call.
    """
    made = (
        ResponseItem.custom_tool_call_output(call_id=call_id, output=output)
        if custom
        else ResponseItem.function_call_output(call_id=call_id, output=output)
    )
    item = TurnItem.tool_call(
        call_id=call_id,
        name=name,
        arguments=_as_value(arguments),
        status="completed" if error is None else "failed",
        output=made.text,
        error=error,
    )
    return [_completed(item), made]


def _as_value(arguments: str | Mapping[str, Any]) -> Any:
    """What a person is shown: the arguments as a value where their text is JSON."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return arguments


def _free_text(arguments: str | Mapping[str, Any]) -> str:
    if isinstance(arguments, str):
        return arguments
    return ResponseItem.function_call(name="", arguments=arguments, call_id="").arguments


def patch_call(*, call_id: str, patch: str, name: str = "apply_patch") -> list[RolloutItem]:
    """The model asks for a patch. Codex has no item for one in progress."""
    return [ResponseItem.custom_tool_call(name=name, input=patch, call_id=call_id)]


def patch_result(
    *,
    call_id: str,
    changes: Mapping[str, Any],
    output: str,
    status: str = "completed",
    stdout: str = "",
    stderr: str = "",
    turn_id: str | None = None,
) -> list[RolloutItem]:
    """A patch was applied, or not. `status`: completed, failed or declined. `changes` by path:
    {"type": "add", "content"}, {"type": "delete", "content"} or {"type": "update", "unified_diff"}."""
    return [
        EventMsg.patch_apply_end(
            call_id=call_id, turn_id=turn_id, status=status, changes=changes, stdout=stdout, stderr=stderr
        ),
        _completed(
            FileChangeItem(id=call_id, changes=dict(changes), status=status, stdout=stdout, stderr=stderr)
        ),
        ResponseItem.custom_tool_call_output(call_id=call_id, output=output),
    ]


def mcp_call(
    *, call_id: str, server: str, tool: str, arguments: Mapping[str, Any], namespace: str | None = None
) -> list[RolloutItem]:
    """The model asks for a tool of an MCP server."""
    return [
        ResponseItem.function_call(
            name=tool, arguments=arguments, call_id=call_id, namespace=namespace or f"mcp__{server}"
        ),
        _completed(
            McpToolCallItem(
                id=call_id, server=server, tool=tool, arguments=dict(arguments), status="inProgress"
            )
        ),
    ]


def mcp_result(
    *,
    call_id: str,
    server: str,
    tool: str,
    arguments: Mapping[str, Any],
    output: Any,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    seconds: float = 0.0,
) -> list[RolloutItem]:
    """Such a tool gave something back. `output`: what the model gets. `result`: the server's answer
    {content, isError, …}; by default one text. With an `error`, or `isError` in the result, it failed."""
    made = ResponseItem.function_call_output(call_id=call_id, output=output)
    answer = dict(result) if result is not None else {"content": [{"type": "text", "text": made.text}]}
    failed = error is not None or answer.get("isError") is True
    return [
        EventMsg.mcp_tool_call_end(
            call_id=call_id,
            server=server,
            tool=tool,
            arguments=dict(arguments),
            seconds=seconds,
            result=answer if error is None else None,
            error=error,
        ),
        _completed(
            McpToolCallItem(
                id=call_id,
                server=server,
                tool=tool,
                arguments=dict(arguments),
                status="failed" if failed else "completed",
                result=answer if error is None else None,
                error=None if error is None else {"message": error},
                duration=TimeSpan.of_seconds(seconds),
            )
        ),
        made,
    ]


def compaction(
    message: str, replacement_history: Sequence[Any], *, item_id: str | None = None
) -> list[RolloutItem]:
    """A checkpoint: from here the model sees `replacement_history`, items of the model track or dicts."""
    return [
        Compacted(message=message, replacement_history=list(replacement_history)),
        EventMsg.context_compacted(),
        _completed(ContextCompactionItem(item_id or new_item_id())),
    ]


def plan_update(
    plan: Sequence[PlanStep | Mapping[str, str] | tuple[str, str]],
    *,
    explanation: str | None = None,
    call_id: str | None = None,
) -> list[RolloutItem]:
    """The plan as it stands, through the tool call that Codex reads plans from.

    An agent that recorded that call itself records `EventMsg.plan_update` alone.
    """
    event = EventMsg.plan_update(plan, explanation=explanation)
    arguments: dict[str, Any] = {} if explanation is None else {"explanation": explanation}
    arguments["plan"] = [{"step": each.step, "status": each.status} for each in event.plan]
    call_id = call_id or f"call-{new_item_id()}"
    return [
        ResponseItem.function_call(name="update_plan", arguments=arguments, call_id=call_id),
        event,
        ResponseItem.function_call_output(call_id=call_id, output="Plan updated"),
    ]


def turn_started(turn_id: str, *, context: TurnContext | None = None) -> list[RolloutItem]:
    """A turn begins, with its settings if they are given."""
    started = EventMsg.task_started(turn_id, started_at=now_ms() // 1000)
    return [started] if context is None else [started, structs.replace(context, turn_id=turn_id)]


def turn_completed(
    turn_id: str,
    *,
    last_agent_message: str | None = None,
    started_ms: int | None = None,
    error: str | None = None,
) -> list[RolloutItem]:
    """A turn ended; with an `error` it failed. `started_ms`: since the epoch, for the duration."""
    at_ms = now_ms()
    return [
        EventMsg.task_complete(
            turn_id,
            last_agent_message=last_agent_message,
            completed_at=at_ms // 1000,
            duration_ms=None if started_ms is None else max(0, at_ms - started_ms),
            error=error,
        )
    ]


def turn_aborted(
    turn_id: str, *, reason: str = "interrupted", started_ms: int | None = None
) -> list[RolloutItem]:
    """A turn was cut short. `reason`: interrupted, replaced, review_ended or budget_limited."""
    at_ms = now_ms()
    return [
        EventMsg.turn_aborted(
            turn_id,
            reason=reason,
            completed_at=at_ms // 1000,
            duration_ms=None if started_ms is None else max(0, at_ms - started_ms),
        )
    ]


def _completed(item: TurnItem) -> RolloutItem:
    return EventMsg.item_completed(item, completed_at_ms=now_ms())
