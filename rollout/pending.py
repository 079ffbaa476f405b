"""The pending queue: where callers' threads leave items and the writer picks them up.

Invariant: items are encoded, stamped and numbered here, under one short lock, in the order
in which they are accepted; the items of one call are accepted together or not at all. What
is refused leaves no trace. Nothing here waits or does I/O.

Theory of operation. Lines are encoded straight into one growing bytearray: no object per
line and no join. The writer swaps the buffer for an empty one. A signal handler or a
finalizer may call `append` while the same thread is inside it: such items are encoded apart
and join the queue when the outer call ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import time_ns

from protocol.codec import ItemKind, encode_into, encode_payload, kind_of, kinds
from protocol.errors import PendingQueueFull, RecordTooLarge, RolloutError
from protocol.items import RawItem, RolloutItem
from protocol.timestamps import format_timestamp
from rollout.backlog import Chunk
from rollout.config import Durability, RecorderConfig

__all__ = ["Pending", "Wake"]

# A chunk that the writer is slow to fetch goes on growing up to this many times chunk_bytes.
_CHUNK_GROWTH_MAX = 8

ALWAYS_SYNCED = {"x_call": Durability.SYNC, "x_approval": Durability.SYNC}


class Wake:
    """What the writer must be told after an append."""

    NOTHING = 0
    LINGER = 1
    """Something is pending: write it within `linger_seconds`."""
    NOW = 2


class Pending:
    """The bounded queue between callers and the writer. Safe from any thread and signal handler."""

    def __init__(
        self,
        *,
        path: str,
        config: RecorderConfig,
        header: bytes,
        opening: Callable[[], bytes],
        next_ordinal: int | None,
        bind: Callable[[RolloutItem], RolloutItem] | None = None,
        stamp_ms: int = 0,
    ) -> None:
        self._path = path
        self._config = config
        self._header = header
        """What must stand before the first record: the meta line of a new file, the newline that the
        last line of an old one lacks, or nothing."""
        self._opening: Callable[[], bytes] | None = opening
        """Makes the `x_writer opened` line that goes with the first record; None once it did."""
        self._next_ordinal = next_ordinal
        self._bind = bind
        self._levels = {**config.durability, **ALWAYS_SYNCED}
        self._lock = threading.RLock()
        self._inside = False
        self._reentered: deque[RawItem] = deque()
        self._refusal: Callable[[], RolloutError] | None = None

        self._buffer = bytearray()
        self._buffer_items = 0
        self._buffer_start = 0
        self._sealed: list[Chunk] = []

        self._stamp_ms = stamp_ms
        self._stamp = b""
        self._stamp_unnumbered = b""
        self._set_stamp(stamp_ms)

        self.accepted_bytes = 0
        self.accepted_items = 0
        self.durable_bytes = 0
        """Set by the writer; read here without a lock, it only ever grows."""
        self.sync_wanted = 0
        """Stream position that a record of durability `sync` asks for."""
        self.last_error: BaseException | None = None
        """The writer's last error, for the message of `PendingQueueFull`."""
        self.idle = True
        """The writer has nothing scheduled: the next append must wake it."""
        self.hurried = False
        """The writer was already told to come at once."""

    # The callers' side

    def append(self, items: Sequence[RolloutItem]) -> int:
        """Accept all of `items` or none. Returns a `Wake`.

        Raises:
            RecorderClosed, WriterFenced: the recorder takes no more.
            ItemNotEncodable, RecordTooLarge: one of the items is unfit.
            PendingQueueFull: no room; wait, or free the disk.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            if self._inside:
                return self._stash(items)
            self._inside = True
            try:
                wake = self._accept(items)
                while self._reentered:
                    wake = max(wake, self._accept([self._reentered.popleft()], forced=True))
                return wake
            finally:
                self._inside = False

    def _accept(self, items: Sequence[RolloutItem], *, forced: bool = False) -> int:
        config = self._config
        pending = self.accepted_bytes - self.durable_bytes
        if pending >= config.pending_bytes_max and not forced:
            raise self._full(pending)
        buffer = self._buffer
        start = len(buffer)
        ordinal = self._next_ordinal
        urgency = Durability.PENDING
        try:
            if self._opening is not None:
                buffer += self._header + self._opening()
            now = time_ns() // 1_000_000
            if now > self._stamp_ms:
                self._set_stamp(now)
            line_start = len(buffer)
            for item in items:
                kind: ItemKind = kinds.get(type(item)) or kind_of(item)
                if kind.binds and self._bind is not None:
                    item = self._bind(item)
                if ordinal is not None and kind.numbered:
                    buffer += b"%b%d%b" % (self._stamp, ordinal, kind.envelope)
                    ordinal += 1
                else:
                    buffer += self._stamp_unnumbered + kind.envelope_unnumbered
                if kind.plain:
                    try:
                        encode_into(item, buffer, -1)
                    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
                        self._encode_again(item, buffer, kind, line_start, ordinal)
                else:
                    encode_payload(item, buffer, kind)
                buffer += b"}\n"
                line_end = len(buffer)
                if line_end - line_start > config.record_bytes_max:
                    raise RecordTooLarge(
                        size_bytes=line_end - line_start,
                        limit_bytes=config.record_bytes_max,
                        item_type=kind.record_type,
                    )
                line_start = line_end
                level = self._levels.get(kind.record_type)
                if level is not None and level is not urgency:
                    urgency = level if urgency is not Durability.SYNC else urgency
            grown = len(buffer) - start
            if pending and pending + grown > config.pending_bytes_max and not forced:
                raise self._full(pending)
        except BaseException:
            del buffer[start:]
            raise
        self._next_ordinal = ordinal
        self._header, self._opening = b"", None
        self.accepted_items += len(items)
        self._buffer_items += len(items)
        return self._note_accepted(grown, urgency)

    def _encode_again(
        self, item: RolloutItem, buffer: bytearray, kind: ItemKind, line_start: int, ordinal: int | None
    ) -> None:
        """The quick encoder refused: drop what it left of the payload and let the codec decide."""
        del buffer[line_start:]
        if ordinal is not None and kind.numbered:
            buffer += b"%b%d%b" % (self._stamp, ordinal - 1, kind.envelope)
        else:
            buffer += self._stamp_unnumbered + kind.envelope_unnumbered
        encode_payload(item, buffer, kind)

    def _note_accepted(self, grown: int, urgency: Durability) -> int:
        self.accepted_bytes += grown
        size = len(self._buffer)
        if size >= self._config.chunk_bytes * _CHUNK_GROWTH_MAX:
            self._seal()
        if urgency is Durability.SYNC:
            self.sync_wanted = self.accepted_bytes
        if (urgency is not Durability.PENDING or size >= self._config.chunk_bytes) and not self.hurried:
            self.hurried, self.idle = True, False
            return Wake.NOW
        if self.idle:
            self.idle = False
            return Wake.LINGER
        return Wake.NOTHING

    def _stash(self, items: Sequence[RolloutItem]) -> int:
        ready = []
        for item in items:
            kind = kind_of(item)
            if kind.binds and self._bind is not None:
                item = self._bind(item)
            payload = bytearray()
            encode_payload(item, payload, kind)
            if len(payload) + 1024 > self._config.record_bytes_max:
                raise RecordTooLarge(
                    size_bytes=len(payload), limit_bytes=self._config.record_bytes_max, item_type=kind.record_type
                )
            ready.append(RawItem(kind.record_type, bytes(payload)))
        self._reentered.extend(ready)
        return Wake.NOTHING

    def append_note(self, item: RolloutItem) -> None:
        """Add a record of the recorder itself (not counted as an item), even when nearly full."""
        with self._lock:
            self._accept([item], forced=True)
            self.accepted_items -= 1
            self._buffer_items -= 1

    def append_header(self) -> None:
        """Accept the meta line alone, so that the file appears without an item (`persist`)."""
        with self._lock:
            if self._header and self._refusal is None:
                self._buffer += self._header
                grown, self._header = len(self._header), b""
                self._note_accepted(grown, Durability.PENDING)

    def refuse(self, make_error: Callable[[], RolloutError]) -> None:
        """From now on `append` raises what `make_error` makes. What was accepted stays."""
        with self._lock:
            if self._refusal is None:
                self._refusal = make_error

    @property
    def opened(self) -> bool:
        """Whether a record was accepted, so that `x_writer opened` was written."""
        return self._opening is None

    def _full(self, pending: int) -> PendingQueueFull:
        return PendingQueueFull(
            pending_bytes=pending,
            limit_bytes=self._config.pending_bytes_max,
            path=self._path,
            last_error=self.last_error,
        )

    def _set_stamp(self, now: int) -> None:
        # Only called with a later time: stamps never step back within a recorder.
        text = format_timestamp(now).encode()
        self._stamp_ms = now
        self._stamp = b'{"timestamp":"%b","ordinal":' % text
        self._stamp_unnumbered = b'{"timestamp":"%b' % text

    # The writer's side

    def take(self) -> Iterable[Chunk]:
        """Everything accepted so far, as sealed chunks."""
        with self._lock:
            if self._buffer:
                self._seal()
            sealed, self._sealed = self._sealed, []
            self.hurried = False
            return sealed

    def _seal(self) -> None:
        chunk = Chunk(self._buffer, start=self._buffer_start, items=self._buffer_items)
        self._sealed.append(chunk)
        self._buffer_start += len(self._buffer)
        self._buffer = bytearray()
        self._buffer_items = 0

    def rest(self) -> bool:
        """The writer goes idle. False if something came in meanwhile: look again."""
        with self._lock:
            if self._buffer or self._sealed:
                return False
            self.idle = True
            self.hurried = False
            return True

    def forget(self) -> None:
        """Drop what was accepted and not taken (after a fork of the process, or `discard`)."""
        self._buffer = bytearray()
        self._buffer_items = 0
        self._sealed = []

    def reset_after_fork(self, refusal: Callable[[], RolloutError]) -> None:
        """In a forked child: the lock may be held by a thread that doesn't exist here."""
        self._lock = threading.RLock()
        self._inside = False
        self._refusal = refusal
        self.forget()

    def position(self) -> tuple[int, int]:
        """Bytes and items accepted so far: what a barrier waits for."""
        with self._lock:
            return self.accepted_bytes, self.accepted_items


