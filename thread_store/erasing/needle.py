"""The needle: what is to be erased, and whether some bytes hold it, however JSON escaped it.

Invariant: bytes without it hold it at no level of escaping (up to `LEVELS_MAX`): not as it is, not in a JSON
string, not in a JSON string within a JSON string, such as the arguments of a call. What is no JSON (a
torn tail, two records on one line) is looked through in the same way, so nothing depends on a line
being valid. A text may be found where it only seems to stand, across two values: rather erased than kept.

Theory of operation. Taking the escapes out of a whole line, strings and structure alike, gives every string
of it in plain; doing it again gives every string within a string. A backslash is itself and nothing else in
JSON that is not within a string, so no parser is needed. Most blocks are passed over without that: the
longest part of the text that no writer needs to escape must stand there as it is, unless one of its
characters, or of what an escape is written with, is hidden behind a `\\u`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from thread_store.erasing.errors import EraseRefused

__all__ = ["LEVELS_MAX", "TEXT_CHARACTERS_MIN", "Needle", "escape_levels"]

TEXT_CHARACTERS_MIN = 4
"""A shorter text is in nearly every record."""

LEVELS_MAX = 32
"""Strings within strings: each level doubles the backslashes, so nothing real goes further."""

_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\"\\/bfnrt]))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# What some writer escapes by a backslash alone. All else is hidden by a \u or not at all.
_ESCAPED_SHORT = re.compile('[\0-\x1f"\\\\/\ud800-\udfff]+')
_OF_ESCAPES = "\\u0123456789abcdefABCDEF"
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|-?\d[\d.eE+-]*', re.DOTALL)


class Needle:
    """Texts, or a pattern. `Needle.text(…)` and `Needle.pattern(…)` make one."""

    def __init__(self, texts: Sequence[str], pattern: re.Pattern[str] | None = None) -> None:
        self._texts = tuple(texts)
        self._pattern = pattern
        self._run, self._hidden = (None, None) if pattern is not None else _prefilter(self._texts)

    @classmethod
    def text(cls, *texts: str) -> Needle:
        """Exactly these texts, any of them.

        Raises:
            EraseRefused: one is too short to mean only what is meant.
        """
        for each in texts:
            if len(each) < TEXT_CHARACTERS_MIN:
                raise EraseRefused(
                    f"a text of fewer than {TEXT_CHARACTERS_MIN} characters stands in nearly every record",
                    hint="Give a longer one, or name a record: THREAD#N",
                )
        return cls(texts)

    @classmethod
    def pattern(cls, pattern: str) -> Needle:
        """Whatever a regular expression of Python finds in a string or a number, each by itself.

        Raises:
            EraseRefused: it is none, or it finds the empty text.
        """
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise EraseRefused(f"the pattern is no regular expression: {error}", hint="Mend it") from None
        if compiled.search("") is not None:
            raise EraseRefused("the pattern fits every record", hint="It must not fit the empty text")
        return cls((), compiled)

    def may_be_in(self, data: bytes | memoryview) -> bool:
        """False: it is not in there. Fast; `data` may be many lines."""
        if self._run is None or self._hidden is None:
            return True
        data = bytes(data)
        return any(run in data for run in self._run) or self._hidden.search(data) is not None

    def is_in(self, data: bytes) -> bool:
        """Whether it stands in these bytes: a line, or a part of one."""
        if not self.may_be_in(data):
            return False
        text = data.decode(errors="surrogateescape")
        if self._pattern is None:
            return any(self.spans(level) for level in escape_levels(text))
        return any(self.spans(level) for value in _values(text) for level in escape_levels(value))

    def is_in_value(self, value: str) -> bool:
        """Whether it stands in a string that was decoded, or in one within it."""
        return any(self.spans(level) for level in escape_levels(value))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it stands in a text as it is, first to last, none over another."""
        if self._pattern is not None:
            return [each.span() for each in self._pattern.finditer(text) if each.end() > each.start()]
        found = [
            (begin, begin + len(each)) for each in self._texts if each in text for begin in _find(each, text)
        ]
        return _joined(sorted(found))


def escape_levels(text: str) -> Iterator[str]:
    """The text as it is, then without its escapes, then without those within, and so on."""
    for _ in range(LEVELS_MAX):
        yield text
        plain = _ESCAPE.sub(_plain, text) if "\\" in text else text
        if plain == text:
            return
        text = plain


def _plain(match: re.Match[str]) -> str:
    high, low, unit, short = match.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if unit is not None:
        return chr(int(unit, 16))
    return _SHORT.get(short, short)


def _values(text: str) -> Iterator[str]:
    """The strings (keys too) and numbers in a line; each stretch between if they don't fit together."""
    position = 0
    for match in _TOKEN.finditer(text):
        yield match[0] if match[1] is None else match[1]
        between = text[position : match.start()]
        if not between.strip(" \t\r\n{}[]:,") or between.strip(" \t\r\n{}[]:,") in _WORDS:
            position = match.end()
            continue
        yield text  # no JSON: then all of it is one text
        return
    if text[position:].strip(" \t\r\n{}[]:,") not in _WORDS:
        yield text


_WORDS = frozenset({"", "true", "false", "null"})


def _find(needle: str, text: str) -> Iterator[int]:
    begin = text.find(needle)
    while begin >= 0:
        yield begin
        begin = text.find(needle, begin + 1)


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _prefilter(texts: Sequence[str]) -> tuple[list[bytes] | None, re.Pattern[bytes] | None]:
    """Bytes of which one must stand in the data, and escapes that could hide them; None: look everywhere."""
    runs = [max(_ESCAPED_SHORT.split(each), key=len) for each in texts]
    if not all(runs):
        return None, None
    units = {f"{unit:04x}" for char in {*"".join(runs), *_OF_ESCAPES} for unit in _utf16(char)}
    hidden = re.compile(rb"\\u(?:%s)" % "|".join(sorted(units)).encode(), re.IGNORECASE)
    return [run.encode() for run in runs], hidden


def _utf16(char: str) -> list[int]:
    data = char.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
