"""Real processes for the tests: they say what they reached and wait until they are told to go on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["COMMON", "ROOT", "Child", "child"]

ROOT = Path(__file__).resolve().parents[2]

_PATIENCE_SECONDS = 30
"""Only ends a test that has failed."""

COMMON = """
import asyncio, os, signal, sys, warnings
from protocol.errors import *
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from rollout.config import RecorderConfig
from rollout.syscalls import FileCalls
from thread_store.errors import StoreClosed, ThreadsUnwritten
from thread_store.chain.fork_point import ForkPoint
from thread_store.local_store import LocalThreadStore

def said(text):
    return ResponseItem.message("user", text)

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole, also beside a forked child's

async def told():
    return await asyncio.to_thread(sys.stdin.readline)

def store_of(home, **how):
    return LocalThreadStore(home, collect_git=False, **how)
"""
"""What the scripts of the tests begin with."""


class Child:
    """A script that runs in an interpreter of its own, with warnings as errors."""

    def __init__(self, script: str, *arguments: object, **how: object) -> None:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, "-W", "error", "-c", COMMON + script, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **how,
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def line(self) -> str:
        """The next line that it prints; empty at its end."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], _PATIENCE_SECONDS)
            assert ready, "the child says nothing"
            if not (data := os.read(self.process.stdout.fileno(), 1 << 16)):
                break
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def expect(self, wanted: str) -> str:
        """The next line begins with this word; returns the rest of it."""
        line = self.line()
        word, _, rest = line.partition(" ")
        assert word == wanted, f"expected {wanted!r}, the child said {line!r}"
        return rest

    def tell(self, text: str = "") -> None:
        """One line that lets it go on."""
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def wait_until_stopped(self) -> None:
        """Until a SIGSTOP has stopped all of it."""
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def stop(self) -> None:
        """Stop it where it is; returns when it stands."""
        self.process.send_signal(signal.SIGSTOP)
        self.wait_until_stopped()

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As the kernel does it when memory runs out; returns when it is gone."""
        self.process.kill()
        self.process.wait(_PATIENCE_SECONDS)

    def end(self) -> int:
        """Wait for its own end; returns its exit code."""
        return int(self.process.wait(_PATIENCE_SECONDS))


@contextmanager
def child(script: str, *arguments: object, **how: object) -> Iterator[Child]:
    """Such a process, which is gone when the block ends."""
    running = Child(script, *arguments, **how)
    try:
        yield running
    finally:
        running.kill()
        for stream in (running.process.stdin, running.process.stdout):
            stream.close()
