"""A new rollout file: whole and on stable storage, or not there at all.

Invariant: at its path the file appears with all its bytes, mode 0600, in folders of 0700, and never in
the place of another one. Whatever fails, neither it nor its temporary file stays behind; only
folders may, and a temporary file (a hidden name, no rollout's) if the process is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from protocol.errors import RolloutExists, RolloutWriteError
from rollout.kept import make_folders
from rollout.staged_file import StagedFile
from thread_store.forks.fork_copy import ForkCalls

__all__ = ["make_file"]

_HINT = "Nothing was made; try again when the cause is gone"


def make_file(
    path: str,
    fill: Callable[[int], None],
    *,
    calls: ForkCalls,
    guard: AbstractContextManager[object] | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Make the file; `fill` writes it through a descriptor that stands at its start.

    `guard` is held while it gets its name, and `check` is called under it just before.

    Raises:
        RolloutExists: something stands at the path.
        RolloutWriteError: the system refuses; nothing was made.
    """
    if os.path.lexists(path):
        raise RolloutExists(path=path, reason="a fork never replaces a file")
    file = StagedFile(path, calls)
    try:
        make_folders(calls, Path(path).parent)
        file.write(fill)
        with guard or nullcontext():
            if check is not None:
                check()
            file.publish()
        file.settle()
    except FileExistsError as error:
        file.discard()
        raise RolloutExists(path=path, reason="it appeared while the fork was made") from error
    except OSError as error:
        file.discard()
        raise RolloutWriteError(path=path, operation="create", cause=error, hint=_HINT) from error
    except BaseException:
        file.discard()
        raise
