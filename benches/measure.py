"""Interleaved rounds and their medians.

Invariant: a ratio compares figures of the same round, so that a machine that slows down for a
while slows both sides; then the median over the rounds is taken.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

__all__ = ["Case", "Samples", "per_item", "run_rounds"]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure: `run` does it once and returns the seconds it took per item."""

    name: str
    run: Callable[[], Awaitable[float]]


class Samples:
    """The seconds per item of each case in each round."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []

    def seconds(self, name: str) -> float:
        """The median of one case."""
        return statistics.median(each[name] for each in self.rounds)

    def ratio(self, over: Sequence[str], under: Sequence[str]) -> float:
        """The median of sum(over) / sum(under); a case that counts twice is named twice."""
        return statistics.median(
            sum(each[name] for name in over) / sum(each[name] for name in under) for each in self.rounds
        )


async def run_rounds(cases: Sequence[Case], rounds: int) -> Samples:
    """Run all cases once, uncounted, to warm up; then `rounds` times in turn."""
    samples = Samples()
    for case in cases:
        await case.run()
    gc.collect()
    gc.freeze()  # what the imports left is nobody's cost
    for _ in range(rounds):
        samples.rounds.append({case.name: await _run_once(case) for case in cases})
    gc.unfreeze()
    return samples


async def _run_once(case: Case) -> float:
    gc.collect()
    return await case.run()


def per_item(work: Callable[[], object], items: int) -> float:
    """Run `work` once; the seconds it took, divided by `items`."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / items
