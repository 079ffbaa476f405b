"""What can be read back of a thread while it is written: its model's context, and its session memory.

Invariant: it sees what was handed to the OS, and takes no lock. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from protocol.errors import ThreadNotFound
from protocol.memory_entries import Place as LinePlace
from protocol.session_memory import SessionMemory
from protocol.thread_facts import ThreadFacts
from thread_store.chain.lineage import Lineage, Place
from thread_store.context.model_context import build_model_context
from thread_store.context.model_item import ModelItem
from thread_store.folding.memory_keeper import MemoryKeeper
from thread_store.folding.thread_folding import MEMORY_REACH_RECORDS
from thread_store.home import Home

__all__ = ["LocalReading", "ReadContext", "ThreadReading", "read_context"]


class ReadContext(NamedTuple):
    """The context as it stands, and what it costs."""

    items: Sequence[ModelItem]
    tokens: int | None
    """Of the last response since the checkpoint, with its input; None: there was none."""

    @property
    def size_bytes(self) -> int:
        """How long the payloads are together."""
        return sum(each.size_bytes for each in self.items)


class ThreadReading(Protocol):
    """Reads one thread back."""

    def context(self) -> ReadContext:
        """What its model sees; nothing if nothing is recorded yet.

        Raises:
            NotARollout, RolloutUnreadable, RolloutReplaced: it can't be read.
        """

    def memory(self) -> SessionMemory:
        """Its session memory; an empty one if nothing is recorded yet. Raises as `context`."""


class LocalReading:
    """Of a thread in a home."""

    def __init__(self, path: str, home: Home, keeper: MemoryKeeper) -> None:
        self._path = path
        self._home = home
        self._keeper = keeper

    def context(self) -> ReadContext:
        """As `ThreadReading.context`."""
        try:
            with Lineage.resolve(self._path, self._home) as lineage:
                return read_context(lineage)
        except ThreadNotFound:
            return ReadContext((), None)

    def memory(self) -> SessionMemory:
        """As `ThreadReading.memory`."""
        try:
            return self._keeper.memory()
        except ThreadNotFound:
            return SessionMemory()


def read_context(lineage: Lineage) -> ReadContext:
    """The context of a thread whose files are known."""
    context = build_model_context(lineage)
    return ReadContext(context.items, _tokens_since(lineage, context.base))


def _tokens_since(lineage: Lineage, base: Place | None) -> int | None:
    for count, found in enumerate(lineage.backward()):
        if count == MEMORY_REACH_RECORDS or (base is not None and found.place <= base):
            return None
        line = found.record.line
        if line is None or line.type not in ("event_msg", "token_usage_record"):
            continue
        facts, payload = ThreadFacts(), line.payload_object()
        facts.take(line, payload if isinstance(payload, Mapping) else {}, LinePlace(line.ordinal, None))
        if facts.usage is not None and facts.usage.last:
            last = facts.usage.last
            return last.get("total_tokens") or last.get("input_tokens", 0) + last.get("output_tokens", 0)
    return None
