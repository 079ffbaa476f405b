"""What one recorder does with its items before they become bytes: the redactor's hooks, and their figures.

Invariant: an item is put through the hook on items, then text by text through the hook on texts; what
comes out is what is encoded, and nothing of what went in is kept. Counted is what was accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from protocol.items import RolloutItem
from protocol.redact import ItemRedactor, Redactor, redact_item, redact_item_by, redact_text

__all__ = ["Redaction"]


class Redaction:
    """Of one recorder; called under the lock of its queue."""

    def __init__(self, redact: Redactor | None, redact_items: ItemRedactor | None) -> None:
        self._redact = redact
        self._redact_items = redact_items
        self._draft: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    @classmethod
    def of(cls, redact: Redactor | None, redact_items: ItemRedactor | None) -> Redaction | None:
        """None if there is no hook."""
        return None if redact is None and redact_items is None else cls(redact, redact_items)

    def alike(self) -> Redaction:
        """Another one with the same hooks, for items of another recorder."""
        return Redaction(self._redact, self._redact_items)

    def item(self, item: RolloutItem) -> RolloutItem:
        """The item as it may be stored.

        Raises:
            RedactionFailed: a hook failed.
            ItemNotEncodable: the item can't be written.
        """
        if self._redact_items is not None:
            item = redact_item_by(item, self._redact_items)
        return item if self._redact is None else redact_item(item, self._redact, tally=self._draft)

    def text(self, text: str) -> str:
        """A text that is stored elsewhere than in an item, as it may be stored. Raises as `item`."""
        return text if self._redact is None else redact_text(text, self._redact)

    def begin(self) -> None:
        """What was counted since the last `commit` wasn't accepted."""
        if self._draft:
            self._draft = Counter()

    def commit(self) -> None:
        """What was counted since `begin` was accepted."""
        if self._draft:
            counts, self._draft = self._counts + self._draft, Counter()
            self._counts = counts

    @property
    def counts(self) -> Mapping[str, int]:
        """How much was replaced in what was accepted, by rule. A copy; from any thread."""
        return dict(self._counts)
