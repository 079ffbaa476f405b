"""One of those who fight for a thread: takes its lock, holds it for moments, gives it back, again and again.

It is killed and stopped from outside. What it appends to its log, one write a line:

    held NS TOKEN     at that time of CLOCK_MONOTONIC the lock was its own
    refused COUNT     so often somebody else had it, and was named
    fenced TOKEN      the lock was taken over
    wrong TEXT        what must not happen
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time

from protocol.errors import ActiveWriter, WriterFenced
from tests.faults import mutants
from thread_store.locks import LockCalls, ThreadLocks, WriterLock

__all__ = ["NoFlock", "prove_held"]

_HOLD_SECONDS_MAX = 0.02
_PAUSE_SECONDS_MAX = 0.004


class NoFlock(LockCalls):
    """A file system without flock."""

    def flock(self, descriptor: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def prove_held(lock: WriterLock, log: int) -> None:
    """Note a time at which the lock was ours: it is taken first, and the lock asked afterwards."""
    now = time.monotonic_ns()
    lock.verify()
    _say(log, f"held {now} {lock.token}")


def _say(log: int, text: str) -> None:
    os.write(log, text.encode() + b"\n")


def _hold(lock: WriterLock, log: int, rng: random.Random) -> None:
    until = time.monotonic() + rng.uniform(0, _HOLD_SECONDS_MAX)
    try:
        prove_held(lock, log)
        while time.monotonic() < until:
            time.sleep(0.0005)
            prove_held(lock, log)
    except WriterFenced as error:
        _say(log, f"fenced {lock.token}")
        if error.holder.pid == os.getpid():
            _say(log, f"wrong {error}")
    finally:
        lock.release()


def _fight(locks: ThreadLocks, thread_id: str, log: int, rng: random.Random) -> None:
    refused = 0
    while True:
        try:
            lock = locks.acquire(thread_id)
        except ActiveWriter as error:
            refused += 1
            if error.holder.pid is None or not error.holder.command:
                _say(log, f"wrong nobody is named: {error}")
            time.sleep(rng.uniform(0, _PAUSE_SECONDS_MAX))
            continue
        _say(log, f"refused {refused}")
        refused = 0
        _hold(lock, log, rng)
        time.sleep(rng.uniform(0, _PAUSE_SECONDS_MAX))


def _main(home: str, thread_id: str, log_path: str, kind: str, seed: str) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    locks = ThreadLocks(home, calls=NoFlock() if kind == "lease" else None)
    try:
        _fight(locks, thread_id, log, random.Random(seed))
    except Exception as error:
        _say(log, f"wrong {type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    mutants.plant_from_environment()
    _main(*sys.argv[1:])
