"""What the upkeep does, as works that may be cut short: a home before it, the work, and what must hold.

Invariant: after a work that was cut short anywhere each thread is whole, as before or as after, and listed
once; and when the work was done again nothing of the first attempt is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tests.thread_store.histories import history, line, place_of, turns, uuid, write_thread
from tests.thread_store.upkeep.interrupted import Cut, uncut
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.locks import ThreadLocks
from thread_store.upkeep.archive import archive_thread, unarchive_thread
from thread_store.upkeep.compression import compress_thread, expand_rollout, expand_thread
from thread_store.upkeep.deletion import delete_threads
from thread_store.upkeep.prune import carry_out, look_at_home
from thread_store.upkeep.prune_plan import PruneLimits
from thread_store.upkeep.threads import Place, held_thread

A, B, C, D = uuid(0xA), uuid(0xB), uuid(0xC), uuid(0xD)
REVERTED = uuid(0xA2)

Threads = dict[str, list[bytes]]
"""The history of each thread that is listed."""


@dataclass(frozen=True)
class Work:
    """One thing that is done to a home."""

    prepare: Callable[[Home], None]
    do: Callable[[Place], object]
    goes: frozenset[str] = frozenset()
    """The threads that are gone afterwards."""
    final: Callable[[Home], bool] = lambda home: True
    """What must hold when it was done to its end."""


def place_with(home: Home, cut: Cut) -> Place:
    return Place.of(home, ThreadLocks(home.path, calls=cut.lock_calls), cut.calls)


def begin(home: Home) -> None:
    """A thread that was reverted, with a title and a kept file, and another one."""
    first = write_thread(home, A, turns(2))
    write_thread(home, A, turns(1), rollout_id=REVERTED)
    write_thread(home, B, turns(1))
    kept = home.path / "thread-store" / "kept"
    kept.mkdir(parents=True)
    (kept / f"{first.name}.99-1-00000000.torn").write_bytes(b"torn")
    (home.path / "session_index.jsonl").write_bytes(
        line("name", {}).replace(b'"type"', b'"id":"%s","thread_name":"a","type"' % A.encode())
        + b'{"id":"%s","thread_name":"b"}\n' % B.encode()
    )


def begin_archived(home: Home) -> None:
    begin(home)
    archive_thread(Place.of(home), A)


def begin_compressed(home: Home) -> None:
    begin(home)
    for path in [each.path for each in home.rollouts() if each.name.thread_id == A]:
        Path(f"{path}.zst").write_bytes(zstandard.compress(path.read_bytes()))
        path.unlink()


def begin_twins(home: Home) -> None:
    """Somebody was killed in the midst of compressing, and of archiving by a copy."""
    begin(home)
    for path in [each.path for each in home.rollouts() if each.name.thread_id == A]:
        Path(f"{path}.zst").write_bytes(zstandard.compress(path.read_bytes()))
        twin = home.path / "archived_sessions" / path.name
        twin.parent.mkdir(exist_ok=True)
        twin.write_bytes(path.read_bytes())
        (path.parent / f".{path.name}.0123456789ab.tmp").write_bytes(b"half")


def begin_forked(home: Home) -> None:
    """A fork that rests on the thread, and one that rests on the fork."""
    begin(home)
    source = next(each.path for each in home.rollouts() if each.name.rollout_id is not None)
    child = make_fork(source, place_of(home, C), thread_id=C, home=home, mode="reference").path
    with open(child, "ab") as file:
        file.write(line("response_item", {"type": "message", "role": "user", "content": []}, 40))
    make_fork(child, place_of(home, D), thread_id=D, home=home, mode="reference")


def _expand_current(place: Place) -> None:
    with held_thread(place, A) as held:
        for each in held.files.rollouts:
            expand_rollout(each.path, fence=held.fence, calls=place.calls)


def _prune(place: Place) -> None:
    carry_out(place, look_at_home(place, PruneLimits(keep=0)))


def _names(home: Home, thread_id: str) -> list[str]:
    return [
        os.path.relpath(each.path, home.path) for each in home.rollouts() if each.name.thread_id == thread_id
    ]


def _all(where: str, ending: str) -> Callable[[Home], bool]:
    def holds(home: Home) -> bool:
        names = _names(home, A)
        return len(names) == 2 and all(
            each.startswith(f"{where}/") and each.endswith(ending) for each in names
        )

    return holds


WORKS = {
    "archive": Work(begin, lambda place: archive_thread(place, A), final=_all("archived_sessions", ".jsonl")),
    "archive_twins": Work(
        begin_twins, lambda place: archive_thread(place, A), final=_all("archived_sessions", ".jsonl")
    ),
    "unarchive": Work(
        begin_archived, lambda place: unarchive_thread(place, A), final=_all("sessions", ".jsonl")
    ),
    "compress": Work(
        begin,
        lambda place: compress_thread(place, A, older_than_seconds=0),
        final=_all("sessions", ".jsonl.zst"),
    ),
    "compress_twins": Work(
        begin_twins,
        lambda place: compress_thread(place, A, older_than_seconds=0),
        final=_all("sessions", ".jsonl.zst"),
    ),
    "expand": Work(begin_compressed, lambda place: expand_thread(place, A), final=_all("sessions", ".jsonl")),
    "expand_to_append": Work(begin_compressed, _expand_current, final=_all("sessions", ".jsonl")),
    "delete": Work(begin, lambda place: delete_threads(place, [A]), goes=frozenset({A})),
    "delete_twins": Work(begin_twins, lambda place: delete_threads(place, [A]), goes=frozenset({A})),
    "delete_two": Work(begin, lambda place: delete_threads(place, [A, B]), goes=frozenset({A, B})),
    "cascade": Work(
        begin_forked, lambda place: delete_threads(place, [A], cascade=True), goes=frozenset({A})
    ),
    "prune": Work(begin_forked, _prune, goes=frozenset({A, B, C, D})),
}


def threads_in(home: Home) -> Threads:
    """What is listed, each thread with its whole history; one that is listed twice is an error."""
    current = home.current_rollouts()
    return {thread_id: history(found.path, home) for thread_id, found in current.items()}


def check_cut(work: Work, home: Home, before: Threads) -> None:
    """Each thread is whole, or one of those that go is gone; they go together."""
    now = threads_in(home)
    left = set(before) - set(now)
    assert left in (set(), work.goes), f"only {left} of {set(work.goes)} are gone"
    assert now == {thread_id: lines for thread_id, lines in before.items() if thread_id not in left}


def check_done_again(work: Work, home: Home, before: Threads) -> None:
    """The next one finishes it, and nothing is left of the first attempt."""
    if set(work.goes) <= set(threads_in(home)):
        work.do(place_with(home, uncut()))
    else:
        delete_threads(Place.of(home), [])
    now = threads_in(home)
    assert now == {thread_id: lines for thread_id, lines in before.items() if thread_id not in work.goes}
    assert work.final(home)
    remains = remains_in(home, work.goes)
    assert not remains, remains


def remains_in(home: Home, gone: frozenset[str]) -> list[str]:
    """Files that nobody needs: temporary ones, journals, twins, and whatever names a thread that is gone."""
    found = []
    rollouts = {os.fspath(each.path) for each in home.rollouts()}
    for path in home.path.rglob("*"):
        if not path.is_file():
            continue
        name = os.path.relpath(path, home.path)
        hidden_twin = ".jsonl" in name and name.split("/")[0].endswith("sessions")
        if path.suffix in (".tmp", ".aside", ".json") or (hidden_twin and os.fspath(path) not in rollouts):
            found.append(name)
        if any(thread_id in name for thread_id in gone) and path.suffix != ".lock":
            found.append(name)
        if path.name == "session_index.jsonl" and any(each.encode() in path.read_bytes() for each in gone):
            found.append(f"a title in {name}")
    return found
