"""`python -m benches read`: a whole rollout of 50 MB, against msgspec decoding the same lines."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from benches.codec import Envelope
from benches.measure import Case, per_item, run_rounds
from benches.report import Row, bound_row, speed_rows
from benches.workload import encode, fresh_path, make_line
from rollout import ReverseJsonlScanner, read_rollout

__all__ = ["read_rows"]

ENVELOPE = "msgspec, envelopes of the lines in memory"
TYPED = "msgspec, every value of the lines in memory"
READ = "read_rollout"
REVERSE = "ReverseJsonlScanner"


async def read_rows(folder: Path, *, rounds: int, file_bytes: int) -> list[Row]:
    """Seconds per line; the ratio holds for the whole file."""
    lines = [encode(make_line(number)) for number in range(file_bytes // 550)]
    with fresh_path(folder) as path:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        samples = await run_rounds(_cases(path, lines), rounds)
    return [
        *speed_rows(samples, [ENVELOPE, TYPED, READ, REVERSE]),
        bound_row(
            "cost of read_rollout / cost of msgspec, every value", samples.ratio([READ], [TYPED]), at_most=1.5
        ),
        {
            "figure": "cost of read_rollout / cost of msgspec, envelopes",
            "ratio": round(samples.ratio([READ], [ENVELOPE]), 3),
        },
    ]


def _cases(path: Path, lines: list[bytes]) -> list[Case]:
    decode_envelope = msgspec.json.Decoder(Envelope).decode
    decode_all = msgspec.json.Decoder().decode

    async def envelopes() -> float:
        return per_item(lambda: deque(map(decode_envelope, lines), maxlen=0), len(lines))

    async def values() -> float:
        return per_item(lambda: deque(map(decode_all, lines), maxlen=0), len(lines))

    async def forward() -> float:
        return per_item(lambda: deque(read_rollout(path), maxlen=0), len(lines))

    async def reverse() -> float:
        return per_item(lambda: deque(ReverseJsonlScanner(path), maxlen=0), len(lines))

    return [Case(ENVELOPE, envelopes), Case(TYPED, values), Case(READ, forward), Case(REVERSE, reverse)]
