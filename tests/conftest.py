"""What all tests share: hypothesis profiles, the rule that CI skips nothing, and a watch on all loops.

With `ROLLOUT_NO_SKIPS=1` (set by `.ci/run`) a test that is skipped, or expected to fail, fails:
a promise that nobody checked must not look like one that holds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.loop_hygiene import Hygiene, watch_loops

# A shell starts what stands behind `&` with SIGINT ignored, and its children inherit that: tests that
# press Ctrl-C in a command would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NO_SKIPS = os.environ.get("ROLLOUT_NO_SKIPS") == "1"

settings.register_profile("dev", deadline=None, print_blob=True)
# CI repeats the same examples, so that what fails there fails here; other runs explore.
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if NO_SKIPS or os.environ.get("CI") else "dev")


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a report of a skipped test into one of a failed test that says what was skipped."""
    if NO_SKIPS and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and ROLLOUT_NO_SKIPS is set: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    fail_if_skipped(report)
    return report


@pytest.fixture(scope="session")
def watched_loops() -> Iterator[Hygiene]:
    with watch_loops() as hygiene:
        yield hygiene


@pytest.fixture(autouse=True)
def _loop_hygiene(watched_loops: Hygiene) -> Iterator[None]:
    """No test lets the product block a caller's loop, or asyncio's debug mode complain."""
    yield
    found = watched_loops.take()
    assert not found, "\n".join(found)
