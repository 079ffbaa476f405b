"""A person decides on a call that may have run: which one, what is asked, and what is said afterwards.

Invariant: what is recorded names who decided. The command is the decision; where somebody sits at a terminal
they are shown the call first, and asked. Nobody is asked about a thread that can't be written.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from typing import NamedTuple

import click

from protocol.errors import ActiveWriter
from protocol.tool_calls import ToolCall
from thread_store.cli.failures import ExitCode
from thread_store.cli.named_thread import HomeThread, find_named, require_thread
from thread_store.cli.redacting import recorder_config
from thread_store.cli.resume_view import describe_refusal, refusal_objects
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import FRAGMENT_MIN
from thread_store.local_threads import LocalThreads
from thread_store.locks import LockState
from thread_store.resume.call_decision import Outcome, find_uncertain
from thread_store.resume.local_resume import load_resume_state, resolve_call
from thread_store.resume.resume_state import ResumeState
from thread_store.resume.resume_text import advice_on

__all__ = ["Wanted", "decide"]

_ARGUMENTS_SHOWN = 400

_MEANINGS: dict[Outcome, str] = {
    "happened": "it happened; it never runs again",
    "not_happened": "it did not happen; the model is told so",
    "retry": "it may run again, as a further attempt",
}


class Wanted(NamedTuple):
    """The decision as it was typed."""

    call_id: str
    turn_id: str | None
    outcome: Outcome
    note: str | None


def decide(terminal: Terminal, argument: str, wanted: Wanted, *, yes: bool) -> int:
    """Record a decision on a call of a thread, and say what may be done now.

    Raises:
        CallNotResolvable: there is no such call, it isn't uncertain, or several are.
        ActiveWriter: somebody writes the thread.
        NotInHome, NotCurrentRollout: it is a file by itself, or not the one that its thread goes on in.
    """
    named = find_named(terminal, argument)
    where = require_thread(named)
    with LocalThreads(where.home, config=recorder_config(terminal)) as threads:
        _refuse_writer(threads, where, named.path)
        call = _find_call(threads, where, wanted)
        if not yes and _can_ask(terminal) and not _is_wanted(terminal, call, wanted):
            return ExitCode.REFUSED
        by = _who()
        state = resolve_call(
            threads,
            where.thread_id,
            call.call_id,
            outcome=wanted.outcome,
            by=by,
            note=wanted.note,
            turn_id=call.turn_id,
        )
    _tell(terminal, state, call, wanted, by)
    return ExitCode.DONE


def _refuse_writer(threads: LocalThreads, where: HomeThread, path: os.PathLike[str]) -> None:
    for lock in threads.locks.holders():
        if lock.thread_id == where.thread_id and lock.state is not LockState.STALE:
            raise ActiveWriter(path=path, holder=lock.writer, thread_id=where.thread_id)


def _find_call(threads: LocalThreads, where: HomeThread, wanted: Wanted) -> ToolCall:
    state = load_resume_state(threads, where.thread_id)
    call_id = _whole_id(state, wanted.call_id)
    if not state.whole and all(each.call_id != call_id for each in state.open_calls):
        state = load_resume_state(threads, where.thread_id, deep=True)
        call_id = _whole_id(state, wanted.call_id)
    return find_uncertain(state, call_id, turn_id=wanted.turn_id)


def _whole_id(state: ResumeState, text: str) -> str:
    """The id that was typed, or the one of which it is the beginning or the end; open calls go first."""
    if len(text) < FRAGMENT_MIN or any(each.call_id == text for each in state.calls):
        return text
    for calls in (state.open_calls, state.calls):
        fitting = {
            each.call_id for each in calls if each.call_id.startswith(text) or each.call_id.endswith(text)
        }
        if len(fitting) == 1:
            return fitting.pop()
    return text


def _can_ask(terminal: Terminal) -> bool:
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and terminal.stderr.isatty()
    return is_terminal and not terminal.json


def _is_wanted(terminal: Terminal, call: ToolCall, wanted: Wanted) -> bool:
    name = safe_line(call.name or call.kind or "a call")
    terminal.note(f"{name} ({safe_line(call.call_id)}), {call.effect}: {safe_line(call.reason)}")
    if call.arguments:
        terminal.note(f"it was given {safe_line(call.arguments[:_ARGUMENTS_SHOWN])}")
    said = click.confirm(f"Record that {_MEANINGS[wanted.outcome]}?", err=True)
    if not said:
        terminal.note("nothing was recorded")
    return said


def _who() -> str:
    """name@host of the person at this terminal."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, in a container say
        name = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{name}@{socket.gethostname()}"


def _tell(terminal: Terminal, state: ResumeState, call: ToolCall, wanted: Wanted, by: str) -> None:
    now = next(
        (each for each in state.calls if (each.turn_id, each.call_id) == (call.turn_id, call.call_id)), call
    )
    if terminal.json:
        terminal.emit(
            "resolved",
            thread=state.thread_id,
            turn=now.turn_id,
            call_id=now.call_id,
            outcome=wanted.outcome,
            by=by,
            note=wanted.note,
            verdict=now.verdict,
            attempt=now.attempt,
            key=now.key,
            may_run_again=now.may_run_again,
            can_resume=state.can_resume,
            refusals=refusal_objects(state.refusals),
        )
        return
    terminal.print(safe_line(f"{now.call_id}: recorded that {_MEANINGS[wanted.outcome]} (by {by})"))
    if now.may_run_again:
        terminal.print(safe_line(advice_on(now, state.thread_id or "")))
    for each in state.refusals:
        terminal.note(f"it is still not resumed automatically: {describe_refusal(each)}")
    if state.can_resume:
        terminal.note(f"nothing stands against resuming it. See: rollout resume {state.thread_id}")
