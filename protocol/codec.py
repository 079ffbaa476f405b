"""Items to bytes: the payload of a record, appended to a buffer that the caller owns.

Invariant: what is appended is JSON that `protocol.validity` accepts and that reads back as
the item was; anything else raises `ItemNotEncodable` and leaves the buffer as it was.
msgspec writes; where it would change a value (NaN becomes null) or can't (lone surrogates,
integers beyond 64 bits) the rule decides.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, inspect

from protocol.errors import InvalidLine, ItemNotEncodable
from protocol.items import CODEX_TYPES, RawItem, RolloutItem
from protocol.validity import NESTING_MAX, SHALLOW_BYTES, parse_value, require_shallow, require_utf8

__all__ = [
    "REFUSALS",
    "ItemKind",
    "PlainLine",
    "compact_json",
    "drop_space",
    "encode_into",
    "encode_item",
    "encode_payload",
    "encode_value",
    "kind_of",
    "kinds",
    "to_plain",
]


def _plain_value(value: object) -> object:
    """A subclass of a JSON type (a `ThreadId`, say) is written as that type."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    for base in (str, bool, int, float):
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"objects of type {type(value).__name__} have no JSON form")


def _plain_or_raw(value: object) -> object:
    # Raw JSON is written as it is, so it can't become null.
    return True if isinstance(value, msgspec.Raw) else _plain_value(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain_value)
_encode, _encode_lines, encode_into = _encoder.encode, _encoder.encode_lines, _encoder.encode_into

REFUSALS = (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError)
"""What msgspec raises for values that it can't write; then `encode_payload` decides."""


class PlainLine(Struct):
    """A line whose item needs no care (`ItemKind.plain`): msgspec writes it as it stands."""

    timestamp: str
    ordinal: int
    type: str
    payload: object


_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode

_ENCODED = (bytes, bytearray, memoryview, msgspec.Raw)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Possessive: a long string costs no backtracking stack.
_STRING_OR_SPACE = re.compile(rb'("(?:[^"\\]++|\\.)*+")|[ \t\r\n]+')


class ItemKind(NamedTuple):
    """What the hot path must know of an item's class, worked out once a class."""

    envelope: bytes
    """`,"type":"…","payload":`: the part of the envelope between number and payload."""
    envelope_unnumbered: bytes
    """The same for a line without ordinal: it follows the timestamp directly."""
    numbered: bool
    """Codex's own types carry an ordinal, ours none: Codex would reuse it (FORMAT.md, Ordinals)."""
    plain: bool
    """True if the class checks its values, and its annotations rule out floats and free nesting:
    nothing needs to be searched."""
    record_type: str
    binds: bool
    """True if the recorder must fill in thread and turn (`RolloutItem.needs_binding`)."""


def kind_of(item: RolloutItem) -> ItemKind:
    """The kind of an item. Raises `ItemNotEncodable` if it is no `RolloutItem`."""
    cls = type(item)
    if cls is RawItem:
        return _raw_kind(item.record_type)
    kind = kinds.get(cls)
    if kind is None:
        if not isinstance(item, RolloutItem):
            raise ItemNotEncodable(
                f"{type(item).__name__} is no RolloutItem; wrap it with RolloutItem.raw(type, payload)"
            )
        kind = kinds[cls] = _make_kind(
            cls.record_type, plain=cls.checks_values and _is_plain(cls), binds=cls.needs_binding
        )
        if kind.plain:
            _plain_types[cls] = kind.record_type
    return kind


_plain_types: dict[type, str] = {}
"""The record types of the classes that need no care."""
kinds: dict[type, ItemKind] = {}
_raw_kinds: dict[str, ItemKind] = {}


def _raw_kind(record_type: str) -> ItemKind:
    kind = _raw_kinds.get(record_type)
    if kind is None:
        if not isinstance(record_type, str) or not record_type:
            raise ItemNotEncodable("its type must be a text that is not empty")
        kind = _make_kind(record_type, plain=False)
        if len(_raw_kinds) < 1024:  # types come from callers: bounded
            _raw_kinds[record_type] = kind
    return kind


def _make_kind(record_type: str, *, plain: bool, binds: bool = False) -> ItemKind:
    tail = b'"type":%b,"payload":' % encode_value(record_type)
    return ItemKind(b"," + tail, b'",' + tail, record_type in CODEX_TYPES, plain, record_type, binds)


def _is_plain(cls: type) -> bool:
    return _plain_type(inspect.type_info(cls), set())


def _plain_type(info: inspect.Type, seen: set[type]) -> bool:
    if isinstance(info, inspect.StructType):
        if info.cls in seen:
            return False  # recursive: may nest freely
        return all(_plain_type(each.type, seen | {info.cls}) for each in info.fields)
    if isinstance(info, inspect.UnionType):
        return all(_plain_type(each, seen) for each in info.types)
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return _plain_type(info.item_type, seen)
    if isinstance(info, inspect.DictType):
        return _plain_type(info.value_type, seen)
    return isinstance(
        info,
        inspect.StrType
        | inspect.IntType
        | inspect.BoolType
        | inspect.NoneType
        | inspect.LiteralType
        | inspect.EnumType,
    )


def encode_payload(item: RolloutItem, buffer: bytearray, kind: ItemKind) -> None:
    """Append the payload of `item` to `buffer`.

    Raises:
        ItemNotEncodable: it holds NaN or Infinity, nests deeper than 127 levels, refers to itself,
            or holds an object that JSON has no form for. The buffer is as it was.
    """
    start = len(buffer)
    try:
        _append(item.payload if type(item) is RawItem else item, buffer, kind.record_type, plain=kind.plain)
    except BaseException:
        del buffer[start:]
        raise


def _append(value: Any, buffer: bytearray, record_type: str | None, *, plain: bool) -> None:
    if isinstance(value, _ENCODED):
        buffer += compact_json(bytes(value), record_type)
        return
    start = len(buffer)
    try:
        encode_into(value, buffer, -1)
    except (UnicodeEncodeError, OverflowError):
        del buffer[start:]
        buffer += _encode_by_json(value, record_type)
    except RecursionError:
        raise ItemNotEncodable("it nests too deep, or holds itself", item_type=record_type) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ItemNotEncodable(str(error), item_type=record_type) from error
    if plain:
        return
    # msgspec writes NaN and Infinity as null: where no null stands, none was there.
    if buffer.find(b"null", start) >= 0:
        _refuse_nan(value, record_type)
    if buffer.find(b"\n", start) >= 0:  # only a `Raw` that the value holds can bring one
        raise ItemNotEncodable("it holds a newline outside a string", item_type=record_type)
    if len(buffer) - start >= SHALLOW_BYTES - 2:
        _refuse_deep(bytes(buffer[start:]), record_type)


def _refuse_deep(payload: bytes, record_type: str | None) -> None:
    try:
        require_shallow(payload, NESTING_MAX - 1)  # the envelope is a level of its own
    except InvalidLine as error:
        raise ItemNotEncodable(error.detail, item_type=record_type) from None


def _refuse_nan(value: Any, record_type: str | None) -> None:
    if _holds_nan(to_plain(value, record_type, _plain_or_raw)):
        raise ItemNotEncodable("it holds NaN or Infinity, which JSON has no form for", item_type=record_type)


def to_plain(value: Any, record_type: str | None, hook: Callable[[object], object] = _plain_value) -> Any:
    """A value as dicts, lists, texts and numbers, as it will be written.

    Raises:
        ItemNotEncodable: it holds what JSON has no form for, nests too deep, or holds itself.
    """
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=hook)
    except RecursionError:
        raise ItemNotEncodable("it nests too deep, or holds itself", item_type=record_type) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ItemNotEncodable(str(error), item_type=record_type) from error


def _holds_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_holds_nan(each) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_holds_nan(each) for each in value)
    return False


def _encode_by_json(value: Any, record_type: str | None = None) -> bytes:
    """The fallback: json writes any integer, and lone surrogates become `\\udXXX` escapes."""
    plain = to_plain(value, record_type)
    _refuse_nan(plain, record_type)
    try:
        text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    except (RecursionError, ValueError) as error:  # too deep, or an integer of too many digits
        raise ItemNotEncodable(str(error), item_type=record_type) from error
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text).encode()


def encode_value(value: Any, record_type: str | None = None) -> bytes:
    """Any value as compact JSON bytes, by the same rules as a payload (bytes are encoded JSON).

    Raises:
        ItemNotEncodable: see `encode_payload`.
    """
    buffer = bytearray()
    _append(value, buffer, record_type, plain=type(value) is str)
    return bytes(buffer)


def compact_json(data: bytes, record_type: str | None = None) -> bytes:
    """Validate encoded JSON and drop the white space between its tokens; numbers keep their text.

    Raises:
        ItemNotEncodable: it is no JSON, holds NaN or Infinity, or nests deeper than 127 levels.
    """
    try:
        _require_json(data)
        require_shallow(data, NESTING_MAX - 1)  # the envelope is a level of its own
    except InvalidLine as error:
        raise ItemNotEncodable(f"its payload is no JSON: {error.detail}", item_type=record_type) from None
    return drop_space(data)


def drop_space(data: bytes) -> bytes:
    """Valid JSON without the white space between its tokens."""
    try:
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return _STRING_OR_SPACE.sub(rb"\1", data)


def _require_json(data: bytes) -> None:
    try:
        _decode_raw(data)
    except (msgspec.DecodeError, RecursionError):
        parse_value(data)
        _refuse_constants(data)
    if not data.isascii():
        require_utf8(data)


def _refuse_constants(data: bytes) -> None:
    if b"NaN" in data or b"Infinity" in data:
        json.loads(data, parse_constant=_refuse_constant, parse_int=len)


def _refuse_constant(name: str) -> None:
    raise InvalidLine("not_json", f"it holds {name}, which JSON has no form for")


def encode_item(item: RolloutItem, *, timestamp: str, ordinal: int | None = None) -> bytes:
    """One whole line with its newline, for an item that no recorder numbers and stamps.

    Raises:
        ItemNotEncodable: see `encode_payload`.
    """
    record_type = _plain_types.get(item.__class__)
    if record_type is not None and ordinal is not None:
        try:
            return _encode_lines([PlainLine(timestamp, ordinal, record_type, item)])
        except REFUSALS:
            pass  # the long way decides
    kind = kind_of(item)
    head = encode_value(timestamp)
    buffer = bytearray(b'{"timestamp":' + head[:-1])
    buffer += kind.envelope_unnumbered if ordinal is None else b'","ordinal":%d%b' % (ordinal, kind.envelope)
    encode_payload(item, buffer, kind)
    buffer += b"}\n"
    return bytes(buffer)
