"""Options that every command shares; they may stand before or after its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from thread_store.cli.terminal import Terminal

__all__ = ["shared_options", "terminal_of"]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def terminal_of(context: click.Context) -> Terminal:
    """The one terminal of this run."""
    terminal = context.find_object(Terminal)
    if terminal is None:
        raise LookupError("no Terminal was given to the command line")
    return terminal


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    # Not given here: what was given further left stays.
    if value not in (None, False):
        setattr(terminal_of(context), str(parameter.name), value)
    return value


def _option(*names: str, **settings: Any) -> Callable[[_Decorated], _Decorated]:
    return click.option(*names, callback=_set, expose_value=False, **settings)


_OPTIONS = (
    _option("--home", metavar="DIR", help="The home; else $ROLLOUT_HOME, else $XDG_STATE_HOME/rollout."),
    _option("--color", type=click.Choice(["auto", "always", "never"]), help="When to use colour."),
    _option("--json", is_flag=True, help="One JSON object a line on stdout, errors as one on stderr."),
    _option("--ascii", is_flag=True, help="Signs in ASCII."),
    _option("--utc", is_flag=True, help="Times in UTC instead of local time."),
    _option("-q", "--quiet", is_flag=True, help="No remarks on stderr."),
    _option("-v", "--verbose", is_flag=True, help="More remarks on stderr."),
)


def shared_options(command: _Decorated) -> _Decorated:
    """Add the shared options to a command; they set the attributes of the `Terminal`."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command
