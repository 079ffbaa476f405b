"""Guarded replace: the one way in which a file of ours takes the place of another one.

Invariant: the path means the old content or the new one, whole, whatever fails or is killed. The order is
fixed: temporary file, sync, check, rename, sync of the folder. The check stands right before the rename,
with nothing between them that another task of this process could use; against other processes the
caller holds the lock that the file belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from rollout.staged_file import StagedFile, put_back
from rollout.syscalls import FileCalls

__all__ = ["replace_file"]


def replace_file(
    path: str,
    fill: Callable[[int], None],
    *,
    calls: FileCalls,
    check: Callable[[], bool] | None = None,
    like: os.stat_result | None = None,
    durable: bool = True,
) -> bool:
    """Put what `fill` writes in the place of the file at the path; it need not exist. Blocks.

    On return it is on stable storage, unless `durable` is false.

    Args:
        check: asked right before the rename: that nothing newer was published, and that we still may.
            False, or what it raises, leaves everything as it was.
        like: the file that it takes its owner, mode and times from; else it is private.

    Returns whether it was replaced.

    Raises:
        OSError: the system refuses. The old content stands there still, unless it was the folder that could
            not be synced: then it is the new one, which a power cut may take back.
    """
    staged = StagedFile(path, calls)
    try:
        staged.write(fill, like=like, durable=durable)
        put_back(path, calls)
        if check is not None and not check():
            staged.discard()
            return False
        staged.replace()
    except BaseException:
        staged.discard()
        raise
    if durable:
        calls.sync_folder(os.path.dirname(path))
    return True
