"""Reverts: a thread goes on from an earlier point in a new rollout, and nothing is lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ForkPointInvalid, ForkRefused, RolloutError, RolloutWriteError
from protocol.ids import ThreadId
from tests.rollout.faulty import Fault, fails
from tests.thread_store.histories import Script, body_lines, history, meta, metas, turns, uuid, write_thread
from tests.thread_store.scripted import ScriptedCalls
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.context.model_context import load_model_context
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import Revert, make_revert, next_rollout_id, turns_to_drop
from thread_store.home import Home

A, B, C = (uuid(number) for number in (0xA, 0xB, 0xC))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def revert(home: Home, point: ForkPoint, **options: Any) -> Revert:
    return make_revert(home.find_thread(A), home=home, point=point, **options)


def append(path: str | Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_revert_goes_on_before_the_turn_in_a_file_of_its_own(home: Home) -> None:
    """The thread keeps its id, its old file keeps its bytes, and the new one is the current one."""
    first = write_thread(home, A, turns(3), model_provider="mock", x_task={"prompt": "p"})
    before = first.read_bytes()
    made = revert(home, ForkPoint.before_turn(2), created=datetime(2026, 5, 6, 7, 8, 9))
    path = Path(made.path)
    assert path.name == f"rollout-2026-05-06T07-08-09-{A}_{made.rollout_id}.jsonl"
    assert path.parent == home.path / "sessions" / "2026" / "05" / "06"
    assert home.find_thread(A) == path
    assert first.read_bytes() == before
    assert history(path, home) == body_lines(before)[:10]
    found = metas(path)[0]
    assert found["id"] == A
    assert found["history_base"]["thread_id"] == A
    assert "forked_from_id" not in found
    assert found["x_task"] == {"prompt": "p"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_revert_of_a_revert_is_current_again(home: Home) -> None:
    """Each one is greater than all before it, whichever file its base is in."""
    write_thread(home, A, turns(3))
    expected: list[bytes] = []
    for number in range(4):
        made = revert(home, ForkPoint.turn(2))
        assert home.find_thread(A) == Path(made.path)
        body = turns(1, first=10 + number, ordinal=(made.border.end_ordinal or 0) + 1)
        append(made.path, body)
        expected = body_lines(turns(2)) + body_lines(body)
        assert history(made.path, home) == expected
        assert made.base.thread_id == A


def test_revert_keeps_what_the_thread_was_forked_from(home: Home) -> None:
    """A fork that goes back behind its own beginning is still a fork."""
    write_thread(home, B, turns(2), forked_from_id=A)
    child = make_fork(home.find_thread(B), home.new_rollout_path(A), thread_id=A, home=home, mode="reference")
    append(child.path, turns(1, ordinal=18))
    made = revert(home, ForkPoint.turn(1))
    found = metas(made.path)[0]
    assert (found["forked_from_id"], found["forked_from_ordinal_exclusive"]) == (B, 9)
    assert made.base.thread_id == B


def test_revert_to_the_end_is_a_new_file_behind_everything(home: Home) -> None:
    """What a take-over by force needs: the verified end, an open call or not."""
    script = Script()
    script.start()
    script.call("c1")
    first = write_thread(home, A, script.bytes)
    append(first, b'{"half')
    made = revert(home, ForkPoint.end())
    append(first, b"written late by one that lost its lock\n")
    assert history(made.path, home) == body_lines(script.bytes)


def test_legacy_thread_is_refused(home: Home) -> None:
    """It rolls back in its own file; the error says so."""
    write_thread(home, A, turns(2, ordinal=None), ordinal=None)
    with pytest.raises(ForkRefused, match="thread_rolled_back"):
        revert(home, ForkPoint.turn(1))


def test_thread_that_lost_its_base_still_reverts_within_its_own_part(home: Home) -> None:
    """It is as broken as before, and no more."""
    parent = write_thread(home, B, turns(1))
    child = make_fork(parent, home.new_rollout_path(A), thread_id=A, home=home, mode="reference")
    body = turns(2, ordinal=10)
    append(child.path, body)
    parent.unlink()
    made = revert(home, ForkPoint.turn(1))
    assert history(made.path, home) == body_lines(body)[:10]
    problem = Lineage.resolve(made.path, home).problem
    assert problem is not None
    assert (problem.code, problem.rollout_id) == ("missing", B)


def test_point_inside_a_call_makes_nothing(home: Home) -> None:
    """As for a fork."""
    script = Script()
    script.start()
    script.call("c1")
    script.output("c1")
    write_thread(home, A, script.bytes)
    with pytest.raises(ForkPointInvalid):
        revert(home, ForkPoint.before_ordinal(3))
    assert len(list(home.rollouts())) == 1


def test_failure_makes_nothing(home: Home) -> None:
    """And the thread's current rollout is the one it was."""
    first = write_thread(home, A, turns(2))
    with pytest.raises(RolloutWriteError):
        revert(home, ForkPoint.turn(1), calls=ScriptedCalls(Fault("link", fails(28))))
    assert home.find_thread(A) == first
    assert [path for path in home.path.rglob("*") if path.is_file()] == [first]


def test_new_rollout_gets_its_name_under_the_coordination_lock(home: Home) -> None:
    """Like every file that refers to another one."""
    write_thread(home, A, turns(2))
    counts: list[int] = []

    @contextmanager
    def held() -> Iterator[None]:
        counts.append(len(list(home.rollouts())))
        yield
        counts.append(len(list(home.rollouts())))

    revert(home, ForkPoint.turn(1), coordination=held())
    assert counts == [1, 2]


# Rollout ids


@given(st.lists(st.uuids(), max_size=5))
def test_next_rollout_id_is_greater_than_all(existing: list[Any]) -> None:
    """Whatever version they are of, and in whichever year their clocks were."""
    texts = [str(each) for each in existing]
    made = next_rollout_id(texts)
    assert all(made > each for each in texts)
    assert made[14] == "7"
    assert made[19] in "89ab"
    following = next_rollout_id([*texts, made])
    assert following > made


@pytest.mark.parametrize(
    ("greatest", "following"),
    [
        ("ff000000-0000-7000-8000-000000000000", "ff000000-0000-7000-8000-000000000001"),
        ("ff000000-0000-7000-bfff-ffffffffffff", "ff000000-0000-7001-8000-000000000000"),
        ("ff000000-0000-7fff-bfff-ffffffffffff", "ff000000-0001-7000-8000-000000000000"),
        ("ff000000-0000-4abc-8000-000000000000", "ff000000-0000-7abc-8000-000000000001"),
        ("ff000000-0000-8abc-8000-000000000000", "ff000000-0001-7000-8000-000000000000"),
    ],
)
def test_clock_that_stepped_back_goes_on_behind_the_greatest(greatest: str, following: str) -> None:
    """The id after a greater one, with its carry, and never of another version."""
    assert next_rollout_id([A, greatest, B]) == following


def test_fresh_id_is_taken_where_the_clock_is_ahead() -> None:
    """Then its time is the time of the revert."""
    before = ThreadId.new()
    assert before < next_rollout_id([A, B]) < ThreadId.new()
    assert before < next_rollout_id([]) < ThreadId.new()


def test_no_id_behind_the_last_one_is_an_error() -> None:
    """It is not wrapped around to a small one."""
    with pytest.raises(RolloutError):
        next_rollout_id(["ffffffff-ffff-ffff-ffff-ffffffffffff"])


def test_plain_name_of_any_version_is_the_oldest(home: Home) -> None:
    """A thread whose own id is a great UUIDv4 is reverted to a fresh id all the same."""
    great = "ffffffff-ffff-4fff-bfff-ffffffffffff"
    write_thread(home, great, turns(1))
    made = make_revert(home.find_thread(great), home=home, point=ForkPoint.end())
    assert home.find_thread(great) == Path(made.path)


# Legacy


def test_turns_to_drop_are_those_in_which_somebody_typed(home: Home) -> None:
    """As Codex counts them for `thread_rolled_back`."""
    script = Script(None)
    script.turn(1)
    script.turn(2)
    script.start("compaction")
    script.complete("compaction")
    script.turn(3)
    path = write_thread(home, A, script.bytes, ordinal=None)
    lineage = Lineage.resolve(path, home)
    assert [turns_to_drop(lineage, ForkPoint.turn(n)) for n in range(5)] == [3, 2, 1, 1, 0]
    append(path, _rolled_back(turns_to_drop(lineage, ForkPoint.turn(1))))
    lineage = Lineage.resolve(path, home)
    assert turns_to_drop(lineage, ForkPoint.turn(0)) == 1
    assert len(meta(A, None)) == lineage.start.offset


def test_message_typed_in_the_midst_of_a_turn_counts_too(home: Home) -> None:
    """The model's context loses messages, not turns: what was to go goes whole, and nothing else."""
    script = Script(None)
    script.turn(1)
    script.start("t2")
    script.user("two")
    script.response("assistant", "working")
    script.user("and that too")
    script.complete("t2")
    path = write_thread(home, A, script.bytes, ordinal=None)
    lineage = Lineage.resolve(path, home)
    assert [turns_to_drop(lineage, ForkPoint.turn(n)) for n in range(3)] == [3, 2, 0]
    append(path, _rolled_back(turns_to_drop(lineage, ForkPoint.turn(1))))
    context = load_model_context(path, home)
    assert [item.text for item in context.items if item.role == "user"] == ["question 1"]
    assert turns_to_drop(Lineage.resolve(path, home), ForkPoint.turn(0)) == 1


def test_rollback_of_one_of_two_messages_leaves_the_turn(home: Home) -> None:
    """The other one is still to be dropped."""
    script = Script(None)
    script.turn(1)
    script.start("t2")
    script.user("two")
    script.response("assistant", "working")
    script.user("and that too")
    script.complete("t2")
    path = write_thread(home, A, script.bytes + _rolled_back(1), ordinal=None)
    lineage = Lineage.resolve(path, home)
    assert [turns_to_drop(lineage, ForkPoint.turn(n)) for n in range(3)] == [2, 1, 0]


def _rolled_back(count: int) -> bytes:
    script = Script(None)
    script.event("thread_rolled_back", num_turns=count)
    return script.bytes


def test_revert_does_not_touch_the_time_of_the_old_file(home: Home) -> None:
    """Lists sort by it."""
    path = write_thread(home, A, turns(1))
    os.utime(path, ns=(10**18, 10**18))
    revert(home, ForkPoint.end())
    assert path.stat().st_mtime_ns == 10**18
