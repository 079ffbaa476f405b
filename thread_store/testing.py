"""Conformance tests for thread stores: what every `ThreadStore` must do, whoever wrote it.

Invariant: each check is one promise about the protocol; it uses nothing of a store but its public calls,
and stands alone. pytest is not needed:

    from thread_store.testing import CHECKS, run_checks

    failures = await run_checks(lambda: MyStore(…))     # a new, empty store each time
    assert not failures, failures

With pytest, a test a check:

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    async def test_conforms(check): await check(lambda: MyStore(…))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from protocol.context import Compacted
from protocol.errors import (
    ActiveWriter,
    ForkPointInvalid,
    InvalidThreadId,
    RecorderClosed,
    RolloutError,
    RolloutExists,
    ThreadNotFound,
)
from protocol.events import EventMsg
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from thread_store.errors import StoreClosed
from thread_store.fork_point import ForkPoint
from thread_store.history import ThreadHistory
from thread_store.store import ForkMode, ThreadStore
from thread_store.thread import Thread

__all__ = ["CHECKS", "Check", "ConformanceError", "run_checks"]

MakeStore = Callable[[], ThreadStore]
"""Makes a new store that holds nothing yet; the check enters and closes it."""

_E = TypeVar("_E", bound=BaseException)

_MODES: tuple[ForkMode, ...] = ("copy", "reference")


class ConformanceError(AssertionError):
    """A store did something else than the protocol says."""


class Check:
    """One promise. Call it with a function that makes an empty store; it raises if the promise is broken."""

    def __init__(self, run: Callable[[ThreadStore], Awaitable[None]]) -> None:
        self.name = run.__name__
        self.promise = " ".join((run.__doc__ or "").split())
        self._run = run

    async def __call__(self, make_store: MakeStore) -> None:
        async with make_store() as store:
            await self._run(store)

    def __repr__(self) -> str:
        return self.name


CHECKS: list[Check] = []
"""All of them."""


async def run_checks(make_store: MakeStore) -> dict[str, Exception]:
    """Run all checks, each on a new store. Returns what failed, by the name of the check."""
    failures: dict[str, Exception] = {}
    for check in CHECKS:
        try:
            await check(make_store)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is the result
            failures[check.name] = error
    return failures


def _check(run: Callable[[ThreadStore], Awaitable[None]]) -> Callable[[ThreadStore], Awaitable[None]]:
    CHECKS.append(Check(run))
    return run


# What the checks are written with


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise ConformanceError(what)


def _expect_equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise ConformanceError(f"{what}: expected {expected!r}, found {found!r}")


async def _expect_raises(kind: type[_E], call: Awaitable[object], what: str) -> _E:
    try:
        await call
    except kind as error:
        return error
    raise ConformanceError(f"{what}: {kind.__name__} was not raised")


def _said(text: str) -> RolloutItem:
    return ResponseItem.message("user", text)


def _texts(history: ThreadHistory) -> list[str]:
    """The texts of all messages on the model's track."""
    return [
        part.text
        for item in history.items()
        if item.record_type == "response_item" and type(item).__struct_config__.tag == "message"
        for part in item.content  # type: ignore[attr-defined]  # so it is for a message
    ]


async def _texts_of(store: ThreadStore, thread_id: str) -> list[str]:
    return _texts(await store.read_thread(thread_id))


async def _begin(store: ThreadStore, *texts: str) -> Thread:
    """An open thread that has said this, flushed."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    thread.record_nowait([_said(text) for text in texts])
    await thread.flush()
    return thread


async def _talk(store: ThreadStore, turns: int) -> str:
    """A closed thread of so many turns; turn 1 is ["ask 1", "answer 1"]. Returns its id."""
    async with await store.create_thread(SessionMeta(cwd="/work")) as thread:
        for number in range(1, turns + 1):
            async with thread.turn() as turn:
                turn.user_message(f"ask {number}")
                turn.agent_message(f"answer {number}")
    return thread.thread_id


def _turns(count: int) -> list[str]:
    return [text for number in range(1, count + 1) for text in (f"ask {number}", f"answer {number}")]


# Recording


@_check
async def records_come_back_once_and_in_order(store: ThreadStore) -> None:
    """What was recorded is read back, each item once, in its order, with the thread's own meta."""
    thread = await _begin(store, *map(str, range(50)))
    await thread.aclose()
    history = await store.read_thread(thread.thread_id)
    _expect_equal(_texts(history), list(map(str, range(50))), "the texts")
    _expect_equal((history.thread_id, history.meta.id), (thread.thread_id,) * 2, "the ids")
    _expect_equal((history.meta.cwd, history.warnings), ("/work", []), "folder and warnings")


@_check
async def flushed_items_are_seen_by_readers(store: ThreadStore) -> None:
    """A flush is enough for `read_thread`, while the thread is still open; receipts count items."""
    thread = await _begin(store, "a", "b")
    _expect_equal(await _texts_of(store, thread.thread_id), ["a", "b"], "the texts")
    thread.record_nowait(_said("c"))
    receipt = await thread.sync()
    _expect_equal(receipt.items, 3, "items of the receipt")
    _expect_equal(await _texts_of(store, thread.thread_id), ["a", "b", "c"], "the texts")
    await thread.aclose()


@_check
async def thread_that_never_spoke_does_not_exist(store: ThreadStore) -> None:
    """Nothing is kept of a thread without a record; its id can be used again."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    await thread.aclose()
    await _expect_raises(ThreadNotFound, store.open_thread(thread.thread_id), "opening it")
    await _expect_raises(ThreadNotFound, store.read_thread(thread.thread_id), "reading it")
    _expect_equal(list(await store.list_ids()), [], "the ids")
    again = await store.create_thread(SessionMeta(cwd="/work", id=thread.thread_id))
    await again.aclose()


@_check
async def threads_are_listed_newest_first(store: ThreadStore) -> None:
    """Their ids, each once, however often they were opened."""
    ids: list[str] = []
    for number in range(3):
        thread = await _begin(store, str(number))
        await thread.aclose()
        ids.insert(0, thread.thread_id)
    async with await store.open_thread(ids[1]) as thread:
        thread.record_nowait(_said("again"))
    _expect_equal(list(await store.list_ids()), ids, "the ids")


@_check
async def opened_thread_goes_on_behind_what_it_holds(store: ThreadStore) -> None:
    """Ordinals rise without a gap, and the thread keeps its one meta."""
    thread = await _begin(store, "a")
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        _expect_equal(again.thread_id, thread.thread_id, "the id")
        _expect_equal(again.meta.cwd, "/work", "the folder in its meta")
        again.record_nowait(_said("b"))
    history = await store.read_thread(thread.thread_id)
    _expect_equal(_texts(history), ["a", "b"], "the texts")
    lines = [record.line for record in history.records if record.line is not None]
    ordinals = [line.ordinal for line in lines if line.ordinal is not None]
    _expect_equal(ordinals, list(range(len(ordinals))), "the ordinals")
    _expect_equal([line.type for line in lines].count("session_meta"), 1, "the number of metas")


@_check
async def meta_of_the_caller_is_kept(store: ThreadStore) -> None:
    """Its id, its folder, its provider and its task are in the thread's first record."""
    thread_id = str(ThreadId.new())
    meta = SessionMeta(cwd="/elsewhere", id=thread_id, model_provider="acme", x_task={"prompt": "fix it"})
    thread = await store.create_thread(meta)
    _expect_equal(thread.thread_id, thread_id, "the id")
    thread.record_nowait(_said("a"))
    await thread.aclose()
    found = (await store.read_thread(thread_id)).meta
    _expect_equal(
        (found.id, found.cwd, found.model_provider, found.x_task),
        (thread_id, "/elsewhere", "acme", {"prompt": "fix it"}),
        "the meta",
    )


@_check
async def turn_is_ended_however_its_body_ends(store: ThreadStore) -> None:
    """Completed, failed with the error's text, or aborted when it is cancelled."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    async with thread.turn() as turn:
        turn.user_message("hello")
        turn.agent_message("hi")
    try:
        async with thread.turn():
            raise ValueError("broken tool")
    except ValueError:
        pass
    started = asyncio.Event()

    async def endless() -> None:
        async with thread.turn():
            started.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(endless())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await thread.aclose()
    ends = [
        (type(item).__struct_config__.tag, getattr(item, "error", None) is not None)
        for item in (await store.read_thread(thread.thread_id)).items()
        if type(item).__struct_config__.tag in ("task_started", "task_complete", "turn_aborted")
    ]
    begun = ("task_started", False)
    expected = [begun, ("task_complete", False), begun, ("task_complete", True)]
    expected += [begun, ("turn_aborted", False)]
    _expect_equal(ends, expected, "how the turns began and ended")


# One writer


@_check
async def second_writer_is_refused_until_the_first_is_gone(store: ThreadStore) -> None:
    """The error names the holder; once it closed, the thread can be opened."""
    thread = await _begin(store, "a")
    error = await _expect_raises(ActiveWriter, store.open_thread(thread.thread_id), "a second writer")
    _expect(error.holder.pid is not None, "the error names no holder")
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        again.record_nowait(_said("b"))
    _expect_equal(await _texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def discarded_thread_can_be_opened_again(store: ThreadStore) -> None:
    """Giving up a handle gives up its lock too; what was flushed stays."""
    thread = await _begin(store, "a")
    thread.discard()
    await thread.aclose()
    async with await store.open_thread(thread.thread_id) as again:
        again.record_nowait(_said("b"))
    _expect_equal(await _texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def unknown_and_malformed_ids_are_told_apart(store: ThreadStore) -> None:
    """No UUID is no id, and an id that nobody has is not found; neither leaves anything behind."""
    unknown = str(ThreadId.new())
    for text in ("", "../../etc/passwd", "0" * 36, "not-a-uuid"):
        await _expect_raises(InvalidThreadId, store.open_thread(text), f"opening {text!r}")
        await _expect_raises(InvalidThreadId, store.read_thread(text), f"reading {text!r}")
        await _expect_raises(InvalidThreadId, store.fork_thread(text), f"forking {text!r}")
        if text:
            meta = SessionMeta(cwd="/work", id=text)
            await _expect_raises(InvalidThreadId, store.create_thread(meta), f"creating {text!r}")
    await _expect_raises(ThreadNotFound, store.open_thread(unknown), "opening it")
    await _expect_raises(ThreadNotFound, store.read_thread(unknown), "reading it")
    await _expect_raises(ThreadNotFound, store.fork_thread(unknown), "forking it")
    await _expect_raises(ThreadNotFound, store.revert_thread(unknown, before_turn=1), "reverting it")


@_check
async def id_that_is_taken_is_refused(store: ThreadStore) -> None:
    """A thread is never begun over another one."""
    thread = await _begin(store, "a")
    meta = SessionMeta(cwd="/work", id=thread.thread_id)
    await _expect_raises(ActiveWriter, store.create_thread(meta), "while it is written")
    await thread.aclose()
    await _expect_raises(RolloutExists, store.create_thread(meta), "when it is closed")
    _expect_equal(await _texts_of(store, thread.thread_id), ["a"], "the texts")


@_check
async def cancelled_open_keeps_nobody_out(store: ThreadStore) -> None:
    """A caller that gave up holds no lock."""
    thread = await _begin(store, "a")
    await thread.aclose()
    for steps in range(4):
        opening = asyncio.ensure_future(store.open_thread(thread.thread_id))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        outcome = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(outcome, Thread):
            await outcome.aclose()
        await (await _open_patiently(store, thread.thread_id)).aclose()


async def _open_patiently(store: ThreadStore, thread_id: str) -> Thread:
    """Nobody waits for the end of an opening that was given up: its lock is free soon, not at once."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.open_thread(thread_id)
            except ActiveWriter:
                await asyncio.sleep(0.005)


# Forks


@_check
async def fork_has_the_history_and_neither_sees_the_others(store: ThreadStore) -> None:
    """At the end, in both modes; then source and fork go on apart."""
    for mode in _MODES:
        source = await _begin(store, "a", "b")
        async with await store.fork_thread(source.thread_id, mode=mode) as child:
            _expect(child.thread_id != source.thread_id, "a fork has an id of its own")
            _expect_equal(child.meta.forked_from_id, source.thread_id, "forked_from_id")
            source.record_nowait(_said("of the source"))
            child.record_nowait(_said("of the child"))
            await source.aclose()
        _expect_equal(await _texts_of(store, source.thread_id), ["a", "b", "of the source"], "the source")
        _expect_equal(await _texts_of(store, child.thread_id), ["a", "b", "of the child"], "the child")


@_check
async def fork_exists_before_it_is_written_to(store: ThreadStore) -> None:
    """It has a history already."""
    thread_id = await _talk(store, 1)
    for mode in _MODES:
        child = await store.fork_thread(thread_id, mode=mode)
        _expect_equal(await _texts_of(store, child.thread_id), _turns(1), "the texts")
        await child.aclose()
        _expect(child.thread_id in await store.list_ids(), "the fork is not listed")


@_check
async def fork_takes_the_first_turns(store: ThreadStore) -> None:
    """So many as are asked for, none at all included."""
    thread_id = await _talk(store, 3)
    for mode in _MODES:
        for count in range(4):
            child = await store.fork_thread(thread_id, at=ForkPoint.turn(count), mode=mode)
            await child.aclose()
            _expect_equal(await _texts_of(store, child.thread_id), _turns(count), f"{count} turns")


@_check
async def forks_of_forks_have_the_whole_history(store: ThreadStore) -> None:
    """In any mixture of modes, at the end and before it."""
    thread_id = await _talk(store, 1)
    expected = _turns(1)
    for depth, mode in enumerate((*_MODES, *reversed(_MODES))):
        async with await store.fork_thread(thread_id, mode=mode) as child:
            child.record_nowait(_said(f"depth {depth}"))
        expected.append(f"depth {depth}")
        thread_id = child.thread_id
        _expect_equal(await _texts_of(store, thread_id), expected, f"the texts at depth {depth}")
    for mode in _MODES:
        child = await store.fork_thread(thread_id, at=ForkPoint.turn(0), mode=mode)
        await child.aclose()
        _expect_equal(await _texts_of(store, child.thread_id), [], "a fork of no turns")


@_check
async def fork_of_a_thread_that_never_spoke_begins_empty(store: ThreadStore) -> None:
    """Right after it was created, while it is open."""
    source = await store.create_thread(SessionMeta(cwd="/work"))
    for mode in _MODES:
        async with await store.fork_thread(source.thread_id, mode=mode) as child:
            _expect_equal(child.meta.forked_from_id, source.thread_id, "forked_from_id")
            _expect_equal(child.meta.cwd, "/work", "the folder")
            child.record_nowait(_said("a"))
        _expect_equal(await _texts_of(store, child.thread_id), ["a"], "the texts")
    await source.aclose()


@_check
async def fork_holds_what_its_source_accepted(store: ThreadStore) -> None:
    """Of a thread that is open in the same store, without a flush before."""
    source = await _begin(store)
    source.record_nowait([_said(str(number)) for number in range(100)])
    for mode in _MODES:
        child = await store.fork_thread(source.thread_id, mode=mode)
        await child.aclose()
        _expect_equal(await _texts_of(store, child.thread_id), list(map(str, range(100))), "the texts")
    await source.aclose()


@_check
async def fork_point_is_never_between_a_call_and_its_result(store: ThreadStore) -> None:
    """And a point that the thread doesn't have is refused too; a fork at the end may hold an open call."""
    thread = await _begin(store, "before")
    thread.record_nowait(ResponseItem.function_call(name="make", arguments={}, call_id="c1"))
    thread.record_nowait(ResponseItem.function_call_output(call_id="c1", output="done"))
    thread.record_nowait(_said("behind"))
    thread.record_nowait(ResponseItem.function_call(name="make", arguments={}, call_id="c2"))
    await thread.aclose()
    lines = [record.line for record in (await store.read_thread(thread.thread_id)).records]
    ordinals = [line.ordinal for line in lines if line is not None and line.ordinal is not None]
    inside = ordinals[-3]
    for point in (ForkPoint.before_ordinal(inside), ForkPoint.before_ordinal(10**9), ForkPoint.turn(99)):
        forking = store.fork_thread(thread.thread_id, at=point)
        await _expect_raises(ForkPointInvalid, forking, f"a fork at {point}")
    child = await store.fork_thread(thread.thread_id, at=ForkPoint.before_ordinal(inside - 1))
    await child.aclose()
    _expect_equal(await _texts_of(store, child.thread_id), ["before"], "the texts before the call")
    child = await store.fork_thread(thread.thread_id)
    await child.aclose()
    _expect_equal(await _texts_of(store, child.thread_id), ["before", "behind"], "the texts at the end")


@_check
async def fork_at_a_checkpoint_ends_behind_it(store: ThreadStore) -> None:
    """The newest one by default."""
    thread = await _begin(store, "a")
    thread.record_nowait(Compacted(message="summary", replacement_history=[]))
    thread.record_nowait(_said("b"))
    await thread.aclose()
    for mode in _MODES:
        child = await store.fork_thread(thread.thread_id, at=ForkPoint.at_checkpoint(), mode=mode)
        await child.aclose()
        items = list((await store.read_thread(child.thread_id)).items())
        _expect_equal(items[-1].record_type, "compacted", "the last item")


@_check
async def reverted_thread_keeps_its_id_and_loses_the_turns(store: ThreadStore) -> None:
    """Its history ends before the turn, and it goes on from there; again and again."""
    thread_id = await _talk(store, 3)
    async with await store.revert_thread(thread_id, before_turn=3) as thread:
        _expect_equal(thread.thread_id, thread_id, "the id")
        thread.record_nowait(_said("instead"))
    _expect_equal(await _texts_of(store, thread_id), [*_turns(2), "instead"], "the texts")
    async with await store.revert_thread(thread_id, before_turn=1) as thread:
        thread.record_nowait(_said("anew"))
    _expect_equal(await _texts_of(store, thread_id), ["anew"], "the texts")
    _expect_equal(list(await store.list_ids()), [thread_id], "the ids")
    reverting = store.revert_thread(thread_id, before_turn=9)
    await _expect_raises(ForkPointInvalid, reverting, "a turn that there isn't")


@_check
async def revert_needs_the_lock(store: ThreadStore) -> None:
    """A thread isn't taken back under its writer."""
    thread = await _begin(store, "a")
    reverting = store.revert_thread(thread.thread_id, before_turn=1)
    await _expect_raises(ActiveWriter, reverting, "a revert while it is written")
    await thread.aclose()
    _expect_equal(await _texts_of(store, thread.thread_id), ["a"], "the texts")


@_check
async def fork_of_a_reverted_thread_has_what_is_left(store: ThreadStore) -> None:
    """What was taken back is in no fork."""
    thread_id = await _talk(store, 2)
    async with await store.revert_thread(thread_id, before_turn=2) as thread:
        thread.record_nowait(_said("instead"))
    for mode in _MODES:
        child = await store.fork_thread(thread_id, mode=mode)
        await child.aclose()
        _expect_equal(await _texts_of(store, child.thread_id), [*_turns(1), "instead"], "the texts")


# Sub-agents


@_check
async def subagent_and_parent_name_each_other(store: ThreadStore) -> None:
    """The child's meta has the parent, the depth, nickname, role and path; the parent has an event of it."""
    parent = await _begin(store, "a")
    child = await store.create_subagent(parent, nickname="Ada", role="reviewer")
    child.record_nowait(_said("b"))
    grandchild = await store.create_subagent(child, nickname="Bob")
    grandchild.record_nowait(_said("c"))
    for thread in (grandchild, child, parent):
        await thread.aclose()
    meta = (await store.read_thread(child.thread_id)).meta
    _expect_equal(
        (meta.parent_thread_id, meta.session_id, meta.agent_nickname, meta.agent_role, meta.agent_path),
        (parent.thread_id, parent.thread_id, "Ada", "reviewer", "/root/Ada"),
        "the child's meta",
    )
    _expect_equal(meta.source["subagent"]["thread_spawn"]["depth"], 1, "the child's depth")
    meta = (await store.read_thread(grandchild.thread_id)).meta
    _expect_equal(
        (meta.parent_thread_id, meta.session_id, meta.agent_path),
        (child.thread_id, parent.thread_id, "/root/Ada/Bob"),
        "the grandchild's meta",
    )
    events = [
        (each.agent_thread_id, each.kind)  # type: ignore[attr-defined]
        for each in (await store.read_thread(parent.thread_id)).items()
        if isinstance(each, EventMsg) and type(each).__struct_config__.tag == "sub_agent_activity"
    ]
    _expect_equal(events, [(child.thread_id, "started")], "what the parent recorded")


@_check
async def fork_with_subagents_has_the_whole_tree(store: ThreadStore) -> None:
    """Each sub-agent is forked too, and belongs to the fork and not to the source."""
    parent = await _begin(store, "a")
    child = await store.create_subagent(parent, nickname="Ada")
    child.record_nowait(_said("b"))
    for thread in (child, parent):
        await thread.aclose()
    known = set(await store.list_ids())
    fork = await store.fork_thread(parent.thread_id, with_subagents=True)
    await fork.aclose()
    new = set(await store.list_ids()) - known
    _expect_equal(len(new), 2, "new threads")
    copied = await store.read_thread((new - {fork.thread_id}).pop())
    _expect_equal((copied.meta.parent_thread_id, _texts(copied)), (fork.thread_id, ["b"]), "the sub-agent")


# The store itself


@_check
async def many_threads_are_open_at_once(store: ThreadStore) -> None:
    """Each gets its own items and nobody else's."""
    threads = await asyncio.gather(*(_begin(store, str(number)) for number in range(40)))
    for _ in range(3):
        for thread in threads:
            thread.record_nowait(_said(thread.thread_id))
    await asyncio.gather(*(thread.aclose() for thread in threads))
    for number, thread in enumerate(threads):
        expected = [str(number), *[thread.thread_id] * 3]
        _expect_equal(await _texts_of(store, thread.thread_id), expected, "the texts")


@_check
async def store_works_from_any_loop(store: ThreadStore) -> None:
    """A thread of the program with a loop of its own uses the same store, and the same thread."""
    thread = await _begin(store, "a")
    outcome: list[object] = []

    async def elsewhere() -> None:
        thread.record_nowait(_said("b"))
        await thread.sync()
        async with await store.create_thread(SessionMeta(cwd="/work")) as other:
            other.record_nowait(_said("c"))
        outcome.append(await _texts_of(store, other.thread_id))

    def run() -> None:
        try:
            asyncio.run(elsewhere())
        except BaseException as error:  # noqa: BLE001  # told below
            outcome.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    await asyncio.to_thread(worker.join)
    await thread.aclose()
    _expect_equal(outcome, [["c"]], "what came of it there")
    _expect_equal(await _texts_of(store, thread.thread_id), ["a", "b"], "the texts")


@_check
async def closing_the_store_drains_its_threads(store: ThreadStore) -> None:
    """What was accepted is written; then neither the threads nor the store take any more."""
    threads = [await store.create_thread(SessionMeta(cwd="/work")) for _ in range(5)]
    for thread in threads:
        thread.record_nowait([_said(str(number)) for number in range(20)])
    await store.aclose()
    await store.aclose()
    for thread in threads:
        _expect_equal((thread.health.synced_items, thread.health.pending_items), (20, 0), "items")
        try:
            thread.record_nowait(_said("too late"))
        except RecorderClosed:
            continue
        raise ConformanceError("a thread of a closed store takes items")
    closed: list[Awaitable[object]] = [
        store.create_thread(SessionMeta(cwd="/work")),
        store.open_thread(threads[0].thread_id),
        store.read_thread(threads[0].thread_id),
        store.fork_thread(threads[0].thread_id),
        store.list_ids(),
    ]
    for call in closed:
        error = await _expect_raises(RolloutError, call, "a call on a closed store")
        _expect(isinstance(error, StoreClosed), f"a closed store raises {error!r}")
