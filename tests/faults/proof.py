"""The proof that the harnesses can fail: each planted bug must be found by at least one of them.

Invariant: a harness runs in a process of its own with the bug planted, on seeded samples of what it
does without one, and stops at the first failure; what it finds without a bug planted is a failure
of the product, not a proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.mutants import VARIABLE

__all__ = ["HARNESSES", "Verdict", "prove"]

_PROJECT = Path(__file__).resolve().parents[2]

HARNESSES: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep", "--sample", "160", "--stop-at", "1", "--processes", "1"),
    "power": ("power", "--states", "150", "--faults", "12", "--stop-at", "1"),
    "kill": ("kill", "--runs", "12"),
    "disk": ("disk", "tmpfs_gets_space", "stays_full"),
}

_FIRST = {
    "acknowledged_before_sync": "power",
    "broken_line_left": "disk",
    "unwritten_not_synced": "power",
}
"""Where to look first, so that the proof is quick; by default the sweep."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one harness made of one planted bug."""

    harness: str
    caught: bool
    said: str
    """The last lines of its output."""


def prove(mutant: str, *, harnesses: Sequence[str] = tuple(HARNESSES), stop: bool = True) -> list[Verdict]:
    """Let the harnesses look for a planted bug; `stop` with the first that finds it."""
    first = _FIRST.get(mutant, "sweep")
    verdicts = []
    for harness in sorted(harnesses, key=lambda each: each != first):
        verdicts.append(_look(mutant, harness))
        if stop and verdicts[-1].caught:
            break
    return verdicts


def _look(mutant: str, harness: str) -> Verdict:
    result = subprocess.run(
        [sys.executable, "-m", "tests.faults", *HARNESSES[harness]],
        cwd=_PROJECT,
        env={**os.environ, VARIABLE: mutant},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    # 1: it found something. Anything else means that the harness itself broke down.
    said = "\n".join((result.stdout + result.stderr).strip().splitlines()[-12:])
    assert result.returncode in (0, 1), f"{harness} with {mutant} ended with {result.returncode}:\n{said}"
    return Verdict(harness, result.returncode == 1, said)
