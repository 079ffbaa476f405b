"""A new rollout file: whole and on stable storage, or not there at all.

Invariant: at its path the file appears with all its bytes, mode 0600, in folders of 0700, and never in
the place of another one. Whatever fails, neither it nor its temporary file stays behind; only
folders may, and a temporary file (a hidden name, no rollout's) if the process is killed.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from protocol.errors import RolloutExists, RolloutWriteError
from rollout.kept import make_folders
from rollout.live_file import folders_up_to_home
from rollout.syscalls import let_go
from thread_store.forks.fork_copy import ForkCalls

__all__ = ["make_file", "remove_file"]

_log = logging.getLogger("rollout.fork")

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
_HINT = "Nothing was made; try again when the cause is gone"


def make_file(
    path: str,
    fill: Callable[[int], None],
    *,
    calls: ForkCalls,
    guard: AbstractContextManager[object] | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Make the file; `fill` writes it through a descriptor that stands at its start.

    `guard` is held while it gets its name, and `check` is called under it just before.

    Raises:
        RolloutExists: something stands at the path.
        RolloutWriteError: the system refuses; nothing was made.
    """
    if os.path.lexists(path):
        raise RolloutExists(path=path, reason="a fork never replaces a file")
    file = _NewFile(path, calls)
    try:
        make_folders(calls, Path(path).parent)
        file.write(fill)
        with guard or nullcontext():
            if check is not None:
                check()
            file.publish()
        file.settle()
    except FileExistsError as error:
        file.undo()
        raise RolloutExists(path=path, reason="it appeared while the fork was made") from error
    except OSError as error:
        file.undo()
        raise RolloutWriteError(path=path, operation="create", cause=error, hint=_HINT) from error
    except BaseException:
        file.undo()
        raise


def remove_file(path: str, calls: ForkCalls) -> None:
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


class _NewFile:
    """The file under its temporary name, then under its own. All methods but `undo` raise OSError."""

    def __init__(self, path: str, calls: ForkCalls) -> None:
        self._path = path
        self._temporary = os.path.join(
            os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(6)}.tmp"
        )
        self._calls = calls
        self._identity: tuple[int, int] | None = None
        self._placeholder = False

    def write(self, fill: Callable[[int], None]) -> None:
        """Write and sync it."""
        calls = self._calls
        calls.close(calls.open_new(self._temporary))
        descriptor = calls.open_overwrite(self._temporary)  # the kernel copies to none with O_APPEND
        try:
            status = calls.fstat(descriptor)
            self._identity = (status.st_dev, status.st_ino)
            fill(descriptor)
            calls.datasync(descriptor)
        finally:
            let_go(calls, descriptor, self._path)

    def publish(self) -> None:
        """Give it its name: link(2) never replaces. Where there are no links a placeholder holds the name."""
        try:
            self._calls.link(self._temporary, self._path)
        except OSError as error:
            if self._stands_at_path():
                return  # it was made, and yet reported as failed
            if error.errno not in _NO_LINKS:
                raise
            placeholder = self._calls.open_new(self._path)
            self._placeholder = True
            self._calls.close(placeholder)
            self._calls.rename(self._temporary, self._path)

    def settle(self) -> None:
        """Take the temporary name away, and bring the new one to stable storage."""
        if not self._placeholder:
            self._calls.unlink(self._temporary)
        for folder in folders_up_to_home(self._path):
            self._calls.sync_folder(folder)

    def undo(self) -> None:
        """Leave nothing behind, neither the file nor its temporary name."""
        remove_file(self._temporary, self._calls)
        if self._placeholder or self._stands_at_path():
            remove_file(self._path, self._calls)

    def _stands_at_path(self) -> bool:
        try:
            status = self._calls.lstat(self._path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._identity
