"""What a workload is judged by: the contract of one rollout, or that of a store.

Invariant: a harness knows workloads by their names only; what was promised, and whether a state keeps it, is
the business of the contract that belongs to the name.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any, Protocol

from tests.faults import contract
from tests.faults.disk_model import State
from tests.faults.promises import Promises
from tests.faults.runner import Outcome
from tests.faults.store_contract import StoreContract
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.workloads import REPLAYED_ITEMS, REPLAYS

__all__ = ["Judge", "check_run", "judge_of"]


class Judge(Protocol):
    """`told` is what a program was promised, as the judge itself made it."""

    def at_start(self, outcome: Outcome) -> Any:
        """What earlier processes had promised."""

    def take(self, told: Any, note: str) -> None:
        """A note of the program."""

    def copied(self, told: Any) -> Any:
        """As it is now."""

    def fingerprint(self, told: Any) -> str:
        """What a state is judged by."""

    def check_run(self, outcome: Outcome) -> None:
        """All that can be said of one run. Raises AssertionError, as the others do."""

    def check_state(self, state: State, told: Any) -> None:
        """What the bytes must hold after a power cut."""

    def check_restart(self, state: State, told: Any, outcome: Outcome) -> None:
        """The product restarts on them."""


class _RolloutJudge:
    def __init__(self, loop: asyncio.Runner) -> None:
        self._loop = loop

    def at_start(self, outcome: Outcome) -> Promises:
        return contract.promises_at_start(outcome)

    def take(self, told: Promises, note: str) -> None:
        told.take(note)

    def copied(self, told: Promises) -> Promises:
        return copy.copy(told)

    def fingerprint(self, told: Promises) -> str:
        return f"{told.synced} {told.accepted} {told.unwritten is None}"

    def check_run(self, outcome: Outcome) -> None:
        contract.check_run(outcome, self._loop)

    def check_state(self, state: State, told: Promises) -> None:
        contract.check_crash_state(state, told)

    def check_restart(self, state: State, told: Promises, outcome: Outcome) -> None:
        least = REPLAYED_ITEMS if outcome.workload in REPLAYS else 0
        contract.check_crash_restart(state, told, self._loop, root=outcome.root, least=least)


def judge_of(workload: str, loop: asyncio.Runner) -> Judge:
    """Of a workload's name."""
    return StoreContract() if workload in STORE_WORKLOADS else _RolloutJudge(loop)


def check_run(outcome: Outcome, loop: asyncio.Runner) -> None:
    """Judge a run. Raises AssertionError."""
    contract.check_ending(outcome)
    judge_of(outcome.workload, loop).check_run(outcome)
