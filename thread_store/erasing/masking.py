"""Masking: a line keeps its form, its keys and its length, and the needle in its strings becomes asterisks.

Invariant: as many bytes as before, valid if it was valid, every byte outside the strings and numbers that
held the needle as it was. For lines that must stay what they are: the meta line that says whose the file is,
a title, a typed prompt.
"""

from __future__ import annotations

import re

from thread_store.erasing.needle import Needle

__all__ = ["mask_line"]

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|-?\d[\d.eE+-]*', re.DOTALL)
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)


def mask_line(data: bytes, needle: Needle) -> bytes | None:
    """The same line without the needle; None if it can't be had so (it stands across two values)."""
    text = data.decode(errors="surrogateescape")

    def masked(match: re.Match[str]) -> str:
        raw = match[1]
        if raw is None:
            return _masked_number(match[0], needle)
        return f'"{_masked_string(raw, needle)}"'

    result = _TOKEN.sub(masked, text).encode(errors="surrogateescape")
    return None if len(result) != len(data) or needle.is_in(result) else result


def _masked_number(text: str, needle: Needle) -> str:
    return "0".ljust(len(text)) if needle.spans(text) else text


def _masked_string(raw: str, needle: Needle) -> str:
    """The inside of a string as it stands in the line."""
    if not needle.is_in(_bytes(raw)):
        return raw
    pieces = _CHARACTER.findall(raw)
    value = "".join(_value(piece) for piece in pieces)
    for begin, end in needle.spans(value) if len(value) == len(pieces) else ():
        pieces[begin:end] = ["*" * len(_bytes(piece)) for piece in pieces[begin:end]]
    masked = "".join(pieces)
    # In a string within the string, or in the raw bytes alone: all of it goes.
    return "*" * len(_bytes(raw)) if needle.is_in(_bytes(masked)) else masked


def _value(piece: str) -> str:
    if len(piece) == 1:
        return piece
    if piece[1] != "u":
        return {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}.get(piece[1], piece[1])
    unit = int(piece[2:6], 16)
    return (
        chr(unit) if len(piece) == 6 else chr(0x10000 + ((unit - 0xD800) << 10) + int(piece[8:], 16) - 0xDC00)
    )


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
