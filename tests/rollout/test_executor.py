"""The daemon executor: a few threads for calls that may block, none of which can hold up an exit."""

from __future__ import annotations

import threading

import pytest

from rollout.executor import DaemonExecutor
from tests.rollout.recorded import eventually_blocking


def test_jobs_run_and_answer() -> None:
    """Results and errors come back to whoever waits."""
    executor = DaemonExecutor(2, "test")
    assert executor.submit(pow, 2, 5).result(30) == 32
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result(30)
    assert executor.submit(int, "7").result(30) == 7


def test_waiting_jobs_never_exceed_the_limit() -> None:
    """So many threads and no more, all daemons; the rest of the jobs waits its turn."""
    executor = DaemonExecutor(3, "limited")
    release, running = threading.Event(), threading.Semaphore(0)

    def job() -> bool:
        running.release()
        return release.wait(30)

    futures = [executor.submit(job) for _ in range(10)]
    for _ in range(3):
        assert running.acquire(timeout=30)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("limited-")]
    assert len(threads) == 3
    assert all(thread.daemon for thread in threads)
    release.set()
    assert all(future.result(30) for future in futures)
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("limited-")]) == 3


def test_idle_thread_is_used_again() -> None:
    """One job at a time needs one thread."""
    executor = DaemonExecutor(8, "reused")
    for _ in range(50):
        executor.submit(lambda: None).result(30)
        eventually_blocking(lambda: executor._idle)
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("reused-")]) == 1


def test_hanging_job_holds_up_no_other() -> None:
    """Its thread is busy; the next job gets another one."""
    executor = DaemonExecutor(2, "hung")
    release = threading.Event()
    hung = executor.submit(release.wait, 60)
    assert executor.submit(lambda: "done").result(30) == "done"
    release.set()
    assert hung.result(30)


def test_cancelled_job_is_not_run() -> None:
    """It waited for a thread; nobody wants it any more."""
    executor = DaemonExecutor(1, "cancelled")
    release, ran = threading.Event(), []
    first = executor.submit(release.wait, 60)
    second = executor.submit(ran.append, 1)
    assert second.cancel()
    release.set()
    first.result(30)
    executor.submit(lambda: None).result(30)
    assert ran == []


def test_job_runs_in_the_callers_thread_if_none_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a thread left is slow, not broken."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    executor = DaemonExecutor(2, "none")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert executor.submit(threading.get_ident).result(0) == threading.get_ident()
    assert executor.submit(threading.get_ident).result(30) != threading.get_ident()


def test_posted_job_runs_without_a_future() -> None:
    """The quick way, for jobs that never raise."""
    executor, done = DaemonExecutor(1, "posted"), threading.Event()
    executor.post(done.set)
    assert done.wait(30)


def test_closed_executor_ends_its_threads_and_loses_no_job() -> None:
    """What was posted before is done by them; what comes later is done by whoever posts it."""
    executor = DaemonExecutor(2, "closed")
    release = threading.Event()
    busy = [executor.submit(release.wait, 60) for _ in range(2)]
    queued = executor.submit(threading.current_thread)
    executor.close()
    release.set()
    assert all(future.result(30) for future in busy)
    assert queued.result(30).name.startswith("closed-")
    eventually_blocking(
        lambda: not [each for each in threading.enumerate() if each.name.startswith("closed-")]
    )
    assert executor.submit(threading.current_thread).result(0) is threading.current_thread()
