"""Parts of messages and tool outputs, as the model track writes them.

Invariant: a part given as a dict becomes a typed part only if that loses nothing; else
the dict stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from protocol.decoding import convert_plain
from protocol.errors import ItemNotEncodable

__all__ = [
    "ContentPart",
    "EncryptedContent",
    "InputAudio",
    "InputImage",
    "InputText",
    "OutputPart",
    "OutputText",
    "join_text",
    "require_parts",
    "typed_parts",
]


class InputText(Struct, tag_field="type", tag="input_text", gc=False):
    """What the model is given."""

    text: str


class OutputText(Struct, tag_field="type", tag="output_text", gc=False):
    """What the model says."""

    text: str


class InputImage(Struct, tag_field="type", tag="input_image", omit_defaults=True, gc=False):
    """An image: a URL (also `data:`), or the id of a file."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class InputAudio(Struct, tag_field="type", tag="input_audio", omit_defaults=True, gc=False):
    """A sound: a URL (also `data:`)."""

    audio_url: str | None = None


class EncryptedContent(Struct, tag_field="type", tag="encrypted_content", gc=False):
    """A block that only the provider can read. Kept byte for byte."""

    encrypted_content: str


ContentPart = InputText | OutputText | InputImage | InputAudio
OutputPart = InputText | InputImage | InputAudio | EncryptedContent

_PARTS: frozenset[Any] = frozenset({InputText, OutputText, InputImage, InputAudio, EncryptedContent})
_TEXTS: frozenset[Any] = frozenset({InputText, OutputText})


def require_parts(parts: Sequence[Any], kind: Any) -> None:
    """Raise `ItemNotEncodable` if one of `parts` is no part of the union `kind`, or holds no text."""
    for part in parts:
        if part.__class__ not in _TEXTS or part.text.__class__ is not str:
            _require_part(part, kind)


def _require_part(part: Any, kind: Any) -> None:
    if part.__class__ not in _PARTS:
        raise ItemNotEncodable(
            f"a part of it is a {type(part).__name__}, no typed part", item_type="response_item"
        )
    try:
        convert_plain(msgspec.to_builtins(part), kind)
    except msgspec.ValidationError as error:
        raise ItemNotEncodable(str(error), item_type="response_item") from None


def typed_parts(parts: Sequence[Any], kind: Any) -> list[Any] | None:
    """`parts` as typed ones of the union `kind`; None if one of them would lose something."""
    if _PARTS.issuperset(map(type, parts)):
        return list(parts)
    try:
        typed: list[Any] = convert_plain(parts, list[kind])
    except msgspec.ValidationError:
        return None
    return typed if msgspec.to_builtins(typed) == msgspec.to_builtins(parts) else None


def join_text(parts: Sequence[Any]) -> str:
    """The texts of the parts, joined by newlines; what holds no text is left out."""
    texts = (part.get("text") if isinstance(part, dict) else getattr(part, "text", None) for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))
