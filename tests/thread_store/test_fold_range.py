"""Folding a range: fast or line by line, the fold is the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import encode_line
from protocol.thread_fold import ThreadFold
from tests.protocol.folding import placed, response
from tests.protocol.histories import random_history
from tests.thread_store.histories import meta, uuid
from thread_store.chain.open_rollout import OpenRollout
from thread_store.folding import fold_range as module
from thread_store.folding.fold_range import fold_range, take_record

A = uuid(0xA)
MESSAGE = response("message", role="assistant", content=[{"type": "output_text", "text": "hm" * 40}])


def by_records(path: Path, start: int) -> ThreadFold:
    fold = ThreadFold()
    with OpenRollout(path) as file:
        for record in file.forward(start, file.end):
            take_record(fold, record)
    return fold


def by_range(path: Path, start: int) -> ThreadFold:
    fold = ThreadFold()
    with OpenRollout(path) as file:
        fold_range(fold, file, start, file.end)
    return fold


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("block_bytes", [200, 1_000, 32 << 10])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_range_is_folded_as_its_records_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, seed: int
) -> None:
    """Wherever blocks end; with damage, gaps and blank lines among messages."""
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(module, "_LINE_BYTES_MAX", 600)
    rng = random.Random(seed)
    history = random_history(rng, aside=True, lines_max=40)
    for _ in range(60):
        history.insert(rng.randint(0, len(history)), MESSAGE)
    lines = [encode_line(line) for line, _ in placed(history)]
    for _ in range(rng.choice([0, 0, 1, 3])):
        place = rng.randrange(len(lines))
        lines[place] = rng.choice([b"", b"\n", b"{broken\n", b"\0" * 700 + b"\n", lines[place][5:]])
    path = tmp_path / f"rollout-2026-03-04T05-06-07-{A}.jsonl"
    path.write_bytes(meta(A) + b"".join(lines))
    start = len(meta(A))
    assert by_range(path, start).snapshot(0) == by_records(path, start).snapshot(0)
