"""The command line of the benches: `python -m benches writer [--json] [--rounds N] [--quick] [--big]`."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benches.faults import LONG, fault_runs
from benches.report import Row, machine_row, print_rows

BENCHES = (
    *("writer", "codec", "read", "start", "store", "fork", "resume", "redact", "search", "list"),
    "faults",
)

_RELIABILITY = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches", description="Costs as ratios to limits of the same run."
    )
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds; the median counts (7)")
    parser.add_argument(
        "--quick", action="store_true", help="small and short: shows that it runs, not how fast"
    )
    parser.add_argument("--big", action="store_true", help="writer: also append to a file of 1 GB")
    parser.add_argument(
        "--image",
        choices=("xfs",),
        help="fork: also on one that shares blocks, mounted for it (root)",
    )
    parser.add_argument(
        "--only",
        choices=LONG,
        action="append",
        metavar="NAME",
        help=f"faults: of {', '.join(LONG)}",
    )
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the files are written"
    )
    return parser.parse_args()


async def parts_of(options: argparse.Namespace) -> AsyncIterator[list[Row]]:
    """Run the bench that was asked for. Only that one is imported: imports cost time and memory."""
    rounds = options.rounds or (1 if options.quick else 7)
    if options.bench == "writer":
        from benches.writer import Sizes, writer_rows

        sizes = Sizes.quick() if options.quick else Sizes()
        async for rows in writer_rows(options.dir, rounds=rounds, sizes=sizes, big=options.big):
            yield rows
    elif options.bench == "faults":
        failed = 0
        for told in fault_runs(options.only, quick=options.quick, document=_RELIABILITY):
            names = ("command", "runs", "unit", "seconds")
            yield [{**{name: told[name] for name in names}, "failures": len(told["failures"])}]
            failed += len(told["failures"])
        if failed:
            raise SystemExit(f"{failed} failures; the commands that repeat them stand above")
    elif options.bench == "fork":
        from benches.fork import fork_rows, image_rows

        file_bytes = 5_000_000 if options.quick else 1_000_000_000
        yield await fork_rows(options.dir, rounds=rounds, file_bytes=file_bytes)
        if options.image:
            yield await image_rows(options.dir, rounds=rounds, file_bytes=file_bytes)
    elif options.bench == "resume":
        from benches.resume import resume_rows

        file_bytes = 5_000_000 if options.quick else 1_000_000_000
        async for rows in resume_rows(options.dir, rounds=rounds, file_bytes=file_bytes):
            yield rows
    else:
        yield await _short_bench(options, rounds)


async def _short_bench(options: argparse.Namespace, rounds: int) -> list[Row]:
    if options.bench == "codec":
        from benches.codec import codec_rows

        return await codec_rows(rounds=rounds, items=2_000 if options.quick else 200_000)
    if options.bench == "read":
        from benches.read import read_rows

        return await read_rows(
            options.dir, rounds=rounds, file_bytes=1_000_000 if options.quick else 50_000_000
        )
    if options.bench == "redact":
        from benches.redact import redact_rows

        return await redact_rows(rounds=rounds, items=500 if options.quick else 20_000)
    if options.bench == "list":
        from benches.list import list_rows

        return await list_rows(options.dir, rounds=rounds, threads=2_000 if options.quick else 100_000)
    if options.bench == "store":
        from benches.store import store_rows

        churned, open_at_once, items = (200, 50, 2_000) if options.quick else (10_000, 1_000, 300_000)
        return await store_rows(
            options.dir, rounds=rounds, churned=churned, open_at_once=open_at_once, items=items
        )
    if options.bench == "search":
        from benches.search import search_rows

        threads, thread_bytes = (20, 100_000) if options.quick else (300, 2_000_000)
        return await search_rows(options.dir, rounds=rounds, threads=threads, thread_bytes=thread_bytes)
    from benches.start import start_rows

    return await start_rows(rounds=rounds)


async def main() -> None:
    """Print the machine, then each part as it is ready."""
    options = parse_arguments()
    print_rows([machine_row(options.dir)], as_json=options.json)
    async for rows in parts_of(options):
        print_rows(rows, as_json=options.json)


if __name__ == "__main__":
    asyncio.run(main())
