"""Targets: what of the product is given hostile bytes, and what must hold whatever they are.

Invariant: a target raises for whatever must not be (AssertionError, and every error that isn't one of
`protocol.errors`, MemoryError too); a refusal that the product documents is caught right here. A target
knows only its input: the same parts give the same verdict in any process.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from protocol.codec import encode_item
from protocol.errors import (
    InvalidLine,
    ItemNotEncodable,
    NotARollout,
    RolloutReplaced,
    RolloutUnreadable,
    ThreadNotFound,
)
from protocol.items import RawItem
from protocol.line import decode_line
from protocol.meta import decode_meta
from protocol.own import MemoryItem
from protocol.thread_fold import ThreadFold
from protocol.timestamps import parse_timestamp
from rollout.append_state import scan_for_append
from rollout.check import check_rollout
from rollout.head import require_rollout
from rollout.lines import RECORD_BYTES_MAX, judge_line, split_lines
from rollout.reader import RolloutReader
from rollout.record import RolloutRecord
from rollout.repair import repair_rollout
from rollout.scanner import ReverseJsonlScanner
from rollout.source import is_compressed, open_source
from rollout.tail import TailKind, find_tail
from tests.faults.fuzz_samples import BASE, DEVICE, INODE, OWN, Parts
from tests.faults.runner import fast_folder
from tests.thread_store.histories import STAMP, place_of
from thread_store.chain.history import read_history
from thread_store.chain.lineage import Lineage
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.fold_range import fold_range, take_record
from thread_store.folding.thread_folding import fold_lineage
from thread_store.home import Home
from thread_store.locks import LockCalls, ThreadLocks
from thread_store.locks.holder import Verdict, decode_holder, encode_holder, judge
from thread_store.locks.lease_file import look_at, may_act
from thread_store.resume.resume_state import ResumeState, read_resume_state

__all__ = ["TARGETS", "Workshop", "kind_of"]

_REFUSED = (NotARollout, RolloutUnreadable, ThreadNotFound, RolloutReplaced)
_LIMITS = (60, 300, 2000)
_BLOCKS = (7, 61, 1000, 4096)
_NESTING_MAX = 128
_FINDINGS_MAX = 1100


class Workshop:
    """A home in a folder in memory, in which targets put their files; close it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rollout-fuzz-", dir=fast_folder()))
        self.home = Home(self.folder / "home")
        self.base, self.own = place_of(self.home, BASE), place_of(self.home, OWN)
        self.kept = self.home.path / "thread-store" / "kept"
        self.derived = self.home.path / "thread-store" / "derived"
        self.locks = self.home.path / "thread-writer-locks"
        for folder in (self.kept, self.derived, self.locks):
            folder.mkdir(parents=True)

    def empty(self, folder: Path) -> None:
        for each in folder.iterdir():
            each.unlink()

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


Target = Callable[[Parts, Workshop], None]
TARGETS: dict[str, tuple[str, int, Target]] = {}
"""By name: the kind of its samples, its share of all inputs, and what it does."""


def kind_of(target: str) -> str:
    """Which samples a target takes."""
    return TARGETS[target][0]


def _target(kind: str, share: int) -> Callable[[Target], Target]:
    def add(target: Target) -> Target:
        TARGETS[target.__name__.removeprefix("_")] = kind, share, target
        return target

    return add


def _rng(data: bytes) -> random.Random:
    """Choices that a replay makes again."""
    return random.Random(zlib.crc32(data))


# Readers


def _seen(record: RolloutRecord) -> tuple[Any, ...]:
    line, warning = record.line, record.warning
    told = None if warning is None else (warning.reason, warning.offset_bytes, warning.size_bytes)
    if line is None:
        return record.offset, record.size, told
    whole = (line.type, line.timestamp, line.ordinal, bytes(line.payload), line.source, line.upcast_from)
    return record.offset, record.size, told, whole


def _forward(data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    return [_seen(each) for each in RolloutReader(io.BytesIO(data), **options)]


def _backward(data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    return [_seen(each) for each in ReverseJsonlScanner(io.BytesIO(data), **options)][::-1]


@_target("rollout", 30)
def _read(parts: Parts, shop: Workshop) -> None:
    """Forward and backward give the same, whatever the size of blocks, the limit of a line and the end; every
    line that isn't blank is there once, and counts as valid if `json` takes it."""
    (data,) = parts
    rng = _rng(data)
    whole = _forward(data)
    assert _backward(data) == whole, "the scanner and the reader disagree"
    block = rng.choice(_BLOCKS)
    assert _forward(data, block_bytes=block) == whole, f"blocks of {block} bytes are read differently"
    assert _backward(data, block_bytes=block) == whole, f"blocks of {block} bytes are scanned differently"
    limit = rng.choice(_LIMITS)
    short = _forward(data, record_bytes_max=limit, block_bytes=block)
    assert _backward(data, record_bytes_max=limit) == short, f"they disagree on lines over {limit} bytes"
    end = rng.randint(0, len(data))
    cut = _forward(data, end_offset=end)
    assert _backward(data, end_offset=end) == cut, f"they disagree up to byte {end}"
    if not is_compressed(data):
        _look_by_json(data, whole)


def _look_by_json(data: bytes, records: list[tuple[Any, ...]]) -> None:
    if any(record[3][5] == "one-document" for record in records if len(record) > 3):
        return
    begin = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    expected, offset = [], begin
    for line in data[begin:].split(b"\n"):
        if line.strip(b" \t\r"):
            expected.append((offset, len(line), _is_valid(line)))
        offset += len(line) + 1
    assert [(each[0], each[1], len(each) > 3) for each in records] == expected, "json sees other lines"


def _is_valid(line: bytes) -> bool:
    """The rule of FORMAT.md, by other means."""
    try:
        value = json.loads(line.decode(), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _depth(line) <= _NESTING_MAX


def _depth(line: bytes) -> int:
    if line.count(b"{") + line.count(b"[") <= _NESTING_MAX:
        return 0
    depth = deepest = 0
    quoted = escaped = False
    for byte in line:
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = byte == 0x5C, byte != 0x22
        elif byte == 0x22:
            quoted = True
        elif byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


@_target("packed", 6)
def _packed(parts: Parts, shop: Workshop) -> None:
    """The same of what is compressed, or was before somebody damaged it."""
    (data,) = parts
    whole = _forward(data)
    assert _backward(data) == whole, "the scanner and the reader disagree"
    limit = _rng(data).choice(_LIMITS)
    short = _forward(data, record_bytes_max=limit)
    assert _backward(data, record_bytes_max=limit) == short, f"they disagree on lines over {limit} bytes"


@_target("rollout", 14)
def _head(parts: Parts, shop: Workshop) -> None:
    """The head is found or refused by name; each item can be decoded, encoded and decoded again."""
    (data,) = parts
    try:
        require_rollout(io.BytesIO(data))
    except NotARollout as error:
        assert error.reason, "it is refused without a reason"
    for record in RolloutReader(io.BytesIO(data)):
        line = record.line
        if line is None:
            continue
        parse_timestamp(line.timestamp)
        line.payload_object()
        try:
            item = line.item()
            if line.type == "session_meta":
                decode_meta(line.payload)
            again = encode_item(item, timestamp=STAMP, ordinal=1)
        except (InvalidLine, ItemNotEncodable):
            continue
        decoded = decode_line(again)
        assert decoded.upcast_from is None, "an item was written in an old format"
        if not isinstance(item, RawItem):
            assert repr(decoded.item()) == repr(item), f"a {line.type} changes when it is written"


@_target("rollout", 8)
def _check(parts: Parts, shop: Workshop) -> None:
    """The check counts what the reader gives, in a report with an end."""
    (data,) = parts
    report = check_rollout(io.BytesIO(data))
    records = _forward(data)
    valid = sum(len(each) > 3 for each in records)
    assert len(report.findings) <= _FINDINGS_MAX
    if valid or not records:
        assert report.records == valid, f"{report.records} records, {valid} are read"
    assert not report.ok or valid == len(records), "damage is no error"


@_target("rollout", 6)
def _append(parts: Parts, shop: Workshop) -> None:
    """What an opening must know of the end is what the tail says."""
    (data,) = parts
    try:
        state = scan_for_append(io.BytesIO(data), "a.jsonl", block_bytes=_rng(data).choice(_BLOCKS))
    except NotARollout:
        return
    tail = find_tail(open_source(io.BytesIO(data)))
    assert state.size == len(data)
    assert state.torn_from == (tail.offset_bytes if tail.kind is TailKind.TORN else None), tail
    assert state.needs_newline == (tail.kind is TailKind.UNTERMINATED), tail
    assert state.max_ordinal is None or state.max_ordinal >= 0


# Locks


@_target("lock", 12)
def _lock(parts: Parts, shop: Workshop) -> None:
    """A holder is known whole or not at all, and judged without an error; so is the file that names it."""
    (data,) = parts
    holder = decode_holder(data)
    if holder is not None:
        assert decode_holder(encode_holder(holder)) == holder
        assert judge(holder) in Verdict
        str(holder.writer)
    path = shop.locks / f"{BASE}.lock"
    path.write_bytes(data)
    standing = look_at(LockCalls(), str(path))
    assert standing is not None
    assert standing.holder == holder
    assert may_act(standing) in Verdict
    if _rng(data).random() < 0.2:
        for each in ThreadLocks(shop.home.path).holders():
            str(each.writer)


# Folds


class _Memory:
    """As much of an `OpenRollout` as a fold of a range needs, in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def blocks(self, start: int, end: int, *, block_bytes: int) -> Iterator[bytes]:
        while start < end:
            block = self._data[start : min(end, start + block_bytes)]
            yield block
            start += len(block)

    def forward(self, start: int, end: int) -> Iterator[RolloutRecord]:
        blocks = [self._data[start:end]]
        for offset, part, terminated in split_lines(blocks, start, record_bytes_max=RECORD_BYTES_MAX):
            assert isinstance(part, list)
            for line in part:
                record = judge_line(line, None, offset, terminated=terminated) if line else None
                if record is not None:
                    yield record
                offset += len(line) + 1


@_target("rollout", 12)
def _fold(parts: Parts, shop: Workshop) -> None:
    """A fold by blocks is the one by lines, wherever it is cut in two; a snapshot gives it back."""
    (data,) = parts
    file, end = _Memory(data), data.rfind(b"\n") + 1
    lines = ThreadFold()
    for record in file.forward(0, end):
        take_record(lines, record)
    expected = _told(lines, end)
    border = data.rfind(b"\n", 0, _rng(data).randint(0, end)) + 1
    blocks = ThreadFold()
    fold_range(blocks, file, 0, border)  # type: ignore[arg-type]
    fold_range(blocks, file, border, end)  # type: ignore[arg-type]
    assert _told(blocks, end) == expected, f"the fold by blocks, cut at {border}, is another one"
    lines.memory.render()
    item = lines.snapshot(end)
    try:
        written = encode_item(item, timestamp=STAMP)
    except ItemNotEncodable:
        return
    read = decode_line(written).item()
    assert isinstance(read, MemoryItem), "a snapshot can't be read back"
    restored = ThreadFold.restore(read)
    assert restored is not None, "a snapshot can't be restored"
    assert _plain(restored.snapshot(end)) == _plain(item), "a restored snapshot is another one"


def _told(fold: ThreadFold, end: int) -> str:
    return _plain(
        (
            fold.snapshot(end),
            fold.calls.calls(),
            fold.damage.ranges,
            fold.approvals.approvals,
            fold.checks.checks,
        )
    )


def _plain(value: Any) -> str:
    """As text: NaN equals NaN there."""
    return repr(msgspec.to_builtins(value))


@_target("rollout", 5)
def _resume(parts: Parts, shop: Workshop) -> None:
    """A state can be told, viewed, and written as JSON and read back, from a memory and from the start."""
    (data,) = parts
    shop.base.write_bytes(data)
    for deep in (False, True):
        try:
            state = read_resume_state(shop.base, shop.home, deep=deep)
        except _REFUSED:
            return
        _use(state)


def _use(state: ResumeState) -> None:
    state.explain()
    state.view()
    written = state.to_json()
    assert ResumeState.from_json(written).to_json() == written, "a state changes when it is written"


@_target("state", 3)
def _state(parts: Parts, shop: Workshop) -> None:
    """A state that was kept as JSON is read back, or refused by one kind of error."""
    (data,) = parts
    try:
        state = ResumeState.from_json(data)
    except msgspec.ValidationError:
        return
    assert isinstance(state, ResumeState)


@_target("memory", 5)
def _memory(parts: Parts, shop: Workshop) -> None:
    """A snapshot of a fold is gone on from, or passed over: alone, and in its rollout."""
    (data,) = parts
    for record in RolloutReader(io.BytesIO(data)):
        if record.line is not None and record.line.type == "x_memory":
            item = record.line.item()
            fold = ThreadFold.restore(item) if isinstance(item, MemoryItem) else None
            if fold is not None:
                fold_range(fold, _Memory(data), 0, data.rfind(b"\n") + 1)  # type: ignore[arg-type]
                fold.memory.render()
                fold.snapshot(1)
    _resume(parts, shop)


@_target("chain", 3)
def _chain(parts: Parts, shop: Workshop) -> None:
    """Two files: the lineage reads the same both ways, and gives a state."""
    base, own = parts
    shop.base.write_bytes(base)
    shop.own.write_bytes(own)
    try:
        with Lineage.resolve(shop.own, shop.home) as lineage:
            forward = [(each.segment, each.record.offset) for each in lineage.forward(end=lineage.end)]
            backward = [(each.segment, each.record.offset) for each in lineage.backward()]
            assert forward == backward[::-1], "a chain reads differently from its end"
        list(read_history(shop.own, shop.home).items())
        _use(read_resume_state(shop.own, shop.home))
    except _REFUSED:
        return
    finally:
        shop.own.unlink()


@_target("snapshot", 2)
def _snapshot(parts: Parts, shop: Workshop) -> None:
    """A derived snapshot, with its checksum or without, is believed or passed over; never an error, and the
    fold of a log that it doesn't fit is the one from scratch."""
    data, content = parts
    shop.base.write_bytes(data)
    status = shop.base.stat()
    content = content.replace(DEVICE, b'"device":%d' % status.st_dev, 1)
    content = content.replace(INODE, b'"inode":%d' % status.st_ino, 1)
    digest = hashlib.sha256(content).hexdigest().encode()
    if _rng(content).random() < 0.1:
        digest = digest[::-1]
    (shop.derived / f"{BASE}.snapshot").write_bytes(digest + b"\n" + content)
    derived = DerivedSnapshots(shop.home)
    try:
        derived.summary(shop.base)
        with Lineage.resolve(shop.base, shop.home) as lineage:
            found = derived.find(lineage)
            folded = derived.fold(lineage, repair=True)
            if found is None:
                whole = fold_lineage(lineage)
                assert _told(folded.fold, 0) == _told(whole.fold, 0), "a snapshot that doesn't count was used"
        _use(read_resume_state(shop.base, shop.home, derived=derived))
    except _REFUSED:
        return
    finally:
        shop.empty(shop.derived)


# Repair


@_target("rollout", 3)
def _repair(parts: Parts, shop: Workshop) -> None:
    """What repair mends is clean then, its old bytes are there, and a second repair finds nothing."""
    (data,) = parts
    shop.base.write_bytes(data)
    try:
        planned = repair_rollout(shop.base, dry_run=True, spill_folders=())
        done = repair_rollout(shop.base, dry_run=False, spill_folders=())
    except (NotARollout, RolloutUnreadable):
        assert shop.base.read_bytes() == data, "a repair that was refused changed the file"
        return
    try:
        assert [each.kind for each in planned.actions] == [each.kind for each in done.actions]
        _is_mended(data, done.actions, shop)
    finally:
        shop.empty(shop.kept)


def _is_mended(data: bytes, actions: list[Any], shop: Workshop) -> None:
    mended = shop.base.read_bytes()
    cut = [each for each in actions if each.kind == "cut_tail"]
    whole = data[: cut[0].offset_bytes] if cut else data
    assert mended.startswith(whole), "a repair changed bytes before the tail"
    assert b"".join(each.read_bytes() for each in shop.kept.glob("*.torn")) == data[len(whole) :]
    assert not mended or mended.endswith(b"\n")
    report = check_rollout(shop.base)
    assert not report.torn_tail_bytes, "a torn tail is left"
    assert report.records >= check_rollout(io.BytesIO(data)).records
    again = repair_rollout(shop.base, dry_run=False, spill_folders=())
    assert not again.actions, f"a second repair does more: {again.actions}"
    assert shop.base.read_bytes() == mended


@_target("kept", 3)
def _replay(parts: Parts, shop: Workshop) -> None:
    """A replay brings in what a kept file holds, once, or refuses the file and leaves all as it is."""
    data, content = parts
    shop.base.write_bytes(data)
    (shop.kept / f"{shop.base.name}.500-1795000000000-0123abcd.unwritten").write_bytes(content)
    try:
        done = repair_rollout(shop.base, dry_run=False, replay=True, spill_folders=())
    except (NotARollout, RolloutUnreadable):
        mended = shop.base.read_bytes()
        assert mended.startswith(data[: data.rfind(b"\n") + 1]), "a replay that was refused changed lines"
        return
    else:
        mended = shop.base.read_bytes()
        assert [each.kind for each in done.actions][-1:] == ["replay"]
        again = repair_rollout(shop.base, dry_run=False, replay=True, spill_folders=())
        assert not again.actions, "a second replay does more"
        assert shop.base.read_bytes() == mended
        assert not check_rollout(shop.base).torn_tail_bytes
    finally:
        shop.empty(shop.kept)
