"""What is odd about a rollout as a whole: nothing that makes one of its lines invalid.

Invariant: a notice never changes a record, and there is at most one for each code, with the
first place and a count: a file in which everything is odd costs no more memory than any other.
Ordinals may be absent, repeated, stepping back or gapped; the next one is always the maximum
plus one (FORMAT.md, Ordinals).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from protocol.errors import InvalidThreadId
from protocol.ids import ThreadId
from protocol.items import CODEX_TYPES
from protocol.line import RolloutLine
from rollout.record import RolloutRecord

__all__ = ["FileNotice", "FileNotices", "base_ordinal", "meta_text", "thread_id_of"]

META = "session_meta"


class FileNotice(Struct, frozen=True, gc=False):
    """One oddity; place and message are those of its first occurrence, `count` says how often it was met.

    `code` is one of `bom`, `crlf`, `no_final_newline`, `one_document`, `ordinal_absent`, `ordinal_gap`,
    `ordinal_repeated`, `ordinal_step_back`, `meta_absent`, `meta_late`, `meta_repeated`, `id_not_uuid`.
    """

    code: str
    message: str
    count: int = 1
    line_no: int | None = None
    offset_bytes: int | None = None


def meta_text(line: RolloutLine, key: str) -> str | None:
    """A text of a meta line's payload; None if it is absent or of another type."""
    value = _meta_value(line, key)
    return value if isinstance(value, str) else None


def _meta_value(line: RolloutLine, key: str) -> Any:
    payload = line.payload_object()
    return payload.get(key) if isinstance(payload, dict) else None


def thread_id_of(line: RolloutLine) -> str | None:
    """The thread id in a meta line: a `ThreadId` where it is one, else the text as it stands."""
    text = meta_text(line, "id")
    if text is None:
        return None
    try:
        return ThreadId.parse(text)
    except InvalidThreadId:
        return text


def base_ordinal(line: RolloutLine) -> int:
    """Where the numbering of a rollout begins that goes on from a base (its `history_base`)."""
    base = _meta_value(line, "history_base")
    end = base.get("end_ordinal_exclusive") if isinstance(base, dict) else None
    return end if isinstance(end, int) and end > 0 else 0


class FileNotices:
    """Collects notices while a rollout is read forward."""

    __slots__ = ("_notices", "end_offset", "lines", "meta", "next_ordinal")

    def __init__(self) -> None:
        self.next_ordinal = 0
        """One more than the greatest ordinal met."""
        self.meta: RolloutRecord | None = None
        """The first session_meta: it is the thread's own, later ones are copied history."""
        self.lines = 0
        """Physical lines, blank ones and an unfinished last one included."""
        self.end_offset = 0
        """Where the last line ended, newline included."""
        self._notices: dict[str, FileNotice] = {}

    def note(self, code: str, message: str, record: RolloutRecord | None = None) -> None:
        """Add one occurrence."""
        known = self._notices.get(code)
        if known is not None:
            first, count = known, known.count + 1
            self._notices[code] = FileNotice(code, first.message, count, first.line_no, first.offset_bytes)
            return
        line_no, offset = (record.line_no, record.offset) if record is not None else (None, None)
        self._notices[code] = FileNotice(code, message, 1, line_no, offset)

    def note_ordinal(self, record: RolloutRecord, line: RolloutLine) -> None:
        """A record whose ordinal is not the next one: after its predecessor the order must be looked at."""
        ordinal = line.number
        if ordinal is None:
            if line.type in CODEX_TYPES:
                self.note("ordinal_absent", "a record has no ordinal, others have one", record)
            return
        expected = self.next_ordinal or self._first_expected(record, line)
        if ordinal > expected:
            missing = str(expected) if ordinal == expected + 1 else f"{expected} to {ordinal - 1}"
            self.note("ordinal_gap", f"no record has the ordinal {missing}", record)
        elif ordinal == expected - 1 >= 0:
            if line.type != META:  # a fork's copied history begins with the meta of its source
                self.note("ordinal_repeated", f"the ordinal {ordinal} was used before", record)
        elif ordinal < expected or ordinal < 0:
            self.note("ordinal_step_back", f"the ordinal {ordinal} follows {expected - 1}", record)
        self.next_ordinal = max(self.next_ordinal, ordinal + 1)

    def _first_expected(self, record: RolloutRecord, line: RolloutLine) -> int:
        meta = line if line.type == META else self.meta.line if self.meta is not None else None
        return base_ordinal(meta) if meta is not None else 0

    def note_meta(self, record: RolloutRecord, line: RolloutLine, *, records_before: int) -> None:
        """A session_meta record."""
        if self.meta is not None:
            self.note("meta_repeated", "a further session_meta: copied history, the first one counts", record)
            return
        self.meta = record
        if records_before:
            self.note("meta_late", "the session_meta is not the first record", record)
        thread_id = thread_id_of(line)
        if not isinstance(thread_id, ThreadId):
            shown = (
                "it has no thread id" if thread_id is None else f"the thread id {thread_id[:80]!r} is no UUID"
            )
            self.note("id_not_uuid", f"{shown}; it is kept as it is and never made a path", record)

    def finish(self, *, records: bool) -> None:
        """The end was reached; `records` tells whether any valid line was met."""
        if not records:
            return
        if self.meta is None:
            self.note("meta_absent", "no session_meta in the whole file: its thread is unknown")
            return
        line = self.meta.line
        if line is None or line.ordinal is not None:
            return
        if self.next_ordinal:
            self.note("ordinal_absent", "a record has no ordinal, others have one", self.meta)
        elif meta_text(line, "history_mode") == "paginated":
            self.note("ordinal_absent", "it is declared paginated, and no record has an ordinal", self.meta)

    def listed(self) -> list[FileNotice]:
        """All of them, in the order of their first occurrence."""
        return list(self._notices.values())
