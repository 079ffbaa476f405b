"""The redactor's hook: every text of an item goes through it before anything is stored.

Invariant: it never touches ids, hashes, and signed or encrypted blocks, nor the words of closed
vocabularies (`type`, `role`, `status`, …): an item stays the item it was. A block that
carries a signature stays whole, as any change would void it.

What a tool was given (`arguments`, `input`) is the user's text throughout, whatever its names.
A text that is itself a JSON document is redacted inside, so that escapes hide nothing, and
then as a text; what comes of it is JSON again.

A hook that fails is an error, and its own error isn't passed on: its text, or a frame of it, may
hold what was to be hidden.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec import Raw, Struct, structs

from protocol.codec import compact_json, encode_payload, encode_value, kind_of, to_plain
from protocol.errors import ItemNotEncodable, RedactionFailed
from protocol.items import RawItem, RolloutItem
from protocol.sealed import SEALED, is_signed

__all__ = [
    "HOOK_RULE",
    "ItemRedactor",
    "QuickRedactor",
    "Redactor",
    "marker",
    "parse_keeping_numbers",
    "redact_item",
    "redact_item_by",
    "redact_text",
]

Redactor = Callable[[str], str]
"""Takes a text and returns it without what must not be stored."""

ItemRedactor = Callable[[RolloutItem], RolloutItem]
"""The same for a whole item."""

HOOK_RULE = "hook"
"""What a change counts as that put no marker there."""


class QuickRedactor(Protocol):
    """A redactor that can tell at one look at a payload that it would change nothing in it."""

    def __call__(self, text: str, /) -> str:
        """As any redactor."""

    def may_change(self, payload: bytes, /) -> bool:
        """Whether any text of this payload (JSON), or of a JSON text in it, might be changed."""


def marker(rule: str) -> str:
    """What stands in the place of what a rule found."""
    return f"[redacted:{rule}]"


_MARKER = re.compile(r"\[redacted:([^\]\s]{1,100})\]")

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
    "last_line",
    "model_provider",
    "outcome",
    "phase",
    "quarantine",
    "scope",
    "state",
    "status",
    "x_pad",
}
_TOKEN = re.compile(r"\S{1,256}")
_JSON_SPACE = " \t\r\n"
_WORD = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
# A longer one, or one with digits as tokens have them, may be a secret that serves as a name.
_NAME = re.compile(r"(?:[A-Za-z_$@][A-Za-z_.$@-]{0,63}|[A-Za-z_$@][A-Za-z0-9_.$@-]{0,15})\Z")
_TOOL_INPUT = frozenset({"arguments", "input", "parameters", "args"})


def redact_item(item: RolloutItem, redact: Redactor, *, tally: Counter[str] | None = None) -> RolloutItem:
    """A new item with every text put through `redact`; the same one if that changes nothing.

    `tally` counts by rule what was replaced; what has no marker (`marker`) counts as `HOOK_RULE`.

    Raises:
        RedactionFailed: `redact` raised an error, or gave no text.
        ItemNotEncodable: the item holds what JSON has no form for.
    """
    may_change = getattr(redact, "may_change", None)  # isinstance of a Protocol costs more than the rest
    if may_change is not None and not _call(may_change, _payload(item), item.record_type):
        return item
    walk = _Walk(redact, item.record_type, tally)
    if isinstance(item, RawItem):
        return walk.raw_item(item)
    changed: RolloutItem = walk.struct(item)
    return changed


def redact_text(text: str, redact: Redactor, *, tally: Counter[str] | None = None) -> str:
    """A text that is no part of an item (a title, say), put through `redact` as one of an item's would be.

    Raises:
        RedactionFailed: as `redact_item`.
    """
    return _Walk(redact, None, tally).text(text)


def redact_item_by(item: RolloutItem, redact: ItemRedactor) -> RolloutItem:
    """An item put through a hook on whole items.

    Raises:
        RedactionFailed: the hook raised an error, gave no item of that type, or changed an id, a hash or a
            signed or encrypted block.
    """
    record_type, before = item.record_type, _payload(item)  # first: the hook may change the item itself
    changed: RolloutItem = _call(redact, item, record_type)
    if not isinstance(changed, RolloutItem) or changed.record_type != record_type:
        raise RedactionFailed(f"gave no item of type {record_type}", item_type=record_type)
    after = _payload(changed)
    if after != before:
        kept, left = ([*_kept_in(parse_keeping_numbers(each, record_type))] for each in (before, after))
        if kept != left:
            reason = "changed an id, a hash, or a signed or encrypted block"
            raise RedactionFailed(reason, item_type=record_type)
    return changed


def _call(hook: Callable[[Any], Any], value: Any, record_type: str | None) -> Any:
    try:
        return hook(value)
    except Exception as error:  # noqa: BLE001  # whatever it is: nothing may pass in clear
        cause_type = type(error).__name__
    # Not inside of the handler: the error would be its context, with all it holds.
    raise RedactionFailed(f"failed with {cause_type}", item_type=record_type, cause_type=cause_type)


def _payload(item: RolloutItem) -> bytes:
    payload = bytearray()
    encode_payload(item, payload, kind_of(item))
    return bytes(payload)


def _kept_in(value: Any) -> Iterator[Any]:
    """Everything in a plain value that no redactor may change."""
    if isinstance(value, dict):
        if is_signed(value):
            yield value
            return
        for key, each in value.items():
            if key in _TOOL_INPUT:
                continue
            if _is_kept(key, each):
                yield key, each
            else:
                yield from _kept_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _kept_in(each)


class _Walk:
    """Values are rebuilt only where something changed, so that the rest stays as it is."""

    def __init__(self, redact: Redactor, record_type: str | None, tally: Counter[str] | None) -> None:
        self._redact = redact
        self._record_type = record_type
        self._tally = tally

    def raw_item(self, item: RawItem) -> RawItem:
        payload = item.payload
        encoded = isinstance(payload, bytes | bytearray | memoryview | Raw)
        if not encoded:
            changed = self.value(payload)
            return item if changed is payload else RawItem(item.record_type, changed)
        value, shadowed = _parse_all(bytes(payload), item.record_type)
        changed = self.value(value)
        return item if changed is value and not shadowed else RawItem(item.record_type, changed)

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
            return value if is_signed(value) else self._entries(value, self._entry)
        return self._other(value, self.value)

    def tool_input(self, value: Any) -> Any:
        """What a tool was given: nothing is respected."""
        if isinstance(value, dict):
            return self._entries(value, self._input_entry)
        return self._other(value, self.tool_input)

    def text(self, text: str) -> str:
        inside, is_json = self._inside(text)
        changed = _call(self._redact, inside, self._record_type)
        if not isinstance(changed, str):
            reason = f"gave a {type(changed).__name__}, not a text"
            raise RedactionFailed(reason, item_type=self._record_type)
        if changed == inside:
            return inside
        self._count(inside, changed)
        return self._as_json(changed) if is_json else changed

    def _inside(self, text: str) -> tuple[str, bool]:
        """The text, redacted inside if it is a JSON document, and whether it is one."""
        if text.lstrip(_JSON_SPACE)[:1] not in ("{", "["):
            return text, False
        try:
            value, shadowed = _parse_all(text.encode(), self._record_type)
        except (ItemNotEncodable, UnicodeEncodeError):
            return text, False
        changed = self.tool_input(value)
        if changed is value and not shadowed:
            return text, True
        return encode_value(changed, self._record_type).decode(), True

    def _as_json(self, text: str) -> str:
        """A JSON document stays one, though its redactor took a quote or a bracket with it."""
        try:
            compact_json(text.encode("utf-8", "surrogatepass"), self._record_type)
        except ItemNotEncodable:
            return encode_value({"redacted": text}, self._record_type).decode()
        return text

    def _count(self, before: str, after: str) -> None:
        if self._tally is None:
            return
        made = Counter(_MARKER.findall(after))
        made.subtract(_MARKER.findall(before))
        self._tally.update(+made or {HOOK_RULE: 1})

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
        value, shadowed = _parse_all(data, self._record_type)
        changed = change(value)
        return raw if changed is value and not shadowed else changed


def _is_kept(key: str, value: Any) -> bool:
    """Whether a member is an id, a hash or sealed. A name proves little: the value must look so too."""
    members = value if isinstance(value, list | tuple) else (value,)
    if key in SEALED:
        return all(isinstance(each, str) for each in members)
    named = key in _KEPT_NAMES or key.endswith(_ID_ENDINGS) or key.endswith(_HASH_ENDINGS)
    return named and all(isinstance(each, str) and _TOKEN.fullmatch(each) for each in members)


def parse_keeping_numbers(data: bytes, record_type: str | None) -> Any:
    """JSON as values; each number is kept as its own text (a `Raw`).

    Raises:
        ItemNotEncodable: it is no JSON.
    """
    compact_json(data, record_type)
    return json.loads(data, parse_int=_number, parse_float=_number)


def _parse_all(data: bytes, record_type: str | None) -> tuple[Any, bool]:
    """The same, and whether a member stands behind another one of its name, which nobody would look at."""
    compact_json(data, record_type)
    shadowed = False

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal shadowed
        members = dict(pairs)
        shadowed = shadowed or len(members) < len(pairs)
        return members

    value = json.loads(data, parse_int=_number, parse_float=_number, object_pairs_hook=take)
    return value, shadowed


def _number(text: str) -> Raw:
    return Raw(text.encode())
