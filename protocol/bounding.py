"""Bounded storage: long texts and media leave an item for blobs of their own.

Invariant: what `bound_item` takes out, `inlining` puts back, character for character, as long as the blobs
are there. Ids, hashes, signed and encrypted blocks, own and unknown kinds of records are never touched.

A text is cut only in a member that holds texts (`TEXT_NAMES`), base64 is taken out only where media stand
(`MEDIA_NAMES`): whatever else is long, or is a kind of its own, stays.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from protocol.blobs import (
    BOUNDED_TYPES,
    JSON_CUT,
    JSON_CUT_BEGIN,
    MEDIA_NAMES,
    REFERENCE,
    TEXT_NAMES,
    VERBATIM,
    Blob,
    cut_marker,
    media_reference,
)
from protocol.codec import encode_value
from protocol.items import RawItem, RolloutItem
from protocol.value_walk import ValueWalk

__all__ = ["StorageBounds", "bound_item"]

_BARE_MEDIA = frozenset({("base64", "data"), ("image", "data"), ("audio", "data")}) | {
    (kind, "result") for kind in ("image_generation_call", "image_generation_end")
}
"""Type of an object, and the member that is base64 without a `data:` before it."""

_MARKER_CHARS = 200
"""No marker has more."""

_DATA_URL = re.compile(r"data:([^,]{0,200};base64),")


class StorageBounds(Struct, frozen=True, kw_only=True):
    """What leaves a record for a blob."""

    text_chars_max: int = 500_000
    """A longer text is cut."""
    text_chars_kept: int = 60_000
    """Of a cut text: five sixths of them at its beginning, the rest at its end."""
    media_chars_min: int = 4_096
    """Shorter base64 stays where it is: a file costs as much."""

    def __post_init__(self) -> None:
        if not 0 <= self.text_chars_kept <= self.text_chars_max - _MARKER_CHARS or self.media_chars_min < 1:
            raise ValueError(
                f"text_chars_kept must be {_MARKER_CHARS} less than text_chars_max, media_chars_min positive"
            )

    @property
    def payload_bytes_min(self) -> int:
        """No payload with fewer bytes has anything to take out."""
        return min(self.text_chars_max, self.media_chars_min)


def bound_item(item: RolloutItem, bounds: StorageBounds) -> tuple[RolloutItem, list[Blob]]:
    """The item without what is too long, and the blobs that hold it; the same item if nothing is.

    Raises:
        ItemNotEncodable: its encoded payload is no JSON.
    """
    if item.record_type not in BOUNDED_TYPES:
        return item, []
    walk = _Bounding(bounds, item.record_type)
    if isinstance(item, RawItem):
        changed = walk.value(item.payload, "")
        return (item if changed is item.payload else RawItem(item.record_type, changed)), walk.blobs
    bound: RolloutItem = walk.value(item, "")
    return bound, walk.blobs


class _Bounding(ValueWalk):
    def __init__(self, bounds: StorageBounds, record_type: str) -> None:
        super().__init__(record_type)
        self.blobs: list[Blob] = []
        self._bounds = bounds

    def text(self, text: str, name: str) -> str:
        if name in MEDIA_NAMES and len(text) >= self._bounds.media_chars_min:
            found = _DATA_URL.match(text)
            if found is not None:
                return self._media(text, text[found.end() :], found[1])
        if len(text) <= self._bounds.text_chars_max or name not in TEXT_NAMES:
            return text
        if name == "arguments" and text.lstrip()[:1] in ("{", "["):  # JSON it stays
            if text.startswith(JSON_CUT_BEGIN):
                return text  # it was cut before
            return encode_value({JSON_CUT: self._cut(text)}, self._record_type).decode()
        return self._cut(text)

    def member(self, owner: Mapping[Any, Any], key: Any, value: Any) -> Any:
        if (
            isinstance(value, str)
            and isinstance(kind := owner.get("type"), str)
            and (kind, key) in _BARE_MEDIA
            and len(value) >= self._bounds.media_chars_min
            and not value.startswith("data:")
            and not REFERENCE.match(value)
        ):
            return self._media(value, value, "")
        return super().member(owner, key, value)

    def _cut(self, text: str) -> str:
        text = _as_read(text)
        kept = self._bounds.text_chars_kept
        tail = kept // 6
        cut = len(text) - kept
        sha256 = self._keep(text.encode("utf-8", "surrogatepass"))
        return text[: kept - tail] + cut_marker(cut, sha256) + (text[-tail:] if tail else "")

    def _media(self, text: str, code: str, header: str) -> str:
        """`code`: the base64 in `text`; `header`: what stands before it in the URL."""
        try:
            data = base64.b64decode(code, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if base64.b64encode(data) != code.encode("utf-8", "replace"):
            # Not as we would write it back: kept as it stands.
            data, header = text.encode("utf-8", "surrogatepass"), VERBATIM
        return media_reference(self._keep(data), header)

    def _keep(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if all(each.sha256 != sha256 for each in self.blobs):
            self.blobs.append(Blob(sha256, data))
        return sha256


def _as_read(text: str) -> str:
    """The text as it comes back from JSON: two halves of a character that stand side by side become one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
