"""The root of the package: its table of names, and the version."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import protocol
from protocol import errors
from protocol.items import _HOMES, CODEX_TYPES
from protocol.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_the_one_of_the_project() -> None:
    """What a rollout says wrote it is the version that is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION


def test_every_error_can_be_imported_from_the_root() -> None:
    """Callers match errors without knowing modules."""
    assert set(errors.__all__) <= set(protocol.__all__)


def test_every_typed_record_has_a_decoder() -> None:
    """The table of homes and the modules agree."""
    for record_type, home in _HOMES.items():
        assert record_type in importlib.import_module(home).DECODERS
        assert record_type in CODEX_TYPES or record_type.startswith("x_")


def test_reading_lines_loads_no_payload_classes() -> None:
    """A reader that needs envelopes only doesn't pay for the classes of payloads."""
    code = "import sys; from protocol import decode_line; decode_line(b'{}'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("protocol.")}
    assert not loaded & {"protocol.response_items", "protocol.events", "protocol.own", "protocol.tracks"}
