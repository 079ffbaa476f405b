"""The alarm: no ring is lost, and many wake-ups are one call into the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rollout.alarm import Alarm
from tests.rollout.writer_parts import ServiceHere

pytestmark = pytest.mark.asyncio


class CountingService(ServiceHere):
    """Counts the calls into its loop; the first ones fail as they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.interrupts: list[BaseException] = []

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        if self.interrupts:
            raise self.interrupts.pop()
        self.calls += 1
        super().call(callback, *args)


def alarm_of(service: CountingService, *, linger_seconds: float = 3600.0) -> Alarm:
    return Alarm(service, linger_seconds=linger_seconds)


async def test_ring_while_the_task_is_awake_ends_its_next_sleep() -> None:
    """It came to look before: it must look again. And only once."""
    alarm = alarm_of(CountingService())
    alarm.ring()
    alarm.ring()
    await asyncio.wait_for(alarm.sleep(), 30)
    sleeping = asyncio.create_task(alarm.sleep())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sleeping.done()
    alarm.ring()
    await asyncio.wait_for(sleeping, 30)


async def test_wake_from_another_thread_ends_the_sleep() -> None:
    """Whoever leaves something calls from anywhere."""
    alarm = alarm_of(CountingService())
    sleeping = asyncio.create_task(alarm.sleep())
    threading.Thread(target=alarm.wake, args=(True,)).start()
    await asyncio.wait_for(sleeping, 30)


async def test_many_wakes_are_one_call_into_the_loop() -> None:
    """One that is under way finds what was left before it arrives."""
    service = CountingService()
    alarm = alarm_of(service)
    for _ in range(100):
        alarm.wake(True)
    assert service.calls == 1
    await asyncio.wait_for(alarm.sleep(), 30)
    alarm.wake(True)
    assert service.calls == 2
    await asyncio.wait_for(alarm.sleep(), 30)


async def test_wake_without_hurry_lingers_and_then_rings() -> None:
    """What was left waits for company, but is not forgotten."""
    service = CountingService()
    alarm = alarm_of(service, linger_seconds=0.001)
    for _ in range(100):
        alarm.wake(False)
    await asyncio.wait_for(alarm.sleep(), 30)
    assert service.calls == 1


async def test_hurry_ends_the_lingering() -> None:
    """Somebody waits now: nobody lingers any more, also not for the next sleep."""
    alarm = alarm_of(CountingService(), linger_seconds=0.01)
    alarm.wake(False)
    alarm.wake(True)
    await asyncio.wait_for(alarm.sleep(), 30)
    sleeping = asyncio.create_task(alarm.sleep())
    await asyncio.sleep(0.05)
    assert not sleeping.done()
    alarm.wake(False)
    await asyncio.wait_for(sleeping, 30)


@pytest.mark.parametrize("now", [True, False], ids=["hurried", "lingering"])
async def test_wake_that_was_interrupted_does_not_silence_the_next(now: bool) -> None:
    """Ctrl-C before the call went out: the next one must not rely on it."""
    service = CountingService()
    alarm = alarm_of(service, linger_seconds=0.001)
    service.interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        alarm.wake(now)
    alarm.wake(now)
    await asyncio.wait_for(alarm.sleep(), 30)
