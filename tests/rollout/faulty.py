"""A file sink's system calls, scripted to fail, and a disk that forgets what no sync covered.

`FaultyCalls` makes the n-th call of a name misbehave, once, some times or until lifted.
`ForgetfulCalls` keeps beside each file what would be left of it after a power cut: bytes count
only from a sync that succeeded, a sync that failed marks them clean without having stored them,
and a name counts only from a sync of its folder.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rollout.syscalls import FileCalls

__all__ = [
    "CALLS",
    "Fault",
    "FaultyCalls",
    "ForgetfulCalls",
    "Gate",
    "answers",
    "errors",
    "fails",
    "fails_after",
    "short",
    "short_then_fails",
    "waits_after",
    "waits_before",
]

ENOSPC, EIO, EAGAIN = errno.ENOSPC, errno.EIO, errno.EAGAIN

CALLS = (
    *("open_append", "open_read", "open_new", "open_overwrite", "open_folder", "dup", "close"),
    *("write", "pwrite", "pread", "fstat", "lstat", "truncate", "datasync", "sync_folder"),
    *("make_folder", "link", "unlink", "rename", "set_look"),
)
_GATE_SECONDS_MAX = 60

Effect = Callable[["FaultyCalls", str, tuple[Any, ...]], Any]


@dataclass
class Fault:
    """From the `first` call of this name after it was armed on, `times` times (None: until lifted)."""

    call: str
    effect: Effect
    first: int = 1
    times: int | None = 1
    seen: int = field(default=0, compare=False)

    def strikes(self) -> bool:
        """Count a call; whether it is one of those that misbehave."""
        self.seen += 1
        return self.seen >= self.first and (self.times is None or self.seen < self.first + self.times)

    @property
    def struck(self) -> bool:
        """Whether it ever happened."""
        return self.seen >= self.first


class Gate:
    """Where a call waits until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._opened.wait(_GATE_SECONDS_MAX), "the test never opened the gate"


def errors(number: int) -> OSError:
    """The error that the system raises for a number."""
    return OSError(number, os.strerror(number))


def fails(number: int) -> Effect:
    """The call does nothing and raises."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        calls.failed(name, arguments)
        raise errors(number)

    return effect


def fails_after(number: int) -> Effect:
    """The call does its work, and then it is reported as failed."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        result = calls.perform(name, arguments)
        if name.startswith("open") or name == "dup":
            os.close(result)
        raise errors(number)

    return effect


def short(size: Callable[[int], int]) -> Effect:
    """Only `size(all)` bytes of a write are written, and the count says so."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        descriptor, data, *rest = arguments
        taken = max(1, min(len(data), size(len(data))))
        return calls.perform(name, (descriptor, bytes(data[:taken]), *rest))

    return effect


def short_then_fails(size: Callable[[int], int], number: int) -> Effect:
    """`size(all)` bytes of a write arrive, and it is reported as failed."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        descriptor, data, *rest = arguments
        if (taken := size(len(data))) > 0:
            calls.perform(name, (descriptor, bytes(data[:taken]), *rest))
        raise errors(number)

    return effect


def answers(value: Any) -> Effect:
    """The call does nothing and returns this."""
    return lambda calls, name, arguments: value


def waits_before(gate: Gate) -> Effect:
    """The call hangs before it does anything."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        gate.wait()
        return calls.perform(name, arguments)

    return effect


def waits_after(gate: Gate, then: int | None = None) -> Effect:
    """The call does its work and hangs before it returns (or raises)."""

    def effect(calls: FaultyCalls, name: str, arguments: tuple[Any, ...]) -> Any:
        result = calls.perform(name, arguments)
        gate.wait()
        if then is not None:
            raise errors(then)
        return result

    return effect


class FaultyCalls(FileCalls):
    """The system's calls, with the faults that were armed. Safe from any thread."""

    def __init__(self, *faults: Fault) -> None:
        self.made: Counter[str] = Counter()
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.strikes = 0
        """How often a fault struck."""
        self._faults = list(faults)
        self._lock = threading.Lock()

    def arm(self, call: str, effect: Effect, *, first: int = 1, times: int | None = 1) -> Fault:
        """Let the `first` next call of this name, and `times - 1` after it, misbehave."""
        assert call in CALLS
        fault = Fault(call, effect, first, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def lift(self) -> None:
        """Everything works again."""
        with self._lock:
            self._faults.clear()

    def perform(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The call itself."""
        return getattr(FileCalls, name)(self, *arguments)

    def failed(self, name: str, arguments: tuple[Any, ...]) -> None:
        """A call of this name failed and did nothing."""

    def _made(self, name: str, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            self.made[name] += 1
            self.log.append((name, tuple(each for each in arguments if not isinstance(each, memoryview))))
            striking = [fault for fault in self._faults if fault.call == name and fault.strikes()]
            self.strikes += bool(striking)
        if striking:
            return striking[0].effect(self, name, arguments)
        return self.perform(name, arguments)


def _scripted(name: str) -> Callable[..., Any]:
    def call(self: FaultyCalls, *arguments: Any) -> Any:
        return self._made(name, arguments)

    call.__name__ = name
    return call


for _name in CALLS:
    setattr(FaultyCalls, _name, _scripted(_name))


@dataclass
class _Inode:
    """What a power cut would leave of a file, and what it would take."""

    stable: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, int]] = field(default_factory=list)

    def store(self, ranges: list[tuple[int, int]], descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        for begin, end in ranges:
            end = min(end, size)
            if begin < end:
                self._place(os.pread(descriptor, end - begin, begin), begin)
        del self.stable[size:]

    def _place(self, data: bytes, offset: int) -> None:
        if len(self.stable) < offset:
            self.stable += bytes(offset - len(self.stable))
        self.stable[offset : offset + len(data)] = data


class ForgetfulCalls(FaultyCalls):
    """`FaultyCalls` on a disk whose cache is lost in a power cut. Nothing is really synced: it is fast."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self._inodes: dict[tuple[int, int], _Inode] = {}
        self._names: dict[str, tuple[int, int]] = {}
        self._loose_folders: set[str] = set()
        self._disk = threading.RLock()

    def after_power_loss(self, path: str | os.PathLike[str]) -> bytes | None:
        """What would be found at the path; None if its name would be gone."""
        path = os.path.abspath(path)
        with self._disk:
            folders = set(_ancestors(path)) & self._loose_folders
            key = self._names.get(path)
            return None if folders or key is None else bytes(self._inodes[key].stable)

    def trust(self, path: str | os.PathLike[str]) -> None:
        """What stands at the path now was synced by whoever made it, name and all."""
        path = os.path.abspath(path)
        with self._disk:
            status = os.stat(path)
            key = (status.st_dev, status.st_ino)
            with open(path, "rb") as file:
                self._inodes[key] = _Inode(bytearray(file.read()))
            self._names[path] = key

    def _inode_of(self, path: str | os.PathLike[str]) -> _Inode:
        status = os.stat(path)
        return self._inodes.setdefault((status.st_dev, status.st_ino), _Inode())

    def perform(self, name: str, arguments: tuple[Any, ...]) -> Any:
        step = getattr(self, f"_{name}", None)
        if step is None:
            return super().perform(name, arguments)
        with self._disk:
            return step(*arguments)

    def failed(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "datasync":
            with self._disk:  # the kernel marks the pages clean, whatever became of them
                self._inode(arguments[0]).dirty.clear()

    def _inode(self, descriptor: int) -> _Inode:
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        if key not in self._inodes:  # made by somebody else, who synced nothing
            self._inodes[key] = _Inode(dirty=[(0, status.st_size)] if status.st_size else [])
        return self._inodes[key]

    def _open_append(self, path: str) -> int:
        descriptor: int = super().perform("open_append", (path,))
        self._inode(descriptor)
        return descriptor

    def _open_new(self, path: str) -> int:
        descriptor: int = super().perform("open_new", (path,))
        status = os.fstat(descriptor)
        self._inodes[status.st_dev, status.st_ino] = _Inode()  # numbers of dead files are used again
        return descriptor

    def _write(self, descriptor: int, data: memoryview | bytes) -> int:
        inode = self._inode(descriptor)
        written = os.write(descriptor, data)
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        inode.dirty.append((end - written, end))
        return written

    def _pwrite(self, descriptor: int, data: memoryview | bytes, offset: int) -> int:
        written = os.pwrite(descriptor, data, offset)
        self._inode(descriptor).dirty.append((offset, offset + written))
        return written

    def _truncate(self, descriptor: int, size: int) -> None:
        before = os.fstat(descriptor).st_size
        os.ftruncate(descriptor, size)
        inode = self._inode(descriptor)
        inode.dirty = [(begin, min(end, size)) for begin, end in inode.dirty if begin < size]
        del inode.stable[size:]
        if size > before:
            inode.dirty.append((before, size))

    def _datasync(self, descriptor: int) -> None:
        inode = self._inode(descriptor)
        ranges, inode.dirty = inode.dirty, []
        inode.store(ranges, descriptor)

    def _sync_folder(self, path: str) -> None:
        path = os.path.abspath(path)
        self._loose_folders = {each for each in self._loose_folders if os.path.dirname(each) != path}
        self._names = {name: key for name, key in self._names.items() if os.path.dirname(name) != path}
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    self._names[os.path.abspath(entry.path)] = (status.st_dev, status.st_ino)
                    self._inodes.setdefault((status.st_dev, status.st_ino), _Inode())

    def _make_folder(self, path: str) -> None:
        super().perform("make_folder", (path,))
        self._loose_folders.add(os.path.abspath(path))


def _ancestors(path: str) -> list[str]:
    found = []
    while (parent := os.path.dirname(path)) != path:
        found.append(parent)
        path = parent
    return found
