"""Records with what bounded storage took out of them put back: for a model, for Codex, for an export.

Invariant: one record after the other, however many there are; a blob that can't be had is told with the
record that names it, and hides no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Raw, structs

from protocol.blobs import BlobProblem, names_blobs
from protocol.inlining import inline_payload
from protocol.line import RolloutLine
from rollout.blobs import BlobFolder, blob_folder

__all__ = ["InlinedLine", "inline_blobs", "inline_line"]


class InlinedLine(NamedTuple):
    """A line, and what could not be put back into it."""

    line: RolloutLine
    problems: tuple[BlobProblem, ...]


def inline_blobs(lines: Iterable[RolloutLine], rollout_path: str | os.PathLike[str]) -> Iterator[InlinedLine]:
    """Each line of a rollout, with its blobs in it; one that names none is the line that was given.

    Args:
        rollout_path: where the rollout lies; its home has the blobs.
    """
    folder = BlobFolder(blob_folder(rollout_path))
    for line in lines:
        yield inline_line(line, folder)


def inline_line(line: RolloutLine, folder: BlobFolder) -> InlinedLine:
    """One line with its blobs in it."""
    payload = bytes(line.payload)
    if not names_blobs(payload):
        return InlinedLine(line, ())
    inlined, problems = inline_payload(payload, folder.read, record_type=line.type)
    if inlined is not payload:
        line = structs.replace(line, payload=Raw(inlined), source=None)
    return InlinedLine(line, tuple(problems))
