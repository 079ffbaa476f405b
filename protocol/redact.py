"""The redactor's hook: every text of an item goes through it before anything is stored.

Invariant: it never touches ids, hashes, and signed or encrypted blocks, nor the words of closed
vocabularies (`type`, `role`, `status`, …): an item stays the item it was. A block that
carries a signature stays whole, as any change would void it.

What a tool was given (`arguments`, `input`) is the user's text throughout, whatever its names.
A text that is itself a JSON document is redacted inside, so that escapes hide nothing, and
then as a text.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct, structs

from protocol.codec import compact_json, encode_value, to_plain
from protocol.errors import ItemNotEncodable
from protocol.items import RawItem, RolloutItem

__all__ = ["Redactor", "redact_item"]

Redactor = Callable[[str], str]

_SIGNATURES = frozenset({"signature", "thoughtSignature", "thinkingSignature", "thought_signature"})
_SEALED = frozenset({"encrypted_content", "encrypted_function_args", *_SIGNATURES})
_ID_ENDINGS = ("_id", "_ids", "Id", "Ids", "_uuid", "Uuid")
_KEPT_NAMES = frozenset({"id", "ids", "uuid", "sha1", "sha256", "hash", "digest", "commit"})
_HASH_ENDINGS = ("_sha256", "_sha1", "_hash", "_digest")
_WORDS = frozenset({"type", "role", "timestamp"})
# Fields of our classes that hold a word of a closed vocabulary, or what is matched for equality.
_FIELD_WORDS = _WORDS | {
    "effect",
    "event",
    "history_mode",
    "key",
    "kind",
    "model_provider",
    "outcome",
    "phase",
    "scope",
    "state",
    "status",
    "x_pad",
}
_TOKEN = re.compile(r"\S{1,256}")
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
_NAME = re.compile(r"[A-Za-z_$@][A-Za-z0-9_.$@-]*")
_TOOL_INPUT = frozenset({"arguments", "input", "parameters", "args"})


def redact_item(item: RolloutItem, redact: Redactor) -> RolloutItem:
    """A new item with every text put through `redact`; the same one if that changes nothing.

    Raises:
        ItemNotEncodable: `redact` gave no text, or the item holds what JSON has no form for.
    """
    walk = _Walk(redact, item.record_type)
    if isinstance(item, RawItem):
        return walk.raw_item(item)
    changed: RolloutItem = walk.struct(item)
    return changed


class _Walk:
    """Values are rebuilt only where something changed, so that the rest stays as it is."""

    def __init__(self, redact: Redactor, record_type: str) -> None:
        self._redact = redact
        self._record_type = record_type

    def raw_item(self, item: RawItem) -> RawItem:
        payload = item.payload
        encoded = isinstance(payload, bytes | bytearray | memoryview | Raw)
        value = _parse_keeping_numbers(bytes(payload), item.record_type) if encoded else payload
        changed = self.value(value)
        return item if changed is value else RawItem(item.record_type, changed)

    def struct(self, value: Any) -> Any:
        changes = {}
        for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            old = getattr(value, name)
            if _is_kept(key, old) or (key in _FIELD_WORDS and isinstance(old, str)):
                continue
            new = self.tool_input(old) if key in _TOOL_INPUT else self.value(old)
            if new is not old:
                changes[name] = new
        return structs.replace(value, **changes) if changes else value

    def value(self, value: Any) -> Any:
        """Any value: names of ids, hashes and words are respected."""
        if isinstance(value, dict):
            return value if _is_signed(value) else self._entries(value, self._entry)
        return self._other(value, self.value)

    def tool_input(self, value: Any) -> Any:
        """What a tool was given: nothing is respected."""
        if isinstance(value, dict):
            return self._entries(value, self._input_entry)
        return self._other(value, self.tool_input)

    def text(self, text: str) -> str:
        inside = self._inside(text)
        changed = self._redact(inside)
        if not isinstance(changed, str):
            raise ItemNotEncodable(
                f"the redactor gave a {type(changed).__name__}, not a text", item_type=self._record_type
            )
        return text if changed == text else changed

    def _inside(self, text: str) -> str:
        if text[:1] not in ("{", "["):
            return text
        try:
            value = _parse_keeping_numbers(text.encode(), self._record_type)
        except (ItemNotEncodable, UnicodeEncodeError):
            return text
        changed = self.tool_input(value)
        return text if changed is value else encode_value(changed, self._record_type).decode()

    def _entry(self, key: str, value: Any) -> tuple[str, Any]:
        if key in _TOOL_INPUT:
            return key, self.tool_input(value)
        if _is_kept(key, value) or (key in _WORDS and isinstance(value, str) and _WORD.fullmatch(value)):
            return key, value
        # Names of keys are structure; paths and the like are text.
        return key if _NAME.fullmatch(key) else self.text(key), self.value(value)

    def _input_entry(self, key: str, value: Any) -> tuple[str, Any]:
        return self.text(key), self.tool_input(value)

    def _entries(
        self, value: dict[Any, Any], change: Callable[[str, Any], tuple[str, Any]]
    ) -> dict[Any, Any]:
        changed: dict[Any, Any] = {}
        different = False
        for old_key, old in value.items():
            key, new = change(old_key, old) if isinstance(old_key, str) else (old_key, self.value(old))
            different = different or new is not old or key is not old_key
            while key in changed:  # two keys became one: neither value may be lost
                key += "'"
            changed[key] = new
        return changed if different else value

    def _other(self, value: Any, change: Callable[[Any], Any]) -> Any:
        """What is no object: a text, a list, a typed value; anything else as JSON will have it."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, int | float):
            return value
        if isinstance(value, list | tuple):
            changed = [change(each) for each in value]
            return value if all(map(operator.is_, changed, value)) else changed
        if isinstance(value, Struct):
            return self.struct(value)
        if isinstance(value, Raw):
            return self._raw(value, change)
        plain = to_plain(value, self._record_type)
        changed = change(plain)
        return value if changed is plain else changed

    def _raw(self, raw: Raw, change: Callable[[Any], Any]) -> Any:
        data = bytes(raw)
        if not data.lstrip().startswith((b'"', b"{", b"[")):
            return raw
        value = _parse_keeping_numbers(data, self._record_type)
        changed = change(value)
        return raw if changed is value else changed


def _is_kept(key: str, value: Any) -> bool:
    """Whether a member is an id, a hash or sealed. A name proves little: the value must look so too."""
    members = value if isinstance(value, list | tuple) else (value,)
    if key in _SEALED:
        return all(isinstance(each, str) for each in members)
    named = key in _KEPT_NAMES or key.endswith(_ID_ENDINGS) or key.endswith(_HASH_ENDINGS)
    return named and all(isinstance(each, str) and _TOKEN.fullmatch(each) for each in members)


def _is_signed(value: dict[Any, Any]) -> bool:
    return any(value.get(name) for name in _SIGNATURES)


def _parse_keeping_numbers(data: bytes, record_type: str) -> Any:
    """JSON as values; each number is kept as its own text."""
    compact_json(data, record_type)
    return json.loads(data, parse_int=_number, parse_float=_number)


def _number(text: str) -> Raw:
    return Raw(text.encode())
