"""The exclusive right to one lease: whoever is killed wherever, never two have it, and never nobody can."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.errors import ActiveWriter, WriterFenced
from protocol.ids import ThreadId
from tests.thread_store.locks.faulty import FaultyLockCalls
from tests.thread_store.locks.holding import NoFlock
from tests.thread_store.locks.simulated import Killed, Simulation
from thread_store.locks import claims as claims_module
from thread_store.locks.claims import Claim, Claims
from thread_store.locks.folder import LockFolder
from thread_store.locks.heartbeat import Heartbeat
from thread_store.locks.holder import LockHolder, describe_self, encode_holder
from thread_store.locks.lease import Leases

pytestmark = pytest.mark.guarantee("G4")

THREAD = ThreadId("01960000-0000-7000-8000-000000000101")
DEAD_PID = 999_999
LIVE_PID = 999_998
BLOCKS, SEEDS = 4, 40
"""So many tests of so many schedules each."""


class ScriptedNoFlock(FaultyLockCalls, NoFlock):
    """No flock, and things that happen meanwhile."""


class Still(Heartbeat):
    """A heart that doesn't beat, and needs no thread."""

    def add(self, one: object) -> None:
        pass

    def discard(self, one: object) -> None:
        pass


@dataclass
class Arena:
    """What the processes of a simulation fight for."""

    home: Path
    simulation: Simulation
    acquired: int = 0

    @property
    def folder(self) -> Path:
        return self.home / "thread-writer-locks"

    def leases(self) -> Leases:
        calls = self.simulation.calls
        leases = Leases(LockFolder(self.home, calls), calls)
        leases.heartbeat = Still()
        return leases

    def fight(self, rounds: int) -> None:
        """Acquire, verify, raise the fence, verify and release, as often as it can be had."""
        leases = self.leases()
        for _ in range(rounds):
            try:
                lock = leases.acquire(THREAD)
            except ActiveWriter as error:
                assert error.holder.pid is not None
                continue
            self.acquired += 1
            lock.verify()
            lock.raise_fence(lock.fence + 1)
            lock.verify()
            lock.release()

    def be_robbed(self) -> None:
        """Fight against somebody who uses force: to be fenced is allowed."""
        try:
            self.fight(2)
        except WriterFenced:
            pass

    def rob(self) -> None:
        """Take it over by force, and keep it."""
        try:
            lock, _ = self.leases().take_over(THREAD)
        except ActiveWriter:
            return  # somebody has the right to the lease and is about to use it
        self.acquired += 1
        for _ in range(5):
            lock.verify()
        lock.release()

    def come_last(self) -> None:
        """Get it at once, whatever the others left; sweep when their grace is over."""
        leases = self.leases()
        leases.acquire(THREAD).release()
        self.simulation.calls.later_seconds = 120
        leases.sweep()

    def run(self, *works: Callable[[], None]) -> None:
        """Let them fight, most of them killed on the way; then nothing must be in the next one's way."""
        rng, simulation = self.simulation.rng, self.simulation
        pids = [
            simulation.add(work, calls_max=rng.randrange(1, 70) if rng.random() < 0.7 else 1 << 30)
            for work in works
        ]
        simulation.run()
        assert not simulation.errors, simulation.errors
        simulation.dead.update(pids)
        simulation.add(self.come_last)
        simulation.run()
        assert not simulation.errors, simulation.errors
        assert os.listdir(self.folder) == []


@pytest.fixture
def make_arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Arena]:
    """An arena with the lease of a dead process in it."""
    dead = replace(describe_self(fence=3, lease=True), pid=DEAD_PID)

    def make(seed: int) -> Arena:
        arena = Arena(tmp_path / str(seed), Simulation(seed, monkeypatch))
        arena.simulation.dead.add(DEAD_PID)
        arena.folder.mkdir(parents=True)
        (arena.folder / f"{THREAD}.lock").write_bytes(encode_holder(dead))
        return arena

    return make


@pytest.mark.case("B28")
@pytest.mark.case("B29")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_killed_processes_cost_nobody_a_lease_and_keep_nobody_out(
    make_arena: Callable[[int], Arena], block: int
) -> None:
    """Over many schedules of kills: no live holder ever loses its lease, and the next one gets it at once."""
    acquired = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        arena = make_arena(seed)
        arena.run(*[lambda arena=arena: arena.fight(2)] * 4)
        acquired += arena.acquired
    assert acquired > SEEDS


@pytest.mark.case("B29")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_taken_over_lease_stays_with_who_took_it(make_arena: Callable[[int], Arena], block: int) -> None:
    """Force ends another's lease; the releases and evictions of all others leave the new one alone."""
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        arena = make_arena(1000 + seed)
        arena.run(arena.rob, arena.be_robbed, arena.be_robbed, arena.be_robbed)


def test_claim_of_a_live_process_is_respected(make_arena: Callable[[int], Arena]) -> None:
    """Whoever is about to replace a dead lease is named to the others, also when it was stopped there."""
    arena = make_arena(1)
    calls = NoFlock()
    leases, folder = Leases(LockFolder(arena.home, calls), calls), LockFolder(arena.home, calls)
    dead = leases.look()[0].holder
    assert dead is not None
    claim = Claims(folder, calls).take(THREAD, dead.token)
    assert claim is not None
    for call in (leases.acquire, leases.take_over):
        with pytest.raises(ActiveWriter) as caught:
            call(THREAD)
        assert caught.value.holder.pid == os.getpid()
    Claims(folder, calls).end(claim, gone=False)
    leases.acquire(THREAD).release()


def test_chain_of_dead_claims_is_succeeded_and_cleared(make_arena: Callable[[int], Arena]) -> None:
    """Three who died one after the other with the right in their hands are no hindrance."""
    arena = make_arena(2)
    for _ in range(3):
        arena.simulation.add(lambda: die_with_the_claim(arena))
        arena.simulation.run()
    assert len([name for name in os.listdir(arena.folder) if name.endswith(".claim")]) == 3
    arena.simulation.add(lambda: arena.fight(1))
    arena.simulation.run()
    assert not arena.simulation.errors
    assert arena.acquired == 1
    assert os.listdir(arena.folder) == []


def die_with_the_claim(arena: Arena) -> None:
    standing = arena.leases().look()[0].holder
    assert standing is not None
    calls = arena.simulation.calls
    assert Claims(LockFolder(arena.home, calls), calls).take(THREAD, standing.token) is not None
    raise Killed


def test_claim_given_up_by_one_who_then_died_is_not_succeeded(
    make_arena: Callable[[int], Arena], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker was read before it gave up, and it was asked after its death: a second look shows that."""
    arena = make_arena(4)
    calls = ScriptedNoFlock()
    folder = LockFolder(arena.home, calls)
    claims, leases = Claims(folder, calls), Leases(folder, calls)
    standing = leases.look()[0].holder
    assert standing is not None
    dies, dying = claims.take(THREAD, standing.token), os.getpid()
    lives: list[Claim | None] = []

    def meanwhile() -> None:
        assert dies is not None
        claims.end(dies, gone=False)
        monkeypatch.setattr(claims_module, "describe_self", another_process)
        lives.append(claims.take(THREAD, standing.token))
        arena.simulation.dead.add(dying)

    def another_process(*, fence: int, lease: bool) -> LockHolder:
        return replace(describe_self(fence=fence, lease=lease), pid=LIVE_PID)

    calls.meanwhile("close", lambda: None)  # its own temporary file
    calls.meanwhile("close", meanwhile)  # the marker, which was read
    with pytest.raises(ActiveWriter) as caught:
        leases.act_on(THREAD, standing.token, lambda: pytest.fail("two had the right"))
    assert caught.value.holder.pid == LIVE_PID
    assert lives[0] is not None


def test_sweep_keeps_claims_that_count(make_arena: Callable[[int], Arena]) -> None:
    """Only markers of leases that are gone are removed; foreign names stay."""
    arena, calls = make_arena(3), NoFlock()
    folder = LockFolder(arena.home, calls)
    claims = Claims(folder, calls)
    standing = Leases(folder, calls).look()[0].holder
    assert standing is not None
    counts = claims.take(THREAD, standing.token)
    claims.take(THREAD, "0" * 32)
    (arena.folder / "somebody.s.claim").touch()
    assert counts is not None
    before = set(os.listdir(arena.folder))
    claims.sweep(os.listdir(arena.folder))
    assert before - set(os.listdir(arena.folder)) == {f"{THREAD}.{'0' * 32}.claim"}
