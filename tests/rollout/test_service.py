"""The service: one thread and one loop for all writers, and none of them can take the others with it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from rollout.service import Service, shared_service
from tests.rollout.recorded import eventually_blocking, own_service, run_script


class Idle:
    """A writer that does what it is told to."""

    def __init__(self, body: Callable[[], object] | None = None) -> None:
        self.started = threading.Event()
        self.callbacks: list[Callable[[], None]] = []
        self._body = body

    async def run(self) -> None:
        self.started.set()
        if self._body is not None:
            self._body()

    def close_at_exit(self, done: Callable[[], None]) -> float:
        done()
        return 1.0


def test_stand_alone_recorders_share_one_service() -> None:
    """However many ask for it at once."""
    found: list[Service] = []
    threads = [threading.Thread(target=lambda: found.append(shared_service())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_service_is_a_daemon_with_a_loop_of_its_own() -> None:
    """It never keeps a process alive, and nobody else's code runs on its loop."""
    service = own_service()
    where: list[str] = []
    service.call(lambda: where.append(threading.current_thread().name))
    eventually_blocking(lambda: where)
    assert where == ["test-service"]
    assert not service.runs_here()
    (thread,) = [each for each in threading.enumerate() if each.name == "test-service"]
    assert thread.daemon


@pytest.mark.case("B22")
def test_writer_that_raises_takes_nobody_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """Even one that breaks its word never to raise: it is logged, and the others live on."""

    def fail() -> None:
        raise RuntimeError("planted")

    service = own_service()
    broken, other = Idle(fail), Idle()
    service.adopt(broken)
    assert broken.started.wait(30)
    eventually_blocking(lambda: broken not in service._writers)
    service.adopt(other)
    assert other.started.wait(30)
    assert "planted" in caplog.text


def test_blocking_calls_run_beside_the_loop() -> None:
    """A job that takes its time holds up no writer; its result comes back to the loop."""
    service, release = own_service(), threading.Event()

    async def use() -> tuple[str, bool]:
        job = asyncio.ensure_future(service.run_blocking(release.wait))
        await asyncio.sleep(0)
        release.set()
        return await service.run_blocking(lambda: threading.current_thread().name), await job

    future = asyncio.run_coroutine_threadsafe(use(), service.loop)
    name, waited = future.result(30)
    assert name.startswith("test-service-sync-")
    assert waited


def test_callbacks_see_nothing_of_their_callers_context() -> None:
    """A context variable of a request is not kept alive by a writer."""
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("the caller's")
    seen: list[str] = []
    own_service().call(lambda: seen.append(variable.get()))
    eventually_blocking(lambda: seen)
    assert seen == ["none"]


def test_exit_with_writers_that_never_answer_is_bounded() -> None:
    """The exit waits as long as a writer says it may take, and no longer."""
    script = """
from rollout.service import shared_service

class Stuck:
    async def run(self):
        import anyio
        await anyio.sleep_forever()

    def close_at_exit(self, done):
        return 0.05

shared_service().adopt(Stuck())
print("over")
"""
    assert run_script(script).stdout == "over\n"


def test_forked_child_gets_a_service_of_its_own() -> None:
    """The thread of the parent's doesn't exist there."""
    script = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from rollout.service import shared_service

parent = shared_service()
pid = os.fork()
if pid == 0:
    import threading
    ran = threading.Event()
    child = shared_service()
    child.call(ran.set)
    os._exit(0 if child is not parent and ran.wait(30) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_script(script).stdout == "0\n"


def test_stopped_service_leaves_no_thread_behind() -> None:
    """Neither its loop's nor those that synced."""
    service = Service("stopped-service").start()
    assert service.submit_blocking(lambda: 7).result(30) == 7
    service.stop()
    eventually_blocking(
        lambda: not [each for each in threading.enumerate() if each.name.startswith("stopped-service")]
    )
