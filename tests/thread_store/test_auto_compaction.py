"""Compaction: the summary stands for what the model saw, nothing recorded meanwhile is lost, and a crash
leaves the thread before the checkpoint or behind it."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol import Compacted, EventMsg, ResponseItem, SessionMeta, TokenUsage, TokenUsageRecord
from protocol.errors import CompactionRefused, RolloutWriteError
from protocol.session_memory import SessionMemory
from tests.rollout.faulty import FaultyCalls, fails
from tests.thread_store.folded import lines_in
from tests.thread_store.processes import child
from thread_store.context.model_context import load_model_context
from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import valid_view
from thread_store.home import Home
from thread_store.in_memory.store import MemoryThreadStore
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread
from thread_store.thread_reading import ReadContext
from thread_store.turns.auto_compaction import Compactor
from thread_store.turns.compaction_draft import TRIES_MAX, Compaction

pytestmark = pytest.mark.asyncio

META = SessionMeta(cwd="/srv")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(tmp_path / "home", collect_git=False) as made:
        yield made


@pytest_asyncio.fixture
async def thread(store: LocalThreadStore) -> AsyncIterator[Thread]:
    made = await store.create_thread(META)
    yield made
    await made.aclose()


def user(text: str) -> Any:
    return ResponseItem.message("user", text)


async def summary(items: Sequence[ModelItem]) -> Compaction:
    """One message that says how much it stands for."""
    return Compaction("the summary", [user(f"{len(items)} items")])


async def say(thread: Thread, *numbers: int) -> None:
    for number in numbers:
        async with thread.turn() as turn:
            turn.user_message(f"question {number}")
            turn.agent_message(f"answer {number}")


def told(items: Sequence[ModelItem]) -> list[str]:
    return [each.text if each.kind == "message" else f"{each.kind} {each.call_id}" for each in items]


def context_of(store: LocalThreadStore, thread: Thread) -> list[str]:
    return told(load_model_context(thread.path, store.home).items)


async def test_summary_takes_the_place_of_what_the_model_saw(store: LocalThreadStore, thread: Thread) -> None:
    """On stable storage, on both tracks; what comes later follows it."""
    await say(thread, 1, 2)
    assert await thread.compact(summary)
    assert thread.health.pending_items == 0
    await say(thread, 3)
    await thread.flush()
    assert context_of(store, thread) == ["4 items", "question 3", "answer 3"]
    assert [kind for kind, _ in lines_in(thread.path)].count("compacted") == 1
    assert "context_compacted" in [payload.get("type") for _, payload in lines_in(thread.path)]


async def test_summariser_gets_what_the_model_sees(thread: Thread) -> None:
    """A call that still runs has a result that says so, which is never recorded."""
    given: list[list[str]] = []

    async def keep_all(items: Sequence[ModelItem]) -> Compaction:
        given.append(told(items))
        assert b"still running" in bytes(items[-1].payload)
        return Compaction("all of it", items)

    async with thread.turn() as turn:
        turn.user_message("go")
        async with turn.tool_call("shell", {}, call_id="c1") as call:
            await thread.compact(keep_all)
            call.completed("done")
    assert given == [["go", "function_call c1", "function_call_output c1"]]


@pytest.mark.parametrize("call_is_kept", [True, False])
@pytest.mark.case("B66")
async def test_result_of_a_call_that_was_compacted_while_it_ran_finds_it(
    store: LocalThreadStore, thread: Thread, call_is_kept: bool
) -> None:
    """Its request stands behind the summary, whether the summariser kept it or not, and once."""

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        return Compaction("s", [user("the summary"), *(items[1:] if call_is_kept else [])])

    async with thread.turn() as turn:
        turn.user_message("go")
        async with turn.tool_call("shell", {}, call_id="c1") as call:
            await thread.compact(summarise)
            call.completed("done")
    await thread.flush()
    items = load_model_context(thread.path, store.home).items
    view = valid_view(items)
    assert told(view.items) == ["the summary", "function_call c1", "function_call_output c1"]
    assert (view.answered, view.left_out) == ((), ())


async def test_what_is_recorded_while_the_summary_is_made_stays_in_the_context(
    store: LocalThreadStore, thread: Thread
) -> None:
    """Behind the summary, in its order, the result of a call with its call; and so does what comes while that
    is read."""
    await say(thread, 1)
    reading = thread._reading  # the very moment is what is tested
    late = iter(["second", "third"])

    class Busy:
        """Somebody records each time the thread is read."""

        def context(self) -> ReadContext:
            read = reading.context()
            for text in late:
                thread.record_nowait(user(text))
                break
            return read

        def memory(self) -> SessionMemory:
            return SessionMemory()

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        thread.record_nowait(ResponseItem.function_call(name="read", arguments="{}", call_id="c1"))
        thread.record_nowait(ResponseItem.function_call_output(call_id="c1", output="text"))
        return Compaction("s", [user("the summary")])

    compactor = Compactor(thread, thread._core.pending, Busy())
    assert await compactor.compact(summarise)
    await thread.flush()
    assert context_of(store, thread) == [
        "the summary",
        "second",
        "function_call c1",
        "function_call_output c1",
        "third",
    ]


async def test_nothing_is_lost_between_tasks_that_go_on_recording(
    store: LocalThreadStore, thread: Thread
) -> None:
    """Compactions under a task that records: each of its messages is in the context once, or summed up."""
    summed: list[str] = []
    stop = asyncio.Event()

    async def chatter() -> int:
        count = 0
        while not stop.is_set():
            thread.record_nowait(user(f"m{count}"))
            count += 1
            await thread.sync()
        return count

    async def compact() -> None:
        asked: list[str] = []

        async def summarise(items: Sequence[ModelItem]) -> Compaction:
            asked.extend(text for text in told(items) if text.startswith("m"))
            await thread.flush()
            return Compaction("s", [user("the summary")])

        if await thread.compact(summarise):
            summed.extend(asked)

    talking = asyncio.create_task(chatter())
    try:
        for _ in range(3):
            await thread.flush()
            await compact()
    except CompactionRefused:
        pass  # the disk was faster than we could read; that one left no checkpoint
    stop.set()
    count = await talking
    left = [text for text in context_of(store, thread) if text.startswith("m")]
    assert summed + left == [f"m{number}" for number in range(count)]


async def test_thread_without_a_pause_is_not_compacted(thread: Thread, store: LocalThreadStore) -> None:
    """After so many tries it says so, and nothing was recorded."""
    await say(thread, 1)
    reading = thread._reading

    class Endless:
        def context(self) -> ReadContext:
            read = reading.context()
            thread.record_nowait(EventMsg.agent_message("more"))
            return read

        def memory(self) -> SessionMemory:
            return SessionMemory()

    with pytest.raises(CompactionRefused, match="without a pause"):
        await Compactor(thread, thread._core.pending, Endless()).compact(summary)
    assert "compacted" not in [kind for kind, _ in lines_in(thread.path)]
    assert len([1 for _, each in lines_in(thread.path) if each.get("message") == "more"]) >= TRIES_MAX


async def _roll_back(thread: Thread) -> None:
    thread.record_nowait(EventMsg.thread_rolled_back(1))


async def _compact(thread: Thread) -> None:
    thread.record_nowait(_checkpoint())


def _checkpoint() -> Any:
    return Compacted(message="other", replacement_history=[user("another summary")])


@pytest.mark.parametrize("change", [_roll_back, _compact])
async def test_summary_of_a_context_that_was_changed_meanwhile_is_refused(
    store: LocalThreadStore, thread: Thread, change: Callable[[Thread], Any]
) -> None:
    """It stands for something that the model doesn't see any more."""
    await say(thread, 1, 2)

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        await change(thread)
        return Compaction("s", [user("the summary")])

    with pytest.raises(CompactionRefused, match="changed meanwhile"):
        await thread.compact(summarise)
    await thread.flush()
    assert "the summary" not in context_of(store, thread)


@pytest.mark.case("B50")
@pytest.mark.parametrize("error", [asyncio.CancelledError, ValueError, KeyboardInterrupt])
async def test_summariser_that_gives_up_leaves_the_thread_as_it_was(
    thread: Thread, error: type[BaseException]
) -> None:
    """Not a byte is recorded; the next one can go on."""
    await say(thread, 1)
    await thread.sync()
    before = Path(thread.path).read_bytes()

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        raise error

    with pytest.raises(error):
        await thread.compact(summarise)
    await thread.sync()
    assert Path(thread.path).read_bytes() == before
    assert await thread.compact(summary)


@pytest.mark.case("B50")
async def test_rollout_that_ends_anywhere_in_a_checkpoint_is_before_or_behind_it(
    store: LocalThreadStore, thread: Thread, tmp_path: Path
) -> None:
    """Whatever byte a kill leaves last: never a mix of the two contexts."""
    await say(thread, 1, 2)
    await thread.sync()
    start = Path(thread.path).stat().st_size
    before = context_of(store, thread)
    await thread.compact(summary)
    content = Path(thread.path).read_bytes()
    after = context_of(store, thread)
    line_end = content.index(b"\n", content.index(b'"type":"compacted"')) + 1
    torn = tmp_path / Path(thread.path).name
    around = range(line_end - 3, line_end + 3)
    for end in sorted({*range(start, len(content), 13), *around, len(content)}):
        torn.write_bytes(content[:end])
        found = told(load_model_context(torn, store.home).items)
        assert found == (after if end >= line_end - 1 else before)


KILLED = """
from thread_store import Compaction

async def main():
    async with store_of(sys.argv[1]) as store, await store.create_thread(SessionMeta(cwd="/srv")) as thread:
        number = 0

        async def summarise(items):
            return Compaction("s", [said(f"sum {number}")])

        tell("begun", thread.path)
        while True:
            number += 1
            thread.record_nowait(said(f"ask {number}"))
            await thread.compact(summarise)
            tell("compacted", number)

asyncio.run(main())
"""


@pytest.mark.case("B50")
@pytest.mark.parametrize("compactions", [0, 1, 2, 5])
async def test_thread_of_a_process_that_is_killed_while_it_compacts_goes_on(
    home: Path, compactions: int
) -> None:
    """At the newest checkpoint that it said it had, or at a later one; with all that stands behind it."""
    with child(KILLED, home) as running:
        path = running.expect("begun")
        for number in range(1, compactions + 1):
            assert running.expect("compacted") == str(number)
        running.kill()
    if not Path(path).exists():
        assert compactions == 0
        return
    texts = told(load_model_context(path, Home(home)).items)
    newest = int(texts[0].partition(" ")[2]) if texts and texts[0].startswith("sum") else 0
    assert newest >= compactions
    assert texts in ([*([f"sum {newest}"] if newest else []), *more] for more in ([], [f"ask {newest + 1}"]))


@pytest.mark.case("B52")
async def test_ten_compactions_and_resumes_neither_grow_nor_repeat_the_context(
    store: LocalThreadStore, thread: Thread
) -> None:
    """What each is asked to sum up is the last summary and one turn."""
    sizes: list[int] = []

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        sizes.append(len(items))
        return Compaction("s", [user("the summary")])

    for number in range(10):
        await say(thread, number)
        await thread.compact(summarise)
        await thread.aclose()
        thread = await store.open_thread(thread.thread_id)
    assert sizes == [2] + [3] * 9
    assert context_of(store, thread) == ["the summary"]
    await thread.aclose()


@pytest.mark.parametrize(
    "history", [[{"no": "type"}], [{"type": "message", "role": "user", "content": "text"}]]
)
async def test_summary_that_no_reader_takes_is_refused(thread: Thread, history: list[Any]) -> None:
    """Before anything is recorded."""
    await say(thread, 1)

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        return Compaction("s", history)

    with pytest.raises(CompactionRefused):
        await thread.compact(summarise)
    assert "compacted" not in [kind for kind, _ in lines_in(thread.path)]


async def test_thread_is_compacted_once_at_a_time(thread: Thread) -> None:
    """A second one is refused while a summary is made."""
    await say(thread, 1)

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        with pytest.raises(CompactionRefused, match="being compacted"):
            await thread.compact(summary)
        return await summary(items)

    assert await thread.compact(summarise)


async def test_there_is_nothing_to_compact_in_a_thread_without_items(thread: Thread) -> None:
    """The summariser isn't asked."""
    thread.record_nowait(EventMsg.agent_message("only shown"))

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        raise AssertionError("it was asked")

    assert not await thread.compact(summarise)


# By a budget


async def test_budget_of_bytes_is_looked_at_when_a_turn_ends(store: LocalThreadStore, thread: Thread) -> None:
    """Below it nothing happens; a turn that failed isn't compacted either."""
    thread.auto_compact(summary, budget_bytes=600)
    await say(thread, 1)
    with pytest.raises(ValueError, match="broken"):
        async with thread.turn() as turn:
            turn.user_message("x" * 700)
            raise ValueError("broken")
    await thread.flush()
    assert len(context_of(store, thread)) == 3
    await say(thread, 2)
    assert context_of(store, thread) == ["5 items"]


def response(tokens: int) -> TokenUsageRecord:
    usage = TokenUsage(
        input_tokens=tokens,
        cached_input_tokens=0,
        output_tokens=0,
        reasoning_output_tokens=0,
        total_tokens=tokens,
    )
    return TokenUsageRecord(response_id=f"r{tokens}", usage=usage)


async def test_budget_of_tokens_counts_the_last_response_since_the_checkpoint(
    store: LocalThreadStore, thread: Thread
) -> None:
    """What a response used before the checkpoint says nothing of the context behind it."""
    thread.auto_compact(summary, budget_tokens=1000)
    for tokens, length in [(900, 2), (1100, 1), (None, 3), (500, 5), (1001, 1)]:
        async with thread.turn() as turn:
            turn.user_message("ask")
            if tokens is not None:
                thread.record_nowait(response(tokens))
            turn.agent_message("answer")
        await thread.flush()
        assert len(context_of(store, thread)) == length


async def test_budget_is_needed(thread: Thread) -> None:
    """Else it would never, or always, be passed."""
    with pytest.raises(ValueError, match="budget"):
        thread.auto_compact(summary)


async def test_error_of_the_summariser_leaves_a_turn_that_is_completed(thread: Thread) -> None:
    """It is the framework's to handle."""

    async def summarise(items: Sequence[ModelItem]) -> Compaction:
        raise ValueError("no model")

    thread.auto_compact(summarise, budget_bytes=1)
    with pytest.raises(ValueError, match="no model"):
        await say(thread, 1)
    await thread.flush()
    assert lines_in(thread.path)[-1][1]["type"] == "task_complete"


async def test_compaction_is_put_off_where_the_disk_is_in_trouble(
    store: LocalThreadStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn ends as without it; the log says why; by hand the error is raised."""
    calls = FaultyCalls()
    monkeypatch.setattr("rollout.file_sink.FileCalls", lambda: calls)
    thread = await store.create_thread(META)
    await say(thread, 1)
    await thread.sync()
    thread.auto_compact(summary, budget_bytes=1)
    calls.arm("write", fails(errno.ENOSPC), times=None)
    with caplog.at_level(logging.WARNING, "thread_store"):
        await say(thread, 2)
    assert "is not compacted this time" in caplog.text
    with pytest.raises(RolloutWriteError):
        await thread.compact(summary)
    calls.lift()
    await say(thread, 3)
    await thread.aclose()
    assert context_of(store, thread) == ["6 items"]


async def test_threads_in_memory_are_compacted_too() -> None:
    """By the same code."""
    async with MemoryThreadStore() as store, await store.create_thread(META) as thread:
        await say(thread, 1)
        assert await thread.compact(summary)
        found: list[str] = []

        async def look(items: Sequence[ModelItem]) -> Compaction:
            found.extend(told(items))
            return await summary(items)

        assert await thread.compact(look)
    assert found == ["2 items"]
