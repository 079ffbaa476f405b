"""Calls as they are recorded, side by side and in any order: what a reader of any prefix may conclude."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import ThreadFold, ToolVerdict, encode_item
from protocol.errors import ApprovalAnswered, CallRefused
from protocol.items import RolloutItem
from protocol.line import RolloutLine, decode_line
from thread_store.turns.approval_records import ApprovalRecords
from thread_store.turns.call_records import CallPhase, CallRecords
from thread_store.turns.turn_records import TurnRecords

IDS = ("c0", "c1", "c2")
EFFECTS = (None, "none", "unsafe")
STEPS = (
    *("intend", "start", "complete", "fail", "decline", "interrupt", "never begun"),
    *("ask", "approved", "declined", "expired", "withdrawn"),
)


class Agent:
    """Three calls of one turn, and what was recorded of them. A call whose start was recorded has run."""

    def __init__(self, effects: list[str | None]) -> None:
        self.turn = TurnRecords("t1", cwd="/srv")
        how: dict[str, Any] = {"namespace": None, "free_text": False, "key": None, "attempt": 1}
        self.calls: dict[str, CallRecords] = {}
        for call_id, effect in zip(IDS, effects, strict=True):
            spec = self.turn.spec("tool", {}, effect=effect, call_id=call_id, kind="custom", **how)
            self.calls[call_id] = CallRecords(spec)
            self.turn.take_call(self.calls[call_id])
        self.questions: dict[str, ApprovalRecords] = {}
        self.lines: list[RolloutLine] = []
        self.ran_from: dict[str, int] = {}
        """How many lines there are when the body of a call begins."""
        self.ended_from: dict[str, int] = {}
        """How many there are when it is about to be recorded that it ended, or that it never ran."""
        self.take(self.turn.begin())

    def take(self, items: list[RolloutItem]) -> None:
        self.lines += [decode_line(encode_item(each, timestamp="2026-11-29T10:11:12.345Z")) for each in items]

    def step(self, call_id: str, step: str) -> None:
        """What is refused leaves no trace."""
        call = self.calls[call_id]
        try:
            if step == "ask":
                question = self.turn.question(call, None)
                self.take(question.ask("may it?"))
                question.note_asked()
                self.questions[call_id] = question
            elif step in ("approved", "declined", "expired", "withdrawn"):
                self._answer(call_id, step)
            else:
                self._move(call, step)
        except (CallRefused, ApprovalAnswered):
            pass

    def _answer(self, call_id: str, state: str) -> None:
        question = self.questions.get(call_id)
        if question is not None:
            items = question.answer(state)
            if len(items) > 1:
                self.ended_from[call_id] = len(self.lines)
            self.take(items)
            question.note_answered(state)

    def _move(self, call: CallRecords, step: str) -> None:
        if step == "intend":
            self.take(call.intend())
            call.note(CallPhase.INTENDED)
        elif step == "start":
            self.take(call.start())
            call.note(CallPhase.STARTED)
            self.ran_from[call.call_id] = len(self.lines)
        elif call.phase is CallPhase.STARTED or step == "decline":
            items = self._end(call, step)
            self.ended_from[call.call_id] = len(self.lines)
            self.take(items)
            call.note(CallPhase.ENDED)

    @staticmethod
    def _end(call: CallRecords, step: str) -> list[RolloutItem]:
        if step == "complete":
            call.completed("ok")
        elif step == "fail":
            call.failed("exit 2")
        elif step == "never begun":
            return call.never_begun(OSError("full"))
        elif step == "decline":
            return call.decline("no")
        return call.end(KeyboardInterrupt() if step == "interrupt" else None)


@pytest.mark.case("B60")
@pytest.mark.guarantee("G8")
@settings(deadline=None, max_examples=300)
@given(
    effects=st.lists(st.sampled_from(EFFECTS), min_size=3, max_size=3),
    steps=st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(STEPS)), max_size=14),
    turn_ends=st.booleans(),
)
def test_no_prefix_lets_a_call_go_again_that_may_have_run(
    effects: list[str | None], steps: list[tuple[str, str]], turn_ends: bool
) -> None:
    """While a body runs its call is uncertain, and unless it is harmless it blocks a resume and never runs
    again; one that never began blocks nothing; when the turn has ended none is left pending."""
    agent = Agent(effects)
    for call_id, step in steps:
        agent.step(call_id, step)
    before_end = len(agent.lines)
    if turn_ends:
        agent.take(agent.turn.end(None))
    fold = ThreadFold()
    for count, line in enumerate(agent.lines, 1):
        fold.add(line)
        for call in fold.calls.calls():
            harmless = agent.calls[call.call_id].spec.effect == "none"
            ran, ended = agent.ran_from.get(call.call_id), agent.ended_from.get(call.call_id, before_end)
            if ran is not None and ran <= count <= ended:
                assert call.verdict is ToolVerdict.UNCERTAIN
                assert (call.may_run_again, call.blocks_resume) == (harmless, not harmless)
            if ran is None:
                assert not call.blocks_resume
            if call.may_run_again:
                assert harmless
    if turn_ends:
        found = fold.calls.calls()
        assert not [each for each in found if each.verdict is ToolVerdict.PENDING]
        assert not fold.approvals.pending
        assert all(each.has_output for each in found if agent.calls[each.call_id].phase is CallPhase.ENDED)


def test_body_that_told_its_end_twice_means_the_last() -> None:
    """As a tool that thought it was done."""
    agent = Agent([None, None, None])
    call = agent.calls["c0"]
    call.start()
    call.note(CallPhase.STARTED)
    call.completed("ok")
    call.failed("exit 2")
    assert [each.state for each in call.end() if each.record_type == "x_call"] == ["failed"]  # type: ignore[attr-defined]
