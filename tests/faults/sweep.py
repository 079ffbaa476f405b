"""The sweep: every single fault of a workload, one run each, and the contract checked on each run.

Invariant: the list of faults follows from a run without any; a fault that a run does not reach ends
the count for its call, as long as one is found that is not reached, nothing was left out.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.faults import mutants
from tests.faults.judging import check_run
from tests.faults.runner import Outcome, Runner
from tests.faults.shim import FOREVER, Action, Fault, encode_plan
from tests.faults.store_workloads import STORE_WORKLOADS

__all__ = ["Job", "Report", "count_calls", "faults_for", "judge", "list_faults", "run_jobs", "sample_pairs"]

Plan = tuple[Fault, ...]

_ERRNOS = (errno.ENOSPC, errno.EIO, errno.EAGAIN)
_SPECIAL = {
    "open": (errno.EMFILE, errno.EACCES),
    "ftruncate": (errno.EPERM,),
    "flock": (errno.ENOLCK,),
    "write": (errno.EDQUOT, errno.EFBIG),
    "mkdir": (errno.EEXIST,),
    "copy_file_range": (errno.EXDEV,),
}
_CHANGING = frozenset(
    {"open", "write", "pwrite", "fdatasync", "fsync", "ftruncate", "link", "unlink", "rename", "mkdir"}
    | {"copy_file_range", "sendfile", "close"}
)
_LOOKING = ("pread", "read", "fstat", "lstat", "flock")
_ONLY = {"abandoned": frozenset({"fdatasync", "fsync", "pwrite"})}
"""A recorder that is abandoned drops what it could not write, so there writing never fails."""
_FAULT_NAMES = {Action.ERRNO: "error", Action.AFTER: "done, error"}
_LIFTED = 3
"""A fault that lasts this many calls: the caller is told, and a later barrier succeeds."""
_WRITING = frozenset({"write", "pwrite", "copy_file_range", "sendfile"})
_BYTEWISE = frozenset({"one", "three", "five", "persisted", "torn", "unfinished"})
"""Workloads small enough to be written byte by byte."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made and judged."""

    workload: str
    plan: Plan

    @property
    def command(self) -> str:
        return f"python -m tests.faults sweep --workload {self.workload} --plan '{encode_plan(self.plan)}'"


@dataclass(slots=True)
class Report:
    """What many runs gave."""

    runs: int = 0
    reached: int = 0
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By the call and what befell it: how many runs reached it."""
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The command that repeats a run, and what was wrong."""

    def take(self, job: Job, reached: bool, failure: str | None) -> None:
        self.runs += 1
        self.reached += reached
        kind = (job.plan[0].call, job.plan[0].action) if job.plan else ("none", "none")
        self.kinds[kind] += reached
        if failure is not None:
            self.failures.append((job.command, failure))
            self.failed[kind] += 1

    def table(self) -> list[list[str]]:
        """Call by fault: how many runs, and how many of them failed."""
        calls = sorted({call for call, _ in self.kinds if call != "none"})
        actions = [action for action in Action if any(kind[1] == action for kind in self.kinds)]
        rows = [["call", *(_FAULT_NAMES.get(action, action) for action in actions), "failures"]]
        for call in calls:
            cells = [self.kinds[call, action] for action in actions]
            failed = sum(self.failed[call, action] for action in Action)
            rows.append([call, *(str(cell or "") for cell in cells), str(failed)])
        return rows


def _single(workload: str, call: str, nth: int) -> Iterator[Plan]:
    """Everything that can befall one call. Of a store's many calls each gets a choice of it."""
    brief = workload in STORE_WORKLOADS
    how_long = (1, FOREVER) if brief else (1, _LIFTED, FOREVER)
    for number in _errnos(call, brief=brief):
        for count in how_long:
            yield (Fault(call, nth, Action.ERRNO, number, count),)
    if call in _LOOKING:
        return
    yield (Fault(call, nth, Action.ERRNO, errno.EINTR, 1),)
    yield (Fault(call, nth, Action.KILL_BEFORE),)
    yield (Fault(call, nth, Action.KILL_AFTER),)
    if call == "close":
        return  # it never fails without being done
    for count in how_long[:-1]:
        yield (Fault(call, nth, Action.AFTER, errno.EIO, count),)
    if call in _WRITING:
        yield from _short_briefly(call, nth) if brief else _short(call, nth, bytewise=workload in _BYTEWISE)


def _errnos(call: str, *, brief: bool) -> tuple[int, ...]:
    special = _SPECIAL.get(call, ())
    if call in _LOOKING or call == "close":
        return (errno.EIO, *special)
    return (errno.ENOSPC, errno.EIO, *special[:1]) if brief else (*_ERRNOS, *special)


def _short_briefly(call: str, nth: int) -> Iterator[Plan]:
    short = Fault(call, nth, Action.SHORT, -1)
    yield (short,)
    yield short, Fault(call, nth + 1, Action.ERRNO, errno.ENOSPC, FOREVER)
    yield short, Fault(call, nth, Action.KILL_AFTER)


def _short(call: str, nth: int, *, bytewise: bool) -> Iterator[Plan]:
    for size in (1, -1, -2):
        short = Fault(call, nth, Action.SHORT, size)
        yield (short,)
        if size == -1 or bytewise:
            yield (Fault(call, nth, Action.SHORT, size, FOREVER),)
        for count in (1, _LIFTED, FOREVER):
            yield short, Fault(call, nth + 1, Action.ERRNO, errno.ENOSPC, count)
        yield short, Fault(call, nth + 1, Action.KILL_BEFORE)
        yield (Fault(call, nth, Action.SHORT, size), Fault(call, nth, Action.KILL_AFTER))


def list_faults(workload: str, runner: Runner) -> list[Job]:
    """Every single fault of a workload. Makes a run for each call to find where its count ends."""
    outcome = runner.run(workload)
    counts = count_calls(outcome)
    outcome.remove()
    return faults_for(workload, counts, runner)


def count_calls(outcome: Outcome) -> Counter[str]:
    """How often a run made each call. Two runs may differ by a check more: threads are no clockwork."""
    return Counter(call.name for call in outcome.calls if call.nth and not call.begins)


def faults_for(workload: str, counts: Counter[str], runner: Runner) -> list[Job]:
    """Every single fault of a workload whose run without any made these calls."""
    jobs = [Job(workload, ())]
    for call in (*sorted(_CHANGING), *_LOOKING):
        if call not in _ONLY.get(workload, (call,)):
            continue
        nth = 1
        while nth <= counts[call] or _is_reached(workload, call, nth, runner):
            jobs += [Job(workload, plan) for plan in _single(workload, call, nth)]
            nth += 1
    return jobs


def _is_reached(workload: str, call: str, nth: int, runner: Runner) -> bool:
    """Errors make further calls: count them too, as long as one that fails leads to the next."""
    if call not in _CHANGING or call == "close" or nth == 1:
        return False
    outcome = runner.run(workload, [Fault(call, nth - 1, Action.ERRNO, errno.EIO, 2)])
    reached = any(each.injected and each.nth == nth for each in outcome.calls)
    outcome.remove()
    return reached and nth < 40


def sample_pairs(jobs: Sequence[Job], count: int, seed: int) -> list[Job]:
    """Pairs of faults of one workload, each of which was swept alone."""
    rng = random.Random(seed)
    plans: dict[str, list[Plan]] = {}
    for job in jobs:
        if len(job.plan) == 1 and job.plan[0].call in _CHANGING:
            plans.setdefault(job.workload, []).append(job.plan)
    workloads = rng.choices(list(plans), weights=[len(each) for each in plans.values()], k=count)
    return [Job(each, rng.choice(plans[each]) + rng.choice(plans[each])) for each in workloads]


def judge(job: Job, runner: Runner, loop: asyncio.Runner) -> tuple[bool, str | None]:
    """Make a run. Returns whether the fault was reached, and what was wrong with the run."""
    outcome = runner.run(job.workload, job.plan)
    try:
        check_run(outcome, loop)
    except AssertionError as error:
        return outcome.reached, str(error)
    finally:
        outcome.remove()
    return outcome.reached, None


# Many runs, in a few processes

_runner: Runner | None = None
_loop: asyncio.Runner | None = None


def _judge_here(job: Job) -> tuple[bool, str | None]:
    global _runner, _loop
    if _runner is None or _loop is None:
        mutants.plant_from_environment()  # the restart is judged in this process
        _runner, _loop = Runner(), asyncio.Runner()
        atexit.register(_runner.close)
    return judge(job, _runner, _loop)


def run_jobs(jobs: Sequence[Job], *, processes: int = 2, stop_at: int | None = None) -> Iterable[Report]:
    """Judge all jobs; gives the growing report after each of them."""
    report = Report()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        results = pool.map(_judge_here, jobs, chunksize=8)
        for job, (reached, failure) in zip(jobs, results, strict=True):
            report.take(job, reached, failure)
            yield report
            if stop_at is not None and len(report.failures) >= stop_at:
                pool.shutdown(cancel_futures=True)
                return
