"""An eye on a home's bytes that shares no code with the product's: which items of a thread stand there.

Invariant: it goes by the names of files and by checksums alone. Of one rollout in several files (a twin that
a kill left) the fullest counts, and none may hold what was never recorded.
"""

from __future__ import annotations

import functools
import re

import zstandard

from tests.faults.disk_model import State
from tests.faults.numbered import Contents, look_at
from tests.faults.store_ledger import StoreLedger, Told
from tests.faults.store_session import SECRET
from tests.faults.store_workloads import HOME

__all__ = ["check_home", "holders_of_secret", "is_judged", "places_of"]

_ROLLOUT = re.compile(
    rf"{HOME}/(?:sessions|archived_sessions)/(?:.+/)?rollout-[^/]*?([0-9a-f-]{{36}})\.jsonl(\.zst)?"
)
_NOT_JUDGED = ("list.sqlite", "list.sqlite-journal")
"""Derived, and written by SQLite, whose own tests these are not."""


def is_judged(path: str) -> bool:
    """Whether the model must say what stands in a file."""
    return not path.endswith(_NOT_JUDGED)


@functools.lru_cache(maxsize=64)
def _unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@functools.lru_cache(maxsize=64)
def _contents(data: bytes, packed: bool) -> Contents:
    return look_at(_unpacked(data) if packed else data)


def _files_of(state: State, thread_id: str) -> dict[str, Contents]:
    found = {}
    for path, data in state.items():
        match = _ROLLOUT.fullmatch(path)
        if match is not None and match[1] == thread_id and data is not None:
            try:
                found[path] = _contents(data, match[2] is not None)
            except zstandard.ZstdError as error:
                raise AssertionError(f"(e) {path} was named before it was whole: {error}") from error
    return found


def check_home(state: State, ledger: StoreLedger, *, synced: bool, process_death: bool = False) -> None:
    """A home as it is, or as a power cut may leave it: what was acknowledged is there, and nothing else.

    `synced`: what syncs have acknowledged must be there, else what flushes have. `process_death`: nothing but
    the process is gone, so there is no damage and no gap.
    """
    for told in ledger.threads.values():
        if told.deleted is False:
            _check_thread(state, ledger, told, synced=synced, process_death=process_death)
    if ledger.secret == "erased":
        assert not holders_of_secret(state), f"it was erased, and stands in {holders_of_secret(state)}"


def _check_thread(
    state: State, ledger: StoreLedger, told: Told, *, synced: bool, process_death: bool
) -> None:
    files = _files_of(state, told.thread_id)
    level = told.synced if synced else told.flushed
    own = told.own(told.offered)
    possible = places_of(own if told.rests_on is not None else [*told.base, *own])
    sure = told.own(level) if told.rests_on is not None else [*told.base[: told.base_sure], *told.own(level)]
    must_be = bool(told.synced or told.base) if synced else told.begun
    assert files or not must_be, f"(e) the thread {told.key} has no file"
    found = max(files.values(), key=lambda each: len(each.numbers), default=Contents())
    missing = set(sure) - set(found.numbers)
    assert not missing, f"(a) thread {told.key}: {len(sure)} items are sure, missing: {sorted(missing)}"
    for path, each in files.items():
        wrong = set(each.numbers) - possible.keys()
        assert not wrong, f"(c) {path} holds what was never recorded: {sorted(wrong)}"
        places = [possible[number] for number in each.numbers]
        assert places == sorted(set(places)), f"(c) {path}: items are doubled or out of order: {each.numbers}"
        secured = max((each.ends[number] for number in sure if number in each.ends), default=0)
        assert not [at for at in each.damaged if at < secured], f"(c) {path}: a damaged line among sure ones"
        if process_death and ledger.secret not in (
            "erasing",
            "partly",
        ):  # it may have stopped inside a line, and is gone on with
            assert not each.damaged, f"(c) {path}: a damaged line, though only the process died"
        if process_death:
            assert places == list(range(len(places))), f"(c) {path}: a gap: {each.numbers}"
    if told.archived is not None:
        wrong = [path for path in files if ("/archived_sessions/" in path) != told.archived]
        assert not wrong, f"(e) thread {told.key} was moved, and lies at {wrong}"
    _check_calls(found, told)
    if told.rests_on is not None:
        _check_base(state, ledger, told)


def _check_calls(found: Contents, told: Told) -> None:
    """A tool runs only when that is on stable storage; the next step is taken only when its end is."""
    missing = told.calls_begun - found.calls_begun
    assert not missing, f"(a) thread {told.key}: tools ran, and nothing tells of it: {sorted(missing)}"
    missing = told.calls_ended - found.calls_ended
    assert not missing, f"(a) thread {told.key}: calls returned, and their ends are gone: {sorted(missing)}"


def _check_base(state: State, ledger: StoreLedger, told: Told) -> None:
    assert told.rests_on is not None
    source = ledger.threads[told.rests_on]
    files = _files_of(state, source.thread_id)
    held = max((each.numbers for each in files.values()), key=len, default=[])
    missing = set(told.base[: told.base_sure]) - set(held) - set(source.base)
    assert not missing, f"(a) thread {told.key} rests on items that are gone: {sorted(missing)}"


def places_of(numbers: list[int]) -> dict[int, int]:
    """Where each number stands."""
    return {number: place for place, number in enumerate(numbers)}


def holders_of_secret(state: State, secret: str = SECRET) -> list[str]:
    """The files that hold what is to be erased, compressed ones too."""
    found = []
    for path, data in state.items():
        if data is None:
            continue
        try:
            content = _unpacked(data) if data.startswith(b"\x28\xb5\x2f\xfd") else data
        except zstandard.ZstdError:
            content = data  # a temporary file that was cut short
        if secret.encode() in content:
            found.append(path)
    return found
