"""The terminal: everything a command prints goes through it.

Invariant: stdout carries data and stderr notes; with `--json` stdout carries one JSON object a
line and nothing else. No character that the stream's encoding lacks can raise, and colour is
an addition, never the only carrier of a meaning.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from thread_store.cli.safe_text import safe_json

__all__ = ["FORMAT_VERSION", "Terminal", "command_line"]

FORMAT_VERSION = 1
"""`"v"` in every JSON object that a command prints."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_MARKS = {
    "good": ("✓", "ok"),
    "bad": ("✗", "!!"),
    "unknown": ("?", "?"),
    "tool": ("⚙", "$"),
    "bar": ("│", "|"),
    "rule": ("─", "-"),
    "more": ("…", "..."),
    "dot": ("·", "-"),
    "arrow": ("→", "->"),
    "nothing": ("–", "-"),
    "branch": ("├─ ", "|- "),
    "corner": ("└─ ", "`- "),
    "trunk": ("│  ", "|  "),
}


class Terminal:
    """Standard output and error, and the options that say how to print.

    The attributes are set by the shared options (see `options`) before a command runs.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.stdout: Any = _Nowhere() if sys.stdout is None else sys.stdout
        self.stderr: Any = _Nowhere() if sys.stderr is None else sys.stderr
        self.home: str | None = None
        self.json = False
        self.quiet = False
        self.verbose = False
        self.utc = False
        self.color = "auto"
        self.before_note: Callable[[], None] | None = None
        """Called before anything goes to stderr: whoever draws there clears its line."""
        self.ascii = not _speaks_utf8(self.stdout, self.environ)
        for stream in (self.stdout, self.stderr):
            if not hasattr(stream, "reconfigure"):
                continue
            if self.ascii:
                stream.reconfigure(encoding="ascii", errors="backslashreplace")
            else:
                stream.reconfigure(errors="backslashreplace")

    # Printing

    def print(self, text: str = "") -> None:
        """One line (or several) of data. Text from a file must have gone through `safe_text`."""
        self.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """A remark on stderr; silent with `--quiet`."""
        if not self.quiet:
            self._complain(f"rollout: {text}")

    def warn(self, text: str, *, code: str, **fields: Any) -> None:
        """Something that went wrong without ending the command; an object with `--json`."""
        if self.json:
            self._complain(self._encode("warning", {"code": code, "message": text, **fields}))
        else:
            self._complain(f"rollout: {text}")

    def emit(self, kind: str, **fields: Any) -> None:
        """One object with `--json`: `v`, `kind` and the fields."""
        self.stdout.write(self._encode(kind, fields) + "\n")

    def emit_payload(self, kind: str, payload: str, **fields: Any) -> None:
        """The same with a last member `payload`, which is JSON already: its numbers keep their text."""
        encoded = self._encode(kind, fields).removesuffix("}")
        self.stdout.write(f'{encoded},"payload":{safe_json(payload, ascii_only=self.ascii)}}}\n')

    def fail(
        self, message: str, *, code: str, hint: str = "", retryable: bool = False, **fields: Any
    ) -> None:
        """Say why the command ends: one line, or one object with `--json`."""
        if self.json:
            known = {"code": code, "message": message, "hint": hint, "retryable": retryable}
            self._complain(self._encode("error", {**known, **fields}))
        else:
            stop = "" if message.endswith((".", "?", "!")) else "."
            self._complain(f"rollout: {message}{stop} {hint}".rstrip(" "))

    def _encode(self, kind: str, fields: Mapping[str, Any]) -> str:
        value = {"v": FORMAT_VERSION, "kind": kind, **fields}
        return safe_json(json.dumps(value, ensure_ascii=self.ascii, separators=(",", ":"), default=str))

    def _complain(self, text: str) -> None:
        if self.before_note is not None:
            self.before_note()
        self.stdout.flush()  # keeps the order where both streams are one terminal
        try:
            self.stderr.write(text + "\n")
            self.stderr.flush()
        except BrokenPipeError:
            raise
        except OSError:  # the terminal hung up: there is nobody to tell
            self.stderr = _Nowhere()

    # Looks

    @property
    def is_tty(self) -> bool:
        """Whether a person reads stdout."""
        return bool(self.stdout.isatty())

    @property
    def has_colors(self) -> bool:
        """By `--color`, then NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE, `TERM=dumb`, then whether it is a tty."""
        if self.color != "auto":
            return self.color == "always"
        if self.environ.get("NO_COLOR"):
            return False
        if any(self.environ.get(name) not in (None, "", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
            return True
        return self.environ.get("TERM") != "dumb" and self.is_tty

    def style(self, text: str, style: str) -> str:
        """The text in a colour or weight, where those are on."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and self.has_colors else text

    def mark(self, name: str) -> str:
        """A sign such as ✓, or its ASCII form."""
        return _MARKS[name][self.ascii]


def command_line() -> str:
    """What to type to run this program again, wherever it is installed."""
    import shlex
    import shutil

    program = sys.argv[0]
    if os.path.basename(program) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m thread_store"
    found = shutil.which(os.path.basename(program))
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return os.path.basename(program)
    return shlex.quote(program)


class _Nowhere(io.TextIOBase):
    """Stands in for a stream that was closed, or whose terminal hung up."""

    encoding = "utf-8"

    def write(self, text: str, /) -> int:
        return len(text)


def _speaks_utf8(stream: Any, environ: Mapping[str, str]) -> bool:
    """What the locale says; where it says nothing, the encoding that Python chose."""
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        return False
    if environ.get("PYTHONIOENCODING"):
        return True
    locale = next(filter(None, map(environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return not locale or "utf8" in locale.lower().replace("-", "")
