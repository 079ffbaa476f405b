"""A resume on the command line: as an object, as lines of text, and the exit code of what stands against it.

Invariant: a thread that is being written is busy; whatever else stands against a resume refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from protocol.errors import WriterHolder
from protocol.tool_calls import ToolCall
from thread_store.cli.failures import ExitCode
from thread_store.cli.safe_text import safe_line, safe_text
from thread_store.cli.terminal import Terminal
from thread_store.resume.resume_refusals import Refusal, RefusalReason
from thread_store.resume.resume_state import ResumeState

__all__ = [
    "PassedOver",
    "describe_refusal",
    "exit_code_of",
    "open_call_object",
    "print_refusals",
    "print_state",
    "refusal_objects",
    "state_object",
]

PassedOver = Sequence[tuple[str, WriterHolder]]
"""Newer threads that somebody is writing."""


def exit_code_of(refusals: Sequence[Refusal]) -> ExitCode:
    """What the command returns if these stand against the resume."""
    if not refusals:
        return ExitCode.DONE
    is_live = any(each.reason is RefusalReason.LIVE_WRITER for each in refusals)
    return ExitCode.BUSY if is_live else ExitCode.REFUSED


def print_state(terminal: Terminal, state: ResumeState) -> None:
    """What would be resumed, what is open, and what stands against it."""
    terminal.print(safe_text(state.explain()))


def print_refusals(terminal: Terminal, refusals: Sequence[Refusal]) -> None:
    """One line each, as `check` has it."""
    for each in refusals:
        terminal.print(describe_refusal(each))


def describe_refusal(refusal: Refusal) -> str:
    """What stands against it, and what to do."""
    hint = f". {safe_line(refusal.hint)}" if refusal.hint else ""
    return f"{safe_line(str(refusal))}{hint}"


# Objects


def state_object(state: ResumeState, passed_over: PassedOver = ()) -> dict[str, Any]:
    """The members of `{"kind":"resume"}`. The history is apart."""
    return {
        "thread": state.thread_id,
        "path": state.path,
        "can_resume": state.can_resume,
        "refusals": refusal_objects(state.refusals),
        "allowed": [each.reason for each in state.waived],
        "passed_over": [_passed_object(*each) for each in passed_over],
        "cwd": state.cwd,
        "goal": state.memory.goal,
        "state": state.state,
        "task": state.task,
        "items": len(state.items),
        "checkpoint": None if state.checkpoint is None else state.checkpoint._asdict(),
        "turn": state.turn_id,
        "epoch": state.epoch,
        "open_calls": [open_call_object(each) for each in state.open_calls],
        "pending_approvals": [each.approval_id for each in state.pending_approvals],
        "todos": [{"step": each.step, "status": each.status} for each in state.todos],
        "files": sorted(state.files),
        "agents": sorted(state.agents),
        "usage": None if state.usage is None else structs.asdict(state.usage),
        "examined_from": state.examined_from._asdict(),
        "whole": state.whole,
    }


def refusal_objects(refusals: Sequence[Refusal]) -> list[dict[str, Any]]:
    """What stands against it, each with its reason's name."""
    return [
        {"reason": each.reason, "message": each.message, "hint": each.hint, "details": each.details}
        for each in refusals
    ]


def open_call_object(call: ToolCall) -> dict[str, Any]:
    """A call whose end is not known."""
    return {
        "turn": call.turn_id,
        "call_id": call.call_id,
        "name": call.name,
        "effect": call.effect,
        "verdict": call.verdict,
        "reason": call.reason,
        "attempt": call.attempt,
        "key": call.key,
        "blocks_resume": call.blocks_resume,
        "may_run_again": call.may_run_again,
    }


def _passed_object(thread_id: str, writer: WriterHolder) -> dict[str, Any]:
    holder = {name: getattr(writer, name) for name in ("pid", "host", "since", "command")}
    return {"thread": thread_id, "writer": holder}
