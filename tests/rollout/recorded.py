"""What the recorder's tests record, and what they find on disk afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.response_items import ResponseItem
from rollout import RecorderConfig, RolloutRecorder
from rollout.core import Core, create_core, open_core
from rollout.service import Service
from rollout.syscalls import FileCalls

__all__ = [
    "QUICK",
    "ROOT",
    "append_by_others",
    "core_of",
    "created",
    "end_quietly",
    "eventually",
    "eventually_blocking",
    "json_lines",
    "kept_files",
    "message",
    "messages",
    "opened",
    "own",
    "own_service",
    "recorder_of",
    "run_script",
    "texts",
]

ROOT = Path(__file__).resolve().parents[2]

QUICK = RecorderConfig(
    retry_seconds_min=0.001,
    retry_seconds_max=0.005,
    linger_seconds=0.0,
    sync_seconds=3600.0,
    close_seconds=20.0,
)
"""Retries at once; syncs only when asked to."""

_PATIENCE_SECONDS = 30.0


def message(text: str) -> RolloutItem:
    """An item that is numbered."""
    return ResponseItem.message("user", text)


def messages(names: Iterable[object]) -> list[RolloutItem]:
    return [message(str(name)) for name in names]


def own(text: str) -> RolloutItem:
    """An item of our own kind, which is not numbered."""
    return RolloutItem.raw("x_check", {"name": text})


_service: Service | None = None
_service_lock = threading.Lock()


def own_service() -> Service:
    """The service of all tests that inject faults; apart from the one that real programs share."""
    global _service
    with _service_lock:
        if _service is None:
            _service = Service("test-service").start()
        return _service


def core_of(
    path: Path,
    *,
    calls: FileCalls | None = None,
    config: RecorderConfig = QUICK,
    reopen: bool = False,
    fence: Callable[[], None] | None = None,
    lock: bool = True,
    meta: SessionMeta | None = None,
) -> Core:
    """A core with its own system calls."""
    service = own_service()
    if reopen:
        return open_core(path, config=config, service=service, calls=calls, fence=fence, lock=lock)
    meta = meta or SessionMeta(cwd="/somewhere")
    return create_core(path, meta, config=config, service=service, calls=calls, fence=fence, lock=lock)


def recorder_of(path: Path, **how: Any) -> RolloutRecorder:
    """A recorder on such a core. Closed by `aclose()`, or by `end_quietly`."""
    return RolloutRecorder(core_of(path, **how))


@asynccontextmanager
async def created(path: Path, **how: Any) -> AsyncIterator[RolloutRecorder]:
    """A new rollout; closed at the end, or dropped if the test failed."""
    recorder = recorder_of(path, **how)
    try:
        yield recorder
    except BaseException:
        recorder.discard()
        raise
    await recorder.aclose()


@asynccontextmanager
async def opened(path: Path, **how: Any) -> AsyncIterator[RolloutRecorder]:
    """The same for an existing one."""
    async with created(path, reopen=True, **how) as recorder:
        yield recorder


async def end_quietly(recorder: RolloutRecorder) -> None:
    """Stop without draining, and wait until the descriptors are closed."""
    recorder.discard()
    await recorder.aclose()


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until it holds; the time limit only ends a test that has failed."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.001)


def eventually_blocking(condition: Callable[[], object]) -> None:
    """The same without a loop."""
    pause = threading.Event()
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came true"
        pause.wait(0.001)


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Every line of the file as it stands on disk: all valid, the last one ended."""
    data = path.read_bytes()
    assert data.endswith(b"\n"), f"the last line has no newline: {data[-80:]!r}"
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def text_of(line: dict[str, Any]) -> str | None:
    """What `message` or `own` was given; None for other lines."""
    if line["type"] == "response_item":
        return str(line["payload"]["content"][0]["text"])
    return str(line["payload"]["name"]) if "name" in line["payload"] else None


def texts(path: Path) -> list[str]:
    """The texts of `message` and `own` items in the file, in order."""
    return [text for line in json_lines(path) if (text := text_of(line)) is not None]


def append_by_others(path: Path, data: bytes) -> None:
    """Another program appends, without a lock."""
    with path.open("ab") as file:
        file.write(data)


def kept_files(folder: Path, kind: str = "*") -> list[Path]:
    return sorted(folder.glob(f"*.{kind}")) if kind != "*" else sorted(folder.iterdir())


def run_script(
    script: str, *arguments: object, check: bool = True, **how: Any
) -> subprocess.CompletedProcess[str]:
    """A process of its own, with warnings as errors; its time limit only ends a test that has failed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        **how,
    )
    assert not check or done.returncode == 0, done.stderr
    return done
