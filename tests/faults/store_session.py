"""A program that uses a store and says what it was promised: threads, turns, calls, forks, upkeep.

Invariant: every promise is noted in the shim's log, between the calls that it rests on; what was begun is
noted before. What the store raises is noted too, and tried again a few times; nothing is expected here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from protocol.errors import RolloutError, ThreadNotFound, UnwrittenItems
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from rollout.config import RecorderConfig
from tests.faults.numbered import PRODUCER, numbered_item
from thread_store.erasing.needle import Needle
from thread_store.errors import ThreadsUnwritten
from thread_store.local_store import LocalThreadStore
from thread_store.store import ForkMode
from thread_store.thread import Thread
from thread_store.turns.compaction_draft import Compaction

__all__ = ["SECRET", "Pen", "StoreSession", "config_of"]

SECRET = "kestrel-secret-7f3a9c"
"""What is to be erased."""

_TRIES = 4
_T = TypeVar("_T")


def config_of(*, patient: bool) -> RecorderConfig:
    """`patient`: the faults end, so closing may take as long as it needs."""
    return RecorderConfig(
        sync_seconds=60,
        close_seconds=30 if patient else 0.12,
        retry_seconds_min=0.002,
        retry_seconds_max=0.02,
        linger_seconds=0.001,
    )


class Pen:
    """A thread as the program sees it."""

    def __init__(self, key: int, thread_id: str, *, written: int = 0) -> None:
        self.key = key
        self.thread_id = thread_id
        self.next_number = written
        self.thread: Thread | None = None
        """None: it isn't open, or could not be had."""
        self.lost = False
        """It could not be written to its end; it is not gone on with before that is mended."""


class StoreSession:
    """One program with one store."""

    def __init__(
        self, home: Path, *, mark: Callable[[str], None], patient: bool, first_key: int = 10
    ) -> None:
        self.home = home
        self._mark_text = mark
        self._config = config_of(patient=patient)
        self._store = LocalThreadStore(home, config=self._config, collect_git=False)
        self._next_key = first_key
        self._next_call = 0

    def mark(self, kind: str, **fields: Any) -> None:
        self._mark_text(json.dumps({"kind": kind, **fields}))

    def _mark_error(self, operation: str, error: RolloutError) -> None:
        self.mark("error", operation=operation, type=type(error).__name__, text=str(error))

    async def _try(self, operation: str, make: Callable[[], Awaitable[_T]]) -> tuple[_T] | None:
        """A few times. None: it can't be had."""
        for _ in range(_TRIES):
            try:
                return (await make(),)
            except RolloutError as error:
                self._mark_error(operation, error)
        return None

    async def enter(self) -> None:
        """What can't be entered is made anew, as a program would be started again."""
        for _ in range(_TRIES):
            try:
                await self._store.__aenter__()
            except RolloutError as error:
                self._mark_error("enter", error)
                self._store = LocalThreadStore(self.home, config=self._config, collect_git=False)
            else:
                return

    async def leave(self) -> None:
        try:
            await self._store.aclose()
        except ThreadsUnwritten as error:
            self.mark("left", unwritten=sorted(error.errors))
        except RolloutError as error:
            self._mark_error("leave", error)

    # Threads

    async def create(self) -> Pen:
        pen = Pen(self._new_key(), "")
        made = await self._try("create", lambda: self._store.create_thread(SessionMeta(cwd="/")))
        if made is not None:
            self._take(pen, made[0])
            self.mark("created", key=pen.key, id=pen.thread_id)
        return pen

    async def open(self, pen: Pen) -> None:
        if pen.lost or not pen.thread_id:
            return
        made = await self._try("open", lambda: self._store.open_thread(pen.thread_id))
        if made is not None:
            self._take(pen, made[0])
            self.mark("opened", key=pen.key)

    async def fork(self, source: Pen, mode: ForkMode) -> Pen:
        pen = Pen(self._new_key(), "")
        if not source.thread_id:
            return pen
        self.mark("forking", key=pen.key, source=source.key, mode=mode)
        made = await self._try("fork", lambda: self._store.fork_thread(source.thread_id, mode=mode))
        if made is not None:
            self._take(pen, made[0])
            self.mark("forked", key=pen.key, id=pen.thread_id)
        return pen

    def _new_key(self) -> int:
        self._next_key += 1
        return self._next_key

    @staticmethod
    def _take(pen: Pen, thread: Thread) -> None:
        pen.thread, pen.thread_id = thread, str(thread.thread_id)

    # Recording

    def record(self, pen: Pen, *sizes: int) -> None:
        """One fact: as many items as there are sizes."""
        if pen.thread is None:
            return
        items = [
            numbered_item(pen.key * PRODUCER + pen.next_number + i, size) for i, size in enumerate(sizes)
        ]
        pen.next_number += len(items)
        self.mark("offer", key=pen.key, upto=pen.next_number)
        try:
            pen.thread.record_nowait(*items)
        except RolloutError as error:
            self._mark_error("record", error)
        else:
            self.mark("accept", key=pen.key, upto=pen.next_number)

    async def flush(self, pen: Pen) -> None:
        if pen.thread is not None:
            await self._barrier(pen, "flush", pen.thread.flush)

    async def sync(self, pen: Pen) -> None:
        if pen.thread is not None:
            await self._barrier(pen, "sync", pen.thread.sync)

    async def _barrier(self, pen: Pen, kind: str, wait: Callable[[], Awaitable[object]]) -> None:
        upto = pen.next_number
        if await self._try(kind, wait) is not None:
            self.mark(kind, key=pen.key, upto=upto)

    async def turn(self, pen: Pen, sizes: Sequence[int], *, calls: int = 1) -> None:
        """A turn with as many facts as there are sizes, and tool calls that are unsafe to run again."""
        if pen.thread is None:
            return
        try:
            async with pen.thread.turn() as turn:
                turn.user_message("go on")
                for size in sizes:
                    self.record(pen, size)
                for _ in range(calls):
                    await self._call(pen, turn)
                turn.agent_message("done")
        except RolloutError as error:
            self._mark_error("turn", error)

    async def _call(self, pen: Pen, turn: Any) -> None:
        self._next_call += 1
        name = f"tool-{pen.key}-{self._next_call}"
        upto = pen.next_number
        try:
            async with turn.tool_call("shell", {"command": ["make"]}, effect="unsafe", call_id=name) as call:
                self.mark("sync", key=pen.key, upto=upto)
                self.mark("body", key=pen.key, call=name)
                call.completed("made")
        except RolloutError as error:
            self._mark_error("call", error)
        else:
            self.mark("returned", key=pen.key, call=name)

    async def compact(self, pen: Pen) -> None:
        if pen.thread is None:
            return
        upto, thread = pen.next_number, pen.thread
        if await self._try("compact", lambda: thread.compact(_summarise)) is not None:
            self.mark("sync", key=pen.key, upto=upto)

    def whisper(self, pen: Pen, secret: str = SECRET) -> None:
        """Record what will be erased."""
        if pen.thread is not None:
            pen.thread.record_nowait(RolloutItem.raw("x_note", {"text": f"it is {secret}"}))
            pen.thread.record_nowait(ResponseItem.message("user", f"the key: {secret}!"))

    async def close(self, pen: Pen) -> None:
        if pen.thread is None:
            return
        upto, thread, pen.thread = pen.next_number, pen.thread, None
        try:
            await thread.aclose()
        except UnwrittenItems as error:
            kept, carried = error.kept_path, len(error.unwritten)
            where = {"path": error.path, "kept": kept, "carried": carried}
            self.mark("unwritten", key=pen.key, pending=error.pending_items, **where)
            pen.lost = True
        except RolloutError as error:
            self._mark_error("close", error)
        else:
            self.mark("close", key=pen.key, upto=upto)

    # Upkeep

    async def do(self, operation: str, pen: Pen, *arguments: Any, **options: Any) -> bool:
        """Call a method of the store for a thread: `begin` is noted before, `done` behind."""
        if not pen.thread_id:
            return False
        method = getattr(self._store, f"{operation}_thread")
        self.mark("begin", operation=operation, key=pen.key)

        async def call() -> object:
            try:
                return await method(pen.thread_id, *arguments, **options)
            except ThreadNotFound:
                if operation != "delete":
                    raise
                return None  # as it counts since the first try

        done = await self._try(operation, call)
        if done is not None:
            self.mark("done", operation=operation, key=pen.key)
        return done is not None

    async def erase(self, pens: Sequence[Pen] | None, secret: str = SECRET) -> None:
        """In these threads, or in all of the home."""
        self.mark("begin", operation="erase", key=None, secret=secret)
        needle, ids = Needle.text(secret), None if pens is None else [pen.thread_id for pen in pens]
        for _ in range(_TRIES):
            made = await self._try("erase", lambda: self._store.erase(ids, needle=needle))
            if made is not None and not made[0].left and not made[0].plan.unread:
                self.mark("done", operation="erase", key=None, secret=secret)
                return
            if made is not None:
                self.mark("partly")

    async def list(self) -> None:
        """All threads; the index is made and written by that."""
        self.mark("listing")
        page = await self._try("list", lambda: self._store.list_threads(archived=None, limit=1000))
        if page is not None:
            told = [str(each) for each in page[0].passed_over]
            self.mark("listed", ids=[each.thread_id for each in page[0].threads], passed_over=told)


async def _summarise(items: Sequence[Any]) -> Compaction:
    del items
    return Compaction("what was done", [ResponseItem.message("user", "what was done")])
