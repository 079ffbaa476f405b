"""The files that make one thread, and which of them it goes on in.

Invariant: a live file comes before an archived one, the greatest rollout id before all others, a plain file
before its `.zst` twin. A thread is as old as the oldest name among its files says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rollout.paths import ARCHIVED_FOLDER, RolloutName
from thread_store.listing.regular_names import ID, KEY, is_regular

__all__ = ["FileRef", "StatFields", "StatFile", "ThreadFiles"]

StatFields = tuple[int, str, str, int, int]
"""The fields of a `StatFile`, for many at once."""


class FileRef(NamedTuple):
    """One file: its folder from the home on, with `/`, and its name."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        """From the home on."""
        return f"{self.folder}/{self.name}"

    @property
    def is_compressed(self) -> bool:
        return self.name.endswith(".zst")

    @property
    def is_archived(self) -> bool:
        return self.folder == ARCHIVED_FOLDER

    def rank(self) -> tuple[bool, str, bool]:
        """Of several files of a thread the greatest is the one that it goes on in."""
        name = RolloutName.parse(self.name)
        return (not self.is_archived, name.rollout_id or "", not name.compressed)

    @property
    def thread_id(self) -> str:
        if is_regular(self.name):
            return self.name[ID]
        return str(RolloutName.parse(self.name).thread_id)

    def created_key(self) -> str:
        """Time and thread id as they stand in the name: the order of creation."""
        if is_regular(self.name):
            return self.name[KEY]
        name = RolloutName.parse(self.name)
        return f"{name.stamp}-{name.thread_id}"


class StatFile(NamedTuple):
    """A file with what the system says of it. In this order: the last changed one is the greatest."""

    mtime_ns: int
    name: str
    folder: str
    size: int
    inode: int

    @property
    def ref(self) -> FileRef:
        return FileRef(self.folder, self.name)

    @property
    def thread_id(self) -> str:
        return self.ref.thread_id


class ThreadFiles(NamedTuple):
    """A thread: where it stands in the order of creation, the file it goes on in, and the oldest one."""

    created_key: str
    current: FileRef
    oldest: FileRef

    @classmethod
    def of(cls, files: Iterable[FileRef]) -> ThreadFiles:
        """Of all files of one thread."""
        files = list(files)
        oldest = min(files, key=lambda each: (each.created_key(), not each.rank()[0], each.path))
        return cls(oldest.created_key(), max(files, key=lambda each: (each.rank(), each.path)), oldest)

    @classmethod
    def single(cls, ref: FileRef) -> ThreadFiles:
        """Of a thread that has one file."""
        return cls(ref.created_key(), ref, ref)
