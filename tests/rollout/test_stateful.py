"""The recorder against a disk that fails, programs that meddle, and callers that give up.

Hypothesis finds the order of things: items, barriers, cancellations, faults in every system
call, other programs that cut, replace, remove or extend the file, deaths of the process and of
the machine. After each barrier and each death the file is compared with what was promised:

* G1: everything accepted is there once and in order. The one exception: durable bytes that
  another program destroyed are missing, and an `x_gap` stands in their place.
* G2: what a flush covered is in the file, what a sync covered is left after a power cut.
* G3: a sync that failed is not forgotten: the disk of this test drops what it covered.

A long run (20 minutes or so):

    ROLLOUT_STATEFUL_EXAMPLES=10000 ROLLOUT_STATEFUL_STEPS=60 \
        python -m pytest tests/rollout/test_stateful.py -o timeout=0
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from protocol.errors import (
    ItemNotEncodable,
    PendingQueueFull,
    RecordTooLarge,
    RolloutError,
    UnwrittenItems,
)
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from rollout import RecorderConfig, ReverseJsonlScanner, RolloutRecorder, read_rollout, repair_rollout
from rollout.core import create_core, open_core
from tests.rollout.stateful_model import (
    FAULTS,
    FOREIGN_HALF,
    FOREIGN_LINE,
    FREQUENT_FAULTS,
    TORN,
    Clock,
    Disk,
    Ledger,
    WatchedService,
    effect_of,
    parse,
)
from tests.rollout.written import unnumbered

EXAMPLES = int(os.environ.get("ROLLOUT_STATEFUL_EXAMPLES", "500"))
STEPS = int(os.environ.get("ROLLOUT_STATEFUL_STEPS", "30"))

_HANG_SECONDS = 20
"""Nothing here takes that long: it hangs."""
_CLOSE_SECONDS = 10.0
_TRIES_MAX = 5
"""Failures that were under way when the faults were lifted may still be told."""
_RECORD_BYTES_MAX = 8192

_T = TypeVar("_T")

KINDS = ("message", "x_check", "x_call")
SIZES = st.sampled_from([0, 0, 10, 300, 3000])
PERCENT = st.integers(0, 99)
CONFIGS = st.builds(
    RecorderConfig,
    pending_bytes_max=st.sampled_from([64 << 20, 64 << 20, 4000, 600]),
    record_bytes_max=st.just(_RECORD_BYTES_MAX),
    chunk_bytes=st.sampled_from([1 << 20, 512, 64]),
    sync_bytes=st.sampled_from([8 << 20, 1000]),
    sync_seconds=st.sampled_from([3600.0, 0.02]),
    linger_seconds=st.just(0.0005),
    close_seconds=st.sampled_from([_CLOSE_SECONDS, _CLOSE_SECONDS, 0.05]),
    retry_seconds_min=st.just(0.001),
    retry_seconds_max=st.just(0.01),
)
BARRIERS = ("flush", "sync", "persist")

_services: list[WatchedService] = []


def the_service() -> WatchedService:
    if not _services:
        service = WatchedService()
        service.start()
        _services.append(service)
    return _services[0]


def item(kind: str, number: int, size: int) -> RolloutItem:
    if kind == "message":
        return ResponseItem.message("user", f"{number}:{'x' * size}")
    return RolloutItem.raw(kind, {"n": number, "pad": "x" * size})


class RecorderMachine(RuleBasedStateMachine):
    """One rollout, its recorders one after the other, and everything that befalls them."""

    @initialize(config=CONFIGS)
    def begin(self, config: RecorderConfig) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stateful-"))
        self.path = self.folder / "sessions" / "2026" / "rollout.jsonl"
        self.aside = self.folder / "aside.jsonl"
        self.service = the_service()
        self.disk = Disk()
        self.ledger = Ledger()
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.config = config
        self.number = 0
        self.faulty = self.displaced = False
        self.floor = 0
        """Where the recorder found the end: what stands before it is not in its hands."""
        self._clocks = mock.patch.multiple(
            "rollout.pending", time=self.clock.time, time_ns=self.clock.time_ns
        )
        self._clocks.start()
        self.start_recorder()

    # Helpers

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run it to its end; if there is none, say how things stand."""

        async def limited() -> _T:
            async with asyncio.timeout(_HANG_SECONDS):
                return await work

        try:
            result = self.runner.run(limited())
        except TimeoutError:
            raise AssertionError(f"it hangs: {self.recorder.health}\n{self.disk.log[-40:]}") from None
        health = self.recorder.health
        assert 0 <= health.synced_items <= health.flushed_items, health
        return result

    def start_recorder(self) -> None:
        """Open what is there, or begin anew."""
        how: dict[str, Any] = {"config": self.config, "service": self.service, "calls": self.disk}
        data = self.data
        if any(line.kind in ("session_meta", "item") for line in parse(data)[0]):
            try:
                core = open_core(self.path, **how)
            except RolloutError:
                assert self.faulty
                self.lift()
                core = open_core(self.path, **how)
            self.floor = len(data)
        else:
            assert not self.ledger.accepted
            self.ledger.forget()
            if data:  # half a first line, or what others left: nothing to go on from
                self.path.unlink()
            core = create_core(self.path, SessionMeta(cwd="/somewhere"), **how)
            self.floor = 0
        self.recorder = RolloutRecorder(core)
        # Until it records something, a barrier promises nothing about what others have left.
        self.recorded = self.copied = self.cut = False

    @property
    def data(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def lift(self) -> None:
        self.disk.lift()
        self.faulty = False

    def put_back(self) -> None:
        if self.displaced:
            self.meddle(lambda: self.disk.put_back(self.aside, self.path))
            self.displaced = False

    def meddle(self, act: Callable[[], object]) -> None:
        async def wait() -> None:
            await asyncio.wrap_future(self.service.between_steps(act))

        self.run(wait())

    async def settle_threads(self) -> None:
        while not self.service.idle:  # its threads belong to no loop
            await asyncio.sleep(0.0005)
        # The writer that waited for the last of them ends its step, and lets go of the file.
        await asyncio.wrap_future(self.service.between_steps(lambda: None))

    def next_items(self, shapes: list[tuple[str, int]]) -> tuple[list[RolloutItem], list[int]]:
        numbers = list(range(self.number, self.number + len(shapes)))
        self.number += len(shapes)
        return [
            item(kind, number, size) for number, (kind, size) in zip(numbers, shapes, strict=True)
        ], numbers

    def may_be_full(self) -> bool:
        return self.config.pending_bytes_max < 1 << 20

    def note_accepted(self, numbers: list[int]) -> None:
        self.ledger.accepted += numbers
        self.recorded = True

    def note_receipt(self, barrier: str, upto: int) -> None:
        """A barrier returned."""
        assert not self.displaced, f"{barrier} returned, though another file stands at the path"
        self.ledger.acknowledge(upto, synced=barrier != "flush" and self.recorded)
        self.copied = self.cut = False
        self.ledger.require(self.data, upto=upto)
        self.ledger.require_durable(self.disk.after_power_loss(self.path))

    async def barrier(self, name: str) -> None:
        upto = len(self.ledger.accepted)
        for _ in range(_TRIES_MAX):
            try:
                await getattr(self.recorder, name)()
            except RolloutError as error:
                if self.faulty or self.displaced:
                    return
                last = error
            else:
                self.note_receipt(name, upto)
                return
        raise AssertionError(f"{name} goes on failing, and nothing is wrong any more: {last!r}")

    # What callers do

    @rule(kind=st.sampled_from(KINDS), size=SIZES)
    def record_one(self, kind: str, size: int) -> None:
        items, numbers = self.next_items([(kind, size)])
        self.record(items, numbers)

    @rule(shapes=st.lists(st.tuples(st.sampled_from(KINDS), SIZES), min_size=2, max_size=5))
    def record_fact(self, shapes: list[tuple[str, int]]) -> None:
        self.record(*self.next_items(shapes))

    def record(self, items: list[RolloutItem], numbers: list[int]) -> None:
        try:
            if len(items) == 1:
                self.recorder.record_nowait(items[0])
            else:
                self.recorder.record_nowait(items)
        except PendingQueueFull:
            assert self.may_be_full()
        else:
            self.note_accepted(numbers)

    @rule(large=st.booleans(), place=st.integers(0, 2))
    def record_bad_fact(self, large: bool, place: int) -> None:
        items, _ = self.next_items([("message", 5), ("x_check", 5)])
        bad: dict[str, Any] = {"n": -1, "pad": "x" * _RECORD_BYTES_MAX} if large else {"n": math.nan}
        items.insert(place, RolloutItem.raw("x_check", bad))
        with pytest.raises((ItemNotEncodable, RecordTooLarge, PendingQueueFull)) as caught:
            self.recorder.record_nowait(items)
        assert caught.type is not PendingQueueFull or self.may_be_full()

    @rule(shapes=st.lists(st.tuples(st.sampled_from(KINDS), SIZES), min_size=1, max_size=3))
    def record_patiently(self, shapes: list[tuple[str, int]]) -> None:
        items, numbers = self.next_items(shapes)
        try:
            self.run(self.recorder.record(*items, timeout=0.01))
        except PendingQueueFull:
            assert self.may_be_full()
        else:
            self.note_accepted(numbers)

    @rule(name=st.sampled_from(BARRIERS))
    def wait_for(self, name: str) -> None:
        self.run(self.barrier(name))

    @rule(names=st.lists(st.sampled_from(BARRIERS), min_size=2, max_size=4))
    def wait_for_several(self, names: list[str]) -> None:
        async def together() -> None:
            await asyncio.gather(*map(self.barrier, names))

        self.run(together())

    @rule(name=st.sampled_from(BARRIERS), steps=st.integers(0, 5))
    def give_up_waiting(self, name: str, steps: int) -> None:
        upto = len(self.ledger.accepted)
        if self.run(self.cancelled(getattr(self.recorder, name)(), steps)):
            self.note_receipt(name, upto)

    @rule(steps=st.integers(0, 5), size=SIZES)
    def give_up_recording(self, steps: int, size: int) -> None:
        items, numbers = self.next_items([("message", size)])
        if self.run(self.cancelled(self.recorder.record(items), steps)):
            self.note_accepted(numbers)

    async def cancelled(self, call: Coroutine[Any, Any, object], steps: int) -> bool:
        """Cancel a call after some steps of its loop. Whether it had returned by then."""
        task = asyncio.ensure_future(call)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return False
        except RolloutError:
            return False  # `barrier` says when it may
        return True

    @rule(percent=PERCENT)
    def let_it_work(self, percent: int) -> None:
        """Time passes: the writer lingers, retries and syncs by itself."""
        self.run(asyncio.sleep(percent / 4000))

    @rule(seconds=st.sampled_from([-3600.0, -0.5, 2.0]))
    def set_clock(self, seconds: float) -> None:
        self.clock.shift_seconds += seconds

    # What the disk does

    @rule(
        fault=st.sampled_from(FAULTS) | st.sampled_from(FREQUENT_FAULTS),
        percent=PERCENT,
        first=st.integers(1, 3),
        times=st.sampled_from([1, 1, 2, 3, None]),
    )
    def break_something(self, fault: str, percent: int, first: int, times: int | None) -> None:
        call, effect = effect_of(fault, percent)
        self.disk.arm(call, effect, first=first, times=times)
        self.faulty = True
        if "EPERM" in fault:
            self.ledger.may_hold_fragments = True

    @rule()
    def mend_everything(self) -> None:
        self.lift()

    # What other programs do

    def others_act(self, act: Callable[[], None]) -> None:
        """If there is a file, and the recorder's. Whether there is depends on threads: so no precondition
        of a rule may."""

        def act_if_there() -> None:
            if self.displaced or not self.path.exists():
                return
            with self.disk.still():
                if self.copied or self.disk.is_held(self.path):
                    act()

        self.meddle(act_if_there)

    def durable_max(self, data: bytes) -> int:
        return min(len(data), max(self.disk.stable_bytes(self.path), self.floor))

    @rule()
    def others_unlink(self) -> None:
        def act() -> None:
            data = self.data
            self.ledger.unlinked(parse(data)[0], durable_max=self.durable_max(data))
            self.disk.unlink_by_others(self.path)

        self.others_act(act)

    @rule()
    def others_replace_by_copy(self) -> None:
        def act() -> None:
            # A copy of what was cut, or without its meta line, is refused for good.
            if not self.cut and any(line.kind == "session_meta" for line in parse(self.data)[0]):
                self.disk.replace_by_copy(self.path)
                self.copied = True

        self.others_act(act)
        self.ledger.may_hold_fragments = True  # an inode that others put there is never cut

    @rule(replace=st.booleans())
    def others_displace(self, replace: bool) -> None:
        def act() -> None:
            if self.copied:
                return  # the recorder's own file may have no name any more, and then it gets its old one
            self.path.replace(self.aside)
            if replace:
                self.path.write_bytes(b'{"type":"session_meta","payload":{"id":"another"}}\n')
            self.displaced = True

        self.others_act(act)

    @rule()
    def others_put_back(self) -> None:
        self.put_back()

    @rule(whole=st.booleans())
    def others_append(self, whole: bool) -> None:
        data = FOREIGN_LINE if whole else FOREIGN_HALF

        def act() -> None:
            # Cut and then grown again before the recorder looks: it can't tell by the size.
            if not self.cut:
                self.disk.append_by_others(self.path, data)

        self.others_act(act)
        self.ledger.may_hold_fragments = True  # nothing is cut where their bytes stand near

    @rule(percent=PERCENT, deep=st.booleans())
    def others_truncate(self, percent: int, deep: bool) -> None:
        """`deep`: durable bytes go too, which nobody can bring back."""

        def act() -> None:
            data = self.path.read_bytes()
            durable_max = self.durable_max(data)
            if deep and not self.copied:
                size = durable_max * percent // 100
            else:
                size = durable_max + (len(data) - durable_max) * percent // 100
            self.cut = self.cut or size < len(data)
            self.disk.truncate_by_others(self.path, size)
            self.ledger.truncated(parse(data)[0], size, durable_max=durable_max)

        self.others_act(act)

    # Ends and beginnings

    @rule(config=CONFIGS, steps=st.none() | st.integers(0, 5))
    def close_and_reopen(self, config: RecorderConfig, steps: int | None) -> None:
        """`steps`: the caller of the close gives up after so many."""
        if steps is not None:
            self.run(self.cancelled(self.recorder.aclose(), steps))
        if self.config.close_seconds == _CLOSE_SECONDS:
            self.lift()
            self.put_back()
        self.close()
        self.config = config
        self.start_recorder()

    def close(self) -> None:
        """Close it. What it could not write by then is replayed from where it says it is."""
        upto = len(self.ledger.accepted)
        error = self.run(self.failure_of(self.recorder.aclose()))
        self.run(self.settle_threads())
        if error is None:
            assert not self.displaced or not self.ledger.accepted
        else:
            assert self.config.close_seconds < _CLOSE_SECONDS, f"it could have been closed: {error!r}"
            self.lift()
        self.put_back()
        if isinstance(error, UnwrittenItems):
            assert error.kept_path is not None
            if not self.path.exists():
                self.ledger.never_rebuilt()
            repair_rollout(self.path, dry_run=False, replay=True, calls=self.disk)
        elif error is not None:
            # Everything was durable once, but nobody could bring back what others did to it since.
            self.ledger.take_what_is_left(self.data, power_lost=False)
            return
        self.ledger.acknowledge(upto, synced=self.recorded)
        # Whoever records nothing leaves the file as it was, with what a death has left of a line.
        self.ledger.require_clean(self.data, may_be_torn=not self.recorded)

    async def failure_of(self, call: Awaitable[object]) -> RolloutError | None:
        try:
            await call
        except RolloutError as error:
            return error
        return None

    @rule(
        config=CONFIGS,
        power_lost=st.booleans(),
        luck_bytes=st.sampled_from([0, 0, 1, 50, 500]),
        torn=st.booleans(),
    )
    def die_and_restart(self, config: RecorderConfig, power_lost: bool, luck_bytes: int, torn: bool) -> None:
        """The process is killed, or the whole machine: nothing is drained. `torn`: within a line."""

        async def die() -> None:
            self.recorder.discard()
            await self.recorder.aclose()
            await self.settle_threads()

        self.run(die())
        self.put_back()
        if power_lost:
            self.disk.lose_power(self.path, luck_bytes=luck_bytes)
        if torn and self.data.endswith(b"\n"):
            self.disk.append_by_others(self.path, TORN)
        self.ledger.take_what_is_left(self.data, power_lost=power_lost)
        self.config = config
        self.start_recorder()

    def teardown(self) -> None:
        try:
            self.lift()
            self.put_back()
            self.close()
            if self.ledger.accepted:
                self.both_readers_agree()
        finally:
            self._clocks.stop()
            self.recorder.discard()
            self.runner.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def both_readers_agree(self) -> None:
        forward = list(read_rollout(self.path))
        assert list(ReverseJsonlScanner(self.path)) == unnumbered(forward)


@pytest.mark.guarantee("G1", "G2", "G3")
@pytest.mark.case("B14", "B15", "B16", "B17", "B108")
def test_whatever_happens_promises_are_kept() -> None:
    """Every accepted item is in the file once and in order, and no barrier ever promised too much."""
    run_state_machine_as_test(
        RecorderMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
