"""Small file systems of our own: mounted in a mount namespace that ends with this process.

Invariant: nothing outside this process sees the mounts, and nothing of them outlives it. Without
root a user namespace is tried; where neither can be had the error says what is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from pathlib import Path

__all__ = ["detach", "enter_mount_namespace", "has_loop_devices", "mount_ext4", "mount_tmpfs", "unmount"]

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_REMOUNT, _RECURSIVE, _PRIVATE = 32, 16384, 1 << 18
_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def enter_mount_namespace() -> None:
    """From here on mounts are this process's own.

    Raises:
        RuntimeError: the system allows none.
    """
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_NEW_MOUNTS):
        if _libc.unshare(_NEW_MOUNTS | _NEW_USER):
            reason = os.strerror(ctypes.get_errno())
            raise RuntimeError(
                "the full-disk tests mount a small tmpfs, and neither root nor a user namespace is to be had "
                f"({reason}): run them as root, in a container with --cap-add SYS_ADMIN"
            )
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
    _mount(None, "/", None, _RECURSIVE | _PRIVATE, None)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), None if options is None else options.encode()):
        number = ctypes.get_errno()
        hint = "; a mount needs CAP_SYS_ADMIN" if number == errno.EPERM else ""
        raise RuntimeError(f"{kind or 'a mount'} at {target} failed: {os.strerror(number)}{hint}")


def mount_tmpfs(folder: Path, options: str, *, again: bool = False) -> None:
    """A file system in memory, for instance with `size=4m` or `nr_inodes=2`. `again`: change its options."""
    _mount("tmpfs", os.fspath(folder), "tmpfs", _REMOUNT if again else 0, options)


def has_loop_devices() -> bool:
    """Whether a file can be mounted as a disk here (root, loop devices, mkfs.ext4)."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and _which("mkfs.ext4")


def _which(program: str) -> bool:
    return any(
        os.access(f"{folder}/{program}", os.X_OK) for folder in ("/sbin", "/usr/sbin", "/bin", "/usr/bin")
    )


def mount_ext4(image: Path, folder: Path, *, megabytes: int | None = None) -> None:
    """An ext4 in a file; with `megabytes` a new one."""
    if megabytes is not None:
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", os.fspath(image))
    _run("mount", "-o", "loop", os.fspath(image), os.fspath(folder))


def unmount(folder: Path) -> None:
    """Take a file system away that nobody uses any more."""
    _run("umount", os.fspath(folder))


def detach(folder: Path) -> None:
    """Take it away even if somebody uses it."""
    if _libc.umount2(os.fsencode(folder), _DETACH):
        raise OSError(ctypes.get_errno(), "can't be detached", os.fspath(folder))


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()}")
