"""One run of the command line: parse, call, and turn whatever happens into an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from protocol.errors import RolloutError
from thread_store.cli.app import app
from thread_store.cli.failures import ExitCode, describe_os_error, report_error
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal

__all__ = ["run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run `rollout` with these arguments (by default those of the process)."""
    terminal = Terminal()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # Errors in the arguments themselves must already come as JSON.
    terminal.json = "--json" in arguments
    code = 0
    try:
        code = _run_command(terminal, arguments)
        terminal.stdout.flush()
    except BrokenPipeError:
        code = code or ExitCode.CLOSED_PIPE
    except OSError as error:  # a full disk behind `>`, a terminal that hung up
        code = code or ExitCode.SYSTEM
        terminal.stdout = sys.stderr
        terminal.fail(f"can't print: {describe_os_error(error)}", code="os_error", errno=error.errno)
    _drop_broken_streams()
    return code


def _run_command(terminal: Terminal, arguments: list[str]) -> int:
    try:
        with app.make_context("rollout", arguments, obj=terminal) as context:
            result = app.invoke(context)
        return result if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        terminal.stderr.write(error.format_message() + "\n")
        return ExitCode.USAGE
    except click.UsageError as error:
        return _report_usage(terminal, error)
    except RolloutError as error:
        _show_traceback(terminal)
        return report_error(terminal, error)
    except (KeyboardInterrupt, click.Abort):
        _show_traceback(terminal)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        _show_traceback(terminal)
        terminal.fail(describe_os_error(error), code="os_error", errno=error.errno)
        return ExitCode.SYSTEM
    except Exception as error:  # noqa: BLE001  # a bug of ours: still one line, still an exit code
        _show_traceback(terminal)
        terminal.fail(
            f"internal error: {type(error).__name__}: {safe_line(error)}; this is a bug in rollout",
            code="internal_error",
            hint="Try: ROLLOUT_DEBUG=1 with the same command, and report what it prints.",
        )
        return ExitCode.SYSTEM


def _report_usage(terminal: Terminal, error: click.UsageError) -> ExitCode:
    path = error.ctx.command_path if error.ctx else "rollout"
    message = safe_line(error.format_message()).rstrip(".")
    hint = f"Try: {path} --help"
    terminal.fail(message, code="usage", hint=hint)
    return ExitCode.USAGE


def _show_traceback(terminal: Terminal) -> None:
    if terminal.environ.get("ROLLOUT_DEBUG") == "1":
        traceback.print_exc(file=terminal.stderr)


def _drop_broken_streams() -> None:
    """Where nobody reads any more, what is still buffered must not raise again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, stream.fileno())
            os.close(devnull)
