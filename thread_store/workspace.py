"""The workspace of a thread: what stands at the folder that it recorded.

Invariant: it answers within its time limit, whatever the file system does. A folder may lie on a mount whose
server is gone, and then each call on it waits for as long as that lasts; the thread that waits is left
behind, and holds up neither its caller nor the end of the process.
"""

from __future__ import annotations

import os
import stat
import threading
from enum import StrEnum

__all__ = ["SECONDS_MAX", "WorkspaceKind", "find_workspace_kind"]

SECONDS_MAX = 5.0


class WorkspaceKind(StrEnum):
    """What there is."""

    FOLDER = "folder"
    SYMLINK = "symlink"
    MISSING = "missing"
    """Nothing, or no folder, or one that we may not look at."""
    SILENT = "silent"
    """No answer in time."""


def find_workspace_kind(folder: str, *, seconds_max: float = SECONDS_MAX) -> WorkspaceKind:
    """What stands there now. Blocks for that long at most."""
    found: list[WorkspaceKind] = []
    looking = threading.Thread(
        target=lambda: found.append(_look(folder)), name="rollout-workspace", daemon=True
    )
    looking.start()
    looking.join(seconds_max)
    return found[0] if found else WorkspaceKind.SILENT


def _look(folder: str) -> WorkspaceKind:
    try:
        mode = os.lstat(folder).st_mode
    except (OSError, ValueError):  # ValueError: a NUL in it
        return WorkspaceKind.MISSING
    if stat.S_ISLNK(mode):
        return WorkspaceKind.SYMLINK
    return WorkspaceKind.FOLDER if stat.S_ISDIR(mode) else WorkspaceKind.MISSING
