"""Lingering: alarms that need not ring at once ring together, and none is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from unittest import mock

from rollout.lingering import Lingering
from tests.rollout.recorded import eventually_blocking, own_service


def test_every_alarm_rings_once_for_each_time_it_was_added() -> None:
    """From many threads at once, also while others are being rung."""
    lingering = Lingering(own_service(), 0.0002)
    rung = [0] * 8

    def add(number: int) -> None:
        def ring() -> None:
            rung[number] += 1

        for _ in range(500):
            lingering.add(ring)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually_blocking(lambda: sum(rung) == 4000)
    assert rung == [500] * 8


def test_one_call_into_the_loop_serves_many() -> None:
    """Whoever is added while others wait costs no wake-up of its own."""
    service = own_service()
    lingering = Lingering(service, 0.2)
    calls: list[object] = []
    rung: list[int] = []
    real = service.call

    def counted(callback: Callable[..., object], *given: object) -> None:
        calls.append(callback)
        real(callback, *given)

    with mock.patch.object(service, "call", counted):
        for number in range(1000):
            lingering.add(partial(rung.append, number))
    eventually_blocking(lambda: rung == [*range(1000)])
    assert len(calls) == 1


def test_who_is_in_a_hurry_gets_in_between_two_batches() -> None:
    """A flush doesn't wait until all the others have been served."""
    service = own_service()
    lingering = Lingering(service, 0.05)
    order: list[str] = []
    asked = threading.Event()

    def ring() -> None:
        order.append("lingered")
        if len(order) == 1:
            service.call(order.append, "hurried")
            asked.set()

    for _ in range(500):
        lingering.add(ring)
    assert asked.wait(30)
    eventually_blocking(lambda: len(order) == 501)
    assert order.index("hurried") < 500


def test_slow_alarms_are_rung_less_often() -> None:
    """The pause grows with the time that the last round took, and has a limit."""
    lingering = Lingering(own_service(), 0.0)
    done = threading.Event()
    lingering.add(lambda: time.sleep(0.02))
    eventually_blocking(lambda: lingering._pause >= 0.06)
    lingering.add(lambda: time.sleep(0.2))
    eventually_blocking(lambda: lingering._pause == 0.25)
    lingering.add(done.set)
    assert done.wait(30)


def test_long_linger_time_holds_up_no_shorter_one() -> None:
    """Each linger time has a timer of its own."""
    service = own_service()
    done = threading.Event()
    service.lingering(3600.0).add(lambda: None)
    service.lingering(0.001).add(done.set)
    assert done.wait(30)
    assert service.lingering(0.001) is service.lingering(0.001)
