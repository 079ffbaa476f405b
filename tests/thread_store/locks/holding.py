"""A process that holds the lock of a thread: `python -m tests.thread_store.locks.holding HOME THREAD KIND`.

It says `held`, answers each line `verify` by `ours` or `fenced`, and gives the lock back at the end of its
input. `Holding` is its parent's side.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from protocol.errors import WriterFenced
from thread_store.locks import LockCalls, ThreadLocks

__all__ = ["Holding", "NoFlock", "calls_of"]

_PROJECT = Path(__file__).resolve().parents[3]


class NoFlock(LockCalls):
    """A file system without flock."""

    number = errno.ENOSYS

    def flock(self, descriptor: int) -> None:
        raise OSError(self.number, os.strerror(self.number))


def calls_of(kind: str) -> LockCalls:
    """The system as it is (`flock`), or without flock (`lease`)."""
    return NoFlock() if kind == "lease" else LockCalls()


class Holding:
    """The other process."""

    def __init__(self, home: Path, thread_id: str, kind: str) -> None:
        command = [sys.executable, "-m", "tests.thread_store.locks.holding", home, thread_id, kind]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_PROJECT,
        )
        self.pid = self.process.pid
        assert self.hear() == "held"

    def __enter__(self) -> Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def verify(self) -> str:
        """Let it ask its lock."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"verify\n")
        self.process.stdin.flush()
        return self.hear()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Let it give the lock back."""
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def _main(home: str, thread_id: str, kind: str) -> None:
    lock = ThreadLocks(home, calls=calls_of(kind)).acquire(thread_id)
    print("held", flush=True)
    for _ in sys.stdin:
        try:
            lock.verify()
            print("ours", flush=True)
        except WriterFenced:
            print("fenced", flush=True)
    lock.release()


if __name__ == "__main__":
    _main(*sys.argv[1:])
