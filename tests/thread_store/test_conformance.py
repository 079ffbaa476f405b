"""Both stores keep what `thread_store.testing` asks of every store, and it can tell those that don't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.meta import SessionMeta
from rollout import RecorderConfig
from thread_store.chain.fork_point import ForkPoint
from thread_store.forks.fork import ForkMode
from thread_store.in_memory.store import MemoryThreadStore
from thread_store.local_store import LocalThreadStore
from thread_store.store import ThreadStore
from thread_store.testing import CHECKS, Check, run_checks
from thread_store.thread import Thread

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["local", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ThreadStore]:
    if request.param == "memory":
        return MemoryThreadStore
    return lambda: LocalThreadStore(tmp_path / "home", collect_git=False)


@pytest.mark.case("B27", "B35", "B68", "B69", "B71", "B72")
@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_store_conforms(check: Check, make_store: Callable[[], ThreadStore]) -> None:
    """What a check promises holds for each store."""
    await check(make_store)


async def test_checks_run_without_a_test_framework(tmp_path: Path) -> None:
    """Their outcome is a mapping of what failed."""
    number = iter(range(1000))
    failures = await run_checks(lambda: LocalThreadStore(tmp_path / str(next(number)), collect_git=False))
    assert failures == {}
    assert len({check.name for check in CHECKS}) == len(CHECKS) >= 25
    assert all(check.promise.endswith(".") for check in CHECKS)


class _BluntStore(MemoryThreadStore):
    """Forks everything, wherever it shall end."""

    async def fork_thread(
        self,
        thread_id: str,
        *,
        at: ForkPoint | None = None,
        mode: ForkMode = "copy",
        with_subagents: bool = False,
        config: RecorderConfig | None = None,
    ) -> Thread:
        return await super().fork_thread(thread_id, mode=mode, with_subagents=with_subagents, config=config)


class _DeafStore(MemoryThreadStore):
    """Takes no notice of what the caller says of the thread."""

    async def create_thread(
        self, meta: SessionMeta | None = None, *, config: RecorderConfig | None = None
    ) -> Thread:
        return await super().create_thread(None, config=config)


@pytest.mark.filterwarnings("ignore:.*was dropped without aclose:ResourceWarning")  # a check gave up
@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (_BluntStore, "fork_takes_the_first_turns"),
        (_DeafStore, "meta_of_the_caller_is_kept"),
    ],
)
async def test_store_that_breaks_a_promise_is_found_out(
    broken: Callable[[], ThreadStore], expected: str
) -> None:
    """The check of that promise fails."""
    assert expected in await run_checks(broken)
