"""The core of a recorder: pending queue, writer and sink of one rollout, put together.

Invariant: what a new file begins with, and what goes before the first record of an old one,
is decided here and nowhere else (FORMAT.md, Meta line and Opening). Everything here blocks;
the handles call it off their loops.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from protocol.codec import encode_item
from protocol.errors import NotARollout, RolloutError, RolloutExists, RolloutUnreadable, ThreadNotFound
from protocol.events import TaskStarted
from protocol.ids import ThreadId
from protocol.items import RolloutItem, bind
from protocol.meta import SessionMeta
from protocol.timestamps import format_timestamp, now_ms
from rollout.append_state import AppendState, scan_for_append
from rollout.config import RecorderConfig
from rollout.erase_journal import finish_begun
from rollout.file_lock import lock_rollout
from rollout.file_sink import FileSink
from rollout.kept import keep_unwritten
from rollout.paths import RolloutName
from rollout.pending import Pending
from rollout.redaction import Redaction
from rollout.service import Service
from rollout.sink import Sink
from rollout.syscalls import FileCalls, let_go
from rollout.thread_lock import refuse_active_writer, thread_lock_path
from rollout.writer import Writer

if TYPE_CHECKING:
    from protocol.bounding import StorageBounds
    from rollout.blobs import BlobCalls

__all__ = ["Core", "begin_core", "continue_core", "create_core", "gap_line", "open_core", "writer_note"]


_Keep = Callable[[str, str, list[bytes], int, int], str | None]
"""Sets lines aside: path, thread id, lines, the offset where they belong, the number of items."""


class Core(NamedTuple):
    """One rollout being written."""

    path: str
    thread_id: str
    pending: Pending
    writer: Writer
    meta: SessionMeta | None
    """Of a rollout that was begun here."""
    epoch: int
    """Counts the recorders of the rollout, this one included."""


class _Binder:
    """Fills in thread and turn where an item leaves them open."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        # Codex passes over items without a turn: before the first one begins, the thread's id stands in.
        self._turn_id = thread_id

    def __call__(self, item: RolloutItem) -> RolloutItem:
        if isinstance(item, TaskStarted):
            self._turn_id = item.turn_id
        return bind(item, self._thread_id, self._turn_id)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))


def create_core(
    path: str | os.PathLike[str],
    meta: SessionMeta | None,
    *,
    config: RecorderConfig,
    service: Service,
    calls: FileCalls | None = None,
    blob_calls: BlobCalls | None = None,
    lock: bool = True,
    fence: Callable[[], None] | None = None,
    on_close: Callable[[], None] | None = None,
) -> Core:
    """Begin a rollout. Nothing is written yet: the file appears with the first record, or by `persist`.

    `fence` and `on_close`: as `FileSink` has them.

    Raises:
        RolloutExists: something that is not empty stands at the path.
        NotARollout: the file's name carries another thread id than the meta line.
    """
    path = _absolute(path)
    _require_free(path)

    def make_sink(line: bytes) -> Sink:
        sink = FileSink(
            path, first_line=line, gap_line=gap_line, calls=calls, lock=lock, fence=fence, on_close=on_close
        )
        return _with_blobs(sink, config, blob_calls)

    return begin_core(
        path,
        meta,
        config=config,
        service=service,
        make_sink=make_sink,
        keep=_keep,
        bounds=config.bounds,
    )


def _with_blobs(sink: Sink, config: RecorderConfig, calls: BlobCalls | None) -> Sink:
    if config.bounds is None:
        return sink
    from rollout.blob_sink import BlobSink  # for the few who bound their storage
    from rollout.blobs import BlobFolder, blob_folder

    return BlobSink(sink, BlobFolder(blob_folder(sink.path), calls=calls))


def begin_core(
    path: str,
    meta: SessionMeta | None,
    *,
    config: RecorderConfig,
    service: Service,
    make_sink: Callable[[bytes], Sink],
    keep: _Keep,
    bounds: StorageBounds | None = None,
) -> Core:
    """Begin a rollout in any sink, which is made from the meta line. `path` names it in errors; `bounds` are
    for one that keeps blobs.

    Raises:
        NotARollout: the name in the path carries another thread id than the meta line.
    """
    began_ms = now_ms()
    meta = _complete_meta(meta or SessionMeta(cwd=os.getcwd()), path, began_ms)
    redaction = Redaction.of(config.redact, config.redact_items)
    header = meta if redaction is None else redaction.item(meta)
    line = encode_item(header, timestamp=str(meta.timestamp), ordinal=0)
    return _assemble(
        path,
        str(meta.id),
        make_sink(line),
        config,
        service,
        meta=meta,
        first_line=line,
        header=line,
        next_ordinal=1,
        epoch=1,
        cut_bytes=0,
        stamp_ms=began_ms,
        keep=keep,
        bounds=bounds,
    )


def _require_free(path: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RolloutUnreadable(path=path, cause=error) from error
    if not FileCalls.is_regular(status):
        raise RolloutExists(path=path, reason="it is no regular file")
    if status.st_size:
        raise RolloutExists(path=path, reason=f"it holds {status.st_size:,} bytes")


def _complete_meta(meta: SessionMeta, path: str, began_ms: int) -> SessionMeta:
    """Fill in what a meta line must have: the id (from the file's name, else a new one) and the time."""
    name = RolloutName.match(os.path.basename(path))
    given = ThreadId.parse(meta.id) if meta.id else None
    if name is not None and given is not None and name.thread_id != given:
        raise NotARollout(path=path, reason=f"its name says thread {name.thread_id}, its meta line {given}")
    thread_id = given or (name.thread_id if name is not None else ThreadId.new())
    return meta.filled(thread_id=str(thread_id), timestamp=format_timestamp(began_ms))


def open_core(
    path: str | os.PathLike[str],
    *,
    config: RecorderConfig,
    service: Service,
    calls: FileCalls | None = None,
    blob_calls: BlobCalls | None = None,
    lock: bool = True,
    fence: Callable[[], None] | None = None,
    on_close: Callable[[], None] | None = None,
) -> Core:
    """Take hold of an existing rollout to append to it. Its bytes and its mtime stay until the first record.

    Raises:
        ThreadNotFound: there is no such file.
        NotARollout: a folder, a device, a compressed file, or no whole line in it.
        RolloutUnreadable: the system refuses to open it for writing, or it is a symlink.
        ActiveWriter: another recorder holds it.
    """
    path = _absolute(path)
    calls = calls or FileCalls()
    if path.endswith(".zst"):
        raise NotARollout(path=path, reason="it is compressed", hint=f"Expand it first: zstd -d {path}")
    if lock and fence is None and thread_lock_path(path) is not None:
        refuse_active_writer(path)  # a store, or Codex; who opens it for a store holds that lock
    if os.path.lexists(path):
        name = RolloutName.match(os.path.basename(path))
        finish_begun(path, thread_id=None if name is None else name.thread_id)
    descriptor = _open_to_append(path, calls)
    try:
        if not calls.is_regular(calls.fstat(descriptor)):
            raise NotARollout(path=path, reason="it is no regular file")
        if lock:
            lock_rollout(descriptor, path)
        found = scan_for_append(descriptor, path)
        sink = FileSink(
            path,
            first_line=found.first_line,
            gap_line=gap_line,
            calls=calls,
            lock=lock,
            fence=fence,
            on_close=on_close,
        )
        sink.take(descriptor, torn_from=found.torn_from)
    except BaseException as error:
        let_go(calls, descriptor, path)
        if isinstance(error, OSError) and not isinstance(error, RolloutError):
            raise RolloutUnreadable(path=path, cause=error) from error
        raise
    return continue_core(
        path,
        found,
        _with_blobs(sink, config, blob_calls),
        config=config,
        service=service,
        keep=_keep,
        bounds=config.bounds,
    )


def continue_core(
    path: str,
    found: AppendState,
    sink: Sink,
    *,
    config: RecorderConfig,
    service: Service,
    keep: _Keep,
    bounds: StorageBounds | None = None,
) -> Core:
    """Go on behind what was `found` in the sink. `bounds`: for one that keeps blobs."""
    return _assemble(
        path,
        found.thread_id or "",
        sink,
        config,
        service,
        meta=None,
        first_line=found.first_line,
        header=b"\n" if found.needs_newline else b"",
        next_ordinal=_next_ordinal(found),
        epoch=found.epoch + 1,
        cut_bytes=0 if found.torn_from is None else found.size - found.torn_from,
        stamp_ms=found.last_timestamp_ms or 0,
        keep=keep,
        bounds=bounds,
    )


def _open_to_append(path: str, calls: FileCalls) -> int:
    try:
        return calls.open_append(path)
    except FileNotFoundError:
        raise ThreadNotFound(path, path=path) from None
    except IsADirectoryError:
        raise NotARollout(path=path, reason="it is a folder") from None
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotARollout(path=path, reason="it is no regular file") from error
        raise RolloutUnreadable(path=path, cause=error) from error


def _next_ordinal(found: AppendState) -> int | None:
    """None: the file is a legacy one that numbers nothing, and stays so (FORMAT.md, Ordinals)."""
    if found.max_ordinal is not None:
        return found.max_ordinal + 1
    return 0 if found.history_mode == "paginated" else None


def _assemble(
    path: str,
    thread_id: str,
    sink: Sink,
    config: RecorderConfig,
    service: Service,
    *,
    meta: SessionMeta | None,
    first_line: bytes,
    header: bytes,
    next_ordinal: int | None,
    epoch: int,
    cut_bytes: int,
    stamp_ms: int,
    keep: _Keep,
    bounds: StorageBounds | None,
) -> Core:
    def opening(at_ms: int) -> bytes:
        note = writer_note("opened", epoch, cut_bytes=cut_bytes)
        return encode_item(note, timestamp=format_timestamp(at_ms))

    def keep_lines(lines: list[bytes], offset_bytes: int, items: int) -> str | None:
        if lines and first_line and not lines[0].startswith(first_line):
            lines = [first_line, *lines]  # the file may be empty or gone by the time they are replayed
        return keep(path, thread_id, lines, offset_bytes, items)

    pending = Pending(
        path=path,
        config=config,
        header=header,
        opening=opening,
        next_ordinal=next_ordinal,
        bind=_Binder(thread_id),
        bounds=bounds,
        stamp_ms=stamp_ms,
    )
    writer = Writer(
        service=service,
        pending=pending,
        sink=sink,
        config=config,
        keep_unwritten=keep_lines,
        closing_note=lambda: writer_note("closed", epoch),
    )
    service.adopt(writer)
    _forked_writers.add(writer)
    return Core(path, thread_id, pending, writer, meta, epoch)


def writer_note(event: str, epoch: int, *, cut_bytes: int = 0, reason: str | None = None) -> RolloutItem:
    """An `x_writer` that says what this process does with the rollout (FORMAT.md, Opening)."""
    payload: dict[str, object] = {
        "event": event,
        "epoch": epoch,
        "pid": os.getpid(),
        "host": platform.node(),
        "program": os.path.basename(sys.argv[0] or "python"),
    }
    if reason is not None:
        payload["reason"] = reason
    if cut_bytes:
        payload["cut_bytes"] = cut_bytes
    payload["at_ms"] = now_ms()
    return RolloutItem.raw("x_writer", payload)


def gap_line(lost_bytes: int, cause: str, at_ms: int) -> bytes:
    """The line of an `x_gap`: so many bytes were destroyed by another program."""
    gap = RolloutItem.raw("x_gap", {"bytes": lost_bytes, "cause": cause})
    return encode_item(gap, timestamp=format_timestamp(at_ms))


def _keep(path: str, thread_id: str, lines: list[bytes], offset_bytes: int, items: int) -> str | None:
    """Set unwritten lines aside: in the kept folder, else in the system's folder for temporary files."""
    kept = keep_unwritten(
        path,
        lines,
        thread_id=thread_id,
        offset_bytes=offset_bytes,
        items=items,
        spill_folders=[tempfile.gettempdir()],
    )
    return None if kept is None else os.fspath(kept)


_forked_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _close_in_child() -> None:
    for writer in list(_forked_writers):
        writer.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
