"""The threads that a person wants to keep: labelled `keep` or `pinned` in `<home>/thread-store/labels.jsonl`.

Invariant: a line that can't be read says nothing; a file that can't be read is an error, for then nobody can
tell what is to be kept.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.errors import RolloutUnreadable

__all__ = ["PINS", "pinned_threads"]

PINS = frozenset({"keep", "pinned"})


class _Line(Struct):
    id: str
    add: list[str] = []
    remove: list[str] = []


def pinned_threads(home: Path) -> frozenset[str]:
    """Their ids.

    Raises:
        RolloutUnreadable: the labels can't be read.
    """
    path = home / "thread-store" / "labels.jsonl"
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error, operation="read") from error
    labels: dict[str, set[str]] = {}
    for line in content.split(b"\n"):
        try:
            read = msgspec.json.decode(line, type=_Line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        found = labels.setdefault(read.id.lower(), set())
        found.update(read.add)
        found.difference_update(read.remove)
    return frozenset(thread_id for thread_id, found in labels.items() if found & PINS)
