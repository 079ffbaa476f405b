"""Power cuts: the states that one may leave, at each point of a run, and the product's restart on each.

Invariant: a state is judged by what had been acknowledged at its point of the run; equal states
with equal promises count once.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import os
import random
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.disk_model import Loss, State
from tests.faults.judging import Judge, judge_of
from tests.faults.materialise import materialise
from tests.faults.mutants import VARIABLE
from tests.faults.runner import Outcome, Runner
from tests.faults.shim import encode_plan
from tests.faults.sweep import Job

__all__ = ["PowerReport", "cut_power"]

_AT_A_POINT_MAX = 10_000


@dataclass(slots=True)
class PowerReport:
    """What the states of many runs gave."""

    runs: int = 0
    points: int = 0
    """Places in the runs where the power was cut."""
    states: Counter[Loss] = field(default_factory=Counter)
    """Distinct ones, by kind."""
    restarts: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def distinct(self) -> int:
        return self.states.total()


@dataclass(frozen=True, slots=True)
class _Cut:
    """The power goes here."""

    point: int
    loss: Loss
    state: State
    told: Any


def cut_power(
    job: Job, runner: Runner, loop: asyncio.Runner, *, states: int, seed: int, report: PowerReport
) -> None:
    """Make a run, and cut its power until that gave `states` distinct states, or no new ones any more."""
    outcome, judge = runner.run(job.workload, job.plan), judge_of(job.workload, loop)
    report.runs += 1
    seen: set[bytes] = set()
    rng = random.Random(zlib.crc32(f"{seed} {job.workload} {encode_plan(job.plan)}".encode()))
    per_point, before = 4, -1
    try:
        while before * 1.03 < len(seen) < states and per_point <= _AT_A_POINT_MAX:
            before = len(seen)
            for cut in _cuts(outcome, judge, rng, per_point, report):
                key = _key(cut, judge)
                if key not in seen:
                    seen.add(key)
                    report.states[cut.loss] += 1
                    _judge(cut, outcome, judge, job, seed, report)
                if len(seen) >= states or len(report.failures) > 20:
                    return
            per_point *= 3
    finally:
        outcome.remove()


def _cuts(
    outcome: Outcome, judge: Judge, rng: random.Random, per_point: int, report: PowerReport
) -> Iterator[_Cut]:
    """The states at each point of the run where something is not on the disk yet, and after each promise."""
    told = judge.at_start(outcome)
    model = copy.deepcopy(outcome.before)
    for point, call in enumerate(outcome.calls):
        if call.name == "mark":
            judge.take(told, call.data.decode())
        elif not model.apply(call):
            continue
        report.points += 1
        now = judge.copied(told)
        yield _Cut(point, Loss.PROCESS, model.volatile(), now)
        for loss, state in model.crash_states(rng, per_point):
            yield _Cut(point, loss, state, now)


def _key(cut: _Cut, judge: Judge) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(judge.fingerprint(cut.told).encode())
    for path, content in sorted(cut.state.items()):
        digest.update(f"\0{path}\0".encode() + (b"" if content is None else hashlib.sha256(content).digest()))
    return digest.digest()


def _judge(cut: _Cut, outcome: Outcome, judge: Judge, job: Job, seed: int, report: PowerReport) -> None:
    try:
        judge.check_state(cut.state, cut.told)
        report.restarts += 1
        judge.check_restart(cut.state, cut.told, outcome)
    except AssertionError as error:
        command = f"{job.command.replace(' sweep ', ' power ')} --seed {seed}"
        where = f"at point {cut.point}, {cut.loss}{_keep_state(cut)}"
        report.failures.append((command, f"{where}\n{error}"))


def _keep_state(cut: _Cut) -> str:
    """Leave it for whoever looks into the failure; a planted bug is no news."""
    if VARIABLE in os.environ:
        return ""
    kept = tempfile.mkdtemp(prefix="rollout-power-")
    materialise(cut.state, Path(kept))
    return f"; the state is in {kept}"
