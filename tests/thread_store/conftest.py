"""What the tests of the command line share: a home, hand-written rollouts, and real runs of the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
THREAD = "01960000-0000-7000-8000-00000000f00d"
NAME = f"rollout-2026-03-04T05-06-07-{THREAD}.jsonl"

# What would change how the command prints, looks or finds its home.
_FOREIGN = (
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "TERM",
    "PAGER",
    "LANG",
    "TZ",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
)

Line = dict[str, Any] | bytes


def environment(home: Path, **changes: str) -> dict[str, str]:
    """The environment of a run: this one without what foreign settings could change."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN and not name.startswith(("ROLLOUT_", "LC_", "XDG_"))
    }
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    fixed = {
        "PYTHONPATH": path,
        "ROLLOUT_HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONWARNINGS": "error",
    }
    return {**kept, **fixed, **changes}


COMMAND = (sys.executable, "-m", "thread_store")


class Run(Protocol):
    """Runs `rollout` with these arguments to its end."""

    def __call__(
        self, *arguments: str | Path, input: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that doesn't exist yet."""
    return tmp_path / "home"


@pytest.fixture
def rollout(home: Path, tmp_path: Path) -> Run:
    """The command, in a folder and with a home of its own."""

    def run(*arguments: str | Path, input: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=input,
            capture_output=True,
            cwd=tmp_path,
            env=environment(home, **environ),
            timeout=120,
        )

    return run


def meta_line(thread_id: str = THREAD, **extra: Any) -> dict[str, Any]:
    """The first line of a rollout."""
    payload = {
        "id": thread_id,
        "timestamp": "2026-03-04T05:06:07.000Z",
        "cwd": "/srv/demo",
        "originator": "hand",
        "cli_version": "0.0.1",
        "source": "cli",
        "history_mode": "paginated",
        **extra,
    }
    return {"timestamp": "2026-03-04T05:06:07.000Z", "ordinal": 0, "type": "session_meta", "payload": payload}


def line(ordinal: int | None, record_type: str, payload: Any) -> dict[str, Any]:
    """One record."""
    number = {} if ordinal is None else {"ordinal": ordinal}
    return {"timestamp": "2026-03-04T05:06:08.000Z", **number, "type": record_type, "payload": payload}


def said(role: str, text: str) -> dict[str, Any]:
    """The payload of a message on the model's track."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def encoded(lines: Sequence[Line]) -> bytes:
    """The bytes of a rollout; bytes among the lines stand as they are."""
    return b"".join(each if isinstance(each, bytes) else _encode(each) for each in lines)


def _encode(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n"


@pytest.fixture
def write(home: Path) -> Callable[..., Path]:
    """Write a rollout of these lines, by default into the home under its own name."""

    def write_rollout(*lines: Line, path: Path | None = None) -> Path:
        target = path or home / "sessions" / "2026" / "03" / "04" / NAME
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encoded(lines))
        return target

    return write_rollout


def objects(output: bytes) -> list[dict[str, Any]]:
    """The JSON objects that a run printed, one a line."""
    return [json.loads(each) for each in output.decode().splitlines()]
