"""The ending: everybody who waits is answered, each with an error of its own, for the one reason."""

from __future__ import annotations

import pytest

from protocol.errors import RecorderClosed, RolloutWriteError, UnwrittenItems, WriterFenced
from rollout.barrier import Barrier, Goal, Receipt
from rollout.ending import Ending
from tests.rollout.writer_parts import PATH, barrier

RECEIPT = Receipt(3, 100)


def ended(ending: Ending, *goals: Goal) -> list[Barrier]:
    """The end comes while these wait."""
    waiting = [barrier(goal) for goal in goals]
    ending.await_end([each for each in waiting if each.goal is Goal.CLOSE])
    ending.answer_all([each for each in waiting if each.goal is not Goal.CLOSE], RECEIPT)
    return waiting


def test_plain_close_gives_a_receipt_to_who_asked_for_it() -> None:
    """All others came too late."""
    close, flush = ended(Ending(PATH), Goal.CLOSE, Goal.FLUSH)
    assert close.wait_blocking(0) == RECEIPT
    with pytest.raises(RecorderClosed, match="closed"):
        flush.wait_blocking(0)


def test_close_that_left_items_behind_tells_everybody_with_an_error_of_its_own() -> None:
    """The same words and cause, never the same object."""
    ending, cause = Ending(PATH), OSError(5, "broken")
    ending.error = UnwrittenItems(path=PATH, cause=cause, kept_path="/kept", unwritten=b"", pending_items=2)
    ending.error.__cause__ = cause
    told = []
    for each in ended(ending, Goal.CLOSE, Goal.CLOSE, Goal.SYNC):
        with pytest.raises(UnwrittenItems) as caught:
            each.wait_blocking(0)
        assert (caught.value.kept_path, caught.value.__cause__) == ("/kept", cause)
        told.append(caught.value)
    assert len({id(ending.error), *map(id, told)}) == 4


@pytest.mark.case("B22")
def test_bug_outweighs_every_other_reason_and_is_chained() -> None:
    """Also who asks to close is told, and where the items are."""
    ending = Ending(PATH)
    ending.error = WriterFenced(path=PATH, reason="taken over")
    ending.bug, ending.bug_kept = RuntimeError("planted"), "/kept"
    for each in ended(ending, Goal.CLOSE, Goal.FLUSH):
        with pytest.raises(RolloutWriteError, match=r"planted.*kept in /kept") as caught:
            each.wait_blocking(0)
        assert caught.value.__cause__ is ending.bug


def test_closing_in_a_forked_child_succeeds_and_all_else_is_refused() -> None:
    """It belongs to the parent; a child that cleans up must not fail."""
    ending = Ending(PATH)
    ending.forked = True
    close, flush = ended(ending, Goal.CLOSE, Goal.FLUSH)
    assert close.wait_blocking(0) == RECEIPT
    with pytest.raises(RecorderClosed, match="parent process"):
        flush.wait_blocking(0)


def test_what_is_pending_is_drained_unless_it_is_dropped_or_not_ours() -> None:
    """Discarding drops it, a lost lock forbids it."""
    plain, discarded, fenced = Ending(PATH), Ending(PATH), Ending(PATH)
    discarded.discarding = True
    fenced.fenced = WriterFenced(path=PATH, reason="taken over")
    assert [plain.drains, discarded.drains, fenced.drains] == [True, False, False]
    assert "discarded" in str(discarded.why())


def test_each_callback_is_called_once_also_after_the_end() -> None:
    """Who can't wait is called; a second call back finds only who came since."""
    ending, called = Ending(PATH), []
    ending.call_at_end(lambda: called.append("before"))
    ending.call_back()
    ending.call_at_end(lambda: called.append("after"))
    ending.call_back()
    ending.call_back()
    assert called == ["before", "after"]
