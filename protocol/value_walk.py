"""A walk through the texts of an item, by the names of the members that hold them.

Invariant: only what changes is rebuilt; everything else is the very object that it was. Signed and sealed
parts are not entered.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct, structs

from protocol.redact import parse_keeping_numbers
from protocol.sealed import SEALED, is_signed

__all__ = ["ValueWalk"]

_ENCODED_BYTES_MIN = 1024
"""Encoded values with fewer bytes aren't parsed: nothing is in them that could be changed."""


class ValueWalk:
    """`text` says what becomes of each text."""

    def __init__(self, record_type: str | None) -> None:
        self._record_type = record_type

    def text(self, text: str, name: str) -> str:
        """A text, and the name of the member that it is or stands in."""
        raise NotImplementedError

    def value(self, value: Any, name: str) -> Any:
        """Any value, and the name of the member that it is or stands in."""
        if isinstance(value, str):
            return self.text(value, name)
        if isinstance(value, dict):
            return value if is_signed(value) else self.members(value)
        if isinstance(value, list | tuple):
            changed = [self.value(each, name) for each in value]
            return value if all(map(operator.is_, changed, value)) else changed
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, Raw | bytes | bytearray | memoryview):
            return self._encoded(value, name)
        return value

    def _encoded(self, value: Any, name: str) -> Any:
        data = bytes(value)
        if len(data) < _ENCODED_BYTES_MIN:
            return value
        parsed = parse_keeping_numbers(data, self._record_type)
        if not isinstance(parsed, dict | list | str):
            return value
        changed = self.value(parsed, name)
        return value if changed is parsed else changed

    def members(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """The members of an object."""
        changed = {key: self.member(value, key, each) for key, each in value.items()}
        return value if all(map(operator.is_, changed.values(), value.values())) else changed

    def member(self, owner: Mapping[Any, Any], key: Any, value: Any) -> Any:
        """One member of `owner`."""
        return value if key in SEALED or not isinstance(key, str) else self.value(value, key)

    def _struct(self, value: Struct) -> Any:
        changes = {}
        for field, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            old = getattr(value, field)
            if old is not None and key not in SEALED and (new := self.value(old, key)) is not old:
                changes[field] = new
        return structs.replace(value, **changes) if changes else value
