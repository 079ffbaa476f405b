"""Which files of other programs there are below some paths, and what each one is.

Invariant: a file is known by what stands in it, never by its name alone. A rollout of ours or of Codex is no
foreign file: it needs no import, unless it is from before the envelope.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from protocol.errors import InvalidLine, NotARollout, RolloutUnreadable, ThreadNotFound
from rollout.source import raise_unreadable
from thread_store.importing import atif, claude_code, gemini_cli, my_code_agent, old_codex, opencode, pi
from thread_store.importing.json_lines import parse_json, read_json_lines
from thread_store.importing.source import SourceReader
from thread_store.importing.threads import thread_id_of

__all__ = ["FORMATS", "FoundSource", "find_sources"]

_HEAD_LINES = 20
_DOCUMENT_BYTES_MAX = 1 << 30
_Detect = Callable[[list[dict[str, Any]]], bool]

FORMATS: dict[str, tuple[_Detect | None, Callable[[str, str | None], SourceReader]]] = {
    "claude": (claude_code.looks_like, claude_code.ClaudeCodeReader),
    "gemini": (gemini_cli.looks_like, lambda path, parent: gemini_cli.GeminiCliReader(path)),
    "pi": (pi.looks_like, lambda path, parent: pi.PiReader(path)),
    "omp": (None, lambda path, parent: pi.PiReader(path)),
    "opencode": (opencode.looks_like, lambda path, parent: opencode.OpencodeReader(path)),
    "mycodeagent": (my_code_agent.looks_like, lambda path, parent: my_code_agent.MyCodeAgentReader(path)),
    "atif": (atif.looks_like, lambda path, parent: atif.AtifReader(path)),
    "codex": (None, lambda path, parent: old_codex.OldCodexReader(path)),
}
"""By the name that `--from` takes: how its first records look (None: another way), and who reads it."""


class FoundSource(NamedTuple):
    """A file that can be imported. `parent`: the session that a sub-agent's file lies beside."""

    path: str
    format: str
    parent: str | None

    def open(self) -> SourceReader:
        """Its reader. Raises RolloutUnreadable."""
        return FORMATS[self.format][1](self.path, self.parent)

    @property
    def parent_thread_id(self) -> str | None:
        """The thread that the parent is, or would be, imported as; None: its file isn't there."""
        if self.parent is None:
            return None
        above = os.path.dirname(os.path.dirname(os.path.dirname(self.path)))
        path = os.path.join(above, f"{self.parent}.jsonl")
        return (
            thread_id_of(FORMATS[self.format][1](path, None).threads()[0]) if os.path.isfile(path) else None
        )


def find_sources(
    paths: Sequence[str], *, format: str | None = None, refused: Callable[[Exception], None]
) -> Iterator[FoundSource]:
    """The sources at or below the paths, in the order of their names; sub-agents behind their sessions.

    `format`: take every file for one of it. What can't be read goes to `refused`; below a folder files of
    other kinds are passed over in silence.

    Raises:
        ThreadNotFound: nothing is there.
        NotARollout: a file that was named is of no known kind.
    """
    for path in map(os.path.abspath, paths):
        if not os.path.lexists(path):
            missing = ThreadNotFound(path)
            missing.path = path
            raise missing
        if not os.path.isdir(path):
            found = _kind_of(path, format)
            if found is None:
                names = ", ".join(FORMATS)
                raise NotARollout(
                    path=path, reason=f"it is no session of {names}", hint="Name its kind with --from"
                )
            yield FoundSource(path, found, _parent_of(path))
            continue
        for each in _files_below(path, refused):
            try:
                found = _kind_of(each, format)
            except RolloutUnreadable as error:
                refused(error)
                continue
            if found is not None:
                yield FoundSource(each, found, _parent_of(each))


def _files_below(folder: str, refused: Callable[[Exception], None]) -> Iterator[str]:
    def tell(error: OSError) -> None:
        refused(RolloutUnreadable(path=str(error.filename), cause=error, operation="list"))

    for base, folders, names in os.walk(folder, onerror=tell):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(base, name)
            if name.endswith((".jsonl", ".json")) and os.path.isfile(path):
                yield path


def _parent_of(path: str) -> str | None:
    folder = os.path.dirname(path)
    if os.path.basename(folder) == "subagents" and os.path.basename(path).startswith("agent-"):
        return os.path.basename(os.path.dirname(folder))
    return None


def _kind_of(path: str, format: str | None) -> str | None:
    if format is not None:
        return format
    values = _head_of(path)
    for name, (looks_like, _) in FORMATS.items():
        if looks_like is not None and looks_like(values):
            return name
    return "codex" if values and "payload" not in values[0] and old_codex.is_old(path) else None


def _head_of(path: str) -> list[dict[str, Any]]:
    if path.endswith(".jsonl"):
        return [line.value for line in islice(read_json_lines(path, []), _HEAD_LINES)]
    try:
        with open(path, "rb") as file:
            value = parse_json(file.read(_DOCUMENT_BYTES_MAX))
    except OSError as error:
        raise_unreadable(path, error, "read")
    except InvalidLine:
        return []
    return [value]
