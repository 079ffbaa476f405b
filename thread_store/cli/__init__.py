"""The command `rollout`: it parses arguments, calls the library, prints.

Nothing heavy is imported before a command is known: `main` is all that the entry point loads.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default `sys.argv`) and return its exit code."""
    try:
        from thread_store.cli.run import run

        return run(arguments)
    except KeyboardInterrupt:  # before or after a command could answer it
        return 130
