"""The items of a context with what bounded storage took out of them put back.

Invariant: a blob that can't be had is a problem at the place of its item; the item stays, with something
that says so in it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Raw, structs

from protocol.blobs import names_blobs
from thread_store.chain.lineage import Lineage, Place
from thread_store.context.checkpoint_scan import Problem
from thread_store.context.model_item import ModelItem

__all__ = ["inline_items"]

_log = logging.getLogger("thread_store")


def inline_items(items: Sequence[ModelItem], lineage: Lineage) -> tuple[list[ModelItem], list[Problem]]:
    """The items as their model saw them, and what is missing."""
    inlined, problems = [*items], []
    for position, item in enumerate(items):
        if names_blobs(bytes(item.payload)):
            inlined[position], found = _inline(item, lineage)
            problems += found
    return inlined, problems


def _inline(item: ModelItem, lineage: Lineage) -> tuple[ModelItem, list[Problem]]:
    from protocol.inlining import inline_payload  # for the few who bound their storage
    from rollout.blobs import BlobFolder, blob_folder

    place = item.place or Place(lineage.end.segment, 0)
    folder = BlobFolder(blob_folder(lineage.segments[place.segment].path))
    payload, missing = inline_payload(bytes(item.payload), folder.read, record_type="response_item")
    for each in missing:
        _log.info("%s: byte %d: %s", lineage.segments[place.segment].path, place.offset, each.message)
    problems = [Problem(place, f"blob_{each.reason}", each.message) for each in missing]
    return structs.replace(item, payload=Raw(payload)), problems
