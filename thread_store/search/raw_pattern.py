"""Which lines may hold a match, told by their raw bytes.

Invariant: a line with a match in a text is always among the candidates, however its JSON is escaped, also
where a text is JSON again (a call's arguments). Lines without one may be among them.

Theory of operation. Every match holds a run of characters that JSON writes as they are, the *anchor*: the
needle's longest piece without quotes, backslashes and control characters. In the raw line it stands as it is,
or at least one of its characters is written as `\\uXXXX` (or `/` as `\\/`). So a candidate holds the anchor,
or one of the escapes that a character of the anchor, in any case, can have. The scan for both is SIMD
(stringzilla), whose folding is the one of `str.casefold`. Escapes are looked for only in blocks that hold
some other than those of control characters, which JSON always writes so. A needle of nothing but such
characters is looked for by the short escape of one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import stringzilla as sz

from thread_store.search.required_text import required_text
from thread_store.search.search_query import SearchQuery

__all__ = ["RawPattern", "raw_pattern"]

# What JSON never writes as it is, and lone surrogates, which have no UTF-8.
_NEVER_RAW = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_SHORT_ESCAPES = {'"': b'\\"', "\\": b"\\\\", "\n": b"\\n", "\t": b"\\t", "\r": b"\\r"}
_SHORT_ESCAPES |= {"\b": b"\\b", "\f": b"\\f"}
# Beyond ASCII, but an ASCII letter or several (or with something behind it) once folded.
_FOLDED_TO_ASCII = (
    "\u00df\u0130\u0149\u017f\u01f0\u1e96\u1e97\u1e98\u1e99\u1e9a\u1e9e\u212a\ufb00\ufb01\ufb02"
)
_FOLDED_TO_ASCII += "\ufb03\ufb04\ufb05\ufb06"
_ANY_BUT_CONTROL = rb"\\u(?!00[01])[0-9a-fA-F]{4}"
# RE2 takes some letters for each other that full folding keeps apart.
_PLAIN_CHARS_MIN = 5
_OF_ESCAPES = frozenset(map(ord, "\\/ubfnrt0123456789abcdefABCDEF"))
_CONTROLS = (b"001", b"000")
_ESCAPES_SEEN_MAX = 100
_CASES_OF_PATTERNS = re.compile("[iI\u0130\u0131]")


class RawPattern:
    """`anchor`: what stands raw in a candidate; empty if every line is one, None if only escapes tell."""

    def __init__(
        self,
        anchor: bytes | None,
        *,
        folds: bool = False,
        escapes: bytes = b"",
        seeks_controls: bool = False,
    ) -> None:
        self.anchor = anchor
        self.folds = folds
        self._has_slash = anchor is not None and b"/" in anchor
        self._escape = re.compile(escapes) if escapes else None
        self._seeks_controls = seeks_controls

    def lines(self, block: memoryview) -> Iterator[tuple[int, int]]:
        """Begin and end of each candidate in a block of whole lines, in order, the newline left out."""
        others = self._escaped(block)
        at, size = 0, len(block)
        while at < size:
            found = self._next(block, at)
            if others and (found < 0 or others[-1] < found):
                found = others[-1]
            if found < 0:
                return
            begin = sz.rfind(block, b"\n", at, found) + 1 or at
            end = sz.find(block, b"\n", found)
            end = size if end < 0 else end
            yield begin, end
            at = end + 1
            while others and others[-1] < at:
                others.pop()

    def _next(self, block: memoryview, at: int) -> int:
        if self.anchor is None:
            return -1
        if not self.anchor:
            return at
        search = sz.utf8_uncased_search if self.folds else sz.find
        return int(search(block, self.anchor, at))

    def _escaped(self, block: memoryview) -> list[int]:
        """Where an escape stands that may hide a match, the last one first."""
        places: list[int] = []
        if self._escape is not None and not self._only_controls(block):
            places = [found.start() for found in self._escape.finditer(block)]
        if self._has_slash:
            at = -1
            while (at := sz.find(block, b"\\/", at + 1)) >= 0:
                places.append(at)
        places.sort(reverse=True)
        return places

    def _only_controls(self, block: memoryview) -> bool:
        """Whether all escapes are of control characters, none of which is looked for."""
        if self._seeks_controls:
            return False
        find, at = sz.find, -1
        for _ in range(_ESCAPES_SEEN_MAX):
            at = find(block, b"\\u", at + 1)
            if at < 0:
                return True
            if block[at + 2 : at + 5] not in _CONTROLS:
                return False
        # Where there are many, three passes cost less than a step for each.
        rest = block[at:]
        controls = sz.count(rest, b"\\u001") + sz.count(rest, b"\\u000")
        return bool(sz.count(rest, b"\\u") == controls)


def raw_pattern(query: SearchQuery) -> RawPattern:
    """What the lines with a match of a query must hold."""
    folds = not query.case_sensitive
    if not query.regex:
        return _of_text(query.text, folds=folds)
    text = required_text(query.text)
    folds = folds or "(?" in query.text
    pieces = _CASES_OF_PATTERNS.split(text) if folds else [text]
    text = max(pieces, key=_bytes_of)
    # Short ones are in most lines, and then looking for them costs more than it saves.
    return _of_text(text, folds=folds) if text else RawPattern(b"")


def _of_text(text: str, *, folds: bool) -> RawPattern:
    anchor = max(_NEVER_RAW.split(text), key=_bytes_of)
    if folds and not anchor.isascii():
        # Folding is several times as fast where all letters are ASCII.
        plain = max(re.split("[^\x00-\x7f]", anchor), key=len)
        anchor = plain if len(plain) >= _PLAIN_CHARS_MIN else anchor
    if anchor:
        return RawPattern(anchor.encode(), folds=folds, escapes=_escapes_of(anchor, folds=folds))
    short = next((each for each in text if each in _SHORT_ESCAPES), None)
    if short is not None:
        return RawPattern(_SHORT_ESCAPES[short], escapes=_unit_pattern({ord(short)}), seeks_controls=True)
    return RawPattern(None, escapes=_unit_pattern({ord(text[0])}), seeks_controls=True)


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _escapes_of(anchor: str, *, folds: bool) -> bytes:
    """The escapes that may stand for a character of the anchor."""
    if not folds:
        return _unit_pattern({unit for character in anchor for unit in _units(character)})
    if not anchor.isascii():
        return _ANY_BUT_CONTROL
    return _unit_pattern(set(map(ord, anchor.lower() + anchor.upper() + _FOLDED_TO_ASCII)))


def _units(character: str) -> list[int]:
    """What JSON escapes: UTF-16."""
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _unit_pattern(units: set[int]) -> bytes:
    """A pattern of the escapes of some UTF-16 units, whatever the case of their digits, and of what escapes
    themselves are written with: in JSON inside a JSON string these may be escaped again."""
    ways = "|".join(_digits(unit) for unit in sorted(units | _OF_ESCAPES))
    return rf"\\u(?:{ways})".encode()


def _digits(unit: int) -> str:
    return "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in f"{unit:04x}")
