"""The preloaded shim, from Python: build it, say what shall fail, read what it logged.

Invariant: a log is a complete list of the calls that reached the system for files below one
folder, in an order in which the system may have seen them.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import hashlib
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "FOREVER",
    "Action",
    "Call",
    "Fault",
    "Shim",
    "build_shim",
    "decode_log",
    "decode_plan",
    "encode_plan",
]

FOREVER = 0
"""As a count: from the n-th call on, each one."""

_SOURCE = Path(__file__).with_name("shim.c")
_NAMES = (
    *("mark", "open", "write", "pwrite", "pread", "fdatasync", "fsync", "ftruncate"),
    *("link", "unlink", "rename", "mkdir", "fstat", "lstat", "flock"),
    *("copy_file_range", "sendfile", "read", "close"),
)
_HEADER = struct.Struct("<IHHIIiIIiqqqq")
_MAGIC = 0x31544C46
_FLAG_INJECTED, _FLAG_CREATED = 1, 2


class Action(enum.StrEnum):
    """`AFTER`: the call is made and reported as failed. `SHORT`: only a part is written or read."""

    ERRNO = "errno"
    AFTER = "after"
    SHORT = "short"
    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Fault:
    """What shall happen to the n-th call of a kind, and to `count - 1` more of them."""

    call: str
    nth: int
    action: Action
    argument: int = 0
    """The errno; of a short call the bytes (-1: half of them, -2: all but one); milliseconds."""
    count: int = 1

    def encode(self) -> str:
        return f"{self.call},{self.nth},{self.count},{self.action},{self.argument}"

    def __str__(self) -> str:
        what = {-1: "half", -2: "all but one"}.get(self.argument, str(self.argument))
        if self.action in (Action.ERRNO, Action.AFTER):
            what = errno.errorcode.get(self.argument, what)
        how_long = {FOREVER: "for ever", 1: "once"}.get(self.count, f"{self.count} times")
        return f"{self.call} {self.nth}: {self.action} {what}, {how_long}"

    @property
    def kills(self) -> bool:
        return self.action in (Action.KILL_BEFORE, Action.KILL_AFTER)


def encode_plan(faults: Sequence[Fault]) -> str:
    """As the shim reads it; also what is typed to repeat a run."""
    return ";".join(fault.encode() for fault in faults)


def decode_plan(text: str) -> tuple[Fault, ...]:
    """The opposite of `encode_plan`."""
    return tuple(_decode_fault(part) for part in text.split(";") if part)


def _decode_fault(text: str) -> Fault:
    call, nth, count, action, argument = text.split(",")
    return Fault(call, int(nth), Action(action), int(argument), int(count))


@dataclass(frozen=True, slots=True)
class Call:
    """One logged call. `size` is what was asked for; of `open` the flags, of `ftruncate` the new size."""

    name: str
    nth: int
    """0: not counted (another program, as far as the recorder is concerned)."""
    path: str
    second_path: str
    inode: int
    offset: int
    size: int
    result: int
    errno: int
    """What the program saw; 0: success."""
    data: bytes
    """What really was written; of a mark its text."""
    begins: bool
    """A sync was begun; another entry tells of its end."""
    created: bool
    injected: bool

    @property
    def happened(self) -> bool:
        """The system did it, whatever the program was told."""
        return self.result >= 0 and not self.begins

    def __str__(self) -> str:
        failed = f" {errno.errorcode.get(self.errno, self.errno)}" if self.errno else ""
        where = os.path.basename(self.path)
        return f"{self.name} {self.nth} {where} {self.offset}+{self.size} = {self.result}{failed}"


def decode_log(data: bytes) -> Iterator[Call]:
    """The calls of a log. A process that was killed leaves whole entries only."""
    position = 0
    while position < len(data):
        magic, call, phase, nth, flags, error, path_bytes, data_bytes, _, inode, offset, size, result = (
            _HEADER.unpack_from(data, position)
        )
        assert magic == _MAGIC, f"the log is damaged at byte {position}"
        position += _HEADER.size
        path, _, second = os.fsdecode(data[position : position + path_bytes]).partition("\0")
        position += path_bytes
        yield Call(
            name=_NAMES[call],
            nth=nth,
            path=path.removesuffix(" (deleted)"),
            second_path=second,
            inode=inode,
            offset=offset,
            size=size,
            result=result,
            errno=error,
            data=data[position : position + data_bytes],
            begins=phase == 1,
            created=bool(flags & _FLAG_CREATED),
            injected=bool(flags & _FLAG_INJECTED),
        )
        position += data_bytes


def _compilers() -> Iterable[list[str]]:
    if os.environ.get("CC"):
        yield os.environ["CC"].split()
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            yield [name]
    if importlib.util.find_spec("ziglang"):  # a C compiler from a package registry
        yield [sys.executable, "-m", "ziglang", "cc"]


def build_shim() -> Path:
    """Compile the shim, once for each version of its source. Raises RuntimeError where that can't be."""
    if sys.platform != "linux":
        raise RuntimeError("the fault shim needs Linux: it is preloaded and reads /proc")
    compiler = next(iter(_compilers()), None)
    if compiler is None:
        raise RuntimeError(
            "the fault tests need a C compiler: install gcc, or `pip install ziglang`, or set CC"
        )
    digest = hashlib.sha256(_SOURCE.read_bytes() + repr(compiler).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rollout-fault-shim-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"shim-{digest}.so"
    if not built.exists():
        fresh = folder / f".{built.name}.{os.getpid()}"
        command = [*compiler, "-O1", "-shared", "-fPIC", "-o", str(fresh), str(_SOURCE), "-ldl", "-lpthread"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if result.returncode:
            raise RuntimeError(f"the fault shim can't be compiled: {' '.join(command)}\n{result.stderr}")
        os.replace(fresh, built)
    return built


class Shim:
    """The shim that is loaded in this very process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        if not hasattr(self._library, "fault_arm"):
            raise RuntimeError("the fault shim is not preloaded here")

    def arm(self, root: str, log: str, plan: str) -> None:
        """Begin to log and to let calls fail."""
        self._library.fault_arm(os.fsencode(root), os.fsencode(log), plan.encode())

    def lift(self) -> None:
        """From now on nothing fails."""
        self._library.fault_lift()

    def quiet(self, on: bool) -> None:
        """What this thread does is not counted and never fails: it plays another program."""
        self._library.fault_quiet(int(on))

    def mark(self, text: str) -> None:
        """Put a note of the program under test into the log."""
        data = text.encode()
        self._library.fault_mark(data, ctypes.c_size_t(len(data)))
