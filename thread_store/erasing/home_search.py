"""Looking through all places where it may stand, and planning what is found there.

Invariant: what belongs to the threads that are meant, and what belongs to nobody (a blob, what a killed
program left), is planned; what belongs to others is counted. A file that was looked through and hasn't
changed since isn't looked through again, so that a plan can be made anew under the locks for little.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from protocol.errors import InvalidLine, RolloutError, RolloutUnreadable
from protocol.line import RolloutLine, decode_line
from rollout.erase_journal import Patch
from thread_store.erasing.erase_address import EraseAddress
from thread_store.erasing.erase_plan import (
    Copies,
    ErasePlan,
    FoundRollout,
    PlannedRecord,
    Planner,
)
from thread_store.erasing.erased_file import identified
from thread_store.erasing.erased_line import number_of
from thread_store.erasing.file_content import content_blocks, read_content
from thread_store.erasing.masking import mask_line
from thread_store.erasing.needle import Needle
from thread_store.erasing.places import ErasePlace, PlaceKind, places_beside, places_in_home
from thread_store.erasing.resting import RestingRollouts
from thread_store.erasing.rollout_search import BEGIN_BYTES, Hit, RolloutSearch, search_rollout
from thread_store.erasing.shared_files import OwnedPatch, mask_lines, patch_unwritten
from thread_store.home import Home

__all__ = ["HomeSearch", "Meant"]

Meant = Callable[[str | None], bool]
"""Whether a thread is meant; None: what belongs to nobody."""

_OVERLAP_BYTES = 64 << 10
_SHOWN_CHARACTERS, _BEFORE_CHARACTERS = 72, 24
_KEYS = {PlaceKind.TITLES: "id", PlaceKind.PROMPTS: "session_id", PlaceKind.LABELS: "id"}

_T = TypeVar("_T")


class HomeSearch:
    """One search. `path` is the rollout, where it lies in no home."""

    def __init__(
        self,
        home: Home | None,
        path: str | None,
        *,
        meant: Meant,
        needle: Needle | None,
        address: EraseAddress | None,
        at: str,
        reason: str | None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._home = home
        self._path = path
        self._meant = meant
        self._needle = needle
        self._address = address
        self._at = at
        self._reason = reason
        self._progress = progress
        self._known: dict[str, tuple[tuple[int, ...], Any]] = {}

    def plan(self) -> ErasePlan:
        """Look, and plan what is found.

        Raises:
            EraseRefused: something of it can't be erased so.
        """
        unread: list[RolloutError] = []
        rollouts: list[FoundRollout] = []
        others: list[tuple[ErasePlace, Any]] = []
        copies: list[Copies] = []
        for place in self._places(unread):
            try:
                if place.kind is PlaceKind.ROLLOUT:
                    self._look_at_rollout(place, rollouts, copies)
                else:
                    found = self._once(place, lambda place=place: self._look(place))  # type: ignore[misc]
                    if found:
                        others.append((place, found))
            except RolloutError as error:
                unread.append(error)
            except OSError as error:
                unread.append(RolloutUnreadable(path=place.path, cause=error, operation="read"))
        planner = Planner(
            RestingRollouts(self._home if rollouts else None),
            needle=self._needle,
            at=self._at,
            reason=self._reason,
        )
        planner.add_rollouts(rollouts)
        plan = planner.plan
        plan.copies, plan.unread = copies, unread
        for place, found in others:
            self._add_other(planner, place, found)
        return plan

    def _places(self, unread: list[RolloutError]) -> Iterator[ErasePlace]:
        if self._home is None:
            yield from places_beside(self._path or "")
            return
        passed_over: list[RolloutUnreadable] = []
        blobs = self._address is not None and bool(self._address.blobs)
        if self._needle is not None or self._address is None or blobs:
            yield from places_in_home(self._home, passed_over)
        else:  # only records that are named: nothing repeats them but checkpoints in the same file
            for place in places_in_home(self._home, passed_over):
                if place.path == self._address.path:
                    yield place
        unread += passed_over

    def _once(self, place: ErasePlace, look: Callable[[], _T]) -> _T:
        status = os.lstat(place.path)
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(place.path)
        if known is not None and known[0] == signature:
            return known[1]  # type: ignore[no-any-return]
        found = look()
        self._known[place.path] = (signature, found)
        return found

    # Rollouts

    def _look_at_rollout(self, place: ErasePlace, rollouts: list[FoundRollout], copies: list[Copies]) -> None:
        search = self._once(place, lambda: self._search(place))
        if not search.hits:
            return
        if self._home is None or self._meant(place.thread_id):
            rollouts.append(FoundRollout(place, search))
        else:
            copies.append(Copies(path=place.path, thread_id=place.thread_id, records=len(search.hits)))

    def _search(self, place: ErasePlace) -> RolloutSearch:
        address = self._address
        own = address is not None and place.path == address.path

        def wanted(line: bytes, offset: int) -> bool:
            if self._needle is not None and self._needle.is_in(line):
                return True
            if not own or address is None:
                return False
            return offset in address.offsets or address.is_in_checkpoint(_checkpoint(line))

        found = search_rollout(
            place.path, wanted, needle=self._needle, show=self._show, progress=self._progress
        )
        if not found.hits:  # its snapshots concern nobody
            return RolloutSearch(hits=[], memories=[], size_bytes=found.size_bytes, damaged=found.damaged)
        return found

    def _show(self, line: bytes) -> str:
        """What is around it, with asterisks in its place; nothing where a whole record is named."""
        if self._needle is None or self._address is not None:
            return ""
        masked = mask_line(line, self._needle)
        if masked is None:
            return ""
        text = masked.decode(errors="replace")
        at = next((index for index, (old, new) in enumerate(zip(line, masked, strict=True)) if old != new), 0)
        begin = max(0, len(masked[:at].decode(errors="replace")) - _BEFORE_CHARACTERS)
        return text[begin : begin + _SHOWN_CHARACTERS]

    # Other files

    def _look(self, place: ErasePlace) -> Any:
        """What is found in a file that is no rollout; something false if nothing is."""
        needle = self._needle
        if place.kind is PlaceKind.BLOB and self._is_named_here_alone(place):
            return True
        if needle is None or place.kind in (PlaceKind.DERIVED, PlaceKind.OURS):
            return None
        if place.kind in (PlaceKind.BLOB, PlaceKind.LEFTOVER, PlaceKind.OTHER):
            return self._holds(place.path, needle)
        if place.kind is PlaceKind.TORN:
            return search_rollout(place.path, lambda line, _: needle.is_in(line), needle=needle).hits
        data = read_content(place.path)
        if place.kind is PlaceKind.UNWRITTEN:
            return data if needle.is_in(data) else None
        return list(mask_lines(place.path, data, needle, key=_KEYS[place.kind]))

    def _holds(self, path: str, needle: Needle) -> bool:
        before = b""
        for block in content_blocks(path):
            if needle.is_in(before + block):
                return True
            before = (before + block)[-_OVERLAP_BYTES:]
            if self._progress is not None:
                self._progress(len(block))
        return False

    def _is_named_here_alone(self, place: ErasePlace) -> bool:
        """Whether a blob holds what was too large for the named record, and for nothing else."""
        address, name = self._address, os.path.basename(place.path)
        if address is None or name not in address.blobs:
            return False
        named = Needle.text(name)
        others = places_beside(address.path) if self._home is None else places_in_home(self._home, [])
        for other in others:
            if other.kind is PlaceKind.ROLLOUT:
                hits = search_rollout(other.path, lambda line, _: named.is_in(line), needle=named).hits
                own = address.offsets if other.path == address.path else frozenset()
                if any(each.offset not in own for each in hits):
                    return False
            elif other.kind in (PlaceKind.UNWRITTEN, PlaceKind.TORN) and self._holds(other.path, named):
                return False
        return True

    def _add_other(self, planner: Planner, place: ErasePlace, found: Any) -> None:
        plan = planner.plan
        if place.kind is PlaceKind.OTHER:
            plan.elsewhere.append(place.path)
        elif place.kind in (PlaceKind.BLOB, PlaceKind.LEFTOVER):
            plan.files.append(identified(place, (), remove=True))
            plan.records.append(_whole(place))
        elif place.kind in _KEYS:
            self._add_lines(plan, place, found)
        elif self._home is not None and place.thread_id is not None and not self._meant(place.thread_id):
            plan.copies.append(Copies(path=place.path, thread_id=place.thread_id, records=1))
        else:
            patches = (
                [Patch.make(each.offset, each.size, each.sha256, b"") for each in found]
                if place.kind is PlaceKind.TORN
                else self._unwritten(planner, place, found)
            )
            self._add_patches(plan, place, [(place.thread_id, each) for each in patches])
            if place.thread_id is not None:
                plan.threads.add(place.thread_id)

    def _unwritten(self, planner: Planner, place: ErasePlace, data: bytes) -> list[Patch]:
        def erased(offset: int, line: bytes) -> bytes:
            hit = Hit(
                offset=offset,
                size=len(line),
                sha256="",
                begin=line[:BEGIN_BYTES],
                line=None,
                ordinal=number_of(line),
                record_type=None,
            )
            return planner.erased(hit, path=place.path)

        assert self._needle is not None
        return patch_unwritten(place.path, data, self._needle, erased)

    def _add_lines(self, plan: ErasePlan, place: ErasePlace, found: list[OwnedPatch]) -> None:
        """Titles and prompts: each line is somebody's."""
        mine = [each for each in found if self._meant(each[0])]
        for owner, _ in found:
            if not self._meant(owner):
                plan.copies.append(Copies(path=place.path, thread_id=owner, records=1))
        if mine:
            self._add_patches(plan, place, mine)

    @staticmethod
    def _add_patches(plan: ErasePlan, place: ErasePlace, patches: list[OwnedPatch]) -> None:
        plan.files.append(identified(place, [patch for _, patch in patches]))
        for owner, patch in patches:
            plan.records.append(
                PlannedRecord(
                    path=place.path,
                    kind=place.kind,
                    thread_id=owner,
                    offset=patch.offset,
                    size=patch.size,
                    masked=place.kind in _KEYS,
                )
            )


def _whole(place: ErasePlace) -> PlannedRecord:
    size = os.lstat(place.path).st_size
    return PlannedRecord(path=place.path, kind=place.kind, thread_id=None, offset=0, size=size)


def _checkpoint(line: bytes) -> RolloutLine | None:
    if b'"compacted"' not in line[:BEGIN_BYTES]:
        return None
    try:
        return decode_line(line)
    except InvalidLine:
        return None
