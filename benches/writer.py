"""`python -m benches writer`: recording, against the limits of the same run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from benches import limits, peers, recording
from benches.append import append_rows
from benches.loop_gap import gap_rows
from benches.measure import Samples, run_rounds
from benches.report import Row, bound_row, note_row, speed_rows
from benches.stall import stall_rows

__all__ = ["Sizes", "writer_rows"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many items a round of each kind takes."""

    sustained_items: int = 100_000
    flushed_items: int = 2_000
    synced_items: int = 400
    peer_items: int = 5_000
    gap_seconds: float = 2.0
    file_bytes: int = 1_000_000_000

    @classmethod
    def quick(cls) -> Sizes:
        """Enough to see that everything runs; the figures mean little."""
        return cls(2_000, 100, 20, 100, 0.1, 10_000_000)


async def writer_rows(folder: Path, *, rounds: int, sizes: Sizes, big: bool) -> AsyncIterator[list[Row]]:
    """The parts of the bench, as they are measured."""
    yield await _throughput(folder, rounds, sizes)
    yield await _barriers(folder, rounds, sizes)
    yield await _peers(folder, rounds, sizes)
    yield await gap_rows(folder, seconds=sizes.gap_seconds)
    yield stall_rows()
    if big:
        yield await append_rows(folder, file_bytes=sizes.file_bytes, rounds=rounds)


async def _throughput(folder: Path, rounds: int, sizes: Sizes) -> list[Row]:
    items = sizes.sustained_items
    cases = [*limits.throughput_limits(folder, items), recording.sustained_case(folder, items=items)]
    samples = await run_rounds(cases, rounds)
    limit = [limits.BUILD, limits.ENCODE, limits.ONE_WRITE]
    return [
        *speed_rows(samples, [case.name for case in cases]),
        bound_row(
            "speed of record_nowait / speed of (build + encode alone + one big write)",
            samples.ratio(limit, [recording.SUSTAINED]),
            at_least=0.7,
        ),
    ]


async def _barriers(folder: Path, rounds: int, sizes: Sizes) -> list[Row]:
    counts = {"items": sizes.flushed_items, "synced_items": sizes.synced_items}
    cases = [*limits.barrier_limits(folder, **counts), *recording.barrier_cases(folder, **counts)]
    samples = await run_rounds(cases, rounds)
    return [
        *speed_rows(samples, [case.name for case in cases]),
        bound_row(
            "cost of record + flush / cost of (bare executor hop + write)",
            samples.ratio([recording.FLUSH_EACH], [limits.HOP, limits.WRITE_EACH]),
            at_most=2.0,
        ),
        bound_row(
            "cost of record + sync / cost of (write + fdatasync + 2 bare executor hops)",
            samples.ratio([recording.SYNC_EACH], [limits.SYNC_EACH, limits.HOP, limits.HOP]),
            at_most=1.1,
        ),
        _group_row(samples),
    ]


def _group_row(samples: Samples) -> Row:
    """Where a sync costs little, one producer is fast already: then the plain speed counts."""
    ratio = samples.ratio([recording.SYNC_EACH], [recording.GROUP])
    speed = round(1 / samples.seconds(recording.GROUP))
    return {
        "figure": "speed of 64 producers that sync each item / speed of one",
        "ratio": round(ratio, 1),
        "items_per_second": speed,
        "target": ">= 20, or >= 40,000/s",
        "met": ratio >= 20 or speed >= 40_000,
    }


async def _peers(folder: Path, rounds: int, sizes: Sizes) -> list[Row]:
    ours = recording.sustained_case(folder, items=sizes.peer_items)
    cases = [ours, *peers.peer_cases(folder, items=sizes.peer_items)]
    samples = await run_rounds(cases, rounds)
    names = [case.name for case in cases]
    ratios: list[Row] = [
        {"peer": name, "our_speed_ratio": round(samples.ratio([name], [ours.name]), 1)} for name in names[1:]
    ]
    return [*speed_rows(samples, names), *ratios, *(note_row(text) for text in peers.missing_peers())]
