"""A checkpoint in the making: the framework's summary, and what must stand behind it. Pure.

Invariant: a checkpoint stands for all that was recorded before it, or there is none. What was recorded
while the summary was made is behind the summary in the checkpoint's history; a call that still runs keeps
its request there, so that its result finds it. Where the context was changed under the summary (rolled
back, compacted by somebody else), there is no checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw

from protocol import tracks
from protocol.codec import encode_value
from protocol.context import Compacted
from protocol.errors import CompactionRefused
from protocol.items import RolloutItem
from protocol.line import RolloutLine
from thread_store.context.checkpoint import InvalidCheckpoint, decode_checkpoint
from thread_store.context.model_item import ModelItem, payload_item
from thread_store.context.model_view import pair_calls, valid_view

if TYPE_CHECKING:
    from thread_store.thread_reading import ReadContext

__all__ = ["TRIES_MAX", "Budget", "Compaction", "Draft"]

TRIES_MAX = 100
"""So often what came meanwhile is read anew; a thread that is recorded to without a pause isn't compacted."""

_STILL_RUNNING = "still running: there is no result yet"


class Compaction(NamedTuple):
    """What a summariser gives back."""

    message: str
    """The summary, for people and for readers that know no history."""
    replacement_history: Sequence[Any]
    """What the model sees from here on: items of the model track, typed, as dicts, or some it was given."""


class Budget(NamedTuple):
    """When a context is to be compacted. None: never for that reason."""

    size_bytes: int | None = None
    """Of its payloads together."""
    tokens: int | None = None
    """Of the last response, as recorded (`token_count`, `token_usage_record`), its input included."""

    @classmethod
    def of(cls, size_bytes: int | None, tokens: int | None) -> Budget:
        """A budget that is one. Raises ValueError if both are None."""
        if size_bytes is None and tokens is None:
            raise ValueError("give a budget: budget_bytes, budget_tokens, or both")
        return cls(size_bytes, tokens)

    def is_passed(self, read: ReadContext) -> bool:
        """Whether there is more than that."""
        too_long = self.size_bytes is not None and read.size_bytes > self.size_bytes
        return too_long or (self.tokens is not None and read.tokens is not None and read.tokens > self.tokens)


class Draft:
    """A checkpoint in the making. Pure."""

    def __init__(self, items: Sequence[ModelItem]) -> None:
        self._items = items
        self._later: Sequence[ModelItem] = ()
        self._running = [
            items[pair.call] for pair in pair_calls(items) if pair.call is not None and pair.result is None
        ]
        outputs = {item.call_id: _STILL_RUNNING for item in self._running if item.call_id is not None}
        self.view = valid_view(items, outputs=outputs).items
        """What the summariser gets."""
        self._made_up = {bytes(each.payload) for each in self.view if each.place is None}
        """Results of calls that still run: nobody recorded them."""
        self._message = ""
        self._history: list[Raw] = []

    def take_summary(self, made: Compaction) -> None:
        """What the summariser made of it. A result that was only made up for it stays out."""
        given = [_payload(each) for each in made.replacement_history]
        history = [each for each in given if bytes(each) not in self._made_up]
        items = [payload_item(each) for each in history]
        told = {item.call_id for item in items if item is not None and item.kind.endswith("_call")}
        carried = [each.payload for each in self._running if each.call_id not in told]
        self._message, self._history = made.message, [*history, *carried]

    def take_later(self, items: Sequence[ModelItem], path: str) -> None:
        """The context as it is now: what stands behind the items that were summed up belongs to it.

        Raises:
            CompactionRefused: it is no longer the context that was summed up.
        """
        count = len(self._items)
        if [_identity(each) for each in items[:count]] != [_identity(each) for each in self._items]:
            raise CompactionRefused(path=path, reason="its context was changed meanwhile")
        self._later = items[count:]

    def records(self, path: str) -> list[RolloutItem]:
        """The checkpoint, on both tracks.

        Raises:
            CompactionRefused: it would be none that a reader takes.
        """
        made = tracks.compaction(self._message, [*self._history, *(each.payload for each in self._later)])
        assert isinstance(made[0], Compacted)
        try:
            decode_checkpoint(RolloutLine(type="compacted", payload=Raw(encode_value(made[0]))))
        except InvalidCheckpoint as error:
            raise CompactionRefused(
                path=path, reason=str(error), hint="It is what the summariser gave"
            ) from None
        return made


def _identity(item: ModelItem) -> tuple[object, ...]:
    return item.place, item.kind, item.call_id, item.size_bytes


def _payload(item: Any) -> Raw:
    if isinstance(item, ModelItem):
        return item.payload
    return item if isinstance(item, Raw) else Raw(encode_value(item))
