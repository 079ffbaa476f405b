"""Inlining: what bounded storage took out of a payload comes back when it is read.

Invariant: what can't be had hides nothing else: it is told as a problem, and something stands in its place.

A cut text is believed only if its blob begins and ends as the text does, and is as long as its marker says:
a text that merely looks like one stays what it is. So nothing else in a record has to say that something
was cut, and copies of it (in a checkpoint, in a fork, by another program) find their blobs too.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, structs

from protocol.blobs import (
    BOUNDED_TYPES,
    CUT,
    JSON_CUT,
    JSON_CUT_BEGIN,
    MEDIA_NAMES,
    REFERENCE,
    TEXT_NAMES,
    VERBATIM,
    BlobProblem,
    BlobReader,
    names_blobs,
)
from protocol.codec import encode_value
from protocol.errors import InvalidLine, ItemNotEncodable
from protocol.line import decode_line, encode_line
from protocol.redact import parse_keeping_numbers
from protocol.value_walk import ValueWalk

__all__ = ["inline_lines", "inline_payload"]

_CUTS_MAX = 8
"""So many markers in one text are looked at, for the one that is true."""


def inline_payload(
    payload: bytes, read: BlobReader, *, record_type: str | None = None
) -> tuple[bytes, list[BlobProblem]]:
    """A payload with all that is in blobs put back, and what could not be had.

    A text whose blob is gone stays cut; a picture becomes a text that says so. The payload comes back as it
    is if it names no blob, or isn't of a kind that does.
    """
    if (record_type is not None and record_type not in BOUNDED_TYPES) or not names_blobs(payload):
        return payload, []
    try:
        value = parse_keeping_numbers(payload, record_type)
    except ItemNotEncodable:
        return payload, []
    walk = _Inlining(read, record_type)
    changed = walk.value(value, "")
    return (payload if changed is value else encode_value(changed, record_type)), walk.problems


class _Inlining(ValueWalk):
    def __init__(self, read: BlobReader, record_type: str | None) -> None:
        super().__init__(record_type)
        self.problems: list[BlobProblem] = []
        self._reader = read

    def text(self, text: str, name: str) -> str:
        if name in MEDIA_NAMES and (found := REFERENCE.match(text)):
            return self._media(text, found[1], found[2])
        if name not in TEXT_NAMES or "blob sha256:" not in text:
            return text
        if name == "arguments" and text.startswith(JSON_CUT_BEGIN):
            return self._whole_json(text)
        return self._whole(text)

    def members(self, value: dict[Any, Any]) -> dict[Any, Any]:
        problems = len(self.problems)
        changed = super().members(value)
        if len(self.problems) > problems and (stand_in := _stand_in(value, self.problems[problems])):
            return stand_in
        return changed

    def _whole_json(self, text: str) -> str:
        try:
            cut = parse_keeping_numbers(text.encode(), self._record_type)[JSON_CUT]
        except (ItemNotEncodable, UnicodeEncodeError):
            return text
        whole = self._whole(cut) if isinstance(cut, str) else cut
        return text if whole is cut else whole

    def _whole(self, text: str) -> str:
        for number, found in enumerate(CUT.finditer(text)):
            if number == _CUTS_MAX:
                break
            head, tail = text[: found.start()], text[found.end() :]
            whole = _as_text(self._read(found[2]) or b"")
            size = len(head) + len(tail) + int(found[1].replace(",", "") or 0)
            if len(whole) == size and whole.startswith(head) and whole.endswith(tail):
                return whole
        return text

    def _media(self, text: str, sha256: str, header: str) -> str:
        data = self._read(sha256)
        if data is None:
            return text
        if header == VERBATIM:
            return _as_text(data) or text
        code = base64.b64encode(data).decode()
        return f"data:{header},{code}" if header else code

    def _read(self, sha256: str) -> bytes | None:
        data = self._reader(sha256)
        if isinstance(data, BlobProblem):
            self.problems.append(data)
            return None
        return data


def _as_text(data: bytes) -> str:
    """Nothing, if it is none."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return ""


def _stand_in(part: Mapping[str, Any], problem: BlobProblem) -> dict[str, Any] | None:
    """A part that says what is missing in the place of a picture or sound; None for anything else."""
    kinds = {"input_image": "input_text", "input_audio": "input_text", "image": "text"}
    told = part.get("type")
    kind = kinds.get(told) if isinstance(told, str) else None
    if kind is None:
        return None
    return {"type": kind, "text": f"[{told}: blob {problem.sha256} is {problem.reason}]"}


def inline_lines(data: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Whole lines of a rollout with these blobs put back."""

    def read(sha256: str) -> bytes | BlobProblem:
        found = blobs.get(sha256)
        return BlobProblem(sha256, "missing", "it isn't here") if found is None else found

    return b"\n".join(_inline_line(line, read) for line in data.split(b"\n"))


def _inline_line(data: bytes, read: BlobReader) -> bytes:
    if not names_blobs(data):
        return data
    try:
        line = decode_line(data)
    except InvalidLine:
        return data
    payload = bytes(line.payload)
    inlined, _ = inline_payload(payload, read, record_type=line.type)
    if inlined is payload:
        return data
    return encode_line(structs.replace(line, payload=Raw(inlined), source=None))[:-1]
