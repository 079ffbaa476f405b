"""What stands against a resume around the rollout: who writes it, the workspace, the commit in it.

Invariant: nothing is changed by looking, and what can't be found out counts against the resume. Only the
folder itself may not be a link; those above it are the system's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from protocol.errors import WriterHolder
from rollout.paths import ARCHIVED_FOLDER
from thread_store.git_info import find_git_info
from thread_store.resume.resume_refusals import Refusal, RefusalReason
from thread_store.resume.resume_state import ResumeState
from thread_store.workspace import WorkspaceKind, find_workspace_kind

__all__ = [
    "archived_refusal",
    "place_refusals",
    "surrounding_refusals",
    "workspace_refusals",
    "writer_refusal",
]

GIT_SECONDS_MAX = 10.0
"""A git that is slower tells nothing, and that counts against the resume."""


def surrounding_refusals(state: ResumeState, *, writer: WriterHolder | None = None) -> list[Refusal]:
    """Everything around a thread that stands against it. Blocks for as long as git takes.

    `writer`: who writes it now, if anybody does.
    """
    found = [] if writer is None else [writer_refusal(state, writer)]
    return [*found, *place_refusals(state.path, state.thread_id), *workspace_refusals(state)]


def place_refusals(path: str | os.PathLike[str], thread_id: str | None) -> Iterator[Refusal]:
    """Where a rollout lies: nothing can be appended to what was put aside."""
    name = os.fspath(path)
    if os.path.basename(os.path.dirname(name)) == ARCHIVED_FOLDER:
        yield archived_refusal(thread_id)


def archived_refusal(thread_id: str | None) -> Refusal:
    """It was set aside."""
    return Refusal.make(RefusalReason.ARCHIVED, "it is archived", thread=thread_id)


def writer_refusal(state: ResumeState, writer: WriterHolder) -> Refusal:
    """Somebody writes it."""
    return Refusal.make(
        RefusalReason.LIVE_WRITER,
        f"it is being written by {writer}",
        thread=state.thread_id,
        pid=writer.pid,
        host=writer.host,
        since=writer.since,
        command=writer.command,
    )


def workspace_refusals(state: ResumeState) -> Iterator[Refusal]:
    """The folder that the thread works in, and what git says of it."""
    cwd, thread = state.cwd, state.thread_id
    kind = find_workspace_kind(cwd)
    if kind is WorkspaceKind.SYMLINK:
        message = f"the workspace {cwd} is a symbolic link"
        yield Refusal.make(RefusalReason.WORKSPACE_IS_SYMLINK, message, thread=thread, cwd=cwd)
    elif kind is WorkspaceKind.SILENT:
        message = f"the file system of the workspace {cwd} doesn't answer"
        yield Refusal.make(RefusalReason.WORKSPACE_MISSING, message, thread=thread, cwd=cwd)
    elif kind is WorkspaceKind.MISSING:
        message = f"there is no folder {cwd}" if cwd else "no workspace is recorded"
        yield Refusal.make(RefusalReason.WORKSPACE_MISSING, message, thread=thread, cwd=cwd)
    elif state.git is not None and state.git.commit_hash:
        recorded, git = state.git.commit_hash, find_git_info(cwd, seconds_max=GIT_SECONDS_MAX)
        found = None if git is None else git.commit_hash
        if found != recorded:
            now = f"is at {found}" if found else "has no commit that git tells of"
            message = f"the workspace {cwd} {now}, recorded was {recorded}"
            yield Refusal.make(
                RefusalReason.HEAD_DIFFERS, message, thread=thread, cwd=cwd, recorded=recorded, found=found
            )
