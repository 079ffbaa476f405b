"""`python -m benches start`: what a program pays before its first item, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from benches.measure import Case, run_rounds
from benches.report import Row, bound_row

__all__ = ["start_rows"]

NEEDED = "import asyncio, msgspec"
RECORDER = "from rollout import RolloutRecorder"
PROTOCOL = "from protocol import decode_line"
HELP = "rollout --help"

_TIMED = """
import time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""


async def start_rows(*, rounds: int) -> list[Row]:
    """Import times are taken inside the interpreter, the command's from outside."""
    cases = [_import_case(statement) for statement in (NEEDED, RECORDER, PROTOCOL)]
    samples = await run_rounds([*cases, Case(HELP, _run_help)], rounds)
    rows: list[Row] = [
        {"start": name, "milliseconds": round(samples.seconds(name) * 1e3, 1)}
        for name in (NEEDED, RECORDER, PROTOCOL, HELP)
    ]
    return [
        *rows,
        bound_row(f"{RECORDER} / {NEEDED}", samples.ratio([RECORDER], [NEEDED]), at_most=1.3),
        bound_row(HELP, samples.seconds(HELP) * 1e3, "milliseconds", at_most=150),
    ]


def _import_case(statement: str) -> Case:
    async def run() -> float:
        return float(_python("-c", _TIMED.format(statement=statement)))

    return Case(statement, run)


async def _run_help() -> float:
    start = time.perf_counter()
    _python("-c", "from thread_store.cli import main; main()", "--help")
    return time.perf_counter() - start


def _python(*arguments: str) -> str:
    command: Sequence[str] = [sys.executable, *arguments]
    return subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ).stdout
