"""Which thread is meant by "the last one": the newest that may be resumed.

Invariant: sub-agents are resumed by their parents and never picked here; a thread that somebody writes is
passed over, and named. A folder that a thread states is compared as text: it may hang.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from protocol.errors import ThreadNotFound, WriterHolder
from protocol.meta import SessionMeta
from thread_store.listing.cwd_filter import CwdFilter, spellings

__all__ = ["Resumable", "folder_filter", "is_candidate", "nothing_resumable"]

PassedOver = tuple[str, WriterHolder]


class Resumable(NamedTuple):
    """A thread that nobody writes, and the newer ones that somebody does, each with its writer."""

    thread_id: str
    path: str
    passed_over: tuple[PassedOver, ...] = ()


def folder_filter(cwd: str | os.PathLike[str] | None) -> CwdFilter | None:
    """What a caller's folder may be called in a thread; None: any is meant. Blocks: it follows links."""
    return None if cwd is None else CwdFilter(spellings(os.fspath(cwd)))


def is_candidate(meta: SessionMeta, folder: CwdFilter | None) -> bool:
    """Whether a thread with this meta may be picked: in that folder, if one is given."""
    if meta.parent_thread_id is not None or meta.thread_source == "subagent":
        return False
    return folder is None or folder.matches(meta.cwd)


def nothing_resumable(
    store_path: str | os.PathLike[str], passed_over: Sequence[PassedOver]
) -> ThreadNotFound:
    """The error where there is none."""
    error = ThreadNotFound("@", path=store_path)
    error.hint = (
        f"All that fit are being written ({len(passed_over)}): rollout who"
        if passed_over
        else "Nothing that fits was recorded there"
    )
    return error
