"""The proof that the harnesses can fail: each planted bug must be found by at least one of them.

Invariant: a harness runs in a process of its own with the bug planted, on seeded samples of what it
does without one, and stops at the first failure; what it finds without a bug planted is a failure
of the product, not a proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tests.faults.store_mutants  # noqa: F401  # puts its plants into the table
from tests.faults.mutants import VARIABLE

__all__ = ["FAILED", "HARNESSES", "Verdict", "prove", "prove_quickly", "prove_with"]

_PROJECT = Path(__file__).resolve().parents[2]

HARNESSES: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep", "--sample", "160", "--stop-at", "1", "--processes", "1"),
    "power": ("power", "--states", "150", "--faults", "12", "--stop-at", "1"),
    "kill": ("kill", "--runs", "40"),
    "locks": ("locks", "--seconds", "5"),
    "disk": ("disk", "tmpfs_gets_space", "stays_full"),
    "soak": ("soak", "--seconds", "25", "--threads", "60"),
}

FAILED = 3
"""Exit code of a harness that found something; 1 would also be that of one that broke down itself."""

_QUICKEST = {
    "acknowledged_before_sync": ("power", "--workload", "five", "--states", "60"),
    "broken_line_left": ("disk", "tmpfs_gets_space"),
    "batch_retried_after_error": ("sweep", "--workload", "shortened"),
    "folder_not_synced": ("sweep", "--workload", "one"),
    "old_tail_not_written_again": ("sweep", "--workload", "abandoned"),
    "parents_not_synced": ("sweep", "--workload", "one"),
    "path_not_checked": ("sweep", "--workload", "shortened"),
    "replay_only_synced": ("sweep", "--workload", "replayed", "--plan", "fdatasync,3,1,errno,5"),
    "replay_without_looking": ("sweep", "--workload", "replayed", "--plan", ""),
    "sync_error_ignored": ("sweep", "--workload", "abandoned"),
    "sync_only_retried": ("sweep", "--workload", "abandoned"),
    "torn_tail_not_mended": ("sweep", "--workload", "torn"),
    "torn_tail_thrown_away": ("sweep", "--workload", "torn"),
    "eagain_is_nothing": ("sweep", "--workload", "three", "--plan", "write,2,1,errno,11"),
    "short_count_ignored": ("sweep", "--workload", "three", "--plan", "write,2,1,short,-1"),
    "archive_not_synced": ("sweep", "--workload", "store_kept", "--plan", ""),
    "erased_without_journal": ("sweep", "--workload", "store_erased"),
    "flock_not_taken": ("locks", "--kind", "flock", "--seconds", "8"),
    "folders_synced_once": ("sweep", "--workload", "store_kept", "--plan", "open,4,1,errno,28"),
    "fork_left_behind": ("sweep", "--workload", "store_forked", "--plan", "fstat,34,0,errno,5"),
    "fork_not_settled": ("sweep", "--workload", "store_forked", "--plan", ""),
    "home_not_synced": ("sweep", "--workload", "store_recorded", "--plan", ""),
    "lease_of_the_living_taken": ("locks", "--kind", "lease", "--seconds", "8"),
    "original_removed_first": ("sweep", "--workload", "store_kept", "--plan", "link,1,1,kill_before,0"),
    "path_of_lock_not_checked": ("locks", "--kind", "flock", "--seconds", "8"),
    "removed_without_journal": ("power", "--workload", "store_kept", "--states", "400"),
    "staged_not_synced": ("sweep", "--workload", "store_forked", "--plan", ""),
    "tool_runs_unrecorded": ("sweep", "--workload", "store_recorded", "--plan", ""),
    "unwritten_not_synced": ("power", "--workload", "five", "--plan", "lstat,6,0,errno,5"),
}
"""What finds it in a second or two; by default a sweep of the workload `three`."""
_SAMPLE = ("--sample", "120", "--stop-at", "1", "--processes", "1")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one harness made of one planted bug."""

    harness: str
    caught: bool
    said: str
    """The last lines of its output."""


def prove(mutant: str) -> list[Verdict]:
    """Let all harnesses look for a planted bug."""
    return [_look(mutant, *arguments) for arguments in HARNESSES.values()]


def prove_with(mutant: str, harness: str) -> Verdict:
    """Let one of them look for it."""
    return _look(mutant, *HARNESSES[harness])


def prove_quickly(mutant: str) -> Verdict:
    """Let the one look for it that finds it soonest."""
    harness, *arguments = _QUICKEST.get(mutant, ("sweep", "--workload", "three"))
    if harness == "sweep" and "--plan" not in arguments:
        arguments += _SAMPLE
    return _look(mutant, harness, *arguments)


def _look(mutant: str, harness: str, *arguments: str) -> Verdict:
    result = subprocess.run(
        [sys.executable, "-m", "tests.faults", harness, *arguments],
        cwd=_PROJECT,
        env={**os.environ, VARIABLE: mutant},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    said = "\n".join((result.stdout + result.stderr).strip().splitlines()[-12:])
    assert result.returncode in (0, FAILED), (
        f"{harness} with {mutant} ended with {result.returncode}:\n{said}"
    )
    return Verdict(harness, result.returncode == FAILED, said)
