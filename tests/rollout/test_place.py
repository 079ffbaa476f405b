"""The place: all that waits is handed over, it is healed at most so often, and a healing has it to itself."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from protocol.errors import RecorderClosed
from rollout.place import Place
from rollout.sink import SinkDisturbed
from tests.rollout.faulty import EIO, ENOSPC, Gate, errors
from tests.rollout.writer_parts import Parts, ServiceHere

pytestmark = pytest.mark.asyncio


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest_asyncio.fixture
async def place(parts: Parts) -> Place:
    return Place(service=ServiceHere(), sink=parts.sink, backlog=parts.backlog, pending=parts.pending)


def accept(parts: Parts, *texts: str) -> None:
    """As the writer does at the begin of a round."""
    parts.put(*texts)
    parts.backlog.add(parts.pending.take())


async def begin_healing(parts: Parts, place: Place) -> tuple[Gate, asyncio.Task[None]]:
    """A healing that hangs until the gate is opened."""
    gate = Gate()
    parts.sink.while_healing = gate.wait
    healing = asyncio.create_task(place.heal())
    await asyncio.to_thread(gate.reached.wait)
    return gate, healing


async def test_everything_that_waits_is_handed_over_in_order(parts: Parts, place: Place) -> None:
    """Into a place that is made with the first of it, and not before."""
    await place.hand_over()
    assert not parts.sink.created
    accept(parts, "a")
    accept(parts, "b")
    await place.hand_over()
    assert b'"a"' in parts.sink.data.splitlines()[0]
    assert b'"b"' in parts.sink.data.splitlines()[1]
    assert not parts.backlog.waiting


@pytest.mark.parametrize("method", ["verify", "append"])
async def test_disturbed_place_is_healed_at_once(parts: Parts, place: Place, method: str) -> None:
    """No caller is told, and no time passes."""
    accept(parts, "a")
    parts.sink.faults[method] = [SinkDisturbed("another size"), SinkDisturbed("and again")]
    await place.hand_over()
    assert not parts.backlog.waiting
    assert place.healings == 2


async def test_place_that_keeps_changing_is_a_failure(parts: Parts, place: Place) -> None:
    """It is not healed for ever within one round."""
    accept(parts, "a")
    parts.sink.faults["append"] = [SinkDisturbed("another size")] * 3
    with pytest.raises(OSError, match="another size"):
        await place.hand_over()
    assert place.healings == 2
    assert parts.backlog.waiting


@pytest.mark.parametrize("method", ["create", "append", "verify"])
async def test_error_of_the_system_is_raised_and_nothing_is_healed(
    parts: Parts, place: Place, method: str
) -> None:
    """When to try again is decided elsewhere; what waits goes on waiting."""
    accept(parts, "a")
    parts.sink.faults[method] = [errors(ENOSPC)]
    with pytest.raises(OSError, match="space"):
        await place.hand_over()
    assert place.healings == 0
    assert parts.backlog.waiting


async def test_place_that_never_was_needs_no_healing(parts: Parts, place: Place) -> None:
    """Nothing was made and nothing waits: there is nothing to make whole."""
    await place.heal()
    assert (place.healings, parts.sink.epoch) == (0, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_place_closed_while_it_heals_is_let_go_of_when_that_ends(
    parts: Parts, place: Place, fails: bool
) -> None:
    """Its descriptors are in use until then, however it ends."""
    accept(parts, "a")
    gate, healing = await begin_healing(parts, place)
    assert place.is_healing
    parts.sink.faults["heal"] = [errors(EIO)] if fails else []
    place.close()
    assert parts.sink.closed == 0
    gate.open()
    await asyncio.gather(healing, return_exceptions=True)
    assert parts.sink.closed == 1
    assert not place.is_healing


async def test_place_that_does_not_heal_is_let_go_of_at_once(parts: Parts, place: Place) -> None:
    """Nobody uses it."""
    place.close()
    assert parts.sink.closed == 1


async def test_nothing_is_written_after_the_place_was_abandoned(parts: Parts, place: Place) -> None:
    """A healing that comes back too late finds nothing to do."""
    accept(parts, "a")
    parts.sink.faults["append"] = [SinkDisturbed("another size")]
    gate = Gate()
    parts.sink.while_healing = gate.wait
    handing_over = asyncio.create_task(place.hand_over())
    await asyncio.to_thread(gate.reached.wait)
    place.abandoned = True
    gate.open()
    with pytest.raises(RecorderClosed):
        await handing_over
    assert not parts.sink.data


async def test_wait_for_a_healing_ends_with_it_or_with_its_time(parts: Parts, place: Place) -> None:
    """It may hang; and without one there is nothing to wait for."""
    await place.wait_until_healed(3600)
    accept(parts, "a")
    gate, healing = await begin_healing(parts, place)
    await place.wait_until_healed(0)
    assert place.is_healing
    gate.open()
    await place.wait_until_healed(3600)
    assert not place.is_healing
    await healing


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("heals", [False, True])
async def test_lines_that_are_not_durable_are_complete_at_any_time(
    parts: Parts, place: Place, heals: bool
) -> None:
    """Those that were written, those that wait, those nobody fetched yet: also while a healing hangs and
    has taken the backlog apart."""
    parts.put("durable")
    parts.write()
    parts.sync()
    parts.put("written")
    parts.write()
    accept(parts, "waiting")
    if heals:
        gate, healing = await begin_healing(parts, place)
        parts.backlog.handed.clear()
    parts.put("pending")
    found = b"".join(place.undurable_lines()).splitlines()
    texts = [b"written", b"waiting", b"pending"]
    assert len(found) == len(texts)
    assert all(text in line for text, line in zip(texts, found, strict=True))
    if heals:
        gate.open()
        await healing
