"""Recorded text made harmless for a terminal: whatever a file says, it can only be read.

Invariant: what `safe_text` returns holds no control character but newline and tab, no escape
sequence, and no character that turns the direction of writing; those that carry meaning are
shown by name as `<U+202E>`. `safe_json` keeps the value and escapes the same characters.
"""

from __future__ import annotations

import re

__all__ = ["safe_json", "safe_line", "safe_text"]

# ECMA-48: CSI; the string sequences (OSC, DCS, SOS, PM, APC), of which only those that end on
# their line are dropped whole, so that an open one can't hide what follows; other escapes.
# Each also in its one-character C1 form.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])(?:[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c))?"
    "|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
# Bidi marks, embeddings, overrides and isolates; line and paragraph separators; the byte order
# mark; interlinear marks; tags; lone surrogates: none of them shows, all of them mislead.
_NAMED = (
    "\x85\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
)
_NAMED_CHARACTER = re.compile(f"[{_NAMED}]")
_JSON_CHARACTER = re.compile(f"[\x7f-\x9f{_NAMED}]")
_BEYOND_ASCII = re.compile("[^\x00-\x7e]")
_BREAKS = re.compile(r"\s*[\n\t]\s*")


def safe_text(text: str) -> str:
    """Text of several lines: escapes and control characters dropped, misleading ones named."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return _NAMED_CHARACTER.sub(_name, text)


def safe_line(text: object) -> str:
    """The same on one line: breaks and tabs become single spaces."""
    return _BREAKS.sub(" ", safe_text(str(text))).strip()


def safe_json(encoded: str, *, ascii_only: bool = False) -> str:
    """Encoded JSON with the same characters written as `\\uXXXX`: equal when parsed, harmless when shown.

    `ascii_only`: all others beyond ASCII too.
    """
    # json writes the other control characters as escapes; DEL it leaves.
    harmless = encoded.isascii() and "\x7f" not in encoded
    return encoded if harmless else (_BEYOND_ASCII if ascii_only else _JSON_CHARACTER).sub(_escape, encoded)


def _name(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
