"""Base64 in a text: data that is written in letters and that nobody reads.

Invariant: only a long run of nothing but its characters is taken for it, one in which small letters,
capitals and digits are mixed, or that a `;base64,` announces.
"""

from __future__ import annotations

import re

__all__ = ["RUN_CHARS_MIN", "encoded_run_end"]

RUN_CHARS_MIN = 512
"""A shorter run may be a path, an id or a token."""

_LOOK_BACK = 4096
_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_RUN = re.compile(r"[A-Za-z0-9+/=_-]*+")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_SAMPLE = 256


def encoded_run_end(text: str, begin: int, end: int) -> int | None:
    """Where the base64 ends that a place lies in; None if it lies in none."""
    if text[begin:end].strip(_CHARACTERS):
        return None
    back = text[max(0, begin - _LOOK_BACK) : begin]
    run_begin = begin - (len(back) - len(back.rstrip(_CHARACTERS)))
    announced = text[max(0, run_begin - 8) : run_begin].endswith(";base64,")
    if not announced and _run_end(text, end, end + RUN_CHARS_MIN) - run_begin < RUN_CHARS_MIN:
        return None
    around = text[max(run_begin, begin - _SAMPLE) : _run_end(text, end, end + _SAMPLE)]
    if not announced and not all(each.search(around) for each in _MIXED):
        return None
    return _run_end(text, end, len(text))


def _run_end(text: str, begin: int, limit: int) -> int:
    found = _RUN.match(text, begin, limit)
    return begin if found is None else found.end()
