"""A staged file: new content for a path, written and synced under a temporary name beside it.

Invariant: at its path it appears with all its bytes, private (mode 0600) unless it is to look like another
file, or not at all. `publish` never takes the place of another file; `replace` does, in one step that
leaves the old content or the new one. Whatever fails, `discard` leaves nothing behind. Who is killed leaves
at most the temporary name: hidden, and no rollout's.

Where a file that somebody has open can't be replaced by a rename (EPERM, EACCES: some network file systems),
it is moved aside first, and back if that was all that could be had. Who is killed between the two steps
leaves the path empty and `.<name>.<random>.aside` beside it: `put_back` mends that.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable

from rollout.live_file import folders_up_to_home
from rollout.syscalls import FileCalls, let_go

__all__ = ["ASIDE_SUFFIX", "TEMPORARY_SUFFIX", "StagedFile", "put_back", "remove_file"]

_log = logging.getLogger("rollout.files")

TEMPORARY_SUFFIX, ASIDE_SUFFIX = ".tmp", ".aside"

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
_IN_USE = frozenset({errno.EPERM, errno.EACCES})


class StagedFile:
    """The file under its temporary name, then under its own. All methods but `discard` raise OSError."""

    def __init__(self, path: str, calls: FileCalls) -> None:
        self.path = path
        self.temporary = _beside(path, TEMPORARY_SUFFIX)
        self._calls = calls
        self._identity: tuple[int, int] | None = None
        self._placeholder = False
        self._has_replaced = False

    def write(
        self, fill: Callable[[int], None], *, like: os.stat_result | None = None, durable: bool = True
    ) -> None:
        """Write it, and sync it if it is to be durable; `fill` gets a descriptor that stands at its start.

        `like`: the file that it takes its owner, mode and times from.
        """
        calls = self._calls
        calls.close(calls.open_new(self.temporary))
        descriptor = calls.open_overwrite(self.temporary)  # the kernel copies to none with O_APPEND
        try:
            status = calls.fstat(descriptor)
            self._identity = (status.st_dev, status.st_ino)
            fill(descriptor)
            if like is not None:
                calls.set_look(descriptor, like)
            if durable:
                calls.datasync(descriptor)
        finally:
            let_go(calls, descriptor, self.path)

    def publish(self) -> None:
        """Give it its name: link(2) never replaces. Where there are no links a placeholder holds the name.

        Raises:
            FileExistsError: something stands there.
        """
        try:
            self._calls.link(self.temporary, self.path)
        except OSError as error:
            if self.stands_at_path():
                return  # it was made, and yet reported as failed
            if error.errno not in _NO_LINKS:
                raise
            placeholder = self._calls.open_new(self.path)
            self._placeholder = True
            self._calls.close(placeholder)
            self._calls.rename(self.temporary, self.path)

    def settle(self) -> None:
        """Take the temporary name away after `publish`, as far as the system lets it, and bring the new
        one to stable storage.
        """
        if not self._placeholder:
            remove_file(self.temporary, self._calls)
        for folder in folders_up_to_home(self.path):
            self._calls.sync_folder(folder)

    def replace(self) -> None:
        """Put it in the place of what stands at the path, if anything does."""
        try:
            self._calls.rename(self.temporary, self.path)
        except OSError as error:
            if not self.stands_at_path():  # it was done, and yet reported as failed
                if error.errno not in _IN_USE:
                    raise
                self._replace_aside(error)
        self._has_replaced = True

    def _replace_aside(self, refused: OSError) -> None:
        aside = _beside(self.path, ASIDE_SUFFIX)
        try:
            self._calls.rename(self.path, aside)
        except OSError as error:
            raise refused from error
        try:
            self._calls.rename(self.temporary, self.path)
        except OSError:
            if not self.stands_at_path():
                self._calls.rename(aside, self.path)
                raise
        remove_file(aside, self._calls)

    def discard(self) -> None:
        """Leave nothing behind: not the temporary name, nor the file, but for one that replaced another."""
        remove_file(self.temporary, self._calls)
        if not self._has_replaced and (self._placeholder or self._seems_to_stand_there()):
            remove_file(self.path, self._calls)

    def _seems_to_stand_there(self) -> bool:
        try:
            return self.stands_at_path()
        except OSError as error:
            _log.warning("%s: whether it was made can't be told: %s", self.path, error)
            return False

    def stands_at_path(self) -> bool:
        """Whether the path means this file."""
        try:
            status = self._calls.lstat(self.path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._identity


def remove_file(path: str, calls: FileCalls) -> None:
    """Remove a file of ours, if it is there, as far as the system lets it; what stays is logged.

    An error that came first must not be hidden by another one.
    """
    for _ in range(2):
        try:
            calls.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s: can't be removed: %s", path, error)
        else:
            return


def put_back(path: str, calls: FileCalls) -> bool:
    """Bring back what a killed replacement had moved aside. Returns whether there was anything.

    Raises:
        OSError: the system refuses.
    """
    if os.path.lexists(path):
        return False
    folder, prefix = os.path.dirname(path), f".{os.path.basename(path)}."
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return False
    for name in names:
        if name.startswith(prefix) and name.endswith(ASIDE_SUFFIX):
            calls.rename(os.path.join(folder, name), path)
            calls.sync_folder(folder)
            return True
    return False


def _beside(path: str, suffix: str) -> str:
    name = f".{os.path.basename(path)}.{secrets.token_hex(6)}{suffix}"
    return os.path.join(os.path.dirname(path), name)
