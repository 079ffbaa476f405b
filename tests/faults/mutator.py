"""The mutator: from samples to inputs, by changes of bytes, of lines, and of the JSON in a line.

Invariant: an input depends on its seed and on the samples alone, so that a seed is all that must be kept
of one. Changes are such as come by chance (a flipped bit, a torn block, two writers) and such as nobody
makes without intent (a number out of range, a list where a text belongs, brackets without end).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.faults.fuzz_samples import Parts

__all__ = ["mutate"]

_SIZE_MAX = 1 << 16
_BYTES = [
    *(b"\0", b"\n", b"\r", b"\r\n", b'"', b"{", b"}", b"[", b"]", b"\\", b",", b":", b" ", b"\xff", b"\x80"),
    *(b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"1e999"),
    *(b"-", b"9" * 25, b"NaN", b"null", b"}\n{", b'"}}\n', b"\x28\xb5\x2f\xfd", b"//", b"\x1b[2J"),
]
_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 1.5, 1e308, float("nan")),
    *(
        "",
        "x",
        "\ud800",
        "\0",
        "\n",
        "é\u2028",
        "x" * 3000,
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"type": "message"},
    ),
    *("session_meta", "event_msg", "response_item", "compacted", "x_memory", "x_call", "x_writer", "x_gap"),
    *("task_started", "thread_rolled_back", "function_call", "function_call_output", "item_completed"),
    *("started", "completed", "unknown", "resolved", "2026-03-04T05:06:07.000Z", "99999-01-01", "legacy"),
    *("01960000-0000-7000-8000-00000000000a", "01960000-0000-7000-8000-00000000000b", "/", "../../etc"),
]
_DEPTHS = (3, 126, 127, 128, 129, 700, 5000)


def mutate(rng: random.Random, samples: list[Parts]) -> Parts:
    """One input. About one in fifty is a sample as it is."""
    parts = list(rng.choice(samples))
    if rng.random() < 0.02:
        return tuple(parts)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4, 8))):
        index = rng.choice((-1, -1, rng.randrange(len(parts))))
        other = rng.choice(samples)[index]
        change = rng.choice(_CHANGES)
        parts[index] = change(rng, parts[index], other)[:_SIZE_MAX]
    return tuple(parts)


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    """A part of the data, most often a short one."""
    begin = rng.randint(0, len(data))
    return begin, min(len(data), begin + rng.choice((1, 2, 8, 60, 500, rng.randint(0, len(data)))))


# Bytes


def _flip(rng: random.Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return b"\1"
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, _ = _range(rng, data)
    piece = rng.choice(_BYTES)
    return data[:begin] + piece + data[begin + len(piece) :]


def _insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, _ = _range(rng, data)
    return data[:begin] + rng.choice(_BYTES) * rng.choice((1, 1, 1, 3, 140, 1000)) + data[begin:]


def _delete(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 2, 20)) + data[end:]


def _zero(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:begin] + bytes(end - begin) + data[end:]


def _noise(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def _truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def _behead(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[rng.randint(0, len(data)) :]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


# Lines


def _lines(change: Callable[[random.Random, list[bytes], bytes], None]) -> Callable[..., bytes]:
    def changed(rng: random.Random, data: bytes, other: bytes) -> bytes:
        lines = data.split(b"\n")
        change(rng, lines, other)
        return b"\n".join(lines)

    return changed


@_lines
def _drop_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    del lines[rng.randrange(len(lines))]


@_lines
def _double_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    lines.insert(rng.randint(0, len(lines)), rng.choice(lines))


@_lines
def _swap_lines(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]


@_lines
def _tear_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    index = rng.randrange(len(lines))
    lines[index] = lines[index][: rng.randint(0, len(lines[index]))]


@_lines
def _fuse_lines(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    index = rng.randrange(len(lines))
    lines[index : index + 2] = [b"".join(lines[index : index + 2])]


@_lines
def _blank_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    lines.insert(
        rng.randint(0, len(lines)), rng.choice((b"", b" ", b"\r", b"\t \r", b"\0", bytes(20), b"{}", b"[]"))
    )


@_lines
def _foreign_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    lines.insert(rng.randint(0, len(lines)), rng.choice(other.split(b"\n")))


@_lines
def _pad_line(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    index = rng.randrange(len(lines))
    space = rng.choice((b" ", b"\t", b"\r", b" " * 300, b"\x0b", b"\xc2\xa0"))
    lines[index] = space + lines[index] if rng.random() < 0.5 else lines[index] + space


# Structure


@_lines
def _restructure(rng: random.Random, lines: list[bytes], other: bytes) -> None:
    index = rng.randrange(len(lines))
    try:
        value = json.loads(lines[index])
    except (ValueError, RecursionError):
        return
    for _ in range(rng.choice((1, 1, 3))):
        value = _change_value(rng, value)
    space = rng.choice(((",", ":"), (",", ":"), (", ", ": "), (" ,", " :")))
    text = json.dumps(value, separators=space, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:
        text = _double_key(rng, text)
    lines[index] = text.replace('"<deep>"', _deep(rng)).encode("utf-8", "surrogatepass")


def _deep(rng: random.Random) -> str:
    depth = rng.choice(_DEPTHS)
    return "[" * depth + "]" * depth if rng.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth


def _double_key(rng: random.Random, text: str) -> str:
    """The same key twice: the last one counts."""
    name, value = rng.choice(("type", "ordinal", "payload", "id", "timestamp", "pid")), rng.choice(_VALUES)
    return text.replace("{", "{" + f"{json.dumps(name)}:{json.dumps(value)},", 1)


def _change_value(rng: random.Random, value: Any) -> Any:
    """Change something in it, at any depth."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        choice = rng.random()
        if choice < 0.5:
            return {**value, key: _change_value(rng, value[key])}
        if choice < 0.6:
            return {name: each for name, each in value.items() if name != key}
        if choice < 0.7:
            return {**value, rng.choice(list(value)): value[key]}
        if choice < 0.75:
            return {f"{key}_" if name == key else name: each for name, each in value.items()}
        return {**value, key: _strange(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        if rng.random() < 0.7:
            return [*value[:index], _change_value(rng, value[index]), *value[index + 1 :]]
        return value * rng.choice((0, 2, 30))
    return _strange(rng, value)


def _strange(rng: random.Random, value: Any) -> Any:
    choice = rng.random()
    if choice < 0.05:
        return "<deep>"
    if choice < 0.25 and isinstance(value, int):
        return value + rng.choice((-1, 1, 7, -1000, 1000))
    if choice < 0.35:
        return [value]
    if choice < 0.45 and isinstance(value, str):
        return value[: rng.randint(0, len(value))] + rng.choice(("", "\ud800", "x" * 500, "\0"))
    return rng.choice(_VALUES)


_BYTE_CHANGES = (_flip, _overwrite, _insert, _delete, _repeat, _zero, _noise, _truncate, _behead, _splice)
_LINE_CHANGES = (
    *(_drop_line, _double_line, _swap_lines, _tear_line, _fuse_lines, _blank_line, _foreign_line, _pad_line),
)
_CHANGES: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (
    *_BYTE_CHANGES,
    *_LINE_CHANGES,
    *([_restructure] * 18),
)
