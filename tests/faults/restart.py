"""Restart: what the product itself makes of a folder that a dead process or a power cut left.

Invariant: nothing is mended here. The recorder opens what is there, appends one item, closes;
readers and check look before and after; the bytes are compared by an eye of our own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import NotARollout, RolloutError, ThreadNotFound
from rollout.check import check_rollout
from rollout.config import RecorderConfig
from rollout.reader import read_rollout
from rollout.record import RolloutRecord
from rollout.recorder import RolloutRecorder
from rollout.scanner import ReverseJsonlScanner
from tests.faults.numbered import Contents, look_at, numbered_item, numbers_of

__all__ = ["RESTART_NUMBER", "Restarted", "read_back", "run_restart"]

RESTART_NUMBER = 900_000
"""The number of the item that a restart records."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """What stood there before and after."""

    before: Contents | None
    """None: no file."""
    after: Contents | None
    """None: nothing could be opened, because there was no whole line of a rollout."""


def read_back(path: Path) -> list[RolloutRecord]:
    """Read with the public reader, both ways, and see that they agree with each other and with the bytes."""
    records = list(read_rollout(path))
    backward = list(ReverseJsonlScanner(path))
    places = [(record.offset, record.size, record.line is None) for record in records]
    assert places == [(each.offset, each.size, each.line is None) for each in reversed(backward)], (
        "the reader and the scanner disagree"
    )
    data = path.read_bytes()
    whole = b"".join(data[r.offset : r.offset + r.size] + b"\n" for r in records if r.line is not None)
    assert look_at(whole).numbers == numbers_of(data), (
        "the reader hides an item, or shows one that isn't there"
    )
    check_rollout(path)
    return records


def run_restart(runner: asyncio.Runner, path: Path) -> Restarted:
    """Open, record, close, read; raises AssertionError for whatever must not be."""
    try:
        return _restart(runner, path)
    except RolloutError as error:
        raise AssertionError(f"the restart failed: {type(error).__name__}: {error}") from error


def _restart(runner: asyncio.Runner, path: Path) -> Restarted:
    if not path.exists():
        assert runner.run(_open(path)) is None, "a file that is not there was opened"
        return Restarted(None, None)
    old = path.read_bytes()
    before = look_at(old)
    read_back(path)
    recorder = runner.run(_open(path))
    assert path.read_bytes() == old, "opening changed the file before anything was recorded"
    if recorder is None:
        assert not before.has_meta, "a rollout was refused"
        return Restarted(before, None)
    runner.run(_append(recorder))
    return Restarted(before, _compare(path, old, before))


async def _open(path: Path) -> RolloutRecorder | None:
    """None: there is no rollout."""
    try:
        return await RolloutRecorder.open(path, config=RecorderConfig(close_seconds=30))
    except (NotARollout, ThreadNotFound):
        return None


async def _append(recorder: RolloutRecorder) -> None:
    recorder.record_nowait(numbered_item(RESTART_NUMBER, 50))
    await recorder.sync()
    await recorder.aclose()


def _compare(path: Path, old: bytes, before: Contents) -> Contents:
    new = path.read_bytes()
    after = look_at(new)
    border = old.rfind(b"\n") + 1
    kept = old if before.tail_is_valid else old[:border]
    assert new.startswith(kept), "the restart changed whole lines"
    assert new.endswith(b"\n"), "the file ends inside a line"
    assert after.numbers == [*numbers_of(old), RESTART_NUMBER], "the restart lost or doubled items"
    assert len(after.damaged) == len(before.damaged), "the restart damaged a line"
    assert after.types.count("x_gap") == before.types.count("x_gap"), (
        "the restart notes a gap that nobody made"
    )
    if before.tail.strip(b" \t\r\n") and not before.tail_is_valid:
        assert before.tail in _kept_tails(path), "a torn tail was cut and is nowhere"
    read_back(path)
    return after


def _kept_tails(path: Path) -> list[bytes]:
    return [each.read_bytes() for each in path.parent.iterdir() if each.name.endswith(".torn")]
