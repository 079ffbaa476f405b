"""The meta line of a fork or a revert: whose it is now, and where it comes from.

Invariant: every key of the source's meta that says how the agent works stays, known to this library
or not; what says which thread or file it was, and what another one descends from, is new. The
line can be read by Codex (its five required keys are texts), and the one of a copy ends on a
multiple of `ALIGNMENT_BYTES`, so that the copied blocks stay blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from protocol.codec import encode_item
from protocol.items import RolloutItem
from protocol.meta import HistoryBase, SessionMeta
from protocol.own import ErasedItem
from protocol.timestamps import format_timestamp, now_ms
from protocol.version import ORIGINATOR, VERSION
from thread_store.chain.open_rollout import OpenRollout

__all__ = [
    "ALIGNMENT_BYTES",
    "MetaOrigin",
    "fork_payload",
    "left_out_line",
    "meta_line",
    "padded_meta_line",
    "revert_payload",
    "self_contained_payload",
]

ALIGNMENT_BYTES = 4096
"""Blocks of a file system are as long, or a part of it, nearly everywhere."""

_NOT_INHERITED = frozenset(
    {"x_takeover", "forked_from_id", "forked_from_ordinal_exclusive", "session_id", "parent_thread_id"}
    | {"agent_nickname", "agent_role", "agent_path", "context_window"}
)
_PAD_KEY_BYTES = len(b',"x_pad":""')


class MetaOrigin:
    """The meta of the rollout that a fork is made from: decoded, and as it stands."""

    def __init__(self, file: OpenRollout) -> None:
        self.meta: SessionMeta = file.meta
        payload = file.meta_line.payload_object()
        self.payload: dict[str, Any] = payload if isinstance(payload, dict) else {}
        self.numbered = file.meta_line.ordinal is not None
        self.thread_id = file.thread_id

    @property
    def is_subagent(self) -> bool:
        """Whether another thread started it."""
        source = self.meta.source
        return self.meta.parent_thread_id is not None or (isinstance(source, dict) and "subagent" in source)


def fork_payload(
    origin: MetaOrigin,
    *,
    thread_id: str,
    end_ordinal: int | None,
    base: HistoryBase | None,
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """The meta of a new thread. It is nobody's sub-agent unless `changes` say so; None takes a key away.

    Raises:
        ItemNotEncodable: the source's history mode is one that Codex couldn't read.
    """
    payload = {key: value for key, value in origin.payload.items() if key not in _NOT_INHERITED}
    if origin.is_subagent:
        payload["source"] = "cli"
        payload.pop("thread_source", None)
    payload["session_id"] = thread_id
    payload.update(changes)
    payload["forked_from_id"] = origin.thread_id
    if end_ordinal is not None:
        payload["forked_from_ordinal_exclusive"] = end_ordinal
    return _finish(payload, origin, thread_id, base)


def revert_payload(
    origin: MetaOrigin,
    *,
    thread_id: str,
    end_ordinal: int,
    base: HistoryBase,
    changes: Mapping[str, Any],
) -> dict[str, Any]:
    """The meta of the same thread in a new rollout."""
    payload = {key: value for key, value in origin.payload.items() if key != "x_takeover"}
    payload.update(changes)
    forked_at = origin.meta.forked_from_ordinal_exclusive
    if forked_at is not None:
        payload["forked_from_ordinal_exclusive"] = min(forked_at, end_ordinal)
    return _finish(payload, origin, thread_id, base)


def self_contained_payload(origin: MetaOrigin) -> dict[str, Any]:
    """The meta of the same rollout, resting on no other file any more; all else as it was."""
    return {
        key: value
        for key, value in origin.payload.items()
        if key not in ("history_base", "x_pad", "x_takeover")
    }


def _finish(
    payload: dict[str, Any], origin: MetaOrigin, thread_id: str, base: HistoryBase | None
) -> dict[str, Any]:
    payload = {key: value for key, value in payload.items() if key not in ("history_base", "x_pad")}
    meta = origin.meta.filled(thread_id=thread_id, timestamp=format_timestamp(now_ms()))
    payload["id"] = thread_id
    payload["timestamp"] = format_timestamp(now_ms())
    payload["originator"] = ORIGINATOR
    payload["cli_version"] = VERSION
    if not isinstance(payload.get("cwd"), str):
        payload["cwd"] = meta.cwd
    payload["history_mode"] = meta.history_mode
    if base is not None:
        payload["history_base"] = structs.asdict(base)
    return {key: value for key, value in payload.items() if value is not None}


def meta_line(payload: Mapping[str, Any], ordinal: int | None) -> bytes:
    """The whole line with its newline.

    Raises:
        ItemNotEncodable: the payload holds what JSON has no form for.
    """
    item = RolloutItem.raw("session_meta", payload)
    return encode_item(item, timestamp=format_timestamp(now_ms()), ordinal=ordinal)


def left_out_line(file: OpenRollout) -> bytes:
    """What stands in a copy for the meta line of a file in the midst of a chain."""
    record = file.meta_record
    name = file.rollout_id or "an older rollout"
    item = ErasedItem(
        ordinal=file.meta_line.ordinal,
        bytes=record.size,
        reason=f"the meta line of {name}; a copy has its own",
    )
    return encode_item(item, timestamp=format_timestamp(now_ms()))


def padded_meta_line(payload: Mapping[str, Any], ordinal: int | None) -> bytes:
    """The same, with spaces in `x_pad`, so that its bytes are a multiple of `ALIGNMENT_BYTES`."""
    line = meta_line(payload, ordinal)
    missing = -len(line) % ALIGNMENT_BYTES
    if not missing:
        return line
    if missing < _PAD_KEY_BYTES:
        missing += ALIGNMENT_BYTES
    return meta_line({**payload, "x_pad": " " * (missing - _PAD_KEY_BYTES)}, ordinal)
