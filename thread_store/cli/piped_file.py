"""Standard input as a file, for commands that must read a rollout from its end or more than once.

Invariant: the file has mode 0600, lies in the folder for temporary files, and is gone when the block
ends. Errors name standard input, not that file.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from protocol.errors import NotARollout
from thread_store.cli.target import STDIN, Target

__all__ = ["ReadableFile", "open_readable"]


class ReadableFile(NamedTuple):
    """Where a target can be read."""

    path: str
    is_copy: bool = False

    def named(self, path: str | None) -> str | None:
        """The path as others may know it: a copy is nobody's business."""
        return None if self.is_copy and path == self.path else path


@contextmanager
def open_readable(target: Target) -> Iterator[ReadableFile]:
    """The target's own file, or a copy of standard input.

    Raises:
        OSError: the folder for temporary files has no room for it.
    """
    if target.source != STDIN:
        yield ReadableFile(target.source)
        return
    with tempfile.NamedTemporaryFile(prefix="rollout-", suffix=".jsonl") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        try:
            yield ReadableFile(copy.name, is_copy=True)
        except NotARollout as error:
            raise NotARollout(path="standard input", reason=error.reason, hint=error.hint) from error
