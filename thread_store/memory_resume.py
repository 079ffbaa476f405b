"""The resume state of a thread that is kept in memory: folded by the code that does it for files.

Invariant: what is looked at are the very bytes, in a folder that is gone when it is done.
"""

from __future__ import annotations

import tempfile

from msgspec import structs

from protocol.ids import ThreadId
from thread_store.home import Home
from thread_store.resume_state import ResumeState, read_resume_state
from thread_store.resume_surroundings import surrounding_refusals

__all__ = ["state_of"]


def state_of(thread_id: ThreadId, content: bytes, *, name: str, deep: bool = False) -> ResumeState:
    """The state of a thread with these bytes, its workspace looked at. `name` takes the place of its path.
    Blocks.

    Raises:
        NotARollout: it isn't begun.
    """
    with tempfile.TemporaryDirectory(prefix="rollout-memory-") as folder:
        home = Home(folder)
        path = home.new_rollout_path(thread_id)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        state = structs.replace(read_resume_state(path, home, deep=deep), path=name)
    return state.with_refusals(surrounding_refusals(state))
