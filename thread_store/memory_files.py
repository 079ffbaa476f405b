"""Threads that are kept in memory, put into files for as long as somebody looks at them.

Invariant: what is looked at are the very bytes; the files are gone behind the block, and nothing that is
changed there comes back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from msgspec import structs

from protocol.ids import ThreadId
from thread_store.home import Home
from thread_store.resume_state import ResumeState, read_resume_state
from thread_store.resume_surroundings import surrounding_refusals

__all__ = ["files_of", "state_of"]


@contextmanager
def files_of(threads: Mapping[ThreadId, bytes]) -> Iterator[tuple[Home, dict[ThreadId, Path]]]:
    """A home with these threads, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="rollout-memory-") as folder:
        home, created = Home(folder), datetime.now()
        paths = {thread_id: home.new_rollout_path(thread_id, created=created) for thread_id in threads}
        for thread_id, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(threads[thread_id])
        yield home, paths


def state_of(thread_id: ThreadId, content: bytes, *, name: str, deep: bool = False) -> ResumeState:
    """The resume state of a thread with these bytes, the workspace looked at. `name` takes the place of its
    path. Blocks.

    Raises:
        NotARollout: it isn't begun.
    """
    with files_of({thread_id: content}) as (home, paths):
        state = structs.replace(read_resume_state(paths[thread_id], home, deep=deep), path=name)
    return state.with_refusals(surrounding_refusals(state))
