"""SecretRules: a redactor that knows what secrets look like.

Invariant: in what it returns its rules find nothing any more. Where that can't be had by replacing what
they found, the whole text is replaced.

The rules are those of kingfisher-secret-scanner (extra `redact`), some 490 for the tokens of providers, keys
and credentials in addresses, and a few of our own (`secret_rules.yml`). It matches all of them in one
pass, in time that is linear in the text. Nothing is looked up in a network. Compiled rules are kept in
its own cache folder (`KF_RULE_CACHE_DIR`); the first time on a machine takes seconds, later ones a
quarter of one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import RedactionUnavailable
from protocol.redact import marker

if TYPE_CHECKING:
    from kingfisher_sdk import Finding, Scanner

__all__ = ["SecretRules"]

_OWN_RULES = Path(__file__).with_name("secret_rules.yml")

_PASSES_MAX = 4
"""What is left may be found anew once its neighbour is gone; after so many passes the whole text goes."""
_SCAN_SECONDS_MAX = 10.0
"""A scan takes microseconds, of megabytes milliseconds. A text that takes longer was made to; it goes."""
_WATCHED_BYTES_MIN = 256 << 10
"""Shorter ones aren't watched: looking at the clock makes a scan three times as long."""
_TOO_SLOW = "too-slow"
_TEXT_CHARS_MIN = 8
"""No rule finds anything in less."""

_MARKERS = re.compile(rb"\[redacted:[^\]\s]{1,100}\]")
# A colour of a terminal: its last letter would stand right before what is coloured.
_COLOURS = re.compile(rb"\x1b\[[0-9;:?]*[@-~]")
# The same, a control character as JSON escapes it, or any short escape, at any depth of JSON in JSON.
_ESCAPES = re.compile(rb"\\+(?:u001[bB]\[[0-9;:?]*[@-~]|u00[01][0-9a-fA-F]|[nrtbf\"/])?")
_MEDIA = re.compile(r"data:(?:image|audio|video)/[^,]{0,200};base64,[A-Za-z0-9+/=]*\Z")
# Rules also find what only goes with a secret (an account, a host); of those, what is secret all the same.
_SECRET_HELPER = re.compile(r"secret|security-token|passphrase|consumer-key")
_NUMBER = re.compile(r"\.\d+\Z")
_NO_SECRET_HELPER = re.compile(r"-(?:id|name|repository)(?:\.\d+)?\Z")


class _Span(NamedTuple):
    start: int
    end: int
    rule: str


class SecretRules:
    """Replaces each secret that it finds in a text by `[redacted:RULE]`. From any thread.

    Args:
        only: these rules alone, by the names that stand in the markers.
        without: not these rules.

    Raises:
        RedactionUnavailable: the package isn't installed: `pip install 'rollout-recorder[redact]'`.
        ValueError: there is no such rule.
    """

    def __init__(self, *, only: Iterable[str] | None = None, without: Iterable[str] = ()) -> None:
        self._catalog = _catalog()
        names = frozenset(self._catalog.names.values())
        wanted = names if only is None else frozenset(only)
        unwanted = frozenset(without)
        unknown = sorted((wanted | unwanted) - names)
        if unknown:
            raise ValueError(f"there is no rule {unknown[0]!r}")
        self._wanted = wanted - unwanted

    @property
    def names(self) -> frozenset[str]:
        """The names of its rules."""
        return self._wanted

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        if len(text) < _TEXT_CHARS_MIN or (text.startswith("data:") and _MEDIA.match(text)):
            return text
        try:
            return self._cleaned(text)
        except TimeoutError:
            return marker(_TOO_SLOW)

    def _cleaned(self, text: str) -> str:
        rule = ""
        for _ in range(_PASSES_MAX):
            data = text.encode("utf-8", "surrogatepass")
            spans = [*_merged(self._spans(data))]
            if not spans:
                return text
            rule = spans[0].rule
            if spans[0].end < 0:
                break
            text = _replaced(data, spans)
        return marker(rule)

    def may_change(self, payload: bytes) -> bool:
        """Whether any text of a payload may hold a secret (see `protocol.redact.QuickRedactor`).

        The payload is looked at without its usual escapes; where others are left, once more with a line
        break in the place of each.
        """
        payload = payload.replace(b"\\n", b"\n").replace(b'\\"', b'"')
        if b"\\" in payload:
            plain = _ESCAPES.sub(b"\n", payload)
            if b"\nu" in plain and b"\\u" in payload:
                return True  # an escaped letter hides whatever it likes
            payload = payload + b"\n" + plain
        try:
            return any(True for _ in self._spans(payload))
        except TimeoutError:
            return True

    def _spans(self, data: bytes) -> Iterator[_Span]:
        """Where secrets stand, in no order. One that ends at -1 stands nobody knows where."""
        timeout = _SCAN_SECONDS_MAX if len(data) >= _WATCHED_BYTES_MIN else None
        findings = self._catalog.scanner.scan(data, timeout=timeout)
        if b"\x1b[" in data:
            plain = _COLOURS.sub(lambda found: b" " * len(found[0]), data)  # every byte at its place
            findings = [*findings, *self._catalog.scanner.scan(plain, timeout=timeout)]
        if not findings:
            return
        markers = [match.span() for match in _MARKERS.finditer(data)]
        for each in findings:
            name = self._catalog.names.get(each.rule_id, each.rule_id)
            if name not in self._wanted:
                continue
            span = _place_of(each, data, name)
            if not any(start <= span.start and span.end <= end for start, end in markers):
                yield span


def _place_of(finding: Finding, data: bytes, name: str) -> _Span:
    start, end = finding.location["start_offset"], finding.location["end_offset"]
    found = data[start:end]
    # What was encoded stands at the place of its code. All else must stand there, or the scanner has
    # taken the text for another encoding.
    if not 0 <= start < end <= len(data) or (
        not finding.is_base64_encoded and found != finding.secret.encode("utf-8", "surrogatepass")
    ):
        return _Span(-1, -1, name)
    while start > 0 and data[start] & 0xC0 == 0x80:  # never inside of a character
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return _Span(start, end, name)


def _merged(spans: Iterable[_Span]) -> Iterator[_Span]:
    """In order, those that overlap as one, under the name of the first."""
    last: _Span | None = None
    for span in sorted(spans):
        if last is not None and span.start < last.end:
            last = last._replace(end=max(last.end, span.end))
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _replaced(data: bytes, spans: Iterable[_Span]) -> str:
    pieces, position = [], 0
    for span in spans:
        pieces += [data[position : span.start], marker(span.rule).encode()]
        position = span.end
    pieces.append(data[position:])
    return b"".join(pieces).decode("utf-8", "surrogatepass")


# The rules are compiled once a process: that takes time and memory, and they never change.


class _Catalog(NamedTuple):
    scanner: Scanner
    names: dict[str, str]
    """By the id of a rule: the name that stands in markers. What is no secret isn't in it."""


_compiling = threading.Lock()
_compiled: list[_Catalog] = []


def _catalog() -> _Catalog:
    with _compiling:
        if not _compiled:
            _compiled.append(_compile())
        return _compiled[0]


def _compile() -> _Catalog:
    try:
        from kingfisher_sdk import Rules, Scanner

        rules = Rules([_OWN_RULES])
        scanner = Scanner(rules)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise RedactionUnavailable(error) from error
    names = {
        rule["id"]: _NUMBER.sub("", rule["id"].split(".", 1)[1].rsplit("/", 1)[-1])
        for rule in rules.metadata()
        if rule["visible"] or _is_secret(rule["id"])
    }
    return _Catalog(scanner, names)


def _is_secret(rule_id: str) -> bool:
    return bool(_SECRET_HELPER.search(rule_id)) and not _NO_SECRET_HELPER.search(rule_id)
