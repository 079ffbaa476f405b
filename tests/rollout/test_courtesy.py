"""Threads that read and compute for long let the loops of other threads in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout import courtesy
from rollout.courtesy import Courtesy
from rollout.source import open_source


class _Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(courtesy, "time", clock)
    return clock


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.case("B76")
def test_thread_pauses_once_for_each_while_that_it_worked(clock: _Clock) -> None:
    """However many steps a while has; a pause begins the next one."""

    def work() -> None:
        courteous = Courtesy()
        for _ in range(10):
            clock.now += 0.001
            courteous.give_way()

    _in_a_thread(work)
    assert len(clock.pauses) == 2


def test_main_thread_never_pauses(clock: _Clock) -> None:
    """Nobody's loop waits for it: its own is the one that would."""
    courteous = Courtesy()
    clock.now += 1
    courteous.give_way()
    assert clock.pauses == []


@pytest.mark.case("B76")
def test_reading_a_file_in_a_thread_gives_way(clock: _Clock, tmp_path: Path) -> None:
    """Each read is a step, from a place or from where the last one ended."""
    (tmp_path / "file").write_bytes(b"0123456789")

    def work() -> None:
        source = open_source(tmp_path / "file")
        for offset in range(3):
            clock.now += 1
            source.read_at(1, offset)
            clock.now += 1
            source.read(1)
        source.close()

    _in_a_thread(work)
    assert len(clock.pauses) == 6
