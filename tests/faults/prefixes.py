"""Prefixes: what the fold says of a thread whose writer died at any byte, against what really happened.

Invariant: for each prefix of a history, at each record and inside it: no unsafe call whose effect may
have begun may run again without a decision behind it; one whose end nobody recorded is uncertain and
blocks; and the state is the same from the start, from every `x_memory`, in a copy, in a reference, in a
reverted thread and in a compressed file.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from protocol.codec import encode_item
from protocol.errors import ForkPointInvalid, ForkRefused
from protocol.items import RolloutItem
from protocol.thread_fold import ThreadFold
from protocol.tool_calls import ToolVerdict
from tests.faults.call_histories import STAMP, THREAD, History, Intent, make_history
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.folding.thread_folding import FoldedThread, fold_lineage, line_hash
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import make_revert
from thread_store.home import Home

__all__ = ["PrefixReport", "judge_many", "judge_seed"]

_REFUSED = (ForkRefused, ForkPointInvalid)
_UNTOLD = ("reused_call_id", "too_many_calls")
"""Damage that the fold itself notes where it can't tell calls apart: then the resume is refused for that."""


@dataclass(slots=True)
class PrefixReport:
    """What many histories gave."""

    histories: int = 0
    records: int = 0
    prefixes: int = 0
    inside: int = 0
    """Prefixes that end inside a record."""
    folds: int = 0
    """States that were compared with the one from scratch."""
    forks: int = 0
    open_calls: int = 0
    """Unsafe calls that were open at a prefix, and were reported so."""
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: PrefixReport) -> None:
        for name in ("histories", "records", "prefixes", "inside", "folds", "forks", "open_calls"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures


def judge_many(count: int, *, seed: int, processes: int) -> Iterator[PrefixReport]:
    """Judge so many histories; what comes is the sum so far."""
    total = PrefixReport()
    with ProcessPoolExecutor(processes) as pool:
        for report in pool.map(judge_seed, range(seed, seed + count)):
            total.add(report)
            yield total


def judge_seed(seed: int) -> PrefixReport:
    """Judge all prefixes of one history."""
    with tempfile.TemporaryDirectory() as folder:
        judge = _Judge(make_history(seed), random.Random(seed), Home(folder))
        try:
            judge.run()
        except AssertionError as failure:
            command = f"python -m tests.faults prefixes --histories 1 --seed {seed}"
            judge.report.failures.append((command, str(failure)))
        return judge.report


class _Judge:
    """One history, in a home of its own."""

    def __init__(self, history: History, rng: random.Random, home: Home) -> None:
        self.history = history
        self.rng = rng
        self.home = home
        self.report = PrefixReport(histories=1, records=len(history.lines))
        self.path = home.path / f"sessions/2026/03/04/rollout-2026-03-04T05-06-07-{THREAD}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.forked = 0

    def run(self) -> None:
        lines = self.history.lines
        self.path.write_bytes(b"".join(lines))
        ends, end = [], 0
        for line in lines:
            end += len(line)
            ends.append(end)
        for record in range(len(lines) - 1, -1, -1):
            os.truncate(self.path, ends[record])
            self._judge_prefix(record)
            if record:
                os.truncate(self.path, self.rng.randint(ends[record - 1] + 1, ends[record] - 1))
                self._judge_inside(record)
        self.path.write_bytes(b"".join(lines))
        for _ in range(2):
            self._judge_forks(lines)

    # The truth

    def _judge_prefix(self, record: int) -> None:
        self.report.prefixes += 1
        whole = self._fold(deep=True)
        _check(self.report, self.history, whole.fold, record)
        self._same_from_memories(self.path, whole)

    def _judge_inside(self, record: int) -> None:
        """The record was never finished: it did not happen yet, whatever the next writer makes of it."""
        self.report.inside += 1
        whole = self._fold(deep=True)
        _check(self.report, self.history, whole.fold, record - 1)
        self._same_from_memories(self.path, whole)
        with self.path.open("ab") as file:  # where cutting is forbidden, or only the newline was missing
            file.write(b"\n")
        ended = self.path.read_bytes().endswith(self.history.lines[record])
        _check(self.report, self.history, self._fold(deep=True).fold, record if ended else record - 1)

    def _fold(self, **options: Any) -> FoldedThread:
        return _fold(self.path, self.home, **options)

    # The same state in every way

    def _same_from_memories(self, path: Path | str, whole: FoldedThread) -> None:
        expected = msgspec.to_builtins(_told(whole))
        with Lineage.resolve(path, self.home) as lineage:
            memories = [each for each in lineage.backward() if _is_memory(each.record.line)]
            for known in (None, *([each] for each in memories)):
                found = fold_lineage(lineage, known)
                self.report.folds += 1
                if msgspec.to_builtins(_told(found)) != expected:
                    kind = "the newest" if known is None else f"the one at {known[0].place}"
                    differences = "\n".join(_differences(msgspec.to_builtins(_told(found)), expected))
                    raise AssertionError(f"{path} up to {lineage.end}, from {kind}:\n{differences}")

    def _judge_forks(self, lines: list[bytes]) -> None:
        """In copies, references, references of these that go on, copies of those, and a reverted thread."""
        points = [ForkPoint.end()]
        turns = sum(b'"task_started"' in each for each in lines)
        if turns > 1:
            points.append(ForkPoint.turn(self.rng.randint(1, turns - 1)))
        source: Path = self.path
        for mode in self.rng.choice([("copy", "copy"), ("reference", "copy"), ("copy", "reference"),
                                     ("reference", "reference", "copy")]):  # fmt: skip
            made = self._fork(source, mode, self.rng.choice(points) if source == self.path else points[0])
            if made is None:
                return
            source = made
            self._go_on(source)
            self._same_from_memories(source, _fold(source, self.home, deep=True))
            self.report.forks += 1
        self._judge_revert()
        self._judge_compressed()

    def _fork(self, source: Path, mode: Any, point: ForkPoint) -> Path | None:
        self.forked += 1
        thread_id = f"01960000-0000-7000-8000-{self.forked:012x}"
        target = self.home.path / f"sessions/2026/03/05/rollout-2026-03-05T05-06-07-{thread_id}.jsonl"
        try:
            return Path(
                make_fork(source, target, thread_id=thread_id, home=self.home, mode=mode, point=point).path
            )
        except _REFUSED:
            return None

    def _go_on(self, path: Path) -> None:
        """The fork is written: a call that dies, and a memory as the keeper makes it."""
        for _ in range(self.rng.randint(1, 3)):
            with Lineage.resolve(path, self.home) as lineage:
                folded = fold_lineage(lineage)
                with lineage.open(lineage.end.segment) as file:
                    last = line_hash(file.last_line(folded.upto.offset))
            memory = folded.snapshot(last)
            number = (folded.fold.damage.max_ordinal or 0) + 1
            asked = {
                "type": "function_call",
                "name": "send_mail",
                "arguments": "{}",
                "call_id": f"late{number}",
            }
            lines = [
                encode_item(RolloutItem.raw("response_item", asked), timestamp=STAMP, ordinal=number),
                encode_item(memory, timestamp=STAMP),
            ]
            with path.open("ab") as file_:
                file_.writelines(self.rng.sample(lines, self.rng.randint(1, 2)))

    def _judge_revert(self) -> None:
        try:
            made = make_revert(self.path, home=self.home, point=ForkPoint.before_turn(2))
        except _REFUSED:
            return
        path = Path(made.path)
        self._go_on(path)
        self._same_from_memories(path, _fold(path, self.home, deep=True))
        path.unlink()
        self.report.forks += 1

    def _judge_compressed(self) -> None:
        data = self.path.read_bytes()
        packed = self.path.with_name(self.path.name + ".zst")
        packed.write_bytes(zstandard.compress(data))
        whole = self._fold(deep=True)
        self.path.unlink()
        self._same_from_memories(packed, whole)
        packed.unlink()
        self.path.write_bytes(data)


def _fold(path: Path | str, home: Home, **options: Any) -> FoldedThread:
    with Lineage.resolve(path, home) as lineage:
        return fold_lineage(lineage, **options)


def _told(folded: FoldedThread) -> tuple[Any, ...]:
    fold = folded.fold
    return fold.snapshot(0), fold.calls.calls(), fold.damage.ranges, folded.whole, folded.upto


def _differences(found: Any, expected: Any, place: str = "") -> Iterator[str]:
    """Where two plain values differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in {**found, **expected}:
            yield from _differences(found.get(key), expected.get(key), f"{place}.{key}")
    elif (
        isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected)
    ):
        for number, pair in enumerate(zip(found, expected, strict=True)):
            yield from _differences(*pair, f"{place}[{number}]")
    elif found != expected:
        yield f"  {place}: {found!r}, from scratch {expected!r}"


def _is_memory(line: Any) -> bool:
    return line is not None and line.type == "x_memory"


def _check(report: PrefixReport, history: History, fold: ThreadFold, record: int) -> None:
    """Compare the fold of the records up to this one with what had happened then."""
    untold = any(each.reason in _UNTOLD for each in fold.damage.ranges)
    for intent in history.intents:
        if not intent.unsafe:
            continue
        calls = [each for each in fold.calls.calls() if (each.turn_id or "", each.call_id) in intent.places]
        if not intent.may_run_again_at(record):
            again = [each for each in calls if each.may_run_again]
            if again:
                raise AssertionError(f"behind record {record} may run again: {again}\n{intent}")
        if not intent.is_open_at(record, history.damaged):
            continue
        report.open_calls += 1
        blocking = [each for each in calls if each.verdict is ToolVerdict.UNCERTAIN and each.blocks_resume]
        if not blocking and not untold and not _is_hidden(history, intent, fold, record):
            raise AssertionError(f"behind record {record} nothing tells of {intent}: {calls}")


def _is_hidden(history: History, intent: Intent, fold: ThreadFold, record: int) -> bool:
    """Whether the record that announced it can't be read; then damage blocks, or somebody accepted it."""
    begun = max(each for each in intent.begun if each <= record)
    return begun in history.damaged and any(each.hides_calls for each in fold.damage.ranges)
