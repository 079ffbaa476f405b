"""What each command of the harnesses does: runs one, prints what it showed, gives it as figures too.

Invariant: a failure is told with the command that repeats it; `Result.runs` counts what the harness is
measured by (`unit`), so that tables need know nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.fuzz import FuzzReport, fuzz, replay
from tests.faults.kill import KillReport, kill_many
from tests.faults.lock_fight import KINDS, fight
from tests.faults.mounts import has_loop_devices
from tests.faults.mutants import MUTANTS
from tests.faults.power import PowerReport, cut_power
from tests.faults.prefixes import PrefixReport, judge_many
from tests.faults.proof import prove, prove_quickly
from tests.faults.real_disks import EXT4_SCENARIOS, SCENARIOS
from tests.faults.runner import Runner
from tests.faults.shim import decode_plan
from tests.faults.soak import Plan, soak
from tests.faults.store_kill import StoreKillReport, kill_stores
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.sweep import Job, Report, list_faults, run_jobs, sample_pairs
from tests.faults.workloads import WORKLOADS

__all__ = ["Result", "disk", "fuzzed", "kill", "locks", "mutated", "power", "prefixes", "soaked", "sweep"]

_PROJECT = Path(__file__).resolve().parents[2]
_CUT_WORKLOADS = (
    *("page", "batch", "large", "five", "overlapping", "torn", "unlinked", "abandoned", "replayed"),
    *STORE_WORKLOADS,
)
_CUT_FAULTS = frozenset(
    {"write", "fdatasync", "open", "pwrite", "fsync", "rename", "link", "unlink", "mkdir", "copy_file_range"}
)


@dataclass(slots=True)
class Result:
    """What a harness showed."""

    unit: str
    """What `runs` counts."""
    runs: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The command that repeats one, and what was wrong."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What else there is to say, by what it counts."""
    table: list[list[str]] = field(default_factory=list)
    """Rows of a table of its own, the first one its head."""


def kill(arguments: argparse.Namespace) -> Result:
    """Processes that are killed: half of them write one rollout, half use a store, unless told otherwise."""
    result = Result("processes killed")
    kinds = [arguments.of] if arguments.of else ["rollout", "store"]
    for kind in kinds:
        runs = arguments.runs // len(kinds)
        (_kill_writers if kind == "rollout" else _kill_stores)(arguments, runs, result)
    return result


def _kill_writers(arguments: argparse.Namespace, runs: int, result: Result) -> None:
    report = KillReport()
    for report in kill_many(runs, seed=arguments.seed, parallel=arguments.processes):
        if report.failures:
            break
    moments = ", ".join(f"{count} {moment}" for moment, count in sorted(report.moments.items()))
    print(f"{report.runs} processes killed ({moments}), seed {arguments.seed}")
    print(f"{report.acknowledged:,} items acknowledged, {report.found:,} in the files")
    print(f"{report.torn} torn tails, {report.headless} inside the meta line, {report.absent} without a file")
    result.runs += report.runs
    result.failures += report.failures
    result.figures |= {"of a rollout": report.runs, "items acknowledged": report.acknowledged}


def _kill_stores(arguments: argparse.Namespace, runs: int, result: Result) -> None:
    report = StoreKillReport()
    for report in kill_stores(runs, seed=arguments.seed, parallel=arguments.processes):
        if report.failures:
            break
    moments = ", ".join(f"{count} {moment}" for moment, count in sorted(report.moments.items()))
    begun = {what: count for what, count in sorted(report.under_way.items()) if what != "nothing"}
    print(f"{report.runs} processes killed ({moments}) that used a store, seed {arguments.seed}")
    print(f"{report.threads:,} threads gone on with, {report.items:,} items acknowledged")
    print("under way: " + ", ".join(f"{count} {what}" for what, count in begun.items()))
    result.runs += report.runs
    result.failures += report.failures
    result.figures |= {"of a store": report.runs, "threads restarted on": report.threads}
    result.figures |= {f"during {what}": count for what, count in begun.items()}


def locks(arguments: argparse.Namespace) -> Result:
    """Processes that fight for one thread."""
    result = Result("acquisitions")
    for kind in [arguments.kind] if arguments.kind else KINDS:
        report = fight(
            seconds=arguments.seconds, processes=arguments.fighters, seed=arguments.seed, kind=kind
        )
        print(f"{kind}: {report.acquisitions:,} times acquired, {report.refusals:,} refused by name")
        print(f"  {report.killed} killed, {report.killed_holding} of them as holders, the next one came")
        print(f"  within {report.longest_gap_ms:.0f} ms; {report.taken_over} taken over by force,")
        print(f"  {report.stopped} stopped for a while and not taken over from", flush=True)
        command = f"python -m tests.faults locks --kind {kind} --seed {arguments.seed}"
        result.runs += report.acquisitions
        result.failures += [(command, failure) for failure in report.failures]
        result.figures |= {
            f"{kind}: refused": report.refusals,
            f"{kind}: killed": report.killed,
            f"{kind}: killed as holders": report.killed_holding,
            f"{kind}: stopped": report.stopped,
            f"{kind}: taken over by force": report.taken_over,
        }
    return result


def prefixes(arguments: argparse.Namespace) -> Result:
    """Histories, cut anywhere."""
    report, begin = PrefixReport(), time.monotonic()
    for report in judge_many(arguments.histories, seed=arguments.seed, processes=arguments.processes):
        if arguments.stop_at and len(report.failures) >= arguments.stop_at:
            break
    print(f"{report.histories} histories of {report.records:,} records, seed {arguments.seed}")
    print(f"{report.prefixes:,} cut behind a record, {report.inside:,} inside one, {report.forks:,} forked")
    print(f"{report.open_calls:,} times an unsafe call was open, and told of")
    print(f"{report.folds:,} states compared with the one from scratch, {time.monotonic() - begin:.0f} s")
    figures = {"histories": report.histories, "records": report.records, "states compared": report.folds}
    return Result("prefixes", report.prefixes + report.inside, report.failures, figures)


def soaked(arguments: argparse.Namespace) -> Result:
    """Many threads, for long."""
    seconds = arguments.seconds or arguments.minutes * 60
    plan = Plan(
        seconds=seconds,
        seed=arguments.seed,
        threads=arguments.threads,
        pause_seconds=0.7 * arguments.threads / 200,
        strike_seconds=min(1.5, seconds / 50),
        disk_mb=int(256 + seconds * arguments.threads / 200),
    )
    report = soak(plan)
    print(f"{report.threads} threads, {report.seconds:.0f} s, seed {arguments.seed}")
    print(f"{report.items:,} items, {report.acknowledged:,} acknowledged, {report.calls:,} calls")
    print(f"{report.kills} processes killed, {report.lives} lived, {report.fills} times the disk was full")
    print(f"{report.torn} torn tails were set aside")
    print("  " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.entries.items())))
    for name, count in sorted(report.errors.items()):
        print(f"  {count:7,} times raised: {name}")
    for name, (first, last) in report.growth.items():
        print(f"  {name}: {first:.1f}, at the end {last:.1f}")
    command = f"python -m tests.faults soak --seconds {seconds:g} --seed {arguments.seed}"
    figures = {
        "threads": report.threads,
        "items acknowledged": report.acknowledged,
        "tool calls": report.calls,
        "processes killed": report.kills,
        "times the disk was full": report.fills,
    }
    failures = [(f"{command} --threads {plan.threads}", each) for each in report.failures]
    return Result("items", report.items, failures, figures)


def fuzzed(arguments: argparse.Namespace) -> Result:
    """Hostile bytes."""
    if arguments.replay is not None:
        wrong = replay(arguments.replay)
        command = f"python -m tests.faults fuzz --replay {arguments.replay}"
        return Result("inputs", 1, [(command, wrong)] if wrong else [])
    report, begin, told = FuzzReport(), time.monotonic(), 0
    for report in fuzz(
        arguments.inputs,
        seed=arguments.seed,
        processes=arguments.processes,
        targets=arguments.target,
        keep=arguments.keep,
    ):
        if report.inputs - told >= 20_000:
            told = report.inputs
            print(
                f"… {told:,} of {arguments.inputs:,}, {len(report.kinds)} kinds of failures", file=sys.stderr
            )
        if arguments.stop_at and len(report.failures) >= arguments.stop_at:
            break
    seconds = time.monotonic() - begin
    rate = report.inputs / seconds
    print(f"{report.inputs:,} inputs, seed {arguments.seed}, {seconds:.0f} s, {rate:.0f}/s")
    print(f"at most {report.rss_mb:.0f} MB resident in a process")
    for name, count in report.counts.most_common():
        slowest, number = report.slowest[name]
        each_us = report.spent[name] / count
        print(f"  {count:9,} {name}: {each_us:.0f} µs each, at most {slowest * 1000:.0f} ms (input {number})")
    for kind, count in report.kinds.most_common():
        print(f"  {count:9,} times {kind}")
    figures = {"MB resident at most": round(report.rss_mb), **dict(report.counts.most_common())}
    return Result("inputs", report.inputs, report.failures, figures)


def disk(arguments: argparse.Namespace) -> Result:
    """Real disks."""
    names = arguments.names or [*SCENARIOS, *(EXT4_SCENARIOS if has_loop_devices() else ())]
    failures = []
    for name in names:
        command = [sys.executable, "-m", "tests.faults.real_disks", name]
        result = subprocess.run(command, capture_output=True, text=True, cwd=_PROJECT, timeout=120)
        if result.returncode:
            failures.append((f"python -m tests.faults disk {name}", result.stderr))
        else:
            print(f"{name}: {json.loads(result.stdout)}")
    if not arguments.names and not has_loop_devices():
        print("ext4: not run, this machine mounts no files as disks")
    return Result("scenarios", len(names), failures, {"scenarios": ", ".join(names)})


def _all_jobs(workloads: list[str]) -> list[Job]:
    with Runner() as runner:
        return [job for workload in workloads for job in list_faults(workload, runner)]


def sweep(arguments: argparse.Namespace) -> Result:
    """Single faults, or pairs."""
    if arguments.plan is not None:
        jobs = [Job(arguments.workload, decode_plan(arguments.plan))]
    else:
        jobs = _all_jobs([arguments.workload] if arguments.workload else [*WORKLOADS, *STORE_WORKLOADS])
    single = len(jobs)
    if arguments.pairs:
        jobs = sample_pairs(jobs, arguments.pairs, arguments.seed)
    if arguments.sample:
        jobs = random.Random(arguments.seed).sample(jobs, min(arguments.sample, len(jobs)))
    report, begin = Report(), time.monotonic()
    for report in run_jobs(jobs, processes=arguments.processes, stop_at=arguments.stop_at):
        if report.runs % 500 == 0:
            print(f"… {report.runs} of {len(jobs)}", file=sys.stderr)
    print(f"{report.runs} runs, {report.reached} reached their fault, seed {arguments.seed}")
    print(f"{single} single faults are known of these workloads")
    table = report.table()
    for row in table:
        print("  " + row[0].ljust(16) + "".join(cell.rjust(13) for cell in row[1:]))
    print(f"{time.monotonic() - begin:.0f} s")
    figures = {"reached their fault": report.reached, "single faults known": single}
    return Result("runs with a fault", report.runs, report.failures, figures, table)


def _some_faulty(workload: str, runner: Runner, count: int, seed: int) -> list[Job]:
    """Runs with a fault of a call that changes what is on the disk."""
    jobs = [job for job in list_faults(workload, runner) if job.plan and job.plan[0].call in _CUT_FAULTS]
    return random.Random(seed).sample(jobs, min(count, len(jobs)))


def power(arguments: argparse.Namespace) -> Result:
    """States after a power cut."""
    workloads = [arguments.workload] if arguments.workload else list(_CUT_WORKLOADS)
    result = Result("distinct states")
    with Runner() as runner, asyncio.Runner() as loop:
        for workload in workloads:
            report, begin = PowerReport(), time.monotonic()
            jobs = [Job(workload, decode_plan(arguments.plan or ""))]
            if arguments.faults and arguments.plan is None:
                jobs += _some_faulty(workload, runner, arguments.faults, arguments.seed)
            for job in jobs:
                cut_power(job, runner, loop, states=arguments.states, seed=arguments.seed, report=report)
                if arguments.stop_at and len(report.failures) >= arguments.stop_at:
                    result.failures += report.failures
                    return result
            kinds = ", ".join(f"{count} {loss}" for loss, count in sorted(report.states.items()))
            print(f"{workload}: {report.runs} runs, {report.points} cuts, {time.monotonic() - begin:.0f} s")
            print(f"  {report.distinct} distinct states: {kinds}", flush=True)
            result.runs += report.distinct
            result.failures += report.failures
            result.figures[f"{workload}, {report.runs} runs"] = report.distinct
    print(f"{result.runs} distinct states, seed {arguments.seed}")
    return result


def mutated(arguments: argparse.Namespace) -> Result:
    """Planted bugs. A failure: one that was missed."""
    missed, names = [], arguments.names or list(MUTANTS)
    for name in names:
        verdicts = prove(name) if arguments.all else [prove_quickly(name)]
        caught = [verdict.harness for verdict in verdicts if verdict.caught]
        passed = [verdict.harness for verdict in verdicts if not verdict.caught]
        print(
            f"{name}: caught by {', '.join(caught) or 'NONE'}; not by {', '.join(passed) or 'none'}",
            flush=True,
        )
        if arguments.verbose:
            print("\n".join(f"  {verdict.said}" for verdict in verdicts if verdict.caught))
        if not caught:
            missed.append(name)
    print(f"{len(missed)} missed")
    failures = [(f"python -m tests.faults mutants {name} --all", "it was missed") for name in missed]
    return Result("planted bugs found", len(names) - len(missed), failures)
