"""The real Codex and this library keep each other from a thread that one of them writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ActiveWriter
from tests.codex.app_server import CodexError
from tests.codex.conftest import Start, meta_in, said, say, texts_in
from tests.thread_store.processes import child
from thread_store.local_store import LocalThreadStore

pytestmark = [pytest.mark.asyncio, pytest.mark.codex, pytest.mark.guarantee("G4")]


def locks_in(home: Path) -> list[str]:
    return [each.name for each in (home / "thread-writer-locks").glob("*.lock") if each.name[0] != "."]


async def test_thread_that_we_write_is_refused_to_codex_until_we_close_it(
    store: LocalThreadStore, home: Path, start: Start
) -> None:
    """It says that there is an active writer; then it gets in."""
    thread = await store.create_thread(meta_in(home))
    await say(thread, 1)
    await thread.flush()
    async with start() as server:
        with pytest.raises(CodexError, match="already has an active writer"):
            await server.call("thread/resume", threadId=thread.thread_id)
        await thread.aclose()
        resumed = await server.call("thread/resume", threadId=thread.thread_id)
        assert resumed["thread"]["id"] == thread.thread_id


async def test_thread_that_codex_writes_is_refused_to_us_until_it_ends(
    store: LocalThreadStore, home: Path, start: Start
) -> None:
    """The error names its process; no lock file stays behind."""
    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1)
    async with start() as server:
        await server.call("thread/resume", threadId=thread.thread_id)
        with pytest.raises(ActiveWriter) as caught:
            await store.open_thread(thread.thread_id)
        assert caught.value.holder.pid == server.pid
        assert "codex" in (caught.value.holder.command or "")
    async with await store.open_thread(thread.thread_id) as again:
        await say(again, 2)
    assert locks_in(home) == []


async def test_lock_file_of_a_dead_process_of_ours_is_no_obstacle_to_codex(home: Path, start: Start) -> None:
    """It takes the lock over, and we name Codex as its holder, whatever the file says."""
    script = """
async def main(home):
    async with store_of(home) as store:
        thread = await store.create_thread(SessionMeta(cwd="/", model_provider="mock"))
        async with thread.turn() as turn:
            turn.user_message("question 1")
        await thread.flush()
        tell(thread.thread_id)
        await told()

asyncio.run(main(sys.argv[1]))
"""
    with child(script, home) as dead:
        thread_id = dead.line()
        dead.kill()
    assert locks_in(home) == [f"{thread_id}.lock"]
    async with start() as server:
        await server.call("thread/resume", threadId=thread_id)
        async with LocalThreadStore(home, collect_git=False) as store:
            with pytest.raises(ActiveWriter) as caught:
                await store.open_thread(thread_id)
        assert caught.value.holder.pid == server.pid


async def test_codex_that_hangs_is_taken_over(store: LocalThreadStore, home: Path, start: Start) -> None:
    """What it writes when it wakes up is late, and no part of the thread."""
    async with await store.create_thread(meta_in(home)) as thread:
        await say(thread, 1)
    async with start() as server:
        await server.call("thread/resume", threadId=thread.thread_id)
        server.stop()
        async with await store.take_over_thread(thread.thread_id) as taken:
            await say(taken, 2)
            await taken.sync()
            server.go_on()
            await server.turn(thread.thread_id, "from the grave")
    history = await store.read_thread(thread.thread_id)
    assert texts_in(history) == said(1, 2)
    [late] = history.late
    assert b"from the grave" in Path(late.path).read_bytes()[late.offset_bytes :]
