"""The pending queue: where callers' threads leave items and the writer picks them up.

Invariant: items are encoded, stamped and numbered here, under one short lock, in the order
in which they are accepted; the items of one call are accepted together or not at all. What
is refused leaves no trace. Nothing here waits or does I/O.

Theory of operation. Lines are encoded straight into one growing bytearray: no object per
line and no join. The writer swaps the buffer for an empty one. `append` has an express way
for the usual call (one item, of a class that needs nothing special, nobody to wake); every
question that may stop it is folded into `_calm` and `_mark`, and all else goes the long way,
which writes the same bytes.

A signal handler or a finalizer may call `append` while the same thread is in here, between any
two instructions: such items are encoded apart and join the queue when the outer call ends
(`_calm` is None meanwhile). It may also raise (Ctrl-C), which it can do after any call: so what
belongs together is changed without a call in between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time, time_ns
from typing import TYPE_CHECKING, NamedTuple

from protocol.codec import REFUSALS, PlainLine, encode_into, encode_payload, kind_of
from protocol.errors import PendingQueueFull, RecordTooLarge, RolloutError
from protocol.items import RawItem, RolloutItem
from protocol.timestamps import format_timestamp
from rollout.backlog import Chunk
from rollout.config import Durability, RecorderConfig
from rollout.redaction import Redaction

if TYPE_CHECKING:
    from protocol.blobs import Blob
    from protocol.bounding import StorageBounds

__all__ = ["Pending", "Records"]

Records = RolloutItem | Iterable[RolloutItem]
"""What callers pass: an item, or several."""

# A chunk that the writer is slow to fetch goes on growing up to this many times chunk_bytes.
_CHUNK_GROWTH_MAX = 8
_ENVELOPE_BYTES_MAX = 1024
_SCRATCH_BYTES_KEPT = 64 << 10
_NO_LIMIT = 1 << 62
_OWN_NOTE = b',"type":"x_writer","payload":'

_ALWAYS_SYNCED = {"x_call": Durability.SYNC, "x_approval": Durability.SYNC}


class _Plan(NamedTuple):
    """How the items of one class are written here."""

    envelope: bytes
    bare_envelope: bytes
    numbered: bool
    binds: bool
    level: Durability | None
    """None where it is `PENDING`."""


def _flatten(items: Sequence[Records]) -> list[RolloutItem]:
    flat: list[RolloutItem] = []
    for each in items:
        if isinstance(each, list | tuple):
            flat.extend(each)
        else:
            flat.append(each)  # type: ignore[arg-type]  # what is no item is refused by name when encoded
    return flat


class _Stamp(NamedTuple):
    """One millisecond, as it stands in lines."""

    at_ms: int
    text: str
    numbered: bytes
    bare: bytes


_latest = _Stamp(-1, "", b"", b"")
"""Of all queues: a thousand threads that speak in turn need the same millisecond one after the other."""


def _stamp_of(at_ms: int) -> _Stamp:
    global _latest
    stamp = _latest
    if stamp.at_ms != at_ms:
        text = format_timestamp(at_ms)
        encoded = text.encode()
        stamp = _latest = _Stamp(
            at_ms, text, b'{"timestamp":"%b","ordinal":' % encoded, b'{"timestamp":"%b' % encoded
        )
    return stamp


class Pending:
    """The bounded queue between callers and the writer. Safe from any thread and signal handler."""

    # Slots: the express way reads several of these for each item.
    __slots__ = (
        "_acquire",
        "_bare_stamp",
        "_bind",
        "_blob_bytes",
        "_blob_ends",
        "_blobs",
        "_bounds",
        "_buffer",
        "_buffer_start",
        "_calm",
        "_chunk_bytes",
        "_durable",
        "_header",
        "_hurried",
        "_idle",
        "_levels",
        "_limit",
        "_lines",
        "_lock",
        "_mark",
        "_next_ordinal",
        "_opening",
        "_path",
        "_pending_bytes_max",
        "_plans",
        "_record_bytes_max",
        "_redaction",
        "_reentered",
        "_refusal",
        "_release",
        "_scratch",
        "_sealed",
        "_sealed_items",
        "_slow_items",
        "_stamp",
        "_stamp_ends",
        "_stamp_ms",
        "_taken_ms",
        "last_error",
        "sync_wanted",
        "wake",
    )

    def __init__(
        self,
        *,
        path: str,
        config: RecorderConfig,
        header: bytes,
        opening: Callable[[int], bytes],
        next_ordinal: int | None,
        bind: Callable[[RolloutItem], RolloutItem] | None = None,
        bounds: StorageBounds | None = None,
        stamp_ms: int = 0,
    ) -> None:
        """
        Args:
            header: what must stand before the first record: the meta line of a new file, the newline
                that the last line of an old one lacks, or nothing.
            opening: makes the `x_writer opened` line that goes with the first record, from its time (ms).
            next_ordinal: None in a legacy rollout that numbers nothing.
            bind: fills in thread and turn where a class of items needs it.
            bounds: what leaves an item for a blob, where the sink keeps blobs.
            stamp_ms: timestamps never lie before it.
        """
        self._path = path
        self._pending_bytes_max = config.pending_bytes_max
        self._record_bytes_max = config.record_bytes_max
        self._chunk_bytes = config.chunk_bytes
        self._header = header
        self._opening: Callable[[int], bytes] | None = opening
        self._bind = bind
        self._bounds = bounds
        self._blobs: tuple[Blob, ...] = ()
        """Of the lines in the buffer."""
        self._blob_ends: deque[tuple[int, int]] = deque()
        """Stream position behind lines with blobs, and how many bytes these blobs have: not yet durable."""
        self._blob_bytes = 0
        self._redaction = Redaction.of(config.redact, config.redact_items)
        self._levels = {**config.durability, **_ALWAYS_SYNCED}
        self._plans: dict[type, _Plan] = {}
        self._lines: dict[type, PlainLine] = {}
        """Of the classes that may go the express way: plain, numbered, of no special level."""
        self._scratch = bytearray()

        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._refusal: Callable[[], RolloutError] | None = None
        self._reentered: deque[RawItem] = deque()
        self._calm: bool | None = False
        """The express way is open: begun, not refused, the writer knows of pending items. None: somebody
        is inside."""
        self._mark = 0
        """A buffer that reached this size goes the long way: chunk full, queue full, or items to join."""

        self._buffer = bytearray()
        self._buffer_start = 0
        self._sealed: list[Chunk] = []
        self._sealed_items = 0
        self._durable = 0
        self._limit = config.pending_bytes_max
        self._next_ordinal = next_ordinal
        self._slow_items = -(next_ordinal or 0)
        """Accepted items less the ordinals given: what the express way need not count."""

        self._stamp_ms = stamp_ms
        self._stamp_ends = 0.0
        self._taken_ms = stamp_ms
        """What was taken has no later time, what was not has no earlier one."""
        self._stamp = self._bare_stamp = b""

        self.wake: Callable[[bool], None] = lambda now: None
        """Tells the writer that something is pending: it comes now, or within its linger time."""
        self.sync_wanted = 0
        """Stream position that a record of durability `sync` asks for."""
        self.last_error: BaseException | None = None
        """The writer's last error, for the message of `PendingQueueFull`."""
        self._idle = True
        """The writer has nothing scheduled: the next append must wake it."""
        self._hurried = False
        """The writer was already told to come now."""

    @property
    def accepted_bytes(self) -> int:
        """Stream position behind the last accepted item."""
        return self._buffer_start + len(self._buffer)

    @property
    def accepted_items(self) -> int:
        """How many items of the callers were accepted."""
        return (self._next_ordinal or 0) + self._slow_items

    @property
    def durable_bytes(self) -> int:
        """Stream position that a sync has covered."""
        return self._durable

    @property
    def blob_bytes(self) -> int:
        """How many bytes of blobs are not yet durable."""
        return self._blob_bytes

    @property
    def redaction(self) -> Redaction | None:
        """What every item goes through; None: nothing."""
        return self._redaction

    @property
    def redactions(self) -> Mapping[str, int]:
        """How much was replaced in what was accepted, by rule."""
        return {} if self._redaction is None else self._redaction.counts

    @property
    def opened(self) -> bool:
        """Whether a record was accepted, so that `x_writer opened` was written."""
        return self._opening is None

    # The callers' side

    def append(self, *items: Records) -> None:
        """Accept all of `items` (items or lists of them) or none, and wake the writer.

        Raises:
            RecorderClosed, WriterFenced: the recorder takes no more.
            ItemNotEncodable, RecordTooLarge: one of the items is unfit.
            PendingQueueFull: no room; wait, or free the disk.
        """
        # As `with self._lock` would do, at two thirds of its cost.
        try:
            self._acquire()
            if self._calm and len(items) == 1:
                item = items[0]
                line = self._lines.get(item.__class__)
                if line is not None:
                    # Encoded apart and then copied: encoding behind a long buffer makes msgspec stretch
                    # it by half and touch that memory, which costs more than the copy.
                    self._calm = None
                    try:
                        if time() >= self._stamp_ends:
                            self._renew_stamp()
                        scratch, ordinal = self._scratch, self._next_ordinal
                        line.ordinal, line.payload = ordinal, item  # type: ignore[assignment]  # numbered
                        encode_into(line, scratch, 0)
                        scratch += b"\n"
                        if len(self._buffer) + len(scratch) < self._mark:
                            self._buffer += scratch
                            self._next_ordinal = ordinal + 1  # type: ignore[operator]
                            return
                    except REFUSALS:
                        pass  # the long way says what is wrong with it
                    finally:
                        line.payload = None
                        self._calm = True
            self._append_any(_flatten(items))
        finally:
            try:
                self._release()
            except RuntimeError:
                pass  # interrupted while it waited for the lock: nothing to let go of

    def _append_any(self, items: list[RolloutItem], *, note: bool = False) -> None:
        """The long way. `note`: an item of the recorder itself."""
        if self._refusal is not None and not note:
            raise self._refusal()
        if self._calm is None:
            self._stash(items)
            return
        self._calm = None
        try:
            if items:
                self._wake_writer(self._accept(items, forced=note, count=0 if note else len(items)))
            while self._reentered:
                self._wake_writer(self._accept([self._reentered.popleft()], forced=True, count=1))
        finally:
            self._calm = False
            self._find_calm()

    def _join_reentered(self) -> None:
        """Let in what was left by calls that came between."""
        self._append_any([], note=True)

    def _find_calm(self) -> None:
        full = self._limit - self._buffer_start + 1
        chunk = self._chunk_bytes * (_CHUNK_GROWTH_MAX if self._hurried else 1)
        self._mark = 0 if self._reentered else min(full, chunk, self._record_bytes_max)
        self._calm = self._opening is None and self._refusal is None and not self._idle

    def _accept(self, items: Sequence[RolloutItem], *, forced: bool, count: int) -> Durability | None:
        """Append the lines of one fact, or nothing. `forced`: even when the queue is full; `count`: how
        many of the items are callers'."""
        limit = _NO_LIMIT if forced else self._limit
        before = self.accepted_bytes
        if before >= limit:
            raise self._full(before)
        if time() >= self._stamp_ends:
            self._renew_stamp()
        ordinal, urgency = self._next_ordinal, None
        run = bytearray()
        blobs: list[Blob] = []
        if self._redaction is not None:
            self._redaction.begin()
        if self._opening is not None:
            run += self._header + self._opening(self._stamp_ms)
        for item in items:
            line_start = len(run)
            plan = self._plans.get(item.__class__) or self._plan(item)
            own = not count and plan.envelope == _OWN_NOTE
            size = self._append_line(item, plan, run, ordinal, blobs, own=own)
            if plan.numbered:
                ordinal += 1  # type: ignore[operator]  # such plans are made in numbered rollouts only
            size += len(run) - line_start
            if size > self._record_bytes_max:
                raise self._too_large(item, size)
            if plan.level is not None and urgency is not Durability.SYNC:
                urgency = plan.level
        # One fact larger than the whole queue is taken when nothing else waits.
        blob_bytes = sum(len(each.data) for each in blobs)
        if before + len(run) + blob_bytes > limit and before > self._durable:
            raise self._full(before)
        slow_items = self._slow_items + count - ((ordinal or 0) - (self._next_ordinal or 0))
        end = before + len(run)
        if blobs:
            self._blob_ends.append((end, blob_bytes))
            self._blobs, self._blob_bytes, self._limit = (
                (*self._blobs, *blobs),
                self._blob_bytes + blob_bytes,
                self._limit - blob_bytes,
            )
        self._buffer += run
        self._slow_items, self._next_ordinal = slow_items, ordinal
        self._header, self._opening = b"", None
        if urgency is Durability.SYNC:
            self.sync_wanted = end
        if self._redaction is not None:
            self._redaction.commit()
        return urgency

    def _append_line(
        self,
        item: RolloutItem,
        plan: _Plan,
        run: bytearray,
        ordinal: int | None,
        blobs: list[Blob],
        *,
        own: bool,
    ) -> int:
        """Returns how many bytes of it are in blobs, which are added to `blobs`. `own`: it holds nobody's
        text, and a hook that fails must not keep a writer from its end."""
        if not own:
            item = self._prepared(item, binds=plan.binds)
        if plan.numbered:
            run += b"%b%d%b" % (self._stamp, ordinal or 0, plan.envelope)
        else:
            run += self._bare_stamp + plan.bare_envelope
        start, blob_bytes = len(run), 0
        encode_payload(item, run, kind_of(item))
        if self._bounds is not None and len(run) - start > self._bounds.payload_bytes_min:
            from protocol.bounding import bound_item  # for the few who bound their storage

            bound, found = bound_item(item, self._bounds)
            if found:
                del run[start:]
                encode_payload(bound, run, kind_of(bound))
                blobs += found
                blob_bytes = sum(len(each.data) for each in found)
        run += b"}\n"
        return blob_bytes

    def _prepared(self, item: RolloutItem, *, binds: bool) -> RolloutItem:
        """The item as it is encoded."""
        if binds and self._bind is not None:
            item = self._bind(item)
        return item if self._redaction is None else self._redaction.item(item)

    def _plan(self, item: RolloutItem) -> _Plan:
        kind = kind_of(item)
        level = self._levels.get(kind.record_type)
        plan = _Plan(
            envelope=kind.envelope,
            bare_envelope=kind.envelope_unnumbered,
            numbered=kind.numbered and self._next_ordinal is not None,
            binds=kind.binds,
            level=None if level is Durability.PENDING else level,
        )
        if not isinstance(item, RawItem):  # one class, many types
            cls = item.__class__
            self._plans[cls] = plan
            express = plan.level is None and not plan.binds
            express = express and self._redaction is None and self._bounds is None
            if plan.numbered and kind.plain and express:
                self._lines[cls] = PlainLine(format_timestamp(self._stamp_ms), 0, kind.record_type, None)
        return plan

    def _wake_writer(self, urgency: Durability | None) -> None:
        """Tell the writer of what was accepted; first tell, then remember it."""
        size = len(self._buffer)
        if size >= self._chunk_bytes * _CHUNK_GROWTH_MAX:
            self._seal()
        if (urgency is not None or size >= self._chunk_bytes) and not self._hurried:
            self.wake(True)
            self._hurried, self._idle = True, False
        elif self._idle:
            self.wake(False)
            self._idle = False

    def _stash(self, items: list[RolloutItem]) -> None:
        """Called from inside by a signal handler or finalizer: validate all now, join later."""
        stashed = []
        for item in items:
            kind = kind_of(item)
            item = self._prepared(item, binds=kind.binds)
            payload = bytearray()
            encode_payload(item, payload, kind)
            if len(payload) + _ENVELOPE_BYTES_MAX > self._record_bytes_max:
                raise self._too_large(item, len(payload))
            stashed.append(RawItem(kind.record_type, bytes(payload)))
        self._reentered.extend(stashed)
        self._mark = 0
        if self._redaction is not None:
            self._redaction.commit()

    def append_if_last(self, position: int, *items: Records) -> bool:
        """Accept the items if nothing was accepted behind that stream position; else return False.

        Raises: as `append`.
        """
        with self._lock:
            if self._calm is None or self.position()[0] != position:
                return False
            self._append_any(_flatten(items))
            return True

    def append_note(self, item: RolloutItem) -> None:
        """Add a record of the recorder itself (not counted as an item), even when full or refused."""
        with self._lock:
            self._append_any([item], note=True)

    def append_header(self) -> None:
        """Accept the meta line alone, so that the file appears without an item (`persist`)."""
        with self._lock:
            if self._header and self._refusal is None and self._calm is not None:
                self._calm = None
                self._buffer += self._header
                self._header, self._calm = b"", False
                self._join_reentered()

    def refuse(self, make_error: Callable[[], RolloutError]) -> None:
        """From now on `append` raises what `make_error` makes. What was accepted stays."""
        with self._lock:
            self._refusal = self._refusal or make_error
            self._mark = 0
            if self._calm:
                self._calm = False

    def _full(self, accepted_bytes: int) -> PendingQueueFull:
        return PendingQueueFull(
            pending_bytes=accepted_bytes - self._durable + self._blob_bytes,
            limit_bytes=self._pending_bytes_max,
            path=self._path,
            last_error=self.last_error,
        )

    def _too_large(self, item: RolloutItem, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            size_bytes=size, limit_bytes=self._record_bytes_max, item_type=kind_of(item).record_type
        )

    def _renew_stamp(self) -> None:
        """Stamps never step back within a recorder: until the clock has caught up, the last one stays."""
        clock = time_ns() // 1_000_000
        now = max(clock, self._stamp_ms)
        stamp = _stamp_of(now)
        for line in self._lines.values():
            line.timestamp = stamp.text
        self._stamp, self._bare_stamp = stamp.numbered, stamp.bare
        self._stamp_ms, self._stamp_ends = now, (clock + 1) / 1000

    # The writer's side

    def take(self) -> Iterable[Chunk]:
        """Everything accepted so far, as sealed chunks."""
        with self._lock:
            self._join_reentered()
            self._calm = None
            try:
                if self._buffer:
                    self._seal()
                sealed, self._sealed = self._sealed, []
                self._taken_ms = self._stamp_ms
                self._hurried = False
                if len(self._scratch) > _SCRATCH_BYTES_KEPT:
                    self._scratch = bytearray()
            finally:
                self._calm = False
                self._find_calm()
            return sealed

    def _seal(self) -> None:
        items = self.accepted_items - self._sealed_items
        chunk = Chunk(self._buffer, start=self._buffer_start, items=items, blobs=self._blobs)
        sealed = [*self._sealed, chunk]
        fresh, end = bytearray(), self.accepted_bytes
        self._sealed, self._buffer, self._buffer_start, self._blobs = sealed, fresh, end, ()
        self._sealed_items += items

    def note_durable(self, stream: int) -> None:
        """Room again: everything up to `stream` is durable."""
        with self._lock:
            self._durable = stream
            while self._blob_ends and self._blob_ends[0][0] <= stream:
                self._blob_bytes -= self._blob_ends.popleft()[1]
            self._limit = stream + self._pending_bytes_max - self._blob_bytes
            if self._calm:
                self._find_calm()

    def note_ms(self) -> int:
        """A time for a line that the writer puts between what it took and what is still here."""
        with self._lock:
            if self._buffer or self._sealed or self._reentered:
                return self._taken_ms
            if time() >= self._stamp_ends:
                self._renew_stamp()
            return self._stamp_ms

    def rest(self) -> bool:
        """The writer goes idle. False if something came in meanwhile: look again."""
        with self._lock:
            if self._buffer or self._sealed:
                return False
            self._idle, self._hurried = True, False
            self._find_calm()
            return not (self._buffer or self._sealed or self._reentered)

    def position(self) -> tuple[int, int]:
        """Bytes and items accepted so far: what a barrier waits for."""
        with self._lock:
            if self._reentered:
                self._join_reentered()
            items = self.accepted_items  # first, so that the bytes hold them whatever comes between
            return self.accepted_bytes, items

    def reset_after_fork(self, refusal: Callable[[], RolloutError]) -> None:
        """In a forked child: nothing is pending, and the lock may be held by a thread that isn't here."""
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._refusal = refusal
        self._calm = False
        self._reentered.clear()
        self._blobs, self._blob_bytes = (), 0
        self._blob_ends.clear()
        self._buffer = bytearray()
        self._sealed = []
