"""The fault harnesses from the command line: `python -m tests.faults HARNESS`. Exit code 3: a failure.

kill     kill -9 at random moments               --runs 200 --seed 1
disk     real disks that fill up and break down  [NAME …]
sweep    every single fault of every workload    --workload NAME --plan PLAN --sample N --pairs N
power    states after a power cut                --states 1000 --faults N --workload NAME --plan PLAN
locks    processes fight for one thread          --seconds 60 --fighters 20 --kind flock|lease
prefixes histories of a thread, cut at any byte  --histories 500 --seed 1
soak     many threads, for long, on a bad disk    --minutes 30 --seed 1 --threads 200
fuzz     hostile bytes for all that reads         --inputs 1000000 --seed 1 --target NAME --replay FILE
mutants  the proof that each harness can fail    [NAME …] --all
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.faults import mutants
from tests.faults.fuzz import FuzzReport, fuzz, replay
from tests.faults.fuzz_targets import TARGETS
from tests.faults.kill import KillReport, kill_many
from tests.faults.lock_fight import KINDS, fight
from tests.faults.mounts import has_loop_devices
from tests.faults.mutants import MUTANTS
from tests.faults.power import PowerReport, cut_power
from tests.faults.prefixes import PrefixReport, judge_many
from tests.faults.proof import FAILED, HARNESSES, prove, prove_quickly
from tests.faults.real_disks import EXT4_SCENARIOS, SCENARIOS
from tests.faults.runner import Runner
from tests.faults.shim import decode_plan
from tests.faults.soak import Plan, soak
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.sweep import Job, Report, list_faults, run_jobs, sample_pairs
from tests.faults.workloads import WORKLOADS

__all__: list[str] = []

_PROJECT = Path(__file__).resolve().parents[2]
_CUT_WORKLOADS = (
    "page",
    "batch",
    "large",
    "five",
    "overlapping",
    "torn",
    "unlinked",
    "abandoned",
    "replayed",
)
_CUT_FAULTS = frozenset({"write", "fdatasync", "open", "pwrite", "fsync"})


def _say_failures(failures: list[tuple[str, str]]) -> int:
    for command, what in failures:
        print(f"\nFAILED  {command}\n{what}")
    return FAILED if failures else 0


def _kill(arguments: argparse.Namespace) -> int:
    report = KillReport()
    for report in kill_many(arguments.runs, seed=arguments.seed, parallel=arguments.processes):
        if report.failures:
            break
    moments = ", ".join(f"{count} {moment}" for moment, count in sorted(report.moments.items()))
    print(f"{report.runs} processes killed ({moments}), seed {arguments.seed}")
    print(f"{report.acknowledged:,} items acknowledged, {report.found:,} in the files")
    print(f"{report.torn} torn tails, {report.headless} inside the meta line, {report.absent} without a file")
    return _say_failures(report.failures)


def _locks(arguments: argparse.Namespace) -> int:
    failures = []
    for kind in [arguments.kind] if arguments.kind else KINDS:
        report = fight(
            seconds=arguments.seconds, processes=arguments.fighters, seed=arguments.seed, kind=kind
        )
        print(f"{kind}: {report.acquisitions:,} times acquired, {report.refusals:,} refused by name")
        print(f"  {report.killed} killed, {report.killed_holding} of them as holders, the next one came")
        print(f"  within {report.longest_gap_ms:.0f} ms; {report.taken_over} taken over by force,")
        print(f"  {report.stopped} stopped for a while and not taken over from", flush=True)
        command = f"python -m tests.faults locks --kind {kind} --seed {arguments.seed}"
        failures += [(command, failure) for failure in report.failures]
    return _say_failures(failures)


def _prefixes(arguments: argparse.Namespace) -> int:
    report, begin = PrefixReport(), time.monotonic()
    for report in judge_many(arguments.histories, seed=arguments.seed, processes=arguments.processes):
        if arguments.stop_at and len(report.failures) >= arguments.stop_at:
            break
    print(f"{report.histories} histories of {report.records:,} records, seed {arguments.seed}")
    print(f"{report.prefixes:,} cut behind a record, {report.inside:,} inside one, {report.forks:,} forked")
    print(f"{report.open_calls:,} times an unsafe call was open, and told of")
    print(f"{report.folds:,} states compared with the one from scratch, {time.monotonic() - begin:.0f} s")
    return _say_failures(report.failures)


def _soak(arguments: argparse.Namespace) -> int:
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
    return _say_failures([(f"{command} --threads {plan.threads}", each) for each in report.failures])


def _fuzz(arguments: argparse.Namespace) -> int:
    if arguments.replay is not None:
        wrong = replay(arguments.replay)
        print(wrong or "nothing is wrong with it")
        return FAILED if wrong else 0
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
    return _say_failures(report.failures)


def _disk(arguments: argparse.Namespace) -> int:
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
    return _say_failures(failures)


def _all_jobs(workloads: list[str]) -> list[Job]:
    with Runner() as runner:
        return [job for workload in workloads for job in list_faults(workload, runner)]


def _sweep(arguments: argparse.Namespace) -> int:
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
    for kind, count in sorted(report.kinds.items()):
        print(f"  {count:5} {kind}")
    print(f"{time.monotonic() - begin:.0f} s")
    return _say_failures(report.failures)


def _some_faulty(workload: str, runner: Runner, count: int, seed: int) -> list[Job]:
    """Runs with a fault of a call that changes what is on the disk."""
    jobs = [job for job in list_faults(workload, runner) if job.plan and job.plan[0].call in _CUT_FAULTS]
    return random.Random(seed).sample(jobs, min(count, len(jobs)))


def _power(arguments: argparse.Namespace) -> int:
    workloads = [arguments.workload] if arguments.workload else list(_CUT_WORKLOADS)
    failures, total = [], 0
    with Runner() as runner, asyncio.Runner() as loop:
        for workload in workloads:
            report, begin = PowerReport(), time.monotonic()
            jobs = [Job(workload, decode_plan(arguments.plan or ""))]
            if arguments.faults and arguments.plan is None:
                jobs += _some_faulty(workload, runner, arguments.faults, arguments.seed)
            for job in jobs:
                cut_power(job, runner, loop, states=arguments.states, seed=arguments.seed, report=report)
                if arguments.stop_at and len(report.failures) >= arguments.stop_at:
                    return _say_failures(report.failures)
            kinds = ", ".join(f"{count} {loss}" for loss, count in sorted(report.states.items()))
            print(f"{workload}: {report.runs} runs, {report.points} cuts, {time.monotonic() - begin:.0f} s")
            print(f"  {report.distinct} distinct states: {kinds}", flush=True)
            total += report.distinct
            failures += report.failures
    print(f"{total} distinct states, seed {arguments.seed}")
    return _say_failures(failures)


def _mutants(arguments: argparse.Namespace) -> int:
    missed = []
    for name in arguments.names or MUTANTS:
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
    return FAILED if missed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True)

    def add(name: str, run: object) -> argparse.ArgumentParser:
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--processes", type=int, default=2)
        command.add_argument("--stop-at", type=int, default=None, metavar="FAILURES")
        return command

    kill = add("kill", _kill)
    kill.add_argument("--runs", type=int, default=200)
    locks = add("locks", _locks)
    locks.add_argument("--seconds", type=float, default=60.0)
    locks.add_argument("--fighters", type=int, default=20)
    locks.add_argument("--kind", choices=KINDS, help="only this one")
    add("prefixes", _prefixes).add_argument("--histories", type=int, default=500)
    soaking = add("soak", _soak)
    soaking.add_argument("--minutes", type=float, default=30.0)
    soaking.add_argument("--seconds", type=float, default=None, help="instead of minutes")
    soaking.add_argument("--threads", type=int, default=200)
    fuzzing = add("fuzz", _fuzz)
    fuzzing.add_argument("--inputs", type=int, default=20_000)
    fuzzing.add_argument("--target", choices=TARGETS, action="append", help="only this one, or these")
    fuzzing.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where failing inputs go")
    fuzzing.add_argument("--replay", type=Path, metavar="FILE", help="judge a kept input again")
    add("disk", _disk).add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS | EXT4_SCENARIOS)}"
    )
    for command in (sweep := add("sweep", _sweep), power := add("power", _power)):
        command.add_argument("--workload", choices=[*WORKLOADS, *STORE_WORKLOADS])
        command.add_argument("--plan", help="as a failure prints it")
    sweep.add_argument("--sample", type=int, default=0, help="only so many, at random")
    sweep.add_argument("--pairs", type=int, default=0, help="pairs of faults instead, so many")
    power.add_argument("--states", type=int, default=1000, help="of each run")
    power.add_argument("--faults", type=int, default=0, help="also runs with a fault, so many a workload")
    proof = add("mutants", _mutants)
    proof.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MUTANTS)}")
    proof.add_argument(
        "--all", action="store_true", help=f"try all of {', '.join(HARNESSES)}, not only until one finds it"
    )
    proof.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    mutants.plant_from_environment()
    options = _parse()
    sys.exit(options.run(options))
