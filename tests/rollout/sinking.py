"""A file sink with its backlog, driven by hand as the writer drives them: no loop, no thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rollout.append_state import scan_for_append
from rollout.backlog import Backlog, Chunk
from rollout.file_lock import lock_rollout
from rollout.file_sink import FileSink
from rollout.sink import SinkDisturbed
from rollout.syscalls import FileCalls

__all__ = ["GAP", "META", "Rig", "line", "lines"]

META = (
    b'{"timestamp":"2026-11-29T10:00:00.000Z","ordinal":0,"type":"session_meta",'
    b'"payload":{"id":"01960000-0000-7000-8000-000000000100","history_mode":"paginated"}}\n'
)


def line(number: int, size: int = 0) -> bytes:
    """One line of ours."""
    return b'{"type":"x_check","payload":{"n":%d,"pad":"%b"}}\n' % (number, b"x" * size)


def lines(*numbers: int) -> bytes:
    return b"".join(map(line, numbers))


def GAP(lost_bytes: int, cause: str, at_ms: int = 0) -> bytes:
    return b'{"type":"x_gap","payload":{"bytes":%d,"cause":"%b"}}\n' % (lost_bytes, cause.encode())


class Rig:
    """One rollout. `put` accepts, `write` hands over, `sync` makes durable, `settle` does what is needed."""

    def __init__(
        self,
        path: Path,
        calls: FileCalls | None = None,
        *,
        chunk_bytes: int = 1 << 20,
        fence: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.calls = calls or FileCalls()
        self.accepted = 0
        self.sink = FileSink(
            os.fspath(path), first_line=META, gap_line=GAP, calls=self.calls, lock=True, fence=fence
        )
        self.backlog = Backlog(chunk_bytes=chunk_bytes)

    @classmethod
    def reopened(cls, path: Path, calls: FileCalls | None = None) -> Rig:
        """On a file that stands there already."""
        rig = cls(path, calls)
        descriptor = rig.calls.open_append(os.fspath(path))
        lock_rollout(descriptor, os.fspath(path))
        rig.sink.take(descriptor, torn_from=scan_for_append(descriptor, os.fspath(path)).torn_from)
        rig.backlog.durable_offset = rig.sink.end_bytes
        return rig

    def put(self, *data: bytes) -> None:
        """Each piece becomes a chunk."""
        for each in data:
            chunk = Chunk(bytearray(each), start=self.accepted, items=each.count(b"\n"))
            self.backlog.add([chunk])
            self.accepted += len(each)

    def write(self) -> None:
        """Hand over all that waits; raises what the sink raises."""
        if self.backlog.waiting and not self.sink.created:
            self.sink.create(self.backlog)
        if self.sink.created:
            self.sink.verify()
        while self.backlog.waiting:
            self.sink.append(self.backlog.waiting[0])
            self.backlog.pass_written()

    def heal(self) -> None:
        self.sink.heal(self.backlog)

    def sync(self) -> None:
        """One sync job; raises what it raises, and tells the sink."""
        covered, offset = self.backlog.written, self.sink.end_bytes
        job = self.sink.sync_job(self.backlog)
        try:
            job()
        except SinkDisturbed:
            raise
        except Exception:
            self.sink.sync_failed()
            raise
        self.backlog.note_durable(covered, offset=offset)

    def settle(self) -> None:
        """Write and sync, healing as often as the writer would."""
        for attempt in range(3):
            try:
                self.write()
                self.sync()
            except SinkDisturbed:
                assert attempt < 2, "it can't be healed"
                self.heal()
            else:
                return

    def close(self) -> None:
        self.sink.close()

    @property
    def data(self) -> bytes:
        """What stands at the path."""
        return self.path.read_bytes()
