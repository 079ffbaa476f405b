"""Salvage: what could not be made durable is set aside, and told truly."""

from __future__ import annotations

import pytest

from rollout.place import Place
from rollout.salvage import KeepUnwritten, Salvage, Salvaged
from tests.rollout.faulty import EIO, Gate, errors
from tests.rollout.writer_parts import PATH, Parts, ServiceHere

pytestmark = pytest.mark.asyncio


class Shelf:
    """Where lines are set aside."""

    def __init__(self, path: str | None = "/kept") -> None:
        self.path = path
        self.given: list[tuple[list[bytes], int, int]] = []

    def keep(self, lines: list[bytes], offset_bytes: int, items: int) -> str | None:
        self.given.append((lines, offset_bytes, items))
        return self.path


def salvage_of(parts: Parts, keep: KeepUnwritten) -> Salvage:
    service = ServiceHere()
    place = Place(service=service, sink=parts.sink, backlog=parts.backlog, pending=parts.pending)
    return Salvage(service=service, backlog=parts.backlog, place=place, progress=parts.progress, keep=keep)


def half_durable() -> Parts:
    """One item is durable, two are not, one of them not even written."""
    parts = Parts()
    parts.put("durable")
    parts.write()
    parts.sync()
    parts.put("written")
    parts.write()
    parts.put("pending")
    return parts


@pytest.mark.parametrize("now", [False, True])
async def test_what_is_not_durable_is_set_aside_with_its_place_and_number(now: bool) -> None:
    """Lines, the offset they belong to, how many items they are: in a thread, or right here after a bug."""
    parts, shelf = half_durable(), Shelf()
    salvage = salvage_of(parts, shelf.keep)
    if now:
        assert salvage.run_now() == "/kept"
    else:
        assert (await salvage.run(seconds_max=30)).kept_path == "/kept"
    ((lines, offset_bytes, items),) = shelf.given
    data = b"".join(lines)
    assert (data.count(b"\n"), items) == (2, 2)
    assert b'"written"' in data
    assert b'"pending"' in data
    assert b'"durable"' in parts.sink.data[:offset_bytes]
    assert b'"written"' not in parts.sink.data[:offset_bytes]


async def test_nothing_is_set_aside_after_a_bug_if_all_is_durable() -> None:
    """An empty file would say that something is missing."""
    parts, shelf = Parts(), Shelf()
    assert salvage_of(parts, shelf.keep).run_now() is None
    assert not shelf.given


async def test_disk_that_hangs_does_not_hold_up_the_end() -> None:
    """The lines go to the caller instead."""
    parts, gate = half_durable(), Gate()

    def hang(lines: list[bytes], offset_bytes: int, items: int) -> str | None:
        gate.wait()
        return "/too late"

    salvaged = await salvage_of(parts, hang).run(seconds_max=0.001)
    gate.open()
    assert salvaged.kept_path is None
    assert b"".join(salvaged.lines).count(b"\n") == salvaged.items == 2


async def test_error_carries_the_lines_only_if_no_place_took_them() -> None:
    """Path, number of items and cause in any case."""
    cause = errors(EIO)
    kept = Salvaged([b"a\n", b"b\n"], 2, "/kept").error(PATH, cause)
    assert (kept.path, kept.kept_path, kept.unwritten, kept.pending_items) == (PATH, "/kept", b"", 2)
    assert kept.__cause__ is cause
    carried = Salvaged([b"a\n", b"b\n"], 2, None).error(PATH, None)
    assert (carried.kept_path, carried.unwritten, carried.__cause__) == (None, b"a\nb\n", None)
