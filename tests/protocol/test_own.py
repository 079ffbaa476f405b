"""Own records: the keys of the format, exactly, and no ordinal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol import (
    CODEX_TYPES,
    ApprovalItem,
    CallItem,
    CheckItem,
    ErasedItem,
    FilesItem,
    GapItem,
    MemoryItem,
    RolloutItem,
    SourceItem,
    StateItem,
    WriterItem,
    decode_item,
    encode_item,
)
from protocol.codec import kind_of

RECORDS: list[tuple[RolloutItem, str, dict[str, Any]]] = [
    (
        CallItem(
            call_id="c4",
            turn_id="t1",
            state="started",
            kind="custom",
            name="send_mail",
            attempt=2,
            effect="unsafe",
            key="m-17",
            args_sha256="ab12",
            approval_id="a1",
            at_ms=1772600767200,
        ),
        "x_call",
        {
            "call_id": "c4",
            "turn_id": "t1",
            "state": "started",
            "kind": "custom",
            "name": "send_mail",
            "attempt": 2,
            "effect": "unsafe",
            "key": "m-17",
            "args_sha256": "ab12",
            "approval_id": "a1",
            "at_ms": 1772600767200,
        },
    ),
    (
        CallItem(call_id="c4", state="resolved", outcome="happened", by="ann", note="seen"),
        "x_call",
        {
            "call_id": "c4",
            "state": "resolved",
            "attempt": 1,
            "outcome": "happened",
            "by": "ann",
            "note": "seen",
        },
    ),
    (
        ApprovalItem(
            approval_id="a1", call_id="c4", turn_id="t1", state="approved", scope="once", by="user", at_ms=1
        ),
        "x_approval",
        {
            "approval_id": "a1",
            "call_id": "c4",
            "turn_id": "t1",
            "state": "approved",
            "scope": "once",
            "by": "user",
            "at_ms": 1,
        },
    ),
    (
        CheckItem(check_id="k1", call_ids=["c1"], state="failed", what="make test", evidence="exit 2"),
        "x_check",
        {"check_id": "k1", "call_ids": ["c1"], "state": "failed", "what": "make test", "evidence": "exit 2"},
    ),
    (
        WriterItem(event="opened", epoch=3, pid=4711, host="h", program="demo/1", at_ms=5),
        "x_writer",
        {"event": "opened", "epoch": 3, "pid": 4711, "host": "h", "program": "demo/1", "at_ms": 5},
    ),
    (
        WriterItem(event="repaired", reason="torn tail", cut_bytes=7, quarantine="kept/x"),
        "x_writer",
        {"event": "repaired", "reason": "torn tail", "cut_bytes": 7, "quarantine": "kept/x"},
    ),
    (
        MemoryItem(version=1, upto_offset=900, max_ordinal=7, epoch=2, open_calls=[], memory={"goal": "x"}),
        "x_memory",
        {
            "version": 1,
            "upto_offset": 900,
            "max_ordinal": 7,
            "epoch": 2,
            "open_calls": [],
            "memory": {"goal": "x"},
        },
    ),
    (StateItem(from_="a", to="b", reason="r"), "x_state", {"from": "a", "to": "b", "reason": "r"}),
    (
        FilesItem(path="/a", size=3, mtime_ns=4, sha256="ab", read_at=5),
        "x_files",
        {"path": "/a", "size": 3, "mtime_ns": 4, "sha256": "ab", "read_at": 5},
    ),
    (
        SourceItem(format="claude", path="/a", offset=0, record={"type": "summary"}),
        "x_source",
        {"format": "claude", "path": "/a", "offset": 0, "record": {"type": "summary"}},
    ),
    (
        ErasedItem(ordinal=3, bytes=10, at=99, reason="a secret"),
        "x_erased",
        {"ordinal": 3, "bytes": 10, "at": 99, "reason": "a secret"},
    ),
    (GapItem(bytes=12, cause="truncated"), "x_gap", {"bytes": 12, "cause": "truncated"}),
]


@pytest.mark.parametrize(("item", "record_type", "payload"), RECORDS)
def test_own_record_has_the_keys_of_the_format(
    item: RolloutItem, record_type: str, payload: dict[str, Any]
) -> None:
    """What is unset is left out; what is set stands under its own name, and reads back the same."""
    line = json.loads(encode_item(item, timestamp="T"))
    assert (line["type"], line["payload"]) == (record_type, payload)
    assert decode_item(record_type, json.dumps(payload).encode()) == item


@pytest.mark.parametrize(("item", "record_type", "payload"), RECORDS)
def test_own_record_is_never_numbered(item: RolloutItem, record_type: str, payload: dict[str, Any]) -> None:
    """An ordinal of ours would be used again by Codex."""
    del payload
    assert not kind_of(item).numbered
    assert record_type not in CODEX_TYPES


@pytest.mark.parametrize(("item", "record_type", "payload"), RECORDS)
def test_own_record_tolerates_further_keys(
    item: RolloutItem, record_type: str, payload: dict[str, Any]
) -> None:
    """A later version may add keys."""
    again = decode_item(record_type, json.dumps({**payload, "later": {"a": [1]}}).encode())
    assert again == item


def test_time_that_was_not_written_is_not_made_up() -> None:
    """Reading is a function of the bytes: no clock, no fresh id."""
    call = decode_item("x_call", b'{"call_id":"c","state":"started"}')
    assert isinstance(call, CallItem)
    assert call.at_ms is None
    assert call.attempt == 1
