"""The live file: the inode we write to, the descriptors we hold on it, and its place at the path.

Invariant: the descriptor and the identity always belong to one inode, which this process
made, opened under its lock, or proved to be a copy of the same rollout. `find_again` either
restores "our inode stands at the path" or raises and changes nothing.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from functools import partial

from protocol.errors import RolloutExists, RolloutMoved, RolloutReplaced
from rollout.file_lock import lock_rollout, unlock_rollout
from rollout.kept import find_home
from rollout.reconcile import header_end
from rollout.sink import SinkDisturbed
from rollout.syscalls import FileCalls, let_go

__all__ = ["LiveFile", "folders_up_to_home"]

_log = logging.getLogger("rollout.writer")

_BLOCK_BYTES = 1 << 20
_SAME_TAIL_BYTES = 4096
_TEMPORARY_SUFFIX = ".tmp"


class LiveFile:
    """One file, opened to append; `descriptor` is -1 until it is."""

    def __init__(self, path: str, calls: FileCalls, *, lock: bool) -> None:
        self.path = path
        self.descriptor = -1
        self.may_cut = True
        """Whether we opened or made this inode; one that others put at the path is never cut."""
        self.unsynced_folders: list[str] = []
        """Folders whose entries changed since they were last synced."""
        self._calls = calls
        self._locks = lock
        # The lock lives on a descriptor of its own, so that reopening never lets go of it.
        self._lock_descriptor = -1
        self._identity = (-1, -1)
        self._temporary_prefix = f".{os.path.basename(path)}."
        self._leftovers: list[str] = []
        """Temporary names that could not be removed yet."""

    @property
    def is_open(self) -> bool:
        return self.descriptor >= 0

    def size(self) -> int:
        return self._calls.fstat(self.descriptor).st_size

    def is_ours(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self._identity

    def verify(self, expected_size: int) -> None:
        """Our inode at the path, and as long as we left it. Writing to an unlinked file succeeds: only
        this tells. Raises SinkDisturbed."""
        try:
            at_path = self._calls.lstat(self.path)
        except FileNotFoundError:
            raise SinkDisturbed("the path is gone") from None
        if not self.is_ours(at_path):
            raise SinkDisturbed("another file stands at the path")
        size = self.size()
        if size != expected_size:
            raise SinkDisturbed(f"the file has {size:,} bytes instead of {expected_size:,}")

    def read(self, offset: int, size: int, *, descriptor: int | None = None) -> bytes:
        """`size` bytes at `offset`, fewer only at the end of the file."""
        source, parts = self.descriptor if descriptor is None else descriptor, []
        while size > 0 and (part := self._calls.pread(source, min(size, _BLOCK_BYTES), offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    # Getting hold of it

    def take(self, descriptor: int) -> None:
        """Take over a descriptor that the caller opened and, where there are locks, locked."""
        status = self._calls.fstat(descriptor)
        if self._locks:
            self._lock_descriptor = self._calls.dup(descriptor)
        self.descriptor = descriptor
        self._identity = (status.st_dev, status.st_ino)
        # Its name need not be on the disk: who made it, or its folders, may have died before a sync.
        for folder in folders_up_to_home(self.path):
            self._note_unsynced(folder)

    def create(self) -> bool:
        """Make the file with its folders. False if there is one already, which is then held and not ours yet.

        Raises:
            RolloutExists: what is there is no regular file.
            ActiveWriter: another recorder made it and holds it.
            OSError: the system refuses.
        """
        folder = os.path.dirname(self.path)
        self._make_folders(folder)
        try:
            descriptor, fresh = self._calls.open_new(self.path), True
        except FileExistsError:
            descriptor, fresh = self._calls.open_append(self.path), False
        try:
            if not self._calls.is_regular(self._calls.fstat(descriptor)):
                raise RolloutExists(path=self.path, reason="it is no regular file")
            if self._locks:
                lock_rollout(descriptor, self.path)
            self.take(descriptor)
        except BaseException:
            self.let_go(descriptor)
            raise
        return fresh

    def _make_folders(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(missing):
            # Noted before: it may be made and yet be reported as failed, or by somebody who syncs it later.
            self._note_unsynced(os.path.dirname(each))
            try:
                self._calls.make_folder(each)
            except FileExistsError:
                continue  # another process was quicker

    def _note_unsynced(self, folder: str) -> None:
        if folder not in self.unsynced_folders:
            self.unsynced_folders.append(folder)

    def close(self) -> None:
        """Let go of the inode and of the lock. Never raises."""
        if self._lock_descriptor >= 0:
            unlock_rollout(self._lock_descriptor, self.path)
        self.close_in_child()

    def close_in_child(self) -> None:
        """Close without unlocking: in a forked child the lock is the parent's."""
        held = (self.descriptor, self._lock_descriptor)
        self.descriptor = self._lock_descriptor = -1
        self.let_go(*held)

    def let_go(self, *descriptors: int) -> None:
        """Close those that are open. Never raises."""
        for descriptor in descriptors:
            if descriptor >= 0:
                let_go(self._calls, descriptor, self.path)

    # Getting hold of it again

    def find_again(self, *, first_line: bytes, durable_offset: int) -> None:
        """See to it that our descriptor and the path mean the same file.

        Raises:
            RolloutMoved: the file was renamed; nothing stands at the path.
            RolloutReplaced: something else stands there.
            ActiveWriter: a copy of the rollout stands there and another writer holds it.
            OSError: the system refuses.
        """
        for leftover in self._leftovers[:]:
            self._remove(leftover)  # a second name would look like a rename
        try:
            at_path = self._calls.lstat(self.path)
        except FileNotFoundError:
            if self._has_name():
                raise RolloutMoved(
                    path=self.path, moved_to=self._calls.current_path(self.descriptor)
                ) from None
            self._rebuild()
            return
        if self.is_ours(at_path):
            self._reopen()
        elif not self._calls.is_regular(at_path):
            raise RolloutReplaced(path=self.path, reason="it is no regular file")
        else:
            self._adopt(first_line, durable_offset)

    def _has_name(self) -> bool:
        """Whether our inode still has a name, other than those that a rebuild has left behind: ours, or one
        whose process died before it could remove it."""
        if not self._calls.fstat(self.descriptor).st_nlink:
            return False
        folder = os.path.dirname(self.path)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.startswith(self._temporary_prefix) and name.endswith(_TEMPORARY_SUFFIX):
                leftover = os.path.join(folder, name)
                if self.is_ours(self._calls.lstat(leftover)):
                    self._remove(leftover)
        return self._calls.fstat(self.descriptor).st_nlink > 0

    def _reopen(self) -> None:
        """A fresh descriptor of the same inode; the old one goes on where none is to be had."""
        try:
            fresh = self._calls.open_append(self.path)
        except OSError as error:
            _log.debug("%s: can't be reopened, the old descriptor goes on: %s", self.path, error)
            return
        try:
            if not self.is_ours(self._calls.fstat(fresh)):
                raise RolloutReplaced(path=self.path, reason="it changed while it was reopened")
        except BaseException:
            self.let_go(fresh)
            raise
        old, self.descriptor = self.descriptor, fresh
        self.let_go(old)

    def _adopt(self, first_line: bytes, durable_offset: int) -> None:
        """Go on in the file at the path, if it is the same rollout rewritten."""
        fresh = self._calls.open_append(self.path)
        try:
            if not self._is_same_rollout(fresh, first_line, durable_offset):
                raise RolloutReplaced(
                    path=self.path, reason="its first line or what stands before the last sync differs"
                )
            twin, identity = self._hold(fresh)
        except BaseException:
            self.let_go(fresh)
            raise
        self._switch(fresh, twin, identity)
        self.may_cut = False
        _log.warning("%s: was replaced by a copy of itself; going on in that", self.path)

    def _is_same_rollout(self, fresh: int, first_line: bytes, durable_offset: int) -> bool:
        ours = header_end(first_line, self.read)
        theirs = header_end(first_line, partial(self.read, descriptor=fresh))
        if theirs is None or ours not in (None, theirs):
            return False
        begin = max(0, durable_offset - _SAME_TAIL_BYTES)
        size = durable_offset - begin
        return self.read(begin, size, descriptor=fresh) == self.read(begin, size)

    def _rebuild(self) -> None:
        """The file was unlinked: copy it from the descriptor we hold, then put the copy at the path."""
        folder = os.path.dirname(self.path)
        self._make_folders(folder)
        name = f"{self._temporary_prefix}{uuid.uuid4().hex[:12]}{_TEMPORARY_SUFFIX}"
        temporary = os.path.join(folder, name)
        fresh = twin = -1
        try:
            fresh = self._calls.open_new(temporary)
            self._copy_to(fresh)
            self._calls.datasync(fresh)
            twin, identity = self._hold(fresh)
            self._link(temporary, identity)
        except FileExistsError:
            self.let_go(fresh, twin)
            raise RolloutReplaced(
                path=self.path, reason="it appeared while the rollout was rebuilt"
            ) from None
        except BaseException:
            self.let_go(fresh, twin)
            raise
        finally:
            self._remove(temporary)
        self._switch(fresh, twin, identity)
        self.may_cut = True
        _log.warning("%s: was unlinked while it was written; rebuilt", self.path)

    def _link(self, temporary: str, identity: tuple[int, int]) -> None:
        """link(2) never replaces: a file that came to the path meanwhile is left alone."""
        try:
            self._calls.link(temporary, self.path)
        except OSError:
            # It may have been made and yet be reported as failed: then it is ours.
            if not self._stands_at_path(identity):
                raise

    def _stands_at_path(self, identity: tuple[int, int]) -> bool:
        try:
            at_path = self._calls.lstat(self.path)
        except FileNotFoundError:
            return False
        return (at_path.st_dev, at_path.st_ino) == identity

    def _remove(self, temporary: str) -> None:
        self._leftovers = [each for each in self._leftovers if each != temporary]
        try:
            self._calls.unlink(temporary)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.info("%s: %s is removed later: %s", self.path, temporary, error)
            self._leftovers.append(temporary)

    def _copy_to(self, target: int) -> None:
        offset = 0
        while block := self._calls.pread(self.descriptor, _BLOCK_BYTES, offset):
            offset += len(block)
            view = memoryview(block)
            while view:
                written = self._calls.write(target, view)
                if not written:
                    raise OSError(errno.EIO, "write returned 0")
                view = view[written:]

    def _hold(self, fresh: int) -> tuple[int, tuple[int, int]]:
        """All that may fail before `_switch`: lock it, with a second descriptor; learn which inode it is."""
        status = self._calls.fstat(fresh)
        if self._locks:
            lock_rollout(fresh, self.path)
        return self._calls.dup(fresh) if self._locks else -1, (status.st_dev, status.st_ino)

    def _switch(self, fresh: int, twin: int, identity: tuple[int, int]) -> None:
        """Leave the old inode for another one, lock and all."""
        old = (self.descriptor, self._lock_descriptor)
        self.descriptor, self._lock_descriptor, self._identity = fresh, twin, identity
        self.let_go(*old)
        self._note_unsynced(os.path.dirname(self.path))


def folders_up_to_home(path: str) -> list[str]:
    """The folder of a rollout and those above it, its home the last; without a home its folder alone."""
    folders, home = [os.path.dirname(path)], find_home(path)
    while home is not None and folders[-1] != os.fspath(home):
        folders.append(os.path.dirname(folders[-1]))
    return folders
