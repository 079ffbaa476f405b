"""Turns: where each one of a thread begins (FORMAT.md, Forks).

Invariant: `task_started` begins a turn; only in a thread that has none does what the user typed. One
fact on several tracks begins one turn, at the first of its records. A legacy thread's rollback
takes out so many of the newest messages that the user typed, and the turns that they began; in a
paginated one it changes nothing that is shown, as Codex has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from thread_store.chain.landmarks import Landmark, Mark, landmark_of
from thread_store.chain.lineage import Lineage, Place

__all__ = ["TurnStart", "find_turns"]

_USER = frozenset({Mark.USER_EVENT, Mark.USER_ITEM, Mark.USER_RESPONSE})


@dataclass(slots=True)
class TurnStart:
    """A turn that counts: the border before it, and how many messages the user typed in it."""

    place: Place
    typed: int


def find_turns(lineage: Lineage) -> list[TurnStart]:
    """The turns of a thread, oldest first. Reads all of it."""
    fold = _Fold(rollbacks=not lineage.own.paginated)
    for each in lineage.forward(end=lineage.end):
        line = each.record.line
        fold.take(each.place, None if line is None else landmark_of(line))
    return fold.turns


class _Fold:
    """Both kinds of turns so far; which of them counts is known at the end."""

    def __init__(self, *, rollbacks: bool) -> None:
        self._rollbacks = rollbacks
        self._tasks: list[TurnStart] = []
        self._has_tasks = False
        self._messages: list[TurnStart] = []
        self._one_fact: dict[Mark, Place] = {}
        """The records of what the user typed last, as long as nothing else came between."""

    @property
    def turns(self) -> list[TurnStart]:
        return self._tasks if self._has_tasks else self._messages

    def take(self, place: Place, landmark: Landmark | None) -> None:
        """One more record, or a damaged line."""
        mark = None if landmark is None else landmark.mark
        if mark in _USER:
            self._take_message(mark, place)
            return
        self._one_fact.clear()
        if mark is Mark.TURN_START:
            self._has_tasks = True
            self._tasks.append(TurnStart(place, typed=0))
        elif landmark is not None and mark is Mark.ROLLBACK and self._rollbacks:
            _drop(self._tasks, landmark.turns)
            _drop(self._messages, landmark.turns)

    def _take_message(self, mark: Mark, place: Place) -> None:
        if mark in self._one_fact:
            self._one_fact.clear()
        begun = any(each is not Mark.USER_RESPONSE for each in self._one_fact)
        self._one_fact[mark] = place
        if mark is Mark.USER_RESPONSE or begun:
            return
        self._messages.append(TurnStart(min(self._one_fact.values()), typed=1))
        if self._tasks:
            self._tasks[-1].typed += 1


def _drop(turns: list[TurnStart], count: int) -> None:
    """Take out so many of the newest messages that were typed, and the turns that they began."""
    while count > 0 and turns:
        if turns[-1].typed > count:
            turns[-1].typed -= count
            return
        count -= turns.pop().typed
