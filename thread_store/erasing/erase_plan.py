"""The plan of an erasure: every stretch of every file that is to be overwritten, before a byte of it is.

Invariant: making a plan changes nothing. What is in it belongs to the threads that were meant, or to nobody;
what stands in other threads is named in `copies`, and what stands in files that this library doesn't know,
in `elsewhere`. Whatever was made of an erased record is in it too: `x_memory` behind it, in the thread and in
the rollouts that rest on it.
"""

from __future__ import annotations

from msgspec import Struct, field

from protocol.errors import InvalidLine, RolloutError
from protocol.line import decode_line
from rollout.erase_journal import ErasedFile, Patch
from thread_store.erasing.erased_file import identified
from thread_store.erasing.erased_line import WAS_DIGITS, erased_line
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.masking import mask_line
from thread_store.erasing.needle import Needle
from thread_store.erasing.places import ErasePlace
from thread_store.erasing.resting import RestingRollouts
from thread_store.erasing.rollout_search import TORN, Hit, RolloutSearch, search_rollout

__all__ = ["Copies", "ErasePlan", "FoundRollout", "PlannedRecord", "Planner"]

_STAYS = (
    *("id", "session_id", "timestamp", "forked_from_id", "parent_thread_id"),
    *("history_mode", "history_base"),
)
"""What a meta line keeps whatever is erased: without it the file is another thread's, or nobody's."""


class PlannedRecord(Struct, frozen=True, kw_only=True):
    """One record, or one stretch of another file, as a person is told of it."""

    path: str
    kind: str
    """The type of the record, or what the file is."""
    thread_id: str | None
    offset: int
    size: int
    ordinal: int | None = None
    masked: bool = False
    """It stays, with asterisks in it."""
    derived: bool = False
    """It holds nothing of it itself, but was made of what does."""
    shown: str = ""


class Copies(Struct, frozen=True, kw_only=True):
    """Another thread, or a file of nobody, that holds it too; `records` of it."""

    path: str
    thread_id: str | None
    records: int


class ErasePlan(Struct, kw_only=True):
    """What would be overwritten, and what would stay."""

    files: list[ErasedFile] = field(default_factory=list)
    records: list[PlannedRecord] = field(default_factory=list)
    copies: list[Copies] = field(default_factory=list)
    """In threads that were not meant."""
    elsewhere: list[str] = field(default_factory=list)
    """Files in the home that are not this library's, and hold it."""
    unread: list[RolloutError] = field(default_factory=list)
    """What could not be looked through."""
    threads: set[str] = field(default_factory=set)
    """Whose writers must be kept out."""
    rollouts: set[str] = field(default_factory=set)
    """The rollouts whose fold is another one then."""

    @property
    def size_bytes(self) -> int:
        """How many bytes are overwritten."""
        return sum(each.size for each in self.records)


class FoundRollout(Struct, frozen=True):
    """A rollout in which something was found."""

    place: ErasePlace
    search: RolloutSearch


class Planner:
    """Makes the patches of rollouts. `at` is the time, `reason` what is written beside it."""

    def __init__(
        self, resting: RestingRollouts, *, needle: Needle | None, at: str, reason: str | None
    ) -> None:
        self.plan = ErasePlan()
        self._resting = resting
        self._needle = needle
        self._at = at
        self._reason = reason
        self._entries: dict[str, int] = {}

    def erased(self, hit: Hit, *, was: str | None = None, path: str = "") -> bytes:
        """What takes a record's place, without the spaces behind it.

        Raises:
            EraseRefused: what is to be erased would stand in it again.
        """
        head = erased_line(
            hit.begin,
            hit.size,
            at=self._at,
            reason=self._reason,
            needle=self._needle,
            ordinal=hit.ordinal,
            was=was,
        )
        if head is None:
            raise EraseRefused(
                "it would stand in what takes its place",
                hint="Name the record instead: THREAD#N",
                path=path,
                offset_bytes=hit.offset,
            )
        return head

    def add_rollouts(self, found: list[FoundRollout]) -> None:
        """Plan the records of rollouts, and everything that was made of them.

        Raises:
            EraseRefused: one can't be erased so.
        """
        behind: dict[str, ErasePlace] = {}
        for each in found:
            self._add_rollout(each)
            first = _first_erased(each.search.hits)
            if first is not None:
                for resting in self._resting.behind(each.place.rollout_id, first):
                    behind[resting.path] = ErasePlace(
                        resting.path, each.place.kind, resting.thread_id, resting.rollout_id
                    )
        known = {each.place.path: each for each in found}
        for path, place in behind.items():
            self._add_resting(place, known.get(path))

    def _add_rollout(self, found: FoundRollout) -> None:
        place, search = found.place, found.search
        if search.damaged:
            raise EraseRefused(
                "it is compressed and damaged, so that it can't be written anew",
                hint="Delete the thread, or expand what can be read of it",
                path=place.path,
                thread_id=place.thread_id,
            )
        patches = [self._patch(place, hit) for hit in search.hits]
        first = _first_erased(search.hits)
        if first is not None:
            patches += self._memories(place, search, after=first)
        self._add_file(place, patches)

    def _add_resting(self, place: ErasePlace, known: FoundRollout | None) -> None:
        """All snapshots in a rollout that rests on an erased record."""
        search = search_rollout(place.path, _nothing) if known is None else known.search
        first = _first_erased(search.hits)
        if known is not None and first is not None:
            memories = [each for each in search.memories if each.offset < first]
            search = RolloutSearch(
                hits=search.hits, memories=memories, size_bytes=search.size_bytes, damaged=search.damaged
            )
        self._add_file(place, self._memories(place, search, after=-1))

    def _memories(self, place: ErasePlace, search: RolloutSearch, *, after: int) -> list[Patch]:
        taken = {each.offset for each in search.hits}
        patches = []
        for memory in search.memories:
            if memory.offset > after and memory.offset not in taken:
                patches.append(self._erased_patch(place, memory))
                self.plan.records.append(_record(place, memory, derived=True))
        return patches

    def _add_file(self, place: ErasePlace, patches: list[Patch]) -> None:
        """Also without patches: its writer knows what is erased."""
        plan = self.plan
        plan.rollouts.add(place.path)
        if place.rollout_id is not None and place.thread_id is not None:
            plan.threads.add(place.thread_id)
        if not patches:
            return
        index = self._entries.setdefault(place.path, len(plan.files))
        if index < len(plan.files):
            plan.files[index] = identified(place, (*plan.files[index].patches, *patches))
        else:
            plan.files.append(identified(place, patches))

    def _patch(self, place: ErasePlace, hit: Hit) -> Patch:
        if hit.line is not None:
            self.plan.records.append(_record(place, hit, masked=True))
            return _patch_of(hit, self._masked(place, hit, hit.line))
        if hit.record_type == TORN:
            self.plan.records.append(_record(place, hit))
            return _patch_of(hit, b"")
        self.plan.records.append(_record(place, hit))
        return self._erased_patch(place, hit)

    def _erased_patch(self, place: ErasePlace, hit: Hit) -> Patch:
        """Where another rollout's history ends behind it, that must still know it."""
        was = hit.sha256[:WAS_DIGITS] if self._resting.ends_at(place.rollout_id, hit.end + 1) else None
        return _patch_of(hit, self.erased(hit, was=_was_before(hit) or was, path=place.path))

    def _masked(self, place: ErasePlace, hit: Hit, line: bytes) -> bytes:
        masked = None if self._needle is None else mask_line(line, self._needle)
        if masked is None or _identity_of(masked) != _identity_of(line):
            what = "the first line can't be erased whole" if self._needle is None else "it names the thread"
            raise EraseRefused(
                f"{what}, and without that line the file is no thread's",
                hint="Erase a text in it (--text), or delete the thread",
                path=place.path,
                thread_id=place.thread_id,
                offset_bytes=hit.offset,
            )
        return masked


def _nothing(line: bytes, offset: int) -> bool:
    del line, offset
    return False


def _first_erased(hits: list[Hit]) -> int | None:
    """Where the first record goes that a fold may have learnt from."""
    offsets = [each.offset for each in hits if each.line is None and each.record_type != "x_memory"]
    return min(offsets, default=None)


def _patch_of(hit: Hit, head: bytes) -> Patch:
    return Patch.make(hit.offset, hit.size, hit.sha256, head)


def _record(place: ErasePlace, hit: Hit, *, masked: bool = False, derived: bool = False) -> PlannedRecord:
    return PlannedRecord(
        path=place.path,
        kind=hit.record_type or "no record",
        thread_id=place.thread_id,
        offset=hit.offset,
        size=hit.size,
        ordinal=hit.ordinal,
        masked=masked,
        derived=derived,
        shown=hit.shown,
    )


def _was_before(hit: Hit) -> str | None:
    """A line that was erased before still says what it was."""
    if hit.record_type != "x_erased":
        return None
    try:
        payload = decode_line(hit.begin.rstrip()).payload_object()
    except InvalidLine:
        return None
    was = payload.get("was") if isinstance(payload, dict) else None
    return was if isinstance(was, str) else None


def _identity_of(data: bytes) -> object:
    """What must stay of a first line; all of it where it is none."""
    try:
        line = decode_line(data)
    except InvalidLine:
        return None
    payload = line.payload_object()
    kept = {key: payload.get(key) for key in _STAYS} if isinstance(payload, dict) else None
    return line.timestamp, line.ordinal, line.type, kept
