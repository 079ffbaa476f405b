"""Comparing folders by their names alone. Only a caller's own folder is looked at, and that by `spellings`.

Invariant: what a rollout states is compared as text, so a folder that is gone, hangs or is of another
system costs nothing. Two spellings of a Windows path name one folder (`C:\\x`, `c:/x`, `\\\\?\\C:\\x`);
other names are equal if they are, but for slashes that mean nothing.
"""

from __future__ import annotations

import os
import re

__all__ = ["CwdFilter", "folder_key", "spellings"]

_DRIVE = re.compile(r"[A-Za-z]:(?:[\\/]|\Z)")
_VERBATIM = re.compile(r"[\\/]{2}[?.][\\/]")


def folder_key(text: str) -> str:
    """What two spellings of one folder have in common. Its parts are separated by `/`."""
    if _is_foreign(text):
        return _windows_key(text)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return ("/" if text.startswith("/") else "") + "/".join(parts)


def _windows_key(text: str) -> str:
    rest, verbatim = _VERBATIM.subn("", text, count=1)
    if verbatim and rest[:4].casefold() in ("unc\\", "unc/"):
        rest = "\\\\" + rest[4:]
    parts = [part for part in re.split(r"[\\/]+", rest) if part not in ("", ".")]
    return ("//" if rest.startswith(("\\\\", "//")) else "") + "/".join(parts).casefold()


def spellings(folder: str) -> list[str]:
    """How a folder that a caller names may stand in a record: whole, and with its links followed."""
    if os.path.isabs(folder) or not _is_foreign(folder):
        return [os.path.abspath(folder), os.path.realpath(folder)]
    return [folder]


def _is_foreign(text: str) -> bool:
    return bool(_DRIVE.match(text) or text.startswith("\\\\") or _VERBATIM.match(text))


class CwdFilter:
    """Takes the folders that one of some names means, or what lies under them too."""

    def __init__(self, names: list[str], *, under: bool = False) -> None:
        self._keys = {folder_key(each) for each in names}
        self._prefixes = tuple(each.rstrip("/") + "/" for each in self._keys) if under else ()

    def matches(self, cwd: object) -> bool:
        """Whether a stored folder is one of them."""
        if not isinstance(cwd, str) or not cwd:
            return False
        key = folder_key(cwd)
        return key in self._keys or key.startswith(self._prefixes)
