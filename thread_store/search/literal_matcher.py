"""A literal text in texts, in any case or exactly, as a part of words or as whole ones.

Invariant: without `word` a text matches if and only if `needle in text`, both case-folded unless case counts.
Places are those of the text as it stands, whatever folding does to its length.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right

__all__ = ["LiteralMatcher", "LiteralText", "is_word", "stands_alone"]

# All characters whose full case folding is longer than they are.
_EXPANDING = re.compile(
    "[\u00df\u0130\u0149\u01f0\u0390\u03b0\u0587\u1e96-\u1e9a\u1e9e\u1f50\u1f52\u1f54\u1f56\u1f80-\u1faf"
    "\u1fb2-\u1fb4\u1fb6\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc6\u1fc7\u1fcc\u1fd2\u1fd3\u1fd6\u1fd7\u1fe2-\u1fe4"
    "\u1fe6\u1fe7\u1ff2-\u1ff4\u1ff6\u1ff7\u1ffc\ufb00-\ufb06\ufb13-\ufb17]"
)
_NO_WORD = re.compile(r"\W")  # also some that are parts of words: it only stops earlier
_WORD_CATEGORIES = frozenset({"Mn", "Mc", "Me", "Pc"})


def is_word(character: str) -> bool:
    """Whether a character is part of words: letters, digits, marks, underscores, of any script."""
    return character.isalnum() or unicodedata.category(character) in _WORD_CATEGORIES


def stands_alone(text: str, begin: int, end: int) -> bool:
    """Whether no word goes on at either end of a place."""
    return not (begin > 0 and is_word(text[begin - 1])) and not (end < len(text) and is_word(text[end]))


class LiteralMatcher:
    """Looks for `needle`, which isn't empty."""

    def __init__(self, needle: str, *, case_sensitive: bool, word: bool) -> None:
        self.needle = needle if case_sensitive else needle.casefold()
        self.folds = not case_sensitive
        self.word = word

    def prepare(self, text: str) -> LiteralText:
        """Fold a text once, to be searched in steps."""
        return LiteralText(self, text)


class LiteralText:
    """One text under search."""

    def __init__(self, matcher: LiteralMatcher, text: str) -> None:
        self._matcher = matcher
        self.text = text
        self._searched = text.casefold() if matcher.folds else text
        self._begins: list[int] = []
        """In the text: where each character stands that folding makes longer."""
        self._folded_begins: list[int] = []
        self._shifts: list[int] = [0]
        """By how much all is moved behind each of them."""
        if len(self._searched) != len(text):
            self._map_expansions()

    def _map_expansions(self) -> None:
        shift = 0
        for found in _EXPANDING.finditer(self.text):
            self._begins.append(found.start())
            self._folded_begins.append(found.start() + shift)
            shift += len(found[0].casefold()) - 1
            self._shifts.append(shift)

    def find(self, start: int) -> tuple[int, int] | None:
        """The first match that begins at `start` or behind it; None if there is none."""
        needle, at = self._matcher.needle, self._to_folded(start)
        while (begin := self._searched.find(needle, at)) >= 0:
            place = self._to_text(begin), self._to_text(begin + len(needle) - 1) + 1
            if place[0] >= start and (not self._matcher.word or stands_alone(self.text, *place)):
                return place
            at = self._behind(begin, place[0])
        return None

    def _behind(self, begin: int, place: int) -> int:
        """Where the next match may begin, in the folded text, after one that didn't count."""
        if not self._matcher.word or not is_word(self.text[place]):
            return begin + 1
        # None begins with a letter within the same word.
        found = _NO_WORD.search(self.text, place)
        return len(self._searched) if found is None else max(begin + 1, self._to_folded(found.start()))

    def _to_folded(self, place: int) -> int:
        return place + self._shifts[bisect_right(self._begins, place - 1)] if self._begins else place

    def _to_text(self, place: int) -> int:
        """The character of the text that a folded one comes from."""
        if not self._begins:
            return place
        index = bisect_right(self._folded_begins, place)
        # Within an expansion all places are the one character's.
        return max(place - self._shifts[index], self._begins[index - 1]) if index else place
