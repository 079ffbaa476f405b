"""Asking before something is done that takes much back, or can't be taken back.

Invariant: without a yes, given at the terminal or with the command, nothing is done; where nobody can be
asked the command says so and ends with exit code 7.
"""

from __future__ import annotations

import sys

import click

from thread_store.cli.terminal import Terminal

__all__ = ["is_confirmed"]


def is_confirmed(terminal: Terminal, command: str, question: str, *, yes: bool) -> bool:
    """Whether to go on. `question` says what will be done, without its question mark."""
    if yes:
        return True
    if terminal.json or sys.stdin is None or not sys.stdin.isatty() or not terminal.stderr.isatty():
        terminal.fail(
            f"{command} needs --yes when there is nobody to ask",
            code="needs_yes",
            hint="To see what it would do, say --dry-run",
        )
        return False
    wanted = click.confirm(f"{question}?", err=True)
    if not wanted:
        terminal.note("nothing was changed")
    return wanted
