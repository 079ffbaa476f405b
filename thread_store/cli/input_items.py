"""Lines of input as the items that they stand for.

Invariant: a line is an item (or all records of one fact), or it is refused with the reason; what stands
around the lines (the turn that text is in) is only recorded where there was a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol import tracks
from protocol.errors import InvalidLine
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.line import decode_line
from protocol.timestamps import now_ms

__all__ = ["InputItems", "JsonItems", "TextItems"]


class InputItems(Protocol):
    """One kind of input."""

    def first_items(self) -> Sequence[RolloutItem]:
        """What is recorded before the first item."""

    def items_of(self, line: bytes) -> Sequence[RolloutItem]:
        """What a line says; a blank one says nothing. Raises InvalidLine."""

    def last_items(self) -> Sequence[RolloutItem]:
        """What is recorded behind the last item."""


class JsonItems:
    """Each line is an item: `{"type", "payload"}`; of a whole envelope, time and ordinal are passed over."""

    def first_items(self) -> Sequence[RolloutItem]:
        return ()

    def items_of(self, line: bytes) -> Sequence[RolloutItem]:
        if not line.strip():
            return ()
        decoded = decode_line(line)
        if decoded.type is None or decoded.upcast_from is not None:
            raise InvalidLine("no_type", 'it has no "type" with a text')
        if not decoded.payload:
            raise InvalidLine("no_payload", 'it has no "payload"')
        return (RolloutItem.raw(decoded.type, bytes(decoded.payload)),)

    def last_items(self) -> Sequence[RolloutItem]:
        return ()


class TextItems:
    """Each line is a message of the user, on every track. All of them are one turn: Codex shows no others."""

    def __init__(self) -> None:
        self._turn_id = str(ThreadId.new())
        self._started_ms = now_ms()

    def first_items(self) -> Sequence[RolloutItem]:
        self._started_ms = now_ms()
        return tracks.turn_started(self._turn_id)

    def items_of(self, line: bytes) -> Sequence[RolloutItem]:
        try:
            text = line.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InvalidLine("not_utf8", f"it is not UTF-8 at byte {error.start}") from None
        return tracks.user_message(text) if text.strip() else ()

    def last_items(self) -> Sequence[RolloutItem]:
        return tracks.turn_completed(self._turn_id, started_ms=self._started_ms)
