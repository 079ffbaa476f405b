"""Fuzz inputs: made from a seed and a number, judged, made smaller, kept in a file and read back.

Invariant: `make_input` gives the same for the same seed and number; a kept file needs neither, it holds the
bytes. Two failures are of one kind if the same error came out of the same line of the product or target.
"""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.fuzz_samples import Parts, samples_of
from tests.faults.fuzz_targets import TARGETS, Workshop, kind_of
from tests.faults.mutator import mutate

__all__ = ["Input", "Verdict", "judge", "make_input", "minimise"]

_PROJECT = str(Path(__file__).resolve().parents[2])
_LEAST_PIECE = 1


@dataclass(frozen=True, slots=True)
class Input:
    """What one target is given."""

    target: str
    parts: Parts
    seed: int = 0
    number: int = 0

    @property
    def file_name(self) -> str:
        return f"{self.target}-{self.seed}-{self.number}.fuzz"

    def write(self, path: Path) -> None:
        """One line that says how long the parts are, then the parts."""
        head = {"target": self.target, "sizes": [len(part) for part in self.parts]}
        head |= {"seed": self.seed, "number": self.number}
        path.write_bytes(json.dumps(head).encode() + b"\n" + b"".join(self.parts))

    @classmethod
    def read(cls, path: Path) -> Input:
        head, _, data = path.read_bytes().partition(b"\n")
        told = json.loads(head)
        parts, at = [], 0
        for size in told["sizes"]:
            parts.append(data[at : at + size])
            at += size
        return cls(told["target"], tuple(parts), told["seed"], told["number"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was wrong."""

    kind: str
    """Error and place."""
    text: str


def make_input(seed: int, number: int, targets: list[str]) -> Input:
    """The input of a number; which target it is for is drawn by their shares."""
    rng = random.Random(f"{seed} {number}")
    (target,) = rng.choices(targets, [TARGETS[each][1] for each in targets])
    return Input(target, mutate(rng, samples_of(kind_of(target))), seed, number)


def judge(given: Input, shop: Workshop) -> Verdict | None:
    """Give it to its target; None: nothing is wrong."""
    try:
        TARGETS[given.target][2](given.parts, shop)
    except (Exception, RecursionError) as error:  # noqa: BLE001 - that is what is looked for
        return _describe(error)
    return None


def _describe(error: Exception) -> Verdict:
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(_PROJECT)
    ]
    place = f"{frames[-1].filename.removeprefix(_PROJECT)}:{frames[-1].lineno}"
    text = "".join(traceback.format_exception(error, limit=-12))
    return Verdict(f"{type(error).__name__} at {place}", text[-4000:])


def minimise(given: Input, kind: str, shop: Workshop, *, seconds: float = 20.0) -> Input:
    """A smaller input with a failure of the same kind: lines are left out, then bytes."""
    until = time.monotonic() + seconds

    def fails(parts: Parts) -> bool:
        verdict = judge(Input(given.target, parts), shop)
        return verdict is not None and verdict.kind == kind

    parts = given.parts
    for index in range(len(parts)):
        for cut in (_by_lines, _by_bytes):
            parts = _shrink(parts, index, cut, fails, until)
    return Input(given.target, parts, given.seed, given.number)


def _by_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _by_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + _LEAST_PIECE] for at in range(0, len(data), _LEAST_PIECE)]


def _shrink(
    parts: Parts,
    index: int,
    cut: Callable[[bytes], list[bytes]],
    fails: Callable[[Parts], bool],
    until: float,
) -> Parts:
    pieces = cut(parts[index])
    size = max(1, len(pieces) // 2)
    while size and time.monotonic() < until:
        for fewer in _without(pieces, size):
            candidate = (*parts[:index], b"".join(fewer), *parts[index + 1 :])
            if fails(candidate):
                parts, pieces = candidate, fewer
                break
            if time.monotonic() > until:
                break
        else:
            size //= 2
    return parts


def _without(pieces: list[bytes], size: int) -> Iterator[list[bytes]]:
    for at in range(0, len(pieces), size):
        yield pieces[:at] + pieces[at + size :]
