"""The heartbeat: everything that is held beats, whatever befalls one of them."""

from __future__ import annotations

import logging
import threading

import pytest

from thread_store.locks.heartbeat import Heartbeat

_SECONDS_MAX = 30


class Heart:
    """Counts its beats; the first `failing` of them fail."""

    def __init__(self, path: str, failing: int = 0) -> None:
        self.path = path
        self.beats = 0
        self._failing = failing
        self._beaten = threading.Condition()

    def beat(self) -> None:
        with self._beaten:
            self.beats += 1
            self._beaten.notify_all()
        if self.beats <= self._failing:
            raise OSError("no beat")

    def wait_for(self, beats: int) -> None:
        with self._beaten:
            assert self._beaten.wait_for(lambda: self.beats >= beats, _SECONDS_MAX)


@pytest.fixture
def heartbeat() -> Heartbeat:
    return Heartbeat(seconds=0.001)


def test_all_that_were_added_beat(heartbeat: Heartbeat) -> None:
    """Again and again, until they are discarded."""
    hearts = [Heart("a"), Heart("b")]
    for heart in hearts:
        heartbeat.add(heart)
    for heart in hearts:
        heart.wait_for(3)
        heartbeat.discard(heart)


def test_failing_beat_stops_nobody_and_is_said_once(
    heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    """The others beat on, the failing one too; one warning for a row of failures."""
    failing, sound = Heart("failing", failing=5), Heart("sound")
    with caplog.at_level(logging.WARNING):
        heartbeat.add(failing)
        heartbeat.add(sound)
        failing.wait_for(7)
        sound.wait_for(2)
        heartbeat.discard(failing)
        heartbeat.discard(sound)
    assert len([record for record in caplog.records if "can't be renewed" in record.message]) == 1


def test_thread_begins_again_after_the_last_one_left(heartbeat: Heartbeat) -> None:
    """Whoever comes later beats, too."""
    for name in "abc":
        heart = Heart(name)
        heartbeat.add(heart)
        heart.wait_for(1)
        heartbeat.discard(heart)


def test_second_discard_does_nothing(heartbeat: Heartbeat) -> None:
    """Nor one of something that never was added."""
    heart = Heart("a")
    heartbeat.discard(heart)
    heartbeat.add(heart)
    heartbeat.discard(heart)
    heartbeat.discard(heart)
