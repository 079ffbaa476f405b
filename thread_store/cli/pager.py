"""The pager: long text on a terminal goes through `ROLLOUT_PAGER`, `PAGER` or `less -FRX`."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thread_store.cli.terminal import Terminal

__all__ = ["paged"]

_DEFAULT = "less -FRX"


@contextmanager
def paged(terminal: Terminal, *, enabled: bool) -> Iterator[Callable[[str], None]]:
    """Give a function that prints lines: into the pager if it is enabled and there is one."""
    words = _find_pager(terminal) if enabled else []
    if not words:
        yield terminal.print
        return
    import subprocess

    pager = subprocess.Popen(
        words, stdin=subprocess.PIPE, text=True, encoding="utf-8", errors="backslashreplace"
    )
    assert pager.stdin is not None
    stream = pager.stdin

    def write(line: str) -> None:
        stream.write(line + "\n")

    try:
        yield write
    except BrokenPipeError:
        pass  # the reader has seen enough
    finally:
        try:
            stream.close()
        except BrokenPipeError:
            pass  # and doesn't want what was buffered either
        pager.wait()


def _find_pager(terminal: Terminal) -> list[str]:
    named = terminal.environ.get("ROLLOUT_PAGER") or terminal.environ.get("PAGER") or _DEFAULT
    words = shlex.split(named)
    return words if words and shutil.which(words[0]) else []
