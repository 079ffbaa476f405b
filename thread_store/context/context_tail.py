"""What the context of a model is made of, gathered backward: the checkpoint that counts, and what is behind
it.

Invariant: it takes records newest first and never looks back; of what was rolled back it keeps no more
than tells where to cut. It reads nothing itself.

Theory of operation. A rollback takes back so many of the newest turns before it, and everything recorded
since the oldest of them began, a checkpoint too. Read backward that is a count: a rollback adds its
turns to what is owed, each thing that somebody typed (`ModelItem.begins_turn`) pays one. A record met
while something is owed was rolled back. So the first valid checkpoint that is met with nothing owed is
the one that counts; and all rollbacks behind it concern turns behind it. A rollback of more turns than
there are goes back to where the first one began: what stands before anything typed is never rolled back.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.line import RolloutLine
from thread_store.chain.lineage import Place
from thread_store.context.checkpoint import Checkpoint
from thread_store.context.model_item import ModelItem, model_item_of

__all__ = ["ContextTail", "FoundCheckpoint", "Summary", "TailEntry", "TakenBack"]


class FoundCheckpoint(NamedTuple):
    """A checkpoint, and the border before it."""

    place: Place
    checkpoint: Checkpoint


class TakenBack(NamedTuple):
    """A rollback: so many of the newest turns before it are gone."""

    place: Place
    turns: int


class Summary(NamedTuple):
    """A checkpoint without a history: what was typed before it stays, and this message."""

    place: Place
    message: str


TailEntry = ModelItem | TakenBack | Summary


class ContextTail:
    """The checkpoint that counts (`base`), and the `entries` behind it: newest first, until `finish` turns
    them round."""

    def __init__(self) -> None:
        self.base: FoundCheckpoint | None = None
        self.entries: list[TailEntry] = []
        self.has_cuts = False
        """Whether there may be something else than items among the entries."""
        self.rolled_back: list[Place] = []
        """Checkpoints that were taken back, newest first."""
        self._owed = 0
        self._in_dropped_turn = False
        """The thing typed that a rollback goes back to has come, the start of its turn has not."""
        self._messages_only = False
        """A checkpoint without history was met: of what is older only what was typed counts."""
        self._unsettled: list[TailEntry | FoundCheckpoint] = []
        """What came since the last thing typed that was rolled back: it was rolled back too, unless it stands
        before the first thing ever typed."""

    @property
    def is_rolled_back(self) -> bool:
        """Whether a rollback took back what comes next."""
        return self._owed > 0

    @property
    def is_in_dropped_turn(self) -> bool:
        """Whether what comes next belongs to a turn that was taken back, though nobody typed it."""
        return self._owed > 0 or self._in_dropped_turn

    def take_item(self, line: RolloutLine, segment: int, offset: int) -> None:
        """A record of the model's track."""
        usual = not (self._owed or self._in_dropped_turn or self._messages_only)
        if usual and self.base is not None:
            return
        item = model_item_of(line, segment, offset)
        if item is None:
            return
        if self._owed:
            self._take_rolled_back(item)
        elif usual or self._survives(item):
            self._keep(item)

    def take_rollback(self, place: Place, turns: int) -> None:
        """A rollback of so many turns."""
        self.has_cuts = True
        self._keep(TakenBack(place, turns))
        self._owed += turns

    def take_checkpoint(self, place: Place, checkpoint: Checkpoint) -> None:
        """A valid checkpoint."""
        if checkpoint.history is not None:
            self._keep(FoundCheckpoint(place, checkpoint))
            return
        self.has_cuts = True
        self._messages_only = self._messages_only or not self._owed
        self._keep(Summary(place, checkpoint.message))

    def take_turn_start(self) -> None:
        """The start of the turn that the records before belong to."""
        self._in_dropped_turn = False

    def finish(self) -> None:
        """Nothing comes any more. What is unsettled stands before anything typed: no rollback reached it."""
        for each in self._unsettled:
            if isinstance(each, FoundCheckpoint):
                self.base = each
                break
            self.entries.append(each)
        self._unsettled.clear()
        self.entries.reverse()

    def _take_rolled_back(self, item: ModelItem) -> None:
        if not item.begins_turn:
            self._keep(item)
            return
        for each in self._unsettled:
            if isinstance(each, TakenBack):
                self.entries.append(each)
            elif not isinstance(each, ModelItem):
                self.rolled_back.append(each.place)
        self._unsettled.clear()
        if self.base is None:
            self.entries.append(item)
        self._owed -= 1
        self._in_dropped_turn = not self._owed

    def _survives(self, item: ModelItem) -> bool:
        typed = item.begins_turn
        if typed or item.role not in ("user", "developer"):
            self._in_dropped_turn = False
        return typed or not self._messages_only

    def _keep(self, entry: TailEntry | FoundCheckpoint) -> None:
        if self.base is not None:
            return
        if self._owed:
            self._unsettled.append(entry)
        elif isinstance(entry, FoundCheckpoint):
            self.base = entry
        else:
            self.entries.append(entry)
