"""The system calls of a folder of blobs, scripted to fail."""

from __future__ import annotations

from typing import Any

from rollout.blobs import BlobCalls
from tests.rollout.faulty import FaultyCalls

__all__ = ["BLOB_CALLS", "FaultyBlobCalls"]

BLOB_CALLS = (
    *("make_folder", "open_new", "write", "close", "rename", "open_read", "datasync", "sync_folder"),
    *("lstat", "pread", "touch"),
)


class FaultyBlobCalls(FaultyCalls, BlobCalls):
    """Give it the faults; `arm` knows the file sink's calls only."""

    def perform(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(BlobCalls, name)(self, *arguments)

    def open_read(self, *arguments: Any) -> int:
        return int(self._made("open_read", arguments))

    def rename(self, *arguments: Any) -> None:
        self._made("rename", arguments)

    def touch(self, *arguments: Any) -> None:
        self._made("touch", arguments)
