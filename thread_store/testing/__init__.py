"""Conformance tests for thread stores: what every `ThreadStore` must do, whoever wrote it.

Invariant: each check is one promise about the protocol, and stands alone. pytest is not needed:

    from thread_store.testing import CHECKS, run_checks

    failures = await run_checks(lambda: MyStore(…))     # a new, empty store each time
    assert not failures, failures

With pytest, a test a check:

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    async def test_conforms(check): await check(lambda: MyStore(…))
"""

from __future__ import annotations

from thread_store.testing import (
    agents,
    forks,
    keeping,
    lists,
    one_writer,
    recording,
    resuming,
    searching,
    turns,
    whole_store,
)
from thread_store.testing.check import Check, ConformanceError, MakeStore

__all__ = ["CHECKS", "Check", "ConformanceError", "MakeStore", "run_checks"]

CHECKS: list[Check] = [
    *recording.CHECKS,
    *one_writer.CHECKS,
    *forks.CHECKS,
    *agents.CHECKS,
    *turns.CHECKS,
    *resuming.CHECKS,
    *searching.CHECKS,
    *lists.CHECKS,
    *keeping.CHECKS,
    *whole_store.CHECKS,
]
"""All of them."""


async def run_checks(make_store: MakeStore) -> dict[str, Exception]:
    """Run all checks, each on a new store. Returns what failed, by the name of the check."""
    failures: dict[str, Exception] = {}
    for check in CHECKS:
        try:
            await check(make_store)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is the result
            failures[check.name] = error
    return failures
