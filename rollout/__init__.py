"""One rollout file: recording, reading from both ends, checking, repairing.

The names below are loaded when they are first asked for, so that a program pays only for what
it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollout import blocking
    from rollout.barrier import Receipt
    from rollout.check import check_rollout
    from rollout.config import Durability, RecorderConfig
    from rollout.health import WriterHealth
    from rollout.reader import read_rollout
    from rollout.record import LineWarning, RolloutRecord
    from rollout.recorder import RolloutRecorder
    from rollout.repair import repair_rollout
    from rollout.scanner import ReverseJsonlScanner
    from rollout.secret_rules import SecretRules

__all__ = [
    "Durability",
    "LineWarning",
    "Receipt",
    "RecorderConfig",
    "ReverseJsonlScanner",
    "RolloutRecord",
    "RolloutRecorder",
    "SecretRules",
    "WriterHealth",
    "blocking",
    "check_rollout",
    "read_rollout",
    "repair_rollout",
]

_HOMES = {
    "Durability": "rollout.config",
    "LineWarning": "rollout.record",
    "Receipt": "rollout.barrier",
    "RecorderConfig": "rollout.config",
    "ReverseJsonlScanner": "rollout.scanner",
    "RolloutRecord": "rollout.record",
    "RolloutRecorder": "rollout.recorder",
    "SecretRules": "rollout.secret_rules",
    "WriterHealth": "rollout.health",
    "check_rollout": "rollout.check",
    "read_rollout": "rollout.reader",
    "repair_rollout": "rollout.repair",
}


def __getattr__(name: str) -> Any:
    if name == "blocking":
        return import_module("rollout.blocking")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
