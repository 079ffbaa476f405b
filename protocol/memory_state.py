"""Memory state: the lists of a session memory, and how each of them is kept short.

Invariant: every list is bounded by a constant here; entries are numbered as they are made, so that
a roll-back can tell those before it from those behind.
"""

from __future__ import annotations

from msgspec import Struct, structs

from protocol.checks import Check
from protocol.memory_entries import Entry, Place, keep_all, keep_newest, make_entry
from protocol.plain_values import squeezed
from protocol.plans import Plan
from protocol.user_texts import Track

__all__ = [
    "COMPLETED_MAX",
    "DECISIONS_MAX",
    "FAILURES_MAX",
    "GOALS_MAX",
    "GOAL_CHARS_MAX",
    "PLANS_MAX",
    "TRANSITIONS_MAX",
    "TURN_MARKS_MAX",
    "VERIFICATIONS_MAX",
    "WARNINGS_MAX",
    "WARNING_CHARS_MAX",
    "Goal",
    "MemoryState",
    "PlanEntry",
    "Verification",
]

GOALS_MAX = 8
"""Messages of the user: the last is the goal, those before it come back by a roll-back."""
PLANS_MAX = 4
COMPLETED_MAX = DECISIONS_MAX = FAILURES_MAX = TRANSITIONS_MAX = 32
VERIFICATIONS_MAX = 32
WARNINGS_MAX = 64
"""Different warnings; further ones are counted together."""
TURN_MARKS_MAX = 64
"""Roll-backs of more turns take back as many."""
GOAL_CHARS_MAX = 2000
WARNING_CHARS_MAX = 1000


class Goal(Entry, omit_defaults=True, kw_only=True):
    """What the user typed, and the tracks that it was met on."""

    tracks: list[Track]


class PlanEntry(Entry, omit_defaults=True, kw_only=True):
    """A plan as it stood."""

    plan: Plan


class Verification(Entry, omit_defaults=True, kw_only=True):
    """The state of a check."""

    check_id: str
    state: str


class MemoryState(Struct, omit_defaults=True):
    """All that a session memory holds, as it stands in a snapshot."""

    goals: list[Goal] = []
    plans: list[PlanEntry] = []
    completed: list[Entry] = []
    decisions: list[Entry] = []
    failures: list[Entry] = []
    transitions: list[Entry] = []
    warnings: list[Entry] = []
    verifications: list[Verification] = []
    state: str | None = None
    made: int = 0
    turn_marks: list[int] = []
    turn_began: Place | None = None
    is_shown: bool = False
    """Whether messages of the user stand on a display track: then the model's alone are injected."""

    def make(self, text: str, last: Place, first: Place | None = None, *, said: bool = False) -> Entry:
        """A new entry, numbered."""
        self.made += 1
        return make_entry(text, first or last, last, at=self.made, said=said)

    def take_message(self, track: Track, text: str, place: Place) -> None:
        """Take a message that a person typed, as one of its tracks has it."""
        if track is not Track.MODEL and not self.is_shown:
            self.is_shown = True
            kept = [each for each in self.goals[-1:] if each.text == _goal_text(text)]
            self.goals, self.turn_marks = kept, [each.at for each in kept]
        if track is Track.MODEL and self.is_shown:
            return
        last = self.goals[-1] if self.goals else None
        if last is not None and last.text == _goal_text(text) and track not in last.tracks:
            last.tracks.append(track)
            last.last_ordinal = place.ordinal
            return
        self.made += 1
        made = make_entry(text, place, place, at=self.made, chars_max=GOAL_CHARS_MAX)
        self.goals = [*self.goals, Goal(**structs.asdict(made), tracks=[track])][-GOALS_MAX:]
        self.turn_marks = [*self.turn_marks, self.made][-TURN_MARKS_MAX:]

    def take_back(self, mark: int) -> None:
        """Forget what was said from this entry on; what was done stays."""
        self.goals = [each for each in self.goals if each.at < mark]
        self.plans = [each for each in self.plans if each.at < mark]
        self.decisions = [each for each in self.decisions if each.at < mark or not each.said]
        self.completed = [each for each in self.completed if each.at < mark or not each.said]
        self.turn_marks = [each for each in self.turn_marks if each < mark]

    def take_plan(self, plan: Plan, place: Place) -> None:
        """Take the plan as it stands; the same plan again is no new one."""
        plans = self.plans
        earlier = plans[-1].plan if plans else None
        if plan == earlier:
            plans[-1].last_ordinal = place.ordinal
            return
        for step in plan.done_since(earlier):
            self.complete(step, place, said=True)
        if plan.explanation and (earlier is None or plan.explanation != earlier.explanation):
            self.decide(plan.explanation, place, said=True)
        self.made += 1
        made = make_entry("", place, place, at=self.made)
        self.plans = [*plans, PlanEntry(**structs.asdict(made), plan=plan)][-PLANS_MAX:]

    def verify(self, check: Check, text: str, place: Place) -> None:
        """Keep the state of a check in the place of the one before."""
        self.made += 1
        made = make_entry(text, Place(check.first_ordinal, check.offset), place, at=self.made)
        others = [each for each in self.verifications if each.check_id != check.check_id]
        noted = Verification(**structs.asdict(made), check_id=check.check_id, state=check.state)
        self.verifications = [*others, noted][-VERIFICATIONS_MAX:]

    def fail(self, text: str, place: Place, first: Place | None = None) -> None:
        """Keep a failure."""
        keep_newest(self.failures, self.make(text, place, first), FAILURES_MAX)

    def drop_failure(self, beginning: str) -> None:
        """Drop the newest failure if it begins so: a later record tells it better."""
        if self.failures and self.failures[-1].text.startswith(beginning):
            del self.failures[-1]

    def decide(self, text: str, place: Place, first: Place | None = None, *, said: bool = False) -> None:
        """Keep a decision."""
        keep_newest(self.decisions, self.make(text, place, first, said=said), DECISIONS_MAX)

    def move(self, text: str, place: Place, first: Place | None = None) -> None:
        """Keep a change of state."""
        keep_newest(self.transitions, self.make(text, place, first), TRANSITIONS_MAX)

    def complete(self, text: str, place: Place, first: Place | None = None, *, said: bool = False) -> None:
        """Keep what was completed."""
        keep_newest(self.completed, self.make(text, place, first, said=said), COMPLETED_MAX)

    def warn(self, message: str, place: Place) -> None:
        """Keep a warning."""
        self.made += 1
        entry = make_entry(message, place, place, at=self.made, chars_max=WARNING_CHARS_MAX)
        keep_all(self.warnings, entry, WARNINGS_MAX)


def _goal_text(text: str) -> str:
    return squeezed(text, GOAL_CHARS_MAX)
