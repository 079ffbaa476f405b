"""The content of a message of another program: texts, images, and what is neither.

Invariant: nothing is dropped in silence. What has no form of its own here is told by a line in brackets, and
the record that it stands in is kept as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thread_store.importing.values import as_json

__all__ = ["as_output", "data_url", "images_of", "joined_text"]


def joined_text(content: Any) -> str:
    """The text of a content that is a text, or blocks of which some are."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return "" if content is None else as_json(content)
    return "\n".join(filter(None, map(_text_of, content)))


def _text_of(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return "" if block is None else as_json(block)
    text = block.get("text")
    if isinstance(text, str):
        return text
    nested = block.get("content")
    return joined_text(nested) if isinstance(nested, str | list) and block.get("type") != "image" else ""


def images_of(content: Any) -> list[str]:
    """The images of a content, as URLs."""
    blocks: Iterable[Any] = content if isinstance(content, list) else ()
    return [url for block in blocks if isinstance(block, Mapping) and (url := _image_url(block)) is not None]


def _image_url(block: Mapping[str, Any]) -> str | None:
    if block.get("type") != "image":
        return None
    source = block.get("source")
    if isinstance(source, Mapping):
        url = source.get("url")
        return url if isinstance(url, str) else data_url(source.get("media_type"), source.get("data"))
    return data_url(block.get("mimeType") or block.get("media_type"), block.get("data"))


def data_url(media_type: Any, data: Any) -> str | None:
    """An image that stands in the record itself, as a URL."""
    if not isinstance(data, str):
        return None
    return f"data:{media_type if isinstance(media_type, str) else 'application/octet-stream'};base64,{data}"


def as_output(content: Any) -> Any:
    """What a tool gave back, as the model gets it: a text, or texts and images."""
    images = images_of(content)
    text = joined_text(content)
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    return [*parts, *({"type": "input_image", "image_url": url} for url in images)]
