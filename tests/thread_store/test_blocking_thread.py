"""An open thread without a loop: what its end means for the lock, and for the store that made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import tracks
from protocol.errors import UnwrittenItems
from protocol.meta import SessionMeta
from rollout.config import RecorderConfig
from thread_store.blocking_thread import BlockingThread
from thread_store.errors import ThreadsUnwritten
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.locks import ThreadLocks

IMPATIENT = RecorderConfig(close_seconds=0.2)


def test_closed_thread_is_free_at_once(home: Path) -> None:
    """When `close` returns, the next writer gets the lock."""
    with LocalThreads(Home(home)) as threads:
        with BlockingThread(threads.create(SessionMeta(cwd="/srv"))) as thread:
            thread.record(tracks.user_message("hello"))
            assert thread.meta.id == thread.thread_id
        ThreadLocks(home).acquire(thread.thread_id).release()


def hide_file(thread: BlockingThread) -> None:
    """From now on nothing can be written: the rollout is elsewhere."""
    thread.record(tracks.user_message("written"))
    thread.sync()
    Path(thread.path).rename(thread.path + ".moved")
    thread.record(tracks.user_message("not written"))


@pytest.mark.guarantee("G2")
def test_failed_close_is_told_once(home: Path) -> None:
    """Who closed the thread has the error; the end of the store doesn't repeat it."""
    with LocalThreads(Home(home)) as threads:
        thread = BlockingThread(threads.create(SessionMeta(cwd="/srv"), config=IMPATIENT))
        hide_file(thread)
        with pytest.raises(UnwrittenItems):
            thread.close()
    ThreadLocks(home).acquire(thread.thread_id).release()


@pytest.mark.guarantee("G2")
def test_failure_that_nobody_heard_of_is_told_by_the_store(home: Path) -> None:
    """A thread that was left open is closed with the store, which says what did not get out."""
    with pytest.raises(ThreadsUnwritten) as told, LocalThreads(Home(home)) as threads:
        thread = BlockingThread(threads.create(SessionMeta(cwd="/srv"), config=IMPATIENT))
        hide_file(thread)
    assert list(told.value.errors) == [thread.thread_id]
    with pytest.raises(UnwrittenItems):
        thread.close()
