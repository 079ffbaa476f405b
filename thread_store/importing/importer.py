"""Imports: what a source has and the home lacks is recorded there.

Invariant: a thread that an import makes appears whole, or not at all; one that grows keeps every byte it
has. Nothing is written into a thread that is not, up to its end, what the source says: that is told, and it
is left alone.

Theory of operation. Lines follow from the source alone, so they are made again and compared with those that
stand there; what the source has more goes behind them. Each import ends with an `x_import` record, by which
the next one sees at once that a source is as it was.
"""

from __future__ import annotations

import enum
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime

from msgspec import Struct

from protocol.errors import RolloutError, RolloutReplaced, RolloutWriteError, ThreadNotFound
from protocol.items import RolloutItem
from rollout.guarded_replace import replace_file
from rollout.lines import RECORD_BYTES_MAX, split_lines
from rollout.scanner import ReverseJsonlScanner
from rollout.source import ByteSource, open_source, raise_unreadable
from rollout.stream import decoded_blocks
from thread_store.forks.fork_copy import ForkCalls, write_all
from thread_store.forks.new_file import make_file
from thread_store.importing.lines import ThreadLines
from thread_store.importing.source import MAIN, SourceDamage, SourceReader, SourceThread
from thread_store.importing.threads import thread_id_of
from thread_store.importing.values import as_mapping
from thread_store.titles.session_index import SessionIndex
from thread_store.upkeep.compression import expand_rollout
from thread_store.upkeep.successor import held_file
from thread_store.upkeep.threads import Place, held_thread

__all__ = ["ImportState", "Imported", "import_source"]

_BLOCK_BYTES = 1 << 20
_LOOK_BACK = 50
"""So many records from the end are looked through for the last import."""

Progress = Callable[[int], None]


class ImportState(enum.StrEnum):
    """What became of a conversation."""

    NEW = "new"
    GROWN = "grown"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    """What was imported before is not what the source says now, or went on here: it was left alone."""
    EMPTY = "empty"
    """Nobody said anything."""


class Imported(Struct, frozen=True, kw_only=True):
    """One conversation after an import. `kept`: records without counterpart by their kinds."""

    source: SourceThread
    thread_id: str
    state: ImportState
    records: int = 0
    """Of the source, that were read."""
    bytes: int = 0
    """That were written, or would be."""
    kept: dict[str, int] = {}
    damaged: tuple[SourceDamage, ...] = ()
    hint: str = ""


def import_source(
    reader: SourceReader,
    place: Place,
    *,
    dry_run: bool = False,
    parent_id: str | None = None,
    progress: Progress | None = None,
) -> list[Imported]:
    """Import the conversations of one source; the main one first, then its sub-agents'. Blocks.

    On return what was written is on stable storage. Importing again adds only what is new.

    Raises:
        RolloutUnreadable, ThreadNotFound: the source can't be read.
        ActiveWriter, LocksBusy: a thread is being written; it was left alone.
        RolloutWriteError: the system refuses; the thread is as it was.
    """
    main = reader.threads()[0]
    one = _Import(reader, main, place, dry_run=dry_run, parent_id=parent_id, progress=progress)
    done = [one.run()]
    subs = sorted(one.subs)
    for sub in subs:
        thread = reader.sub_thread(sub)
        done.append(_Import(reader, thread, place, dry_run=dry_run, parent_id=thread_id_of(main)).run())
    return done


class _Import:
    """One conversation of a source."""

    def __init__(
        self,
        reader: SourceReader,
        thread: SourceThread,
        place: Place,
        *,
        dry_run: bool,
        parent_id: str | None,
        progress: Progress | None = None,
    ) -> None:
        self.subs: set[str] = set()
        self._reader = reader
        self._thread = thread
        self._place = place
        self._dry_run = dry_run
        self._parent_id = parent_id
        self._progress = progress or _ignore
        self._id = thread_id_of(thread)
        self._status = _status_of(thread.path)
        self._kept: Counter[str] = Counter()
        self._records = 0
        self._said = 0
        self._title: str | None = None
        self._encoder = ThreadLines(thread, parent_id=parent_id)
        self._calls = ForkCalls()

    def run(self) -> Imported:
        try:
            path = os.fspath(self._place.home.find_thread(self._id))
        except ThreadNotFound:
            return self._make()
        if self._is_as_it_was(path):
            return self._done(ImportState.UNCHANGED, 0)
        return self._compare(path)

    # What the source says

    def _lines(self) -> Iterator[bytes]:
        lines = self._encoder = ThreadLines(self._thread, parent_id=self._parent_id)
        self._kept.clear()
        self._records, self._said = 0, 0
        yield lines.first()
        for step in self._reader.steps():
            if step.sub != MAIN:
                self.subs.add(step.sub)
            if step.sub != self._thread.sub:
                continue
            self._records += 1
            self._title = step.title or self._title
            if step.kept is not None:
                self._kept[step.kept] += 1
            else:
                self._said += len(step.items)
            made = lines.of_step(step.items, step.at_ms)
            self._progress(len(made))
            if made:
                yield made

    def _ending(self) -> bytes:
        state = {
            "format": self._thread.format,
            "id": self._thread.id,
            "path": self._thread.path,
            "bytes": self._status.st_size,
            "mtime_ns": self._status.st_mtime_ns,
            "kept": dict(sorted(self._kept.items())),
            "damaged": len(self._reader.damaged),
        }
        return self._encoder.of_step([RolloutItem.raw("x_import", state)], None)

    def _is_as_it_was(self, path: str) -> bool:
        with ReverseJsonlScanner(path) as scanner:
            for record, _ in zip(scanner, range(_LOOK_BACK), strict=False):
                if record.line is not None and record.line.type == "x_import":
                    last = as_mapping(record.line.payload_object())
                    seen = (last.get("path"), last.get("bytes"), last.get("mtime_ns"))
                    return seen == (self._thread.path, self._status.st_size, self._status.st_mtime_ns)
        return False

    # Making and growing

    def _make(self) -> Imported:
        size = 0
        if self._dry_run:
            size = sum(map(len, self._lines()))
            return self._done(ImportState.NEW if self._said else ImportState.EMPTY, size)
        created = datetime.fromtimestamp(max(0, self._thread.created_ms) / 1000)
        target = os.fspath(self._place.home.new_rollout_path(self._id, created=created))

        def fill(descriptor: int) -> None:
            nonlocal size
            for block in _in_blocks(self._lines()):
                write_all(self._calls, descriptor, block)
                size += len(block)
            if not self._said:
                raise _NobodySpoke
            ending = self._ending()
            write_all(self._calls, descriptor, ending)
            size += len(ending)

        with ExitStack() as stack:
            lock = self._place.locks.acquire(self._id)
            stack.callback(lock.release)
            try:
                make_file(target, fill, calls=self._calls)
            except _NobodySpoke:
                return self._done(ImportState.EMPTY, 0)
        self._give_title()
        return self._done(ImportState.NEW, size)

    def _compare(self, path: str) -> Imported:
        if self._dry_run or path.endswith(".zst"):  # which is not expanded in vain
            comparison = _Comparison(path)
            size = sum(map(len, comparison.rest(self._lines())))
            if self._dry_run or comparison.differs or not size:
                return self._judged(comparison, size)
        with held_thread(self._place, self._id) as held:
            plain = os.fspath(expand_rollout(held.files.current.path, fence=held.fence))
            with held_file(plain, self._place.calls):
                return self._grow(plain, held.fence)

    def _grow(self, path: str, fence: Callable[[], None]) -> Imported:
        comparison, size = _Comparison(path), 0
        status = os.stat(path)

        def fill(descriptor: int) -> None:
            nonlocal size
            comparison.copy(descriptor, self._calls)
            for block in _in_blocks(comparison.rest(self._lines())):
                write_all(self._calls, descriptor, block)
                size += len(block)
            if comparison.differs or not size:
                raise _NothingToAdd
            write_all(self._calls, descriptor, self._ending())

        def check() -> bool:
            fence()
            now = os.stat(path)
            if (now.st_ino, now.st_size) != (status.st_ino, status.st_size):
                raise RolloutReplaced(path=path, reason="another program changed it meanwhile")
            return True

        try:
            replace_file(path, fill, calls=self._calls, check=check)
        except _NothingToAdd:
            return self._judged(comparison, 0)
        except OSError as error:
            if isinstance(error, RolloutError):
                raise
            hint = "The thread is as it was; import it again when the cause is gone"
            raise RolloutWriteError(path=path, operation="write", cause=error, hint=hint) from error
        self._place.derived.forget(path)
        self._give_title()
        return self._judged(comparison, size)

    def _judged(self, comparison: _Comparison, size: int) -> Imported:
        if comparison.differs:
            return self._done(ImportState.CHANGED, 0, hint=comparison.why)
        return self._done(ImportState.GROWN if size else ImportState.UNCHANGED, size)

    def _give_title(self) -> None:
        """The source's own, unless the thread was called something here."""
        title, index = self._title or self._thread.title, SessionIndex(self._place.home.path)
        if title and title.strip() and self._id not in index.names():
            index.append(self._id, title)

    def _done(self, state: ImportState, size: int, *, hint: str = "") -> Imported:
        damaged = tuple(self._reader.damaged) if self._thread.sub == MAIN else ()
        return Imported(
            source=self._thread,
            thread_id=self._id,
            state=state,
            records=self._records,
            bytes=size,
            kept=dict(sorted(self._kept.items())),
            damaged=damaged,
            hint=hint,
        )


class _NobodySpoke(Exception):
    """There is no conversation in it."""


class _NothingToAdd(Exception):
    """The thread has all of it."""


class _Comparison:
    """A file that was imported before, against the lines of its source."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.differs = False
        self.why = ""

    def copy(self, descriptor: int, calls: ForkCalls) -> None:
        """All that stands there."""
        with open(self._path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                write_all(calls, descriptor, block)

    def rest(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """What the source has more; nothing if it differs before."""
        single = (line for some in lines for line in some.splitlines(keepends=True))
        with closing(open_source(self._path)) as source:
            standing = _imported_lines(source)
            for number, line in enumerate(single, 1):
                there = next(standing, None)
                if there is None:
                    yield line
                    yield from single
                    return
                if there != line:
                    self.differs = True
                    self.why = (
                        f"what was imported before is not what the source says now, from record {number:,} on"
                    )
                    return


def _imported_lines(source: ByteSource) -> Iterator[bytes]:
    """The lines of a rollout, decompressed, but for the marks of its imports. One that is too long is empty
    here: no source says that.
    """
    blocks = decoded_blocks(source, _BLOCK_BYTES)
    for _, part, terminated in split_lines(blocks, 0, record_bytes_max=RECORD_BYTES_MAX):
        if not isinstance(part, list):
            yield b""
            continue
        for line in part:
            if b'"type":"x_import"' not in line[:200]:
                yield line + b"\n" if terminated else line


def _status_of(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise_unreadable(path, error, "look at")


def _in_blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    gathered = bytearray()
    for line in lines:
        gathered += line
        if len(gathered) >= _BLOCK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


def _ignore(size: int) -> None:
    del size
