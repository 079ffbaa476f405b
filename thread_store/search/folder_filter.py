"""Whether a recorded folder is the one that was asked for, or below it: by their texts alone.

Invariant: a recorded folder is text. No file-system call is made on it; it may lie on a mount that hangs, or
on another system. Windows paths are equal in any case and form (`\\\\?\\C:\\x`, `c:/x`).
"""

from __future__ import annotations

import ntpath
import os
import posixpath
import re

__all__ = ["FolderFilter"]

_WINDOWS = re.compile(r"(?:[A-Za-z]:(?:[\\/]|\Z)|\\\\)")


class FolderFilter:
    """Of one folder as the caller names it; links in that name are followed once, here."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        named = os.fspath(folder)
        names = [named] if _WINDOWS.match(named) else [os.path.abspath(named), os.path.realpath(named)]
        self._folders = {_normal(name) for name in names}

    def holds(self, recorded: object) -> bool:
        """Whether a recorded folder is it, or lies below it."""
        if not isinstance(recorded, str) or not recorded:
            return False
        path = _normal(recorded)
        return any(path == each or path.startswith(_with_separator(each)) for each in self._folders)


def _with_separator(folder: str) -> str:
    separator = "\\" if _WINDOWS.match(folder) else "/"
    return folder if folder.endswith(separator) else folder + separator


def _normal(path: str) -> str:
    if not _WINDOWS.match(path):
        return posixpath.normpath(path)
    for prefix, rest in (("\\\\?\\UNC\\", "\\\\"), ("\\\\?\\", ""), ("\\\\.\\", "")):
        if path.upper().startswith(prefix):
            path = rest + path[len(prefix) :]
            break
    return ntpath.normpath(path).casefold()
