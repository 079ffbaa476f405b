"""Blobs: bytes that are kept apart from the records that name them, and how records name them.

Invariant: a blob is named by the SHA-256 of its bytes, so it never changes, and one that does is damaged.
Both forms in which a record names one match `BLOB_NAME`, whatever program wrote its JSON.

A *cut text* keeps its beginning and its end; between them a marker says how much was cut, and names the blob
that holds the whole text. A *reference* stands in the place of base64: the name, and what stood before
the code in the URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

__all__ = [
    "BLOB_NAME",
    "BOUNDED_TYPES",
    "CUT",
    "JSON_CUT",
    "JSON_CUT_BEGIN",
    "MEDIA_NAMES",
    "REFERENCE",
    "TEXT_NAMES",
    "VERBATIM",
    "Blob",
    "BlobProblem",
    "BlobReader",
    "cut_marker",
    "media_reference",
    "names_blobs",
]


class Blob(NamedTuple):
    """Bytes that are kept apart, named by their SHA-256 in hex."""

    sha256: str
    data: bytes


class BlobProblem(Struct, frozen=True):
    """Why a blob can't be had. `reason`: missing, damaged (other bytes than its name says) or unreadable."""

    sha256: str
    reason: str
    message: str


BlobReader = Callable[[str], bytes | BlobProblem]
"""The content of a blob, checked against its name."""

BLOB_NAME = re.compile(rb"blob[: ]sha256:([0-9a-f]{64})")
"""Where the bytes of a rollout name a blob."""

BOUNDED_TYPES = frozenset({"response_item", "event_msg", "compacted", "inter_agent_communication"})
"""Records that may name blobs. Own and unknown types are left as they are."""

TEXT_NAMES = frozenset(
    {
        *("aggregated_output", "arguments", "content", "delta", "explanation", "formatted_output", "input"),
        *("last_agent_message", "message", "output", "raw_content", "revised_prompt", "stderr", "stdout"),
        *("summary_text", "text", "unified_diff"),
    }
)
"""Members that hold a text for people or models throughout: cut short it still is one."""

MEDIA_NAMES = frozenset(
    {"audio", "audio_url", "blob", "data", "file_data", "image_url", "images", "result", "url"}
)
"""Members that hold a URL, or base64."""

CUT = re.compile(r"\n\[… ([0-9,]{1,15}) characters cut; the whole text is blob sha256:([0-9a-f]{64}) …\]\n")
"""The marker of a cut text: how much, and the blob."""

JSON_CUT = "x_cut"
"""A cut text that must be JSON is an object with this one member."""

JSON_CUT_BEGIN = f'{{"{JSON_CUT}":'

REFERENCE = re.compile(r"blob:sha256:([0-9a-f]{64}),([^,]{0,210})\Z")
"""The blob, and what stood between `data:` and the comma; nothing where it was bare base64."""

VERBATIM = "="
"""In a reference: the blob holds the text as it stood, because its base64 was not as we write it."""


def cut_marker(chars: int, sha256: str) -> str:
    """What matches `CUT`."""
    return f"\n[… {chars:,} characters cut; the whole text is blob sha256:{sha256} …]\n"


def media_reference(sha256: str, header: str) -> str:
    """What matches `REFERENCE`."""
    return f"blob:sha256:{sha256},{header}"


def names_blobs(payload: bytes) -> bool:
    """Whether a payload, or a line, may name a blob; quick."""
    return b"sha256:" in payload and BLOB_NAME.search(payload) is not None
