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
from thread_store.borders import resolve_border
from thread_store.fork import make_fork
from thread_store.fork_point import ForkPoint
from thread_store.fork_tree import fork_tree
from thread_store.home import Home
from thread_store.lineage import Lineage
from thread_store.resume_state import ResumeState, read_resume_state
from thread_store.resume_surroundings import surrounding_refusals

__all__ = ["border_in", "files_of", "fork_in_files", "state_of"]


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


def fork_in_files(
    threads: Mapping[ThreadId, bytes],
    source: ThreadId,
    child: ThreadId,
    at: ForkPoint | None,
    with_subagents: bool,
) -> dict[ThreadId, bytearray]:
    """The bytes of the threads that a fork makes. Blocks. Raises as `make_fork`."""
    with files_of(threads) as (home, paths):
        if with_subagents:
            made = fork_tree(source, home=home, thread_id=child, point=at)
        else:
            target = home.new_rollout_path(child)
            made = [make_fork(paths[source], target, thread_id=child, home=home, point=at)]
        return {ThreadId.parse(fork.thread_id): bytearray(Path(fork.path).read_bytes()) for fork in made}


def border_in(thread_id: ThreadId, content: bytes, point: ForkPoint) -> int:
    """Where a point of a thread lies in its bytes. Blocks. Raises as `resolve_border`."""
    with files_of({thread_id: content}) as (home, paths):
        return resolve_border(point, Lineage.resolve(paths[thread_id], home)).offset
