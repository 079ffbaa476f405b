"""The package of the locks: lazy, and importable where there is no fcntl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from thread_store import locks

ROOT = Path(__file__).resolve().parents[3]

# Everything that Windows lacks goes away before the first module of ours is imported.
_WITHOUT = """
import sys, os, threading, tempfile, logging, platform, msgspec, enum, contextlib, concurrent.futures
node = platform.node()
sys.platform = "win32"
sys.modules["fcntl"] = None
for name in ("register_at_fork", "fchmod", "pread", "pwrite", "major", "minor", "O_NOFOLLOW", "O_NONBLOCK",
             "O_CLOEXEC", "uname", "geteuid", "fork"):
    delattr(os, name)
from protocol.errors import ActiveWriter
from thread_store.locks import ThreadLocks
locks = ThreadLocks(sys.argv[1])
lock = locks.acquire(sys.argv[2])
lock.verify()
lock.raise_fence(5)
try:
    locks.acquire(sys.argv[2])
except ActiveWriter as error:
    print(error.holder.pid == os.getpid(), lock.holder.lease, len(locks.holders()), locks.sweep())
new, old = locks.take_over(sys.argv[2])
lock.release()
new.release()
"""


def test_names_are_loaded_when_asked_for() -> None:
    """Each resolves, and an unknown one is an AttributeError."""
    assert set(locks.__all__) <= set(dir(locks))
    assert not [name for name in locks.__all__ if getattr(locks, name, None) is None]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = locks.no_such_name


def run_python(*arguments: object) -> str:
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT), "PYTHONWARNINGS": "error"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_nothing_else() -> None:
    """Neither its modules nor asyncio."""
    loaded = run_python("-c", "import sys, thread_store.locks; print(*sys.modules)").split()
    assert not [name for name in loaded if name.startswith(("thread_store.locks.", "msgspec", "asyncio"))]


def test_system_without_fcntl_takes_leases(tmp_path: Path) -> None:
    """As on Windows: nothing that it lacks is asked for, and one writer a thread holds."""
    said = run_python("-c", _WITHOUT, tmp_path, "01960000-0000-7000-8000-000000000101")
    assert said.split() == ["True", "True", "1", "[]"]
