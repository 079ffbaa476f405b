"""Taking a thread over by force: where it goes on, so that its old writer can't harm it any more.

Invariant: a check before a write can always be overtaken by a process that is stopped in between; so
the old writer's file is left to it. A paginated thread goes on in a new rollout that rests on the
verified end of that file: late bytes stand behind it, change nothing, and are reported when
the thread is read. A legacy one goes on in a copy that takes the place of the file. What the old
writer sets aside when it notices is brought in by a repair (`late_items`).
"""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager

from protocol.errors import RolloutWriteError, WriterHolder
from protocol.timestamps import format_timestamp, now_ms
from rollout.staged_file import remove_file
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.open_rollout import OpenRollout
from thread_store.forks.fork_copy import ForkCalls, copy_range
from thread_store.forks.new_file import make_file
from thread_store.forks.revert import make_revert
from thread_store.home import Home

__all__ = ["move_on"]


def move_on(
    path: str | os.PathLike[str],
    home: Home,
    holder: WriterHolder,
    *,
    coordination: AbstractContextManager[object] | None = None,
    calls: ForkCalls | None = None,
) -> str:
    """Make the rollout in which the thread goes on, and return its path.

    The caller holds the thread's lock, which `holder` has lost. On return everything is on stable storage.

    Raises:
        ForkRefused, ThreadNotFound, NotARollout, RolloutUnreadable, RolloutWriteError: as `make_revert`.
    """
    calls = calls or ForkCalls()
    with OpenRollout(path) as file:
        if not file.paginated:
            return _replace_by_copy(file, calls)
        rollout_id = file.rollout_id
    taken = {
        "rollout": rollout_id,
        "pid": holder.pid,
        "host": holder.host,
        "since": holder.since,
        "command": holder.command,
        "at": format_timestamp(now_ms()),
    }
    made = make_revert(
        path,
        home=home,
        point=ForkPoint.end(),
        meta_changes={"x_takeover": {key: value for key, value in taken.items() if value is not None}},
        coordination=coordination,
        calls=calls,
    )
    return made.path


def _replace_by_copy(file: OpenRollout, calls: ForkCalls) -> str:
    """The whole lines of a file, in a new inode at its place."""
    path = os.path.abspath(file.path)
    copied = f"{path}.{secrets.token_hex(6)}.taken"
    make_file(copied, lambda target: copy_range(file, 0, file.end, target, calls=calls), calls=calls)
    try:
        calls.rename(copied, path)
        calls.sync_folder(os.path.dirname(path))
    except OSError as error:
        remove_file(copied, calls)
        raise RolloutWriteError(path=path, operation="replace", cause=error) from error
    return path
