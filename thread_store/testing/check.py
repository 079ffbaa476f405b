"""One conformance check, and the words that checks are written in.

Invariant: nothing of a store is used but its public calls, so that a check says of any store the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from thread_store.chain.history import ThreadHistory
from thread_store.forks.fork import ForkMode
from thread_store.store import ThreadStore
from thread_store.thread import Thread

__all__ = [
    "MODES",
    "Check",
    "ConformanceError",
    "MakeStore",
    "begin",
    "collector",
    "expect",
    "expect_equal",
    "expect_raises",
    "said",
    "talk",
    "texts",
    "texts_of",
    "turn_texts",
]

MakeStore = Callable[[], ThreadStore]
"""Makes a new store that holds nothing yet; the check enters and closes it."""

_E = TypeVar("_E", bound=BaseException)
_Run = Callable[[ThreadStore], Awaitable[None]]

MODES: tuple[ForkMode, ...] = ("copy", "reference")


class ConformanceError(AssertionError):
    """A store did something else than the protocol says."""


class Check:
    """One promise. Call it with a function that makes an empty store; it raises if the promise is broken."""

    def __init__(self, run: Callable[[ThreadStore], Awaitable[None]]) -> None:
        self.name = run.__name__.strip("_")
        self.promise = " ".join((run.__doc__ or "").split())
        self._run = run

    async def __call__(self, make_store: MakeStore) -> None:
        async with make_store() as store:
            await self._run(store)

    def __repr__(self) -> str:
        return self.name


def collector(checks: list[Check]) -> Callable[[_Run], _Run]:
    """A decorator that adds a check to a list."""

    def collect(run: _Run) -> _Run:
        checks.append(Check(run))
        return run

    return collect


# What the checks are written with


def expect(condition: object, what: str) -> None:
    """What must hold."""
    if not condition:
        raise ConformanceError(what)


def expect_equal(found: object, expected: object, what: str) -> None:
    """What must be equal."""
    if found != expected:
        raise ConformanceError(f"{what}: expected {expected!r}, found {found!r}")


async def expect_raises(kind: type[_E], call: Awaitable[object], what: str) -> _E:
    """What must be refused; returns the error."""
    try:
        await call
    except kind as error:
        return error
    raise ConformanceError(f"{what}: {kind.__name__} was not raised")


def said(text: str) -> RolloutItem:
    """One message of the user."""
    return ResponseItem.message("user", text)


def texts(history: ThreadHistory) -> list[str]:
    """The texts of all messages on the model's track."""
    return [
        part.text
        for item in history.items()
        if item.record_type == "response_item" and type(item).__struct_config__.tag == "message"
        for part in item.content  # type: ignore[attr-defined]  # so it is for a message
    ]


async def texts_of(store: ThreadStore, thread_id: str) -> list[str]:
    """The texts of all messages of a thread."""
    return texts(await store.read_thread(thread_id))


async def begin(store: ThreadStore, *texts: str) -> Thread:
    """An open thread that has said this, flushed."""
    thread = await store.create_thread(SessionMeta(cwd="/work"))
    thread.record_nowait([said(text) for text in texts])
    await thread.flush()
    return thread


async def talk(store: ThreadStore, turns: int) -> str:
    """A closed thread of so many turns; turn 1 is ["ask 1", "answer 1"]. Returns its id."""
    async with await store.create_thread(SessionMeta(cwd="/work")) as thread:
        for number in range(1, turns + 1):
            async with thread.turn() as turn:
                turn.user_message(f"ask {number}")
                turn.agent_message(f"answer {number}")
    return thread.thread_id


def turn_texts(count: int) -> list[str]:
    """What a thread of so many turns (see `talk`) has said."""
    return [text for number in range(1, count + 1) for text in (f"ask {number}", f"answer {number}")]
