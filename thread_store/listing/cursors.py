"""Cursors: where a list goes on (opaque to callers).

Invariant: a cursor names the last entry that was given by its place in the order, exact to the record: a
value and the thread's id, which no two entries share. The order of a list is fixed by its first page: what
was recorded after `as_of_ms` doesn't move a thread (see `thread_list`).
"""

from __future__ import annotations

import base64
import binascii
import json

import msgspec
from msgspec import Struct, structs

from thread_store.errors import InvalidCursor

__all__ = ["Cursor"]

_VERSION = 1


class Cursor(Struct, frozen=True, kw_only=True, array_like=True):
    """The place behind an entry."""

    version: int = _VERSION
    sort: str
    order: str
    as_of_ms: int
    value: int | str
    thread_id: str
    resolved_cwd: bool = False
    """Whether the folder that was asked for was found by where it leads, not by its name."""

    def encode(self) -> str:
        """As text that a URL and a shell take as it is."""
        text = json.dumps(structs.astuple(self), separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, *, sort: str, order: str) -> Cursor:
        """Read one back.

        Raises:
            InvalidCursor: it is none, of another version, or of a list in another order.
        """
        try:
            data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
            cursor = msgspec.convert(json.loads(data), cls)
        except (binascii.Error, ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InvalidCursor(text, "it can't be read") from error
        if cursor.version != _VERSION:
            raise InvalidCursor(text, "it is of another version")
        if (cursor.sort, cursor.order) != (sort, order):
            raise InvalidCursor(text, f"its list was sorted by {cursor.sort}, {cursor.order} first")
        if isinstance(cursor.value, str) != (sort == "created"):
            raise InvalidCursor(text, "it can't be read")
        return cursor
