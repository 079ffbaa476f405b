"""A sink that places the blobs of a chunk before it hands over the lines that name them.

Invariant: a line that names a blob is never handed over before the blob; and a sync succeeds only if the
blobs of everything that it covers are on stable storage too. A blob that can't be placed is trouble of
the place, exactly as a line that can't be written: it is kept, and tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.blobs import Blob
from rollout.backlog import Backlog, Chunk
from rollout.blobs import BlobFolder
from rollout.sink import Sink

__all__ = ["BlobSink"]


class BlobSink:
    """Another sink, and a folder of blobs."""

    def __init__(self, inner: Sink, folder: BlobFolder) -> None:
        self._inner = inner
        self._folder = folder
        self._lock = threading.Lock()
        """A sync that fails gives back what it took, in its own thread."""
        self._unsynced: dict[str, Blob] = {}
        self._suspect: set[str] = set()
        """A sync of these has failed: their pages may be marked clean, so they are written anew (G3)."""

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def end_bytes(self) -> int:
        return self._inner.end_bytes

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def created(self) -> bool:
        return self._inner.created

    def create(self, backlog: Backlog) -> None:
        self._inner.create(backlog)

    def append(self, chunk: Chunk) -> None:
        # At each try: what was placed long ago may be gone.
        if chunk.blobs and not chunk.handed:
            for blob in chunk.blobs:
                self._folder.place(blob)
                with self._lock:
                    self._unsynced[blob.sha256] = blob
            chunk.blobs_placed = True
        self._inner.append(chunk)

    def verify(self) -> None:
        self._inner.verify()

    def sync_job(self, backlog: Backlog) -> Callable[[], None]:
        inner = self._inner.sync_job(backlog)
        with self._lock:
            blobs, self._unsynced = self._unsynced, {}
        if not blobs:
            return inner

        def job() -> None:
            try:
                self._sync(blobs)
            finally:
                inner()  # whatever came of the blobs: it gives back what it took

        return job

    def _sync(self, blobs: dict[str, Blob]) -> None:
        try:
            for blob in blobs.values():
                if blob.sha256 in self._suspect:
                    self._folder.replace(blob)
            self._folder.sync(blobs.values())
        except BaseException:
            with self._lock:
                self._unsynced = {**blobs, **self._unsynced}
                self._suspect.update(blobs)
            raise
        with self._lock:
            self._suspect.difference_update(blobs)

    def sync_failed(self) -> None:
        self._inner.sync_failed()

    def heal(self, backlog: Backlog) -> None:
        self._inner.heal(backlog)

    def close(self) -> None:
        self._inner.close()

    def close_in_child(self) -> None:
        self._inner.close_in_child()
