"""Turns without a loop: the same records, and on stable storage at the same moments."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from protocol import ResponseItem, SessionMeta, ToolVerdict
from protocol.errors import CallRefused, CompactionRefused, RolloutWriteError
from tests.rollout.faulty import FaultyCalls, fails
from tests.thread_store.folded import calls_in, fold_of, lines_in, own_in
from thread_store.blocking_thread import BlockingThread
from thread_store.context.model_context import load_model_context
from thread_store.context.model_item import ModelItem
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.turns.compaction_draft import Compaction


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyCalls:
    made = FaultyCalls()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: made)
    return made


@pytest.fixture
def thread(disk: FaultyCalls, home: Path) -> Iterator[BlockingThread]:
    with (
        LocalThreads(Home(home)) as threads,
        BlockingThread(threads.create(SessionMeta(cwd="/srv"), git_seconds=0)) as made,
    ):
        yield made


def summary(items: Sequence[ModelItem]) -> Compaction:
    return Compaction("the summary", [ResponseItem.message("user", f"{len(items)} items")])


def test_agent_without_a_loop_records_all_that_one_with_a_loop_does(
    thread: BlockingThread, tmp_path: Path
) -> None:
    """Messages, a call that was asked about, a check, a plan, a file, a state, a retry."""
    (tmp_path / "a.txt").write_text("text")
    with thread.turn(turn_id="t1") as turn:
        turn.user_message("pay")
        turn.plan([("pay", "in_progress")])
        turn.file_read(tmp_path / "a.txt")
        call = turn.tool_call("pay", {"amount": 5}, call_id="c1")
        approval = turn.request_approval(call, what="pay 5 €?")
        with pytest.raises(CallRefused), call:
            pytest.fail("the body ran")
        approval.approve(by="ada")
        with call:
            assert thread.health.pending_items == 0
            call.completed("paid")
        assert thread.health.pending_items == 0
        with turn.check("was it paid?", check_id="k1") as check:
            check.passed("receipt 7")
        turn.agent_message("paid")
    thread.set_state("done", reason="all paid")
    fold = fold_of(thread.path)
    assert calls_in(thread.path)["c1"].verdict is ToolVerdict.COMPLETED
    assert [each.state for each in fold.approvals.approvals] == ["approved"]
    assert [each.state for each in fold.checks.checks] == ["passed"]
    assert (fold.memory.state, list(fold.facts.files)) == ("done", [str(tmp_path / "a.txt")])
    assert own_in(thread.path, "x_state")[-1]["to"] == "done"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_ends_a_body_is_told(thread: BlockingThread, error: type[BaseException]) -> None:
    """An error is a failure; after a Ctrl-C nobody knows how far the call came."""
    with pytest.raises(error), thread.turn() as turn, turn.check("it works", check_id="k1"):
        turn.tool_call("pay", {}, call_id="waiting").request()
        with turn.tool_call("pay", {}, call_id="c1"):
            raise error
    thread.sync()
    failed = error is ValueError
    found = calls_in(thread.path)
    assert found["c1"].verdict is (ToolVerdict.FAILED if failed else ToolVerdict.UNCERTAIN)
    assert found["waiting"].verdict is ToolVerdict.DECLINED
    assert len(fold_of(thread.path).checks.unfinished) == (0 if failed else 1)
    assert lines_in(thread.path)[-1][1]["type"] == ("task_complete" if failed else "turn_aborted")


@pytest.mark.guarantee("G8")
def test_body_does_not_run_if_its_request_cannot_be_synced(disk: FaultyCalls, thread: BlockingThread) -> None:
    """And neither does that of a check; what reaches the file later says so."""
    with thread.turn() as turn:
        thread.sync()
        disk.arm("datasync", fails(errno.EIO), times=None)
        with pytest.raises(RolloutWriteError), turn.tool_call("pay", {}, call_id="c1"):
            pytest.fail("the body ran")
        with pytest.raises(RolloutWriteError), turn.check("make test", check_id="k1"):
            pytest.fail("the body ran")
        disk.lift()
    thread.sync()
    assert calls_in(thread.path)["c1"].verdict is ToolVerdict.DECLINED
    assert [each["state"] for each in own_in(thread.path, "x_check")] == ["started", "skipped"]


def test_ends_that_cannot_be_synced_are_raised(disk: FaultyCalls, thread: BlockingThread) -> None:
    """An error of the body goes first, and carries a note."""
    with thread.turn() as turn:
        with pytest.raises(RolloutWriteError) as caught, turn.tool_call("pay", {}, call_id="c1") as call:
            call.completed("paid")
            disk.arm("datasync", fails(errno.EIO), times=None)
        assert "its tool has run" in caught.value.__notes__[0]
        disk.lift()
        with pytest.raises(ValueError, match="broken") as raised, turn.tool_call("pay", {}):
            disk.arm("datasync", fails(errno.EIO), times=None)
            raise ValueError("broken")
        assert "is not on stable storage" in raised.value.__notes__[0]
        disk.lift()
    assert calls_in(thread.path)["c1"].verdict is ToolVerdict.COMPLETED


def test_answers_end_a_call_here_too(thread: BlockingThread) -> None:
    """Declined, expired, withdrawn, given up."""
    with thread.turn() as turn:
        for number, answer in enumerate(("decline", "expire", "withdraw")):
            call = turn.tool_call("pay", {}, call_id=f"c{number}")
            approval = turn.request_approval(call, approval_id=f"a{number}")
            getattr(approval, answer)(**({"by": "ada"} if answer == "decline" else {}))
            assert (approval.approval_id, approval.is_approved) == (f"a{number}", False)
            assert approval.state in ("declined", "expired", "withdrawn")
        call.give_up("not needed")
    assert {each.verdict for each in calls_in(thread.path).values()} == {ToolVerdict.DECLINED}


@pytest.mark.guarantee("G8")
def test_safe_call_is_run_again(thread: BlockingThread) -> None:
    """As a further attempt with the same key."""
    left = thread.turn()
    left.__enter__()
    left.tool_call("put", {"n": 1}, effect="idempotent", call_id="c1").__enter__()
    call = calls_in(thread.path)["c1"]
    with thread.turn() as turn, turn.retry(call, call_id="c2") as again:
        again.completed("ok")
    found = calls_in(thread.path)
    assert (found["c2"].attempt, found["c2"].key, found["c1"].may_run_again) == (2, "c1", False)


def test_context_is_compacted_by_hand_and_by_a_budget(thread: BlockingThread, home: Path) -> None:
    """With a summariser that blocks; what is recorded meanwhile stays."""

    def summarise(items: Sequence[ModelItem]) -> Compaction:
        thread.record_nowait(ResponseItem.message("user", "meanwhile"))
        return summary(items)

    with thread.turn() as turn:
        turn.user_message("question")
    assert thread.compact(summarise)
    assert [each.text for each in load_model_context(thread.path, Home(home)).items] == [
        "1 items",
        "meanwhile",
    ]
    thread.auto_compact(summary, budget_bytes=1)
    with thread.turn() as turn:
        turn.user_message("question")
    assert [each.text for each in load_model_context(thread.path, Home(home)).items] == ["3 items"]

    def change(items: Sequence[ModelItem]) -> Compaction:
        thread.compact(summary)
        return summary(items)

    with pytest.raises(CompactionRefused):
        thread.compact(change)
