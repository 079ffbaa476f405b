"""What the command line redacts before it records: `--redact`, else `$ROLLOUT_REDACT`.

Invariant: a value that isn't understood is a usage error, never taken for "off".
"""

from __future__ import annotations

import click

from rollout.config import RecorderConfig
from thread_store.cli.terminal import Terminal

__all__ = ["recorder_config"]

_VARIABLE = "ROLLOUT_REDACT"
_OFF, _ON = frozenset({"", "off", "0", "no", "false"}), frozenset({"on", "1", "yes", "true"})


def recorder_config(terminal: Terminal, redact: str | None = None) -> RecorderConfig:
    """The settings of the recorders of this run.

    Args:
        redact: `on`, `off`, or names of rules with commas between them, as they were typed.

    Raises:
        click.UsageError: there is no such rule.
        RedactionUnavailable: the rules aren't installed.
    """
    wanted = terminal.environ.get(_VARIABLE, "") if redact is None else redact
    lowered = wanted.strip().lower()
    if lowered in _OFF:
        return RecorderConfig()
    from rollout.secret_rules import SecretRules  # a quarter of a second that most calls don't need

    names = [each.strip() for each in lowered.split(",") if each.strip()]
    try:
        return RecorderConfig(redact=SecretRules(only=None if lowered in _ON else names))
    except ValueError as error:
        source = f"${_VARIABLE}" if redact is None else "--redact"
        raise click.UsageError(f"bad {source}: {error}; use on, off or names of rules") from None
