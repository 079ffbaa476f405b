"""Barriers: each is answered exactly once, on its caller's loop or thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from protocol.errors import RecorderClosed
from rollout.barrier import Barrier, BarrierQueue, Goal, Receipt, answer_all


def blocking_barrier(goal: Goal = Goal.FLUSH, *, target: int = 0, items: int = 0) -> Barrier:
    barrier = Barrier(goal, loop=None)
    barrier.target, barrier.items = target, items
    return barrier


def answered(barrier: Barrier) -> bool:
    return barrier._future.done()


def error() -> RecorderClosed:
    return RecorderClosed(path="/a.jsonl")


def test_receipt_reaches_a_thread_that_waits() -> None:
    """From whatever thread it is given."""
    barrier = blocking_barrier(items=3)
    barrier.receipt = Receipt(3, 100)
    threading.Thread(target=answer_all, args=([barrier],)).start()
    assert barrier.wait_blocking(30) == Receipt(3, 100)


def test_answer_reaches_the_loop_that_waits() -> None:
    """Given in another thread, it is delivered on the loop of its caller."""

    async def wait() -> Receipt:
        barrier = Barrier(Goal.SYNC, loop=asyncio.get_running_loop())
        barrier.receipt = Receipt(1, 2)
        threading.Thread(target=answer_all, args=([barrier],)).start()
        return await barrier.wait()

    assert asyncio.run(wait()) == Receipt(1, 2)


def test_many_answers_are_one_call_into_their_loop() -> None:
    """64 callers of one loop are told with one wake-up."""

    async def wait() -> int:
        loop = asyncio.get_running_loop()
        calls = 0
        real = loop.call_soon_threadsafe

        def count(*given: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            return real(*given, **named)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[assignment, method-assign]
        barriers = [Barrier(Goal.SYNC, loop=loop) for _ in range(64)]
        for barrier in barriers:
            barrier.receipt = Receipt(0, 0)
        answer_all(barriers)
        await asyncio.gather(*(barrier.wait() for barrier in barriers))
        return calls

    assert asyncio.run(wait()) == 1


def test_answer_for_a_loop_that_is_over_harms_nobody() -> None:
    """Its caller is gone; the others are told."""

    async def make() -> Barrier:
        return Barrier(Goal.SYNC, loop=asyncio.get_running_loop())

    gone, here = asyncio.run(make()), blocking_barrier()
    for barrier in (gone, here):
        barrier.receipt = Receipt(0, 0)
    answer_all([gone, here])
    assert answered(here)


@pytest.mark.case("B16")
def test_cancelled_waiter_is_passed_over() -> None:
    """An answer that comes later is nobody's."""

    async def cancel() -> bool:
        barrier = Barrier(Goal.FLUSH, loop=asyncio.get_running_loop())
        task = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        barrier.receipt = Receipt(0, 0)
        answer_all([barrier])
        await asyncio.sleep(0)
        return barrier.abandoned

    assert asyncio.run(cancel())


def test_barrier_that_is_answered_twice_keeps_its_first_answer() -> None:
    """A sync that succeeded and a failure of the writer may come at the same time, from two threads."""
    barrier = blocking_barrier()
    barrier.receipt = Receipt(1, 1)
    barrier.deliver()
    barrier.error = error()
    barrier.deliver()
    assert barrier.wait_blocking(1) == Receipt(1, 1)


def test_queue_hands_over_in_the_order_of_arrival() -> None:
    """And tells who wants to close."""
    queue = BarrierQueue()
    barriers = [blocking_barrier(goal) for goal in (Goal.FLUSH, Goal.CLOSE, Goal.SYNC)]
    assert all(queue.leave(barrier) for barrier in barriers)
    assert queue.receive(chances=2) == [barriers[1]]
    assert queue.met(lambda barrier: True) == [barriers[0], barriers[2]]
    assert queue.wants(Goal.SYNC)
    assert not queue.wants(Goal.ROOM)


def test_met_barriers_are_answered_and_leave() -> None:
    """Only those; the others go on waiting."""
    queue = BarrierQueue()
    near, far = blocking_barrier(target=10, items=1), blocking_barrier(target=20, items=2)
    for barrier in (near, far):
        queue.leave(barrier)
    queue.receive(chances=2)
    queue.answer(queue.met(lambda barrier: barrier.target <= 10), 99)
    assert near.wait_blocking(1) == Receipt(1, 99)
    assert not answered(far)
    assert queue.met(lambda barrier: True) == [far]


def test_riders_are_those_of_a_goal_up_to_a_position() -> None:
    """A sync covers the barriers that asked for no more than was written when it began."""
    queue = BarrierQueue()
    flush, near, far = (
        blocking_barrier(target=5),
        blocking_barrier(Goal.SYNC, target=10),
        blocking_barrier(Goal.SYNC, target=11),
    )
    for barrier in (flush, near, far):
        queue.leave(barrier)
    queue.receive(chances=2)
    assert queue.select(Goal.SYNC, target_max=10) == [near]


@pytest.mark.parametrize("chances", [1, 2, 3])
def test_barrier_survives_all_failures_but_its_last(chances: int) -> None:
    """Then it is told, with an error of its own; who waits for room goes on waiting."""
    queue = BarrierQueue()
    barriers = [blocking_barrier(), blocking_barrier(Goal.SYNC)]
    room = blocking_barrier(Goal.ROOM)
    for barrier in (*barriers, room):
        queue.leave(barrier)
    queue.receive(chances=chances)
    for _ in range(chances):
        assert not any(map(answered, barriers))
        queue.lose_chance(error)
    errors = []
    for barrier in barriers:
        with pytest.raises(RecorderClosed) as caught:
            barrier.wait_blocking(1)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert not answered(room)
    assert queue.wants(Goal.ROOM)


def test_everybody_can_be_told_at_once() -> None:
    """Also who waits for room."""
    queue = BarrierQueue()
    barriers = [blocking_barrier(goal) for goal in (Goal.FLUSH, Goal.SYNC, Goal.ROOM)]
    for barrier in barriers:
        queue.leave(barrier)
    queue.receive(chances=2)
    queue.fail_all(error)
    assert all(map(answered, barriers))
    assert not queue


def test_closed_queue_takes_nobody_and_returns_who_waits() -> None:
    """Those that arrived and were not seen yet, too."""
    queue = BarrierQueue()
    seen, unseen = blocking_barrier(), blocking_barrier()
    queue.leave(seen)
    queue.receive(chances=2)
    queue.leave(unseen)
    assert queue.close() == [seen, unseen]
    assert not queue.leave(blocking_barrier())


def test_abandoned_barriers_are_forgotten() -> None:
    """They make nobody retry."""

    async def abandon() -> None:
        queue = BarrierQueue()
        barrier = Barrier(Goal.FLUSH, loop=asyncio.get_running_loop())
        queue.leave(barrier)
        queue.receive(chances=2)
        barrier._future.cancel()
        queue.receive(chances=2)
        assert not queue

    asyncio.run(abandon())


def test_forked_child_waits_for_nobody() -> None:
    """Its queue is closed, whoever held the lock."""
    queue = BarrierQueue()
    queue.leave(blocking_barrier())
    queue._lock.acquire()
    queue.reset_after_fork()
    assert not queue.leave(blocking_barrier())
    assert not queue
