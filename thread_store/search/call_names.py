"""The names of tools whose results were found: the call says it, and stands before.

Invariant: what is looked through is bounded: the block first, then the file, and that only
`_FILE_LOOKS_MAX` times a file.
"""

from __future__ import annotations

import stringzilla as sz

from protocol.errors import RolloutError
from rollout.lines import judge_line
from thread_store.search.line_blocks import LineBlock, LineBlocks
from thread_store.transcript.fact import FactKind, Form
from thread_store.transcript.facts import fact_of

__all__ = ["CallNames"]

_FILE_LOOKS_MAX = 32
_KNOWN_MAX = 4096


class CallNames:
    """Of the calls of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, str | None] = {}
        self._looks_left = _FILE_LOOKS_MAX

    def find(self, call_id: str, block: LineBlock, before: int) -> str | None:
        """The name of the tool that a call is of; the result stands at a place of a block."""
        if call_id not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            name = _find_before(block.data, before, call_id) or self._find_in_file(call_id, block.offset)
            self._known[call_id] = name
        return self._known[call_id]

    def _find_in_file(self, call_id: str, end: int) -> str | None:
        if not self._looks_left or not end:
            return None
        self._looks_left -= 1
        found: str | None = None
        try:
            for block in LineBlocks().read(self._path, end=end):
                if isinstance(block, LineBlock):
                    found = _find_before(block.data, len(block.data), call_id) or found
        except RolloutError:
            return None  # the search itself tells what can't be read
        return found


def _find_before(block: memoryview, end: int, call_id: str) -> str | None:
    """The newest call of that id before a place."""
    needle = call_id.encode("utf-8", "surrogatepass")
    while (at := sz.rfind(block, needle, 0, end)) >= 0:
        begin = sz.rfind(block, b"\n", 0, at) + 1
        line_end = sz.find(block, b"\n", at)
        record = judge_line(bytes(block[begin : line_end if line_end >= 0 else None]), None, 0)
        if record is not None and record.line is not None:
            fact = fact_of(record.line)
            of_call = fact.kind is FactKind.TOOL and f"tool\0{call_id}" in fact.keys
            if of_call and fact.name and fact.form is Form.RESPONSE and fact.is_call:
                return fact.name
        end = begin
        if end <= 0:
            break
    return None
