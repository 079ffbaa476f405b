"""The fault harnesses from the command line: `python -m tests.faults HARNESS`. Exit code 3: a failure.

kill     kill -9 at random moments               --runs 200 --seed 1 --of rollout|store
disk     real disks that fill up and break down  [NAME …]
sweep    every single fault of every workload    --workload NAME --plan PLAN --sample N --pairs N
power    states after a power cut                --states 1000 --faults N --workload NAME --plan PLAN
locks    processes fight for one thread          --seconds 60 --fighters 20 --kind flock|lease
prefixes histories of a thread, cut at any byte  --histories 500 --seed 1
soak     many threads, for long, on a bad disk    --minutes 30 --seed 1 --threads 200
fuzz     hostile bytes for all that reads         --inputs 1000000 --seed 1 --target NAME --replay FILE
mutants  the proof that each harness can fail    [NAME …] --all

Each takes `--json`: one object with runs, failures, seconds and figures, for `python -m benches faults`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import commands, mutants
from tests.faults.commands import Result
from tests.faults.fuzz_targets import TARGETS
from tests.faults.lock_fight import KINDS
from tests.faults.mutants import MUTANTS
from tests.faults.proof import FAILED, HARNESSES
from tests.faults.real_disks import EXT4_SCENARIOS, SCENARIOS
from tests.faults.store_workloads import STORE_WORKLOADS
from tests.faults.workloads import WORKLOADS

__all__: list[str] = []


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    subparsers = parser.add_subparsers(required=True, dest="harness")

    def add(name: str, run: Callable[[argparse.Namespace], Result]) -> argparse.ArgumentParser:
        command = subparsers.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--processes", type=int, default=2)
        command.add_argument(
            "--json", action="store_true", help="one JSON object, and nothing else on stdout"
        )
        command.add_argument("--stop-at", type=int, default=None, metavar="FAILURES")
        return command

    kill = add("kill", commands.kill)
    kill.add_argument("--runs", type=int, default=200)
    kill.add_argument("--of", choices=("rollout", "store"), help="only those that write one, or use a store")
    locks = add("locks", commands.locks)
    locks.add_argument("--seconds", type=float, default=60.0)
    locks.add_argument("--fighters", type=int, default=20)
    locks.add_argument("--kind", choices=KINDS, help="only this one")
    add("prefixes", commands.prefixes).add_argument("--histories", type=int, default=500)
    soaking = add("soak", commands.soaked)
    soaking.add_argument("--minutes", type=float, default=30.0)
    soaking.add_argument("--seconds", type=float, default=None, help="instead of minutes")
    soaking.add_argument("--threads", type=int, default=200)
    fuzzing = add("fuzz", commands.fuzzed)
    fuzzing.add_argument("--inputs", type=int, default=20_000)
    fuzzing.add_argument("--target", choices=TARGETS, action="append", help="only this one, or these")
    fuzzing.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where failing inputs go")
    fuzzing.add_argument("--replay", type=Path, metavar="FILE", help="judge a kept input again")
    add("disk", commands.disk).add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENARIOS | EXT4_SCENARIOS)}"
    )
    for command in (sweep := add("sweep", commands.sweep), power := add("power", commands.power)):
        command.add_argument("--workload", choices=[*WORKLOADS, *STORE_WORKLOADS])
        command.add_argument("--plan", help="as a failure prints it")
    sweep.add_argument("--sample", type=int, default=0, help="only so many, at random")
    sweep.add_argument("--pairs", type=int, default=0, help="pairs of faults instead, so many")
    power.add_argument("--states", type=int, default=1000, help="of each run")
    power.add_argument("--faults", type=int, default=0, help="also runs with a fault, so many a workload")
    proof = add("mutants", commands.mutated)
    proof.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MUTANTS)}")
    proof.add_argument(
        "--all", action="store_true", help=f"try all of {', '.join(HARNESSES)}, not only until one finds it"
    )
    proof.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run a harness. Returns the exit code."""
    mutants.plant_from_environment()
    options, begin = _parse(), time.monotonic()
    with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
        result: Result = options.run(options)
        for command, what in result.failures:
            print(f"\nFAILED  {command}\n{what}")
    if options.json:
        told = {
            "harness": options.harness,
            "unit": result.unit,
            "runs": result.runs,
            "failures": [{"command": command, "what": what} for command, what in result.failures],
            "seconds": round(time.monotonic() - begin),
            "figures": result.figures,
            "table": result.table,
        }
        print(json.dumps(told))
    return FAILED if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
