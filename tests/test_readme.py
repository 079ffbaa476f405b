"""The README can't drift: its commands, its example and its list of commands are checked here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thread_store.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


def read_readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_command_stands_in_the_readme() -> None:
    """Whoever reads the README meets every command."""
    readme = read_readme()
    assert [name for name in COMMANDS if f"rollout {name}" not in readme] == []


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        ("README.md", "<!-- example -->"),
        ("README.md", "<!-- example: store -->"),
        ("README.md", "<!-- example: resume -->"),
        ("docs/tool_calls.md", "<!-- example: agent -->"),
    ],
)
def test_example_runs_as_written(tmp_path: Path, name: str, marker: str) -> None:
    """The first thing a newcomer copies works, in an empty folder and without a warning."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.search(re.escape(marker) + r"\s*```python\n(.*?)```", text, re.DOTALL)
    assert found, f"{name} has no python block after {marker}"
    script = tmp_path / "example.py"
    script.write_text(found[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_readme_holds_the_commands_that_ci_runs() -> None:
    """Each of the two set-up commands is one line after its marker; CI runs exactly that line."""
    readme = read_readme()
    for marker in ("<!-- ci:demo -->", "<!-- ci:test -->"):
        found = re.search(re.escape(marker) + r"\s*```(?:sh|bash|console)?\n([^\n]+)\n```", readme)
        assert found, f"README.md has no one-line block after {marker}"
