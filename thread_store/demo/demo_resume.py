"""What the demo does after the kill: it looks at the tool calls, finds out what happened, and goes on.

Invariant: nothing is decided by knowing how the agent was killed, only by looking: at the rollout for the
verdicts, and at the outbox for the one call whose outcome the rollout can't tell. What the resumed agent
does it does by these answers alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from protocol.errors import ResumeRefused
from protocol.tool_calls import ToolCall
from protocol.tool_verdicts import ToolVerdict
from thread_store.chain.lineage import Lineage
from thread_store.demo.demo_tools import OUTBOX, letter, list_folder, send_letter, sent_letters
from thread_store.home import Home
from thread_store.local_store import LocalThreadStore
from thread_store.resume.call_decision import Outcome
from thread_store.resume.call_table import ListedCall, list_calls
from thread_store.resume.resume_refusals import Refusal, RefusalReason
from thread_store.resume.resume_state import ResumeState
from thread_store.turns.turn import Turn

__all__ = ["DECIDED_BY", "Decided", "ResumeReport", "resume_demo"]

DECIDED_BY = "rollout demo"


@dataclass(frozen=True, slots=True)
class Decided:
    """What was found out about a call, and how."""

    call_id: str
    outcome: Outcome
    note: str


@dataclass(slots=True)
class ResumeReport:
    """What came of the tool calls."""

    calls: list[ListedCall] = field(default_factory=list)
    """After the kill: the open ones first, then the newest that ended."""
    refusals: tuple[Refusal, ...] = ()
    """Why the thread was not resumed at once."""
    decisions: list[Decided] = field(default_factory=list)
    ran_again: list[str] = field(default_factory=list)
    """Names of the tools that the resumed agent ran again, or at last."""
    letters_sent: list[str] = field(default_factory=list)
    """What is in the outbox at the end."""
    letters_wanted: list[str] = field(default_factory=list)

    @property
    def open_calls(self) -> list[ToolCall]:
        """Those whose end is not known after the kill."""
        return [each.call for each in self.calls if not each.call.result_known]

    @property
    def blocked_rightly(self) -> bool:
        """Whether exactly the unsafe calls that were open stood against the resume, and nothing else did."""
        unsafe = {each.call_id for each in self.open_calls if each.blocks_resume}
        blocking = {each.details.get("call_id") for each in self.refusals}
        reasons = {each.reason for each in self.refusals}
        return bool(unsafe) and reasons == {RefusalReason.UNCERTAIN_CALL} and blocking == unsafe

    @property
    def letters_hold(self) -> bool:
        """Whether each letter went out exactly once."""
        return sorted(self.letters_sent) == sorted(self.letters_wanted)

    @property
    def holds(self) -> bool:
        """Whether no side effect was repeated, forgotten, or taken for safe."""
        return self.blocked_rightly and self.letters_hold


def resume_demo(home: str, thread_id: str, path: str) -> ResumeReport:
    """Look at the thread of a dead agent, decide what has to be decided, and go on with it."""
    report = ResumeReport()
    with Lineage.resolve(path, Home(home)) as lineage:
        table = list_calls(lineage)
    report.calls = [*table.open, *table.ended]
    asyncio.run(_resume(report, home, thread_id))
    report.letters_sent = sent_letters(home, thread_id)
    with Lineage.resolve(path, Home(home)) as lineage:
        names = [each.call for each in list_calls(lineage, every=True).ended]
    report.letters_wanted = [
        letter(thread_id, each.key or each.call_id)
        for each in names
        if each.name == "send" and each.verdict is ToolVerdict.COMPLETED
    ]
    return report


async def _resume(report: ResumeReport, home: str, thread_id: str) -> None:
    async with LocalThreadStore(home, collect_git=False) as store:
        report.refusals = await _try_at_once(store, thread_id)
        state = await store.load_resume_state(thread_id)
        for call in state.open_calls:
            if call.blocks_resume:
                decided = _find_out(call, home, thread_id)
                report.decisions.append(decided)
                await store.resolve_call(
                    thread_id, call.call_id, decided.outcome, by=DECIDED_BY, note=decided.note
                )
        thread, state = await store.resume_thread(thread_id)
        async with thread, thread.turn() as turn:
            await _go_on(turn, state, home, thread_id, report)


async def _try_at_once(store: LocalThreadStore, thread_id: str) -> tuple[Refusal, ...]:
    """What stands against going on without asking anybody; nothing was changed if something does."""
    try:
        thread, _ = await store.resume_thread(thread_id)
    except ResumeRefused as error:
        return error.refusals
    await thread.aclose()
    return ()


def _find_out(call: ToolCall, home: str, thread_id: str) -> Decided:
    """As a person would: by looking where the call would have left something."""
    if letter(thread_id, call.call_id) in sent_letters(home, thread_id):
        return Decided(call.call_id, "happened", f"the letter is in {OUTBOX}")
    return Decided(call.call_id, "not_happened", f"no such letter is in {OUTBOX}")


async def _go_on(turn: Turn, state: ResumeState, home: str, thread_id: str, report: ResumeReport) -> None:
    """The next run of the agent: what may run again runs again, and what did not happen happens now."""
    turn.user_message("(demo) you were killed; somebody looked what happened. Go on.")
    lists = [each for each in state.open_calls if each.name == "list" and each.may_run_again]
    letters = [each.call_id for each in report.decisions if each.outcome == "not_happened"]
    for call in lists:
        async with turn.retry(call) as again:
            again.completed(list_folder(home))
        report.ran_again.append("list")
    for call_id in letters:
        text = letter(thread_id, call_id)
        async with turn.tool_call("send", {"letter": text}, kind="shell", key=call_id) as send:
            send_letter(home, text)
            send.completed("sent")
        report.ran_again.append("send")
    turn.agent_message("Here I am again: what was open is done, and nothing was done twice.")
