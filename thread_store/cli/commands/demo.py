"""`rollout demo`: the newcomer's first minute."""

from __future__ import annotations

import os
import shlex
import tempfile
from typing import Any

import click

from thread_store.chain.thread_tree import build_tree
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.short_ids import ShortIds
from thread_store.cli.terminal import Terminal, command_line
from thread_store.cli.tree_view import tree_lines
from thread_store.demo.demo import Comparison, DemoReport, run_demo
from thread_store.demo.demo_resume import ResumeReport
from thread_store.demo.demo_tools import OUTBOX
from thread_store.home import Home

__all__ = ["command"]

_WATCHED_LINES = 14
"""So much of what the agent does is printed; the rest is counted."""
_TEXT_CHARACTERS = 60
_ENDED_SHOWN = 4
_RAN = {"list": "list again", "send": "send, which had not happened"}


@click.command("demo")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 60), default=2.5, help="The agent works for at most this time."
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="A home for the demo; by default a temporary one.",
)
@shared_options
@click.pass_context
def command(context: click.Context, seconds: float, keep: str | None) -> int:
    """Watch an agent being killed and lose nothing it was promised.

    A small scripted agent runs real tools in a process of its own and records itself. While it is inside
    two of them it gets SIGKILL. Then the file is read back and compared with what the agent had been
    told was safe; somebody finds out what became of the call that must not run twice; the thread is
    resumed, and forked. Exit code 0 if not one acknowledged record is missing or doubled and no side
    effect was repeated, else 1.

    \b
    Examples:
      rollout demo
      rollout demo --seconds 10 --keep ./demo-home
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    home = os.path.realpath(keep) if keep else tempfile.mkdtemp(prefix="rollout-demo-")
    if keep:
        os.makedirs(home, mode=0o700, exist_ok=True)
    story = _Story(terminal, temporary=keep is None)
    if not terminal.json:
        story.begin()
    report = run_demo(home, seconds=seconds, watch=story.watch)
    if terminal.json:
        terminal.emit("demo", **_as_object(report))
    else:
        story.tell(report)
    return ExitCode.DONE if report.holds else ExitCode.PROBLEMS


class _Story:
    """The demo in words."""

    def __init__(self, terminal: Terminal, *, temporary: bool) -> None:
        self._terminal = terminal
        self._temporary = temporary
        self._watched = 0
        self._synced = 0

    def begin(self) -> None:
        self._head("1", "An agent works, in a process of its own, and records what it does")

    def watch(self, message: dict[str, Any]) -> None:
        """One message of the agent, as it comes."""
        if message["event"] == "synced":
            self._synced = message["items"]
        if self._terminal.json or message["event"] != "doing":
            return
        self._watched += 1
        if self._watched <= _WATCHED_LINES:
            text = safe_line(message["text"])
            cut = text[:_TEXT_CHARACTERS] + (
                self._terminal.mark("more") if len(text) > _TEXT_CHARACTERS else ""
            )
            self._line(
                f"{message['who']:<9} {cut:<{_TEXT_CHARACTERS + 1}}  {self._synced:>3} records acknowledged"
            )
            self._terminal.stdout.flush()
        elif self._watched == _WATCHED_LINES + 1:
            self._line(f"{self._terminal.mark('more')} and so on")
            self._terminal.stdout.flush()

    def tell(self, report: DemoReport) -> None:
        """What came of it."""
        self._tell_kill(report)
        self._tell_file(report)
        if report.resume is not None:
            self._tell_calls(report.resume)
            self._tell_decision(report, report.resume)
            self._tell_resume(report, report.resume)
        self._head("7", f"Another way from its first turn: a fork, up to #{report.fork_ordinal}")
        self._show_tree(report)
        self._tell_verdict(report)
        self._suggest(report)

    def _tell_kill(self, report: DemoReport) -> None:
        after = f"after {report.killed_after_seconds:.2f} seconds, inside two of its tools, without warning"
        self._head("2", f"kill -9 {report.agent_pid}, {after}")
        self._line(f"it was in {' and '.join(map(safe_line, report.inside))}")
        self._line(f"it had been told that {len(report.acknowledged):,} records are on stable storage")

    def _tell_file(self, report: DemoReport) -> None:
        self._head("3", "What the file holds, read back from the disk")
        self._line(f"{safe_line(report.path)}")
        self._line(f"{report.file_bytes:,} bytes, {report.synced_bytes:,} of them acknowledged")
        self._line(_torn_text(report))
        if report.after_kill is not None:
            self._compare(report.after_kill)
            beyond = report.after_kill.found - report.after_kill.acknowledged
            if beyond > 0:
                self._line(f"  and {beyond:,} more, written and not yet acknowledged")

    def _tell_calls(self, resume: ResumeReport) -> None:
        self._head("4", "What became of its tool calls: a verdict for each, from the file alone")
        open_count = len(resume.open_calls)
        ended = resume.calls[open_count:]
        for listed in (*resume.calls[:open_count], *ended[-_ENDED_SHOWN:]):
            call = listed.call
            said = f"{call.verdict}: {safe_line(call.reason)}"
            self._line(f"{safe_line(call.call_id):<13} {call.effect:<7} {said}")
        if len(ended) > _ENDED_SHOWN:
            self._line(f"{self._terminal.mark('more')} and others that ended")
        for call in resume.open_calls:
            if call.may_run_again:
                self._line(f"{safe_line(call.name)} is in nobody's way: it only reads, so it may run again")

    def _tell_decision(self, report: DemoReport, resume: ResumeReport) -> None:
        self._head("5", "The next run is refused, until somebody found out what happened")
        for refusal in resume.refusals:
            self._line(f"{self._terminal.mark('bad')} {safe_line(refusal)}")
        for decided in resume.decisions:
            self._line(f"somebody looks: {safe_line(decided.note)}. So:")
            self._line(f"  rollout tools {report.thread_id} --resolve {decided.call_id} {decided.outcome}")

    def _tell_resume(self, report: DemoReport, resume: ResumeReport) -> None:
        self._head("6", "The next run resumes the thread and goes on")
        if report.kept_files:
            self._line(f"the torn tail was set aside first: {safe_line(report.kept_files[-1])}")
        if resume.ran_again:
            self._line(f"it ran {' and '.join(_RAN[name] for name in resume.ran_again)}")
        sent, wanted = len(resume.letters_sent), len(resume.letters_wanted)
        mark = self._terminal.mark("good" if resume.letters_hold else "bad")
        held = "none lost, none sent twice" if resume.letters_hold else "THESE ARE NOT THE SAME"
        self._line(f"{mark} {sent} letters are in {OUTBOX}, {wanted} calls sent one: {held}")
        if report.after_resume is not None:
            self._compare(report.after_resume)

    def _tell_verdict(self, report: DemoReport) -> None:
        terminal = self._terminal
        kept = "not one acknowledged record is missing or doubled, no side effect was repeated"
        mark = terminal.mark("good" if report.holds else "bad")
        verdict = f"{mark} {kept if report.holds else 'THE PROMISE WAS BROKEN'}"
        terminal.print()
        terminal.print(terminal.style(verdict, "green" if report.holds else "red"))
        terminal.print()

    def _compare(self, found: Comparison) -> None:
        mark = self._terminal.mark("good" if found.holds else "bad")
        order = "in order" if found.in_order else "OUT OF ORDER"
        self._line(
            f"{mark} {found.acknowledged - found.missing:,} of {found.acknowledged:,} acknowledged records "
            f"are there: {found.missing} missing, {found.doubled} doubled, {order}"
        )

    def _show_tree(self, report: DemoReport) -> None:
        tree = build_tree(Home(report.home))
        tops = [each for each in tree.roots if each.thread_id == report.thread_id]
        for line in tree_lines(self._terminal, tops, ShortIds(tree.nodes)):
            self._line(line)

    def _suggest(self, report: DemoReport) -> None:
        rollout = f"{command_line()} --home {shlex.quote(report.home)}"
        self._terminal.print("Now look at it yourself:")
        lines = [
            f"{rollout} show {report.thread_id}",
            f"{rollout} check {report.thread_id}",
            f"{rollout} tools {report.thread_id}",
            f"{rollout} resume {report.thread_id}",
            f"{rollout} tree",
            f"echo 'and now?' | {rollout} record --text --thread {report.thread_id}",
        ]
        if self._temporary:
            lines.append(f"rm -r {shlex.quote(report.home)}")
        for line in lines:
            self._terminal.print(f"  {safe_line(line)}")

    def _head(self, number: str, text: str) -> None:
        self._terminal.print(self._terminal.style(f"{number}  {text}", "bold"))

    def _line(self, text: str) -> None:
        self._terminal.print(f"   {text}".rstrip())


def _torn_text(report: DemoReport) -> str:
    if report.torn_bytes:
        return f"the kill cut a write short: its last {report.torn_bytes:,} bytes are no record (a torn tail)"
    return "it ends with a whole record this time; a kill may also leave half of one (a torn tail)"


def _as_object(report: DemoReport) -> dict[str, Any]:
    def counts(found: Comparison | None) -> dict[str, Any] | None:
        if found is None:
            return None
        names = ("acknowledged", "found", "missing", "doubled", "in_order")
        return {name: getattr(found, name) for name in names}

    return {
        "ok": report.holds,
        "home": report.home,
        "path": report.path,
        "thread": report.thread_id,
        "agent_pid": report.agent_pid,
        "killed_after_seconds": round(report.killed_after_seconds, 3),
        "inside": report.inside,
        "synced_bytes": report.synced_bytes,
        "file_bytes": report.file_bytes,
        "torn_bytes": report.torn_bytes,
        "after_kill": counts(report.after_kill),
        "calls": [] if report.resume is None else _call_objects(report.resume),
        "resume": None if report.resume is None else _resume_object(report.resume),
        "after_resume": counts(report.after_resume),
        "kept_files": report.kept_files,
        "fork": {"thread": report.fork_id, "ordinal": report.fork_ordinal},
    }


def _call_objects(resume: ResumeReport) -> list[dict[str, Any]]:
    names = ("call_id", "name", "effect", "verdict", "reason", "blocks_resume", "may_run_again")
    return [{name: getattr(each.call, name) for name in names} for each in resume.calls]


def _resume_object(resume: ResumeReport) -> dict[str, Any]:
    return {
        "refused": [{"reason": each.reason, "message": each.message} for each in resume.refusals],
        "decisions": [
            {"call_id": each.call_id, "outcome": each.outcome, "note": each.note} for each in resume.decisions
        ],
        "ran_again": resume.ran_again,
        "letters_sent": len(resume.letters_sent),
        "letters_wanted": len(resume.letters_wanted),
        "ok": resume.holds,
    }
