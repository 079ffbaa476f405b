"""Homes in which a canary stands in every place that there is, and a look for it in every byte."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import zstandard

from protocol.line import decode_line
from rollout.kept import keep_unwritten
from tests.thread_store.histories import (
    Script,
    base_of,
    dump,
    line,
    meta,
    place_of,
    turns,
    uuid,
    write_thread,
)
from thread_store.chain.lineage import Lineage
from thread_store.erasing.needle import Needle
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.thread_folding import fold_lineage, line_hash
from thread_store.home import Home

__all__ = [
    "CANARY",
    "CHILD",
    "COPY",
    "NEEDLE",
    "PACKED",
    "PARENT",
    "QUIET",
    "erased_offsets",
    "files_holding",
    "full_home",
    "memory_line",
    "tree",
    "unpacked",
]

CANARY = 'c\u00e4nary-"7f3a"\n\U0001f600/k9'
"""Has what writers escape in different ways: quotes, a newline, a slash, letters beyond ASCII."""
NEEDLE = Needle.text(CANARY)

PARENT, CHILD, COPY, PACKED, QUIET = (uuid(0xE0 + number) for number in range(5))


def memory_line(data: bytes, goal: str) -> bytes:
    """An `x_memory` that speaks for all of `data` (a whole file so far)."""
    last = data[:-1].rpartition(b"\n")[2]
    payload = {"version": 1, "upto_offset": len(data), "last_line": line_hash(last), "max_ordinal": 3}
    return line("x_memory", {**payload, "epoch": 1, "memory": {"goal": goal}})


def _escaped(text: str) -> bytes:
    """JSON as a program writes it that escapes whatever it can."""
    return "".join(
        f"\\u{int.from_bytes(char.encode('utf-16-be')[at : at + 2], 'big'):04X}"
        for char in text
        for at in range(0, len(char.encode("utf-16-be")), 2)
    ).encode()


def _parent_body(script: Script) -> None:
    script.turn(1, calls=["c1"])
    script.start("t2")
    script.user(f"the password is {CANARY}, keep it")
    arguments = json.dumps({"command": ["login", json.dumps({"deep": CANARY}, ensure_ascii=True)]})
    script.add(
        "response_item", {"type": "function_call", "name": "sh", "arguments": arguments, "call_id": "c2"}
    )
    script.add("x_call", {"call_id": "c2", "turn_id": "t2", "state": "started", "note": CANARY})
    script.output("c2")
    script.lines.append(
        b'{"timestamp":"2026-03-04T05:06:07.000Z","ordinal":%d,"type":"event_msg","payload":{"type":'
        b'"agent_message","message":"%s"}}\n' % (script.next_ordinal or 0, _escaped(CANARY))
    )
    script.next_ordinal = (script.next_ordinal or 0) + 1
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CANARY}]}
    script.add("compacted", {"message": "summary", "replacement_history": [item]})


def full_home(home: Home) -> dict[str, Path]:
    """The canary in every place; the rollouts by thread."""
    script = Script(1)
    _parent_body(script)
    head = meta(PARENT, x_task=f"use {CANARY}")
    data = head + script.bytes
    data += memory_line(data, CANARY)
    last = Script(script.next_ordinal)
    last.response("assistant", f"again {CANARY}")
    data += last.bytes
    border, ordinal = len(data), last.next_ordinal or 0
    behind = turns(2, first=8, ordinal=ordinal)
    next_number = max(decode_line(each).number or 0 for each in behind.splitlines()) + 1
    fused = line("event_msg", {"type": "agent_message", "message": "fused"}, next_number).removesuffix(b"\n")
    fused += line("event_msg", {"type": "agent_message", "message": CANARY}, next_number + 1)
    data += behind + fused + memory_line(data + behind + fused, "harmless")
    parent = place_of(home, PARENT)
    parent.write_bytes(data + b'{"timestamp":"2026-03-04T05:06:07.000Z","ordinal":99,"x":' + dump(CANARY))

    child_data = meta(CHILD, ordinal, history_base=base_of(parent, PARENT, border, ordinal))
    child_data += turns(1, first=20, ordinal=ordinal + 1)
    child = place_of(home, CHILD)
    child.write_bytes(child_data + memory_line(child_data, "made of what the parent said"))

    copy = place_of(home, COPY)
    copy.write_bytes(meta(COPY) + data[: data.index(b'"type":"x_memory"')].rpartition(b"\n")[0] + b"\n")

    packed = place_of(home, PACKED, archived=True)
    plain = meta(PACKED) + script.bytes + turns(1, first=30, ordinal=script.next_ordinal)
    packed = packed.with_name(packed.name + ".zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain))

    quiet = write_thread(home, QUIET, turns(2))
    _beside(home, parent, quiet)
    return {PARENT: parent, CHILD: child, COPY: copy, PACKED: packed, QUIET: quiet}


def _beside(home: Home, parent: Path, quiet: Path) -> None:
    """Titles, prompts, kept files, blobs, derived files, what a killed program left."""
    with (home.path / "session_index.jsonl").open("wb") as titles:
        for thread_id, name in ((QUIET, "quiet"), (PARENT, f"about {CANARY}"), (COPY, f"copy {CANARY}")):
            titles.write(
                dump({"id": thread_id, "thread_name": name, "updated_at": "2026-03-04T05:06:07Z"}) + b"\n"
            )
    with (home.path / "history.jsonl").open("wb") as prompts:
        for thread_id, text in ((PARENT, f"the password is {CANARY}, keep it"), (QUIET, "hello")):
            prompts.write(dump({"session_id": thread_id, "ts": 7, "text": text}) + b"\n")
    kept = home.path / "thread-store" / "kept"
    kept.mkdir(parents=True)
    (kept / f"{parent.name}.77-5-0123abcd.torn").write_bytes(b'{"type":"x","payload":' + dump(CANARY)[:-1])
    lines = [line("event_msg", {"type": "agent_message", "message": text}, 40) for text in ("a", CANARY)]
    keep_unwritten(parent, lines, thread_id=PARENT, offset_bytes=9, items=2)
    blob = CANARY.encode() * 50
    (home.path / "blobs").mkdir()
    (home.path / "blobs" / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    (parent.parent / f".{parent.name}.abcdefabcdef.tmp").write_bytes(parent.read_bytes())
    for path in (parent, quiet):
        with Lineage.resolve(path, home) as lineage:
            DerivedSnapshots(home).write(fold_lineage(lineage, deep=True), lineage)
    (home.path / "thread-store" / "derived" / "index.sqlite").write_bytes(b"\0" + CANARY.encode())


def unpacked(path: Path) -> bytes:
    """The content, decompressed where it is compressed."""
    data = path.read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data


def tree(folder: Path) -> Iterator[Path]:
    """Every file."""
    for top, _folders, names in os.walk(folder):
        yield from (Path(top) / name for name in names)


def files_holding(home: Home, needle: Needle = NEEDLE) -> list[str]:
    """The files in which it stands, however escaped, compressed or not."""
    return sorted(
        os.path.relpath(path, home.path) for path in tree(home.path) if needle.is_in(unpacked(path))
    )


def erased_offsets(before: bytes, after: bytes) -> list[int]:
    """Where the lines begin that aren't what they were."""
    assert len(before) == len(after)
    offsets, position = [], 0
    for old, new in zip(before.split(b"\n"), after.split(b"\n"), strict=True):
        assert len(old) == len(new)
        if old != new:
            offsets.append(position)
        position += len(old) + 1
    return offsets
