"""A rollout that rests on other files, made self-contained: the same thread, the same records, in one file.

Invariant: nothing of what it holds or rests on is lost, nor is its thread ever without it: the copy takes
its place in one step, at the same path, with owner, mode and mtime as they were. What rests on *it* would
find other offsets then; so whoever does this begins with what nobody rests on.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from protocol.errors import ForkRefused, RolloutReplaced, RolloutWriteError
from rollout.guarded_replace import replace_file
from rollout.source import status_of
from thread_store.chain.lineage import Lineage
from thread_store.forks.fork import CopiedPart, copier
from thread_store.forks.fork_copy import ForkCalls, Progress
from thread_store.forks.fork_meta import MetaOrigin, padded_meta_line, self_contained_payload
from thread_store.home import Home

__all__ = ["make_self_contained"]


def make_self_contained(
    path: str | os.PathLike[str],
    home: Home,
    *,
    fence: Callable[[], None],
    calls: ForkCalls | None = None,
    progress: Progress | None = None,
) -> bool:
    """Let a plain rollout rest on no other file. Blocks. The caller holds its thread's lock.

    On return it is on stable storage. `fence` raises if the lock was lost. Returns whether there was
    anything to do.

    Raises:
        ForkRefused: what it rests on can't be read.
        RolloutReplaced: another program changed it meanwhile.
        ThreadNotFound, NotARollout, RolloutUnreadable, RolloutWriteError: the system refuses.
    """
    calls = calls or ForkCalls()
    name = os.path.abspath(path)
    with Lineage.resolve(name, home) as lineage:
        with lineage.open(lineage.end.segment) as file:
            origin, before = MetaOrigin(file), status_of(file.descriptor, file.path)
        if origin.meta.history_base is None:
            return False
        if lineage.problem is not None:
            raise ForkRefused(
                path=name,
                reason=f"what it rests on can't be read ({lineage.problem.message})",
                hint="Mend that first",
            )

        def may_replace() -> bool:
            fence()
            now = calls.lstat(name)
            if (now.st_ino, now.st_size, now.st_mtime_ns) != (
                before.st_ino,
                before.st_size,
                before.st_mtime_ns,
            ):
                raise RolloutReplaced(path=name, reason="another program changed it meanwhile")
            return True

        header = padded_meta_line(self_contained_payload(origin), 0 if origin.numbered else None)
        fill = copier(header, lineage, _parts(lineage), calls=calls, progress=progress)
        try:
            replace_file(name, fill, calls=calls, check=may_replace, like=before)
        except OSError as error:
            raise RolloutWriteError(
                path=name, operation="copy", cause=error, hint="It rests on the other file still"
            ) from error
    return True


def _parts(lineage: Lineage) -> list[CopiedPart]:
    """All of it, an unfinished last line included."""
    own = lineage.end.segment
    return [
        CopiedPart(
            index, segment.meta_end if index else segment.start, segment.size if index == own else segment.end
        )
        for index, segment in enumerate(lineage.segments)
    ]
