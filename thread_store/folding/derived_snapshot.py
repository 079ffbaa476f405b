"""Derived snapshots: the fold of a rollout and its summary, kept aside, so that coming back reads one small
file and what was added since (FORMAT.md, Derived files).

Invariant: never the truth. One counts only if the line that it says it ends with still ends there, in the
same file at the same place; behind that the log goes on and is folded. One that is ahead of the log (which
lost its last lines in a crash), of another file, of another version or not whole counts as not there.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from protocol.codec import encode_item, encode_value
from protocol.errors import ItemNotEncodable, RolloutError
from protocol.ids import ThreadId
from protocol.line import decode_line
from protocol.own import MemoryItem
from protocol.thread_fold import ThreadFold
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from rollout.paths import RolloutName
from rollout.syscalls import FileCalls
from thread_store.chain.lineage import Lineage, Place
from thread_store.chain.open_rollout import OpenRollout
from thread_store.folding.derived_folder import DerivedFolder
from thread_store.folding.thread_folding import FoldedThread, fold_lineage, line_hash
from thread_store.folding.thread_summary import ThreadSummary, find_first_message, summarize
from thread_store.home import Home

__all__ = ["DerivedSnapshots", "Watermark"]

_log = logging.getLogger("thread_store.derived")

_VERSION = 1


class Watermark(Struct, frozen=True, kw_only=True):
    """How far a snapshot goes, in which file."""

    rollout: str
    """Its path from the home on, with `/`."""
    device: int
    inode: int
    offset: int
    """The bytes before it are folded."""
    last_line: str
    """The hash of the line that ends there, as in `x_memory`."""
    older_files: int = 0

    def is_of(self, rollout: str | None, identity: tuple[int, int]) -> bool:
        """Whether it speaks of that file at that place."""
        return (self.rollout, self.device, self.inode) == (rollout, *identity)

    def stands_in(self, file: OpenRollout) -> bool:
        """Whether its last line still ends there."""
        return (
            0 < self.offset <= file.end
            and file.is_border(self.offset)
            and line_hash(file.last_line(self.offset)) == self.last_line
        )


class _Head(Struct, kw_only=True):
    version: int
    watermark: Watermark
    summary: ThreadSummary


class _Stored(NamedTuple):
    watermark: Watermark
    summary: ThreadSummary
    memory: bytes


class DerivedSnapshots:
    """The snapshots of one home. Blocks; safe from any thread.

    Nothing raises for the sake of one: what can't be read or written is logged, once, and done without.
    """

    def __init__(self, home: Home, *, calls: FileCalls | None = None) -> None:
        self._home = home
        self._folder = DerivedFolder(home.path, calls=calls)
        self._has_failed = False

    # Reading

    def fold(
        self,
        lineage: Lineage,
        *,
        repair: bool = False,
        safety: ToolSafety = DEFAULT_TOOL_SAFETY,
        **options: Any,
    ) -> FoldedThread:
        """Fold a thread up to its last whole line, from its snapshot on if there is one that counts.

        `repair`: write a new one in the place of one that doesn't count. `options` are those of
        `fold_lineage`, whose errors it raises.
        """
        stored = self._load(lineage.own.path)
        start = None if stored is None else self._restore(stored, lineage, safety)
        folded = fold_lineage(lineage, start=start, safety=safety, **options)
        if repair and stored is not None and start is None:
            self.write(folded, lineage)
        return folded

    def find(self, lineage: Lineage, *, safety: ToolSafety = DEFAULT_TOOL_SAFETY) -> FoldedThread | None:
        """The fold as the snapshot of this rollout has it; None if there is none that counts."""
        stored = self._load(lineage.own.path)
        return None if stored is None else self._restore(stored, lineage, safety)

    def summary(self, path: str | os.PathLike[str]) -> ThreadSummary | None:
        """The summary of a rollout that ends where its snapshot does; None if it must be read itself.

        Reads no byte of the rollout.
        """
        stored = self._load(path)
        if stored is None:
            return None
        try:
            status = os.stat(path)
        except OSError:
            return None  # whoever reads it will say so
        same = stored.watermark.is_of(self._name_of(path), (status.st_dev, status.st_ino))
        return stored.summary if same and status.st_size == stored.watermark.offset else None

    def _restore(self, stored: _Stored, lineage: Lineage, safety: ToolSafety) -> FoldedThread | None:
        mark, own = stored.watermark, lineage.own
        if not self._is_fit(lineage) or not mark.is_of(self._name_of(own.path), own.identity):
            return None
        if mark.older_files != lineage.end.segment or mark.offset > own.end:
            return None
        with lineage.open(lineage.end.segment) as file:
            if not mark.stands_in(file):
                return None
        item = _memory_of(stored.memory)
        fold = None if item is None or item.upto_offset != mark.offset else ThreadFold.restore(item, safety)
        if fold is None:
            return None
        upto = Place(lineage.end.segment, mark.offset)
        return FoldedThread(fold=fold, upto=upto, examined_from=Place(0, 0), whole=True)

    @staticmethod
    def _is_fit(lineage: Lineage) -> bool:
        """What is broken or compressed is read as it is."""
        is_plain = not lineage.own.path.endswith(".zst")
        return is_plain and lineage.problem is None and all(each.damage is None for each in lineage.segments)

    def _load(self, path: str | os.PathLike[str]) -> _Stored | None:
        rollout_id = _rollout_id(path)
        if rollout_id is None:
            return None
        try:
            content = self._folder.read(rollout_id)
        except OSError as error:
            self._note_failure("read", error)
            return None
        return None if content is None else _decode(content)

    def _name_of(self, path: str | os.PathLike[str]) -> str | None:
        name = os.path.relpath(os.path.realpath(path), self._home.path)
        return None if name.startswith(os.pardir) else name.replace(os.sep, "/")

    # Writing

    def write(self, folded: FoldedThread, lineage: Lineage) -> bool:
        """Keep the snapshot of a fold of this lineage. Returns whether it stands there now.

        The one that is there stays if it goes further, and its last line still ends there.
        """
        try:
            return self._write(folded, lineage)
        except (RolloutError, OSError) as error:
            self._note_failure("written", error)
            return False

    def _write(self, folded: FoldedThread, lineage: Lineage) -> bool:
        own = lineage.own
        rollout_id, name = _rollout_id(own.path), self._name_of(own.path)
        if rollout_id is None or name is None or not folded.whole or not self._is_fit(lineage):
            return False
        if folded.upto.segment != lineage.end.segment or folded.upto.offset <= 0:
            return False
        before = self._load(own.path)
        with OpenRollout(own.path) as file:
            if file.identity != own.identity:
                return False
            last = file.last_line(folded.upto.offset)
            device, inode = file.identity
            mark = Watermark(
                rollout=name,
                device=device,
                inode=inode,
                offset=folded.upto.offset,
                last_line=line_hash(last),
                older_files=folded.upto.segment,
            )
            known = before is not None and before.watermark.is_of(name, file.identity)
            first = before.summary.first_message if known and before is not None else None
            summary = summarize(
                folded, file.meta, updated=_time_of(last), first_message=first or find_first_message(lineage)
            )
            content = _encode(mark, summary, folded.snapshot(mark.last_line))

            def gives_way(there: bytes | None) -> bool:
                stored = None if there is None else _decode(there)
                if stored is None or not stored.watermark.is_of(name, (device, inode)):
                    return True
                further = stored.watermark
                return further.offset < mark.offset or not _stands(further, own.path)

            return self._folder.replace(rollout_id, content, gives_way=gives_way)

    def follow(self, before: str | os.PathLike[str], now: str | os.PathLike[str]) -> None:
        """The rollout was moved by a rename: let its snapshot say so, that it may still count."""
        stored, rollout_id, name = self._load(before), _rollout_id(now), self._name_of(now)
        if stored is None or rollout_id is None or name is None:
            return
        mark = stored.watermark
        if mark.rollout != self._name_of(before):
            return
        content = _encode_raw(structs.replace(mark, rollout=name), stored)
        try:
            self._folder.replace(rollout_id, content, gives_way=lambda there: _is_same(there, stored))
        except OSError as error:
            self._note_failure("written", error)

    def forget(self, path: str | os.PathLike[str]) -> None:
        """Remove the snapshot of a rollout, if there is one."""
        rollout_id = _rollout_id(path)
        if rollout_id is not None:
            try:
                self._folder.remove(rollout_id)
            except OSError as error:
                self._note_failure("removed", error)

    def _note_failure(self, what: str, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("%s: a derived file can't be %s: %s", self._folder.path, what, error)


def _stands(mark: Watermark, path: str) -> bool:
    """Looked at anew: the file may have grown since it was opened."""
    with OpenRollout(path) as file:
        return mark.stands_in(file)


def _rollout_id(path: str | os.PathLike[str]) -> ThreadId | None:
    name = RolloutName.match(os.path.basename(os.fspath(path)))
    return None if name is None else name.rollout_id or name.thread_id


def _time_of(line: bytes) -> str | None:
    try:
        return decode_line(line).timestamp
    except RolloutError:
        return None


def _is_same(there: bytes | None, stored: _Stored) -> bool:
    return there is not None and _decode(there) == stored


# Bytes


def _encode(mark: Watermark, summary: ThreadSummary, memory: MemoryItem) -> bytes:
    line = encode_item(memory, timestamp=summary.updated or "")
    return _encode_raw(mark, _Stored(mark, summary, line))


def _encode_raw(mark: Watermark, stored: _Stored) -> bytes:
    head = _Head(version=_VERSION, watermark=mark, summary=stored.summary)
    return encode_value(msgspec.to_builtins(head)) + b"\n" + stored.memory


def _decode(content: bytes) -> _Stored | None:
    head_line, _, memory = content.partition(b"\n")
    try:
        head = msgspec.convert(json.loads(head_line), _Head)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None
    return _Stored(head.watermark, head.summary, memory) if head.version == _VERSION else None


def _memory_of(line: bytes) -> MemoryItem | None:
    try:
        item = decode_line(line.rstrip(b"\n")).item()
    except (RolloutError, ItemNotEncodable):
        return None
    return item if isinstance(item, MemoryItem) else None
