"""A regular expression in texts: RE2, whose time is linear in the text and whose memory is bounded.

Invariant: no pattern makes a search hang or grow. A backtracking engine with a time limit was tried first: on
`(a+)+$` it took all memory before the limit came, and what it leaves out depends on the machine's load.

What RE2 takes for ASCII only is widened to Unicode: `\\w`, `\\d`, `\\s` and their opposites, and `\\b` where
it stands at either end of the pattern. `\\b` and `\\B` elsewhere know ASCII words only.
"""

from __future__ import annotations

import re
from typing import Any

import re2

from thread_store.errors import SearchInvalid
from thread_store.search.literal_matcher import is_word, stands_alone
from thread_store.search.passages import TextTooCostly

__all__ = ["PatternMatcher", "PatternText", "compile_pattern", "pattern_tokens"]

_MEMORY_BYTES_MAX = 16 << 20

_BYTES_FREE = 1 << 20
_TIMES_MAX = 16

_NO_WORD = re.compile(r"\W")  # also some that are parts of words: it only stops earlier
_CLASSES = {
    "w": r"\pL\pM\p{Nd}\p{Nl}\p{No}\p{Pc}",
    "d": r"\p{Nd}",
    "s": r"\t\n\v\f\r\x{1c}-\x{1f}\x{85}\pZ",
}
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\[pP](?:\{\^?\w*\}|\w)?|\\x(?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2})|\\."
    r"|\[:\^?\w+:\]|\[\^?\]?|.",
    re.DOTALL,
)


class PatternMatcher:
    """Looks for a pattern. Empty matches don't count."""

    def __init__(self, pattern: str, *, case_sensitive: bool, word: bool) -> None:
        rest, self.border_before, self.border_after = _split_borders(pattern)
        self.word = word
        self.for_ascii = compile_pattern(pattern, case_sensitive=case_sensitive)
        self.for_all = compile_pattern(rest, case_sensitive=case_sensitive)

    def prepare(self, text: str) -> PatternText:
        """Encode a text once, to be searched in steps."""
        return PatternText(self, text)

    def accepts(self, text: str, begin: int, end: int, *, plain: bool) -> bool:
        """Whether a match stands between words as it shall. In `plain` text RE2 has seen to borders."""
        if self.word and not stands_alone(text, begin, end):
            return False
        return plain or not (
            (self.border_before and not _is_border(text, begin))
            or (self.border_after and not _is_border(text, end))
        )


class PatternText:
    """One text under search."""

    def __init__(self, matcher: PatternMatcher, text: str) -> None:
        self._matcher = matcher
        self.text = text
        self._plain = text.isascii()
        self._data = text.encode("utf-8", "surrogatepass")
        self._known = (0, 0)
        """A place in the text and in the bytes, from which others are counted on."""
        self._left = _BYTES_FREE + _TIMES_MAX * len(self._data)
        """How many bytes may be looked at for matches that don't count."""

    def find(self, start: int) -> tuple[int, int] | None:
        """The first match that begins at `start` or behind it; None if there is none.

        Raises:
            TextTooCostly: the pattern matches all over the text, and hardly ever where it shall.
        """
        at = self._to_bytes(start)
        compiled = self._matcher.for_ascii if self._plain else self._matcher.for_all
        while at <= len(self._data) and (found := compiled.search(self._data, at)) is not None:
            begin, end = found.span()
            place = self._to_text(begin), self._to_text(end)
            if end > begin and self._matcher.accepts(self.text, *place, plain=self._plain):
                return place
            self._left -= end - at + 1
            if self._left < 0:
                raise TextTooCostly
            at = self._behind(begin, place[0])
        return None

    def _behind(self, begin: int, place: int) -> int:
        """Where the next match may begin, in bytes, after one that didn't count."""
        if self._matcher.word and place < len(self.text) and is_word(self.text[place]):
            # None begins within the same word.
            found = _NO_WORD.search(self.text, place)
            return len(self._data) + 1 if found is None else max(begin + 1, self._to_bytes(found.start()))
        return begin + len(self.text[place : place + 1].encode("utf-8", "surrogatepass") or b"-")

    def _to_text(self, place: int) -> int:
        if self._plain:
            return place
        if place < self._known[1]:
            self._known = (0, 0)
        characters, passed = self._known
        characters += len(self._data[passed:place].decode("utf-8", "surrogatepass"))
        self._known = characters, place
        return characters

    def _to_bytes(self, place: int) -> int:
        if self._plain:
            return place
        if place < self._known[0]:
            self._known = (0, 0)
        characters, passed = self._known
        passed += len(self.text[characters:place].encode("utf-8", "surrogatepass"))
        self._known = place, passed
        return passed


def compile_pattern(pattern: str, *, case_sensitive: bool) -> Any:
    """Compile a pattern.

    Raises:
        SearchInvalid: it is no regular expression of RE2, or takes too much memory.
    """
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    tokens = pattern_tokens(pattern)
    if r"\C" in tokens:
        raise SearchInvalid(pattern, r"\C is a byte, and texts are searched by characters")
    try:
        return re2.compile(_widened(tokens).encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
        raise SearchInvalid(pattern, f"it is no regular expression: {told}") from error


def _split_borders(pattern: str) -> tuple[str, bool, bool]:
    """The pattern without a `\\b` at its ends, and whether there was one before and after."""
    tokens = pattern_tokens(pattern)
    if "|" in tokens:  # they belong to one of several ways only
        return pattern, False, False
    before = len(tokens) > 1 and tokens[0] == r"\b"
    tokens = tokens[before:]
    after = len(tokens) > 1 and tokens[-1] == r"\b"
    return "".join(tokens[: len(tokens) - after]), before, after


def _is_border(text: str, at: int) -> bool:
    return (at > 0 and is_word(text[at - 1])) != (at < len(text) and is_word(text[at]))


def pattern_tokens(pattern: str) -> list[str]:
    """The pattern in pieces: escapes whole, the beginning of a class with a `]` that belongs to it."""
    return _TOKEN.findall(pattern)


def _widened(tokens: list[str]) -> str:
    """The pattern with classes that know all scripts."""
    parts, inside = [], False
    for token in tokens:
        name = token[1:] if token.startswith("\\") else ""
        if not inside and token.startswith("["):
            inside = True
        elif inside and token == "]":
            inside = False
        elif name in _CLASSES:
            token = _CLASSES[name] if inside else f"[{_CLASSES[name]}]"
        elif name.lower() in _CLASSES and not inside:
            token = f"[^{_CLASSES[name.lower()]}]"
        parts.append(token)
    return "".join(parts)
