"""A text that every match of a pattern holds, so that most lines need not be decoded.

Invariant: careful: where it isn't plain that a piece of text must be there, it isn't taken. Taken are runs
of plain characters outside groups and classes, of a pattern that offers one way only.
"""

from __future__ import annotations

from thread_store.search.pattern_matcher import pattern_tokens

__all__ = ["required_text"]

_SPECIAL = frozenset(".^$|()[]{}*+?")
_OPTIONAL = frozenset("*?{")
_PUNCTUATION_ESCAPES = frozenset("\\" + each for each in "\\.^$|()[]{}*+?/-_\"'#&,:;<=>@!%~` ")


def required_text(pattern: str) -> str:
    """The longest text that must be in every match; empty if none is known."""
    tokens = pattern_tokens(pattern)
    if "|" in _outside(tokens):
        return ""
    runs = [""]
    skipped = _skipped(tokens)
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if skipped[index] or not _is_plain(token) or following in _OPTIONAL:
            runs.append("")
        else:
            runs[-1] += token[-1]
            if following == "+":
                runs.append("")
    return max(runs, key=lambda run: len(run.encode("utf-8", "surrogatepass")))


def _is_plain(token: str) -> bool:
    if len(token) == 1:
        return token not in _SPECIAL
    return token in _PUNCTUATION_ESCAPES


def _skipped(tokens: list[str]) -> list[bool]:
    """Whether each token stands in a group, a class or a repetition count."""
    skipped, depth, ending = [], 0, ""
    for token in tokens:
        inside = bool(depth or ending)
        if ending:
            ending = "" if token == ending else ending
        elif token.startswith("["):
            ending, inside = "]", True
        elif token == "{":
            ending, inside = "}", True
        elif token == "(":
            depth, inside = depth + 1, True
        elif token == ")":
            depth = max(0, depth - 1)
        skipped.append(inside)
    return skipped


def _outside(tokens: list[str]) -> list[str]:
    return [token for token, skipped in zip(tokens, _skipped(tokens), strict=True) if not skipped]
