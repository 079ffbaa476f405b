"""Late items: what the old writer of a thread that was taken over had accepted comes in, once."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import tracks
from protocol.errors import RolloutUnreadable, RolloutWriteError, WriterFenced, WriterHolder
from rollout.check import check_rollout
from rollout.config import RecorderConfig
from rollout.kept import find_kept, keep_unwritten
from rollout.repair import RepairReport, repair_rollout
from rollout.syscalls import FileCalls
from tests.rollout.faulty import FaultyCalls, ForgetfulCalls, fails, fails_after, short_then_fails
from tests.thread_store.conftest import Run, objects
from tests.thread_store.histories import Script, history, meta, turns, uuid, write_thread
from thread_store.blocking_thread import BlockingThread
from thread_store.chain.base_check import check_base
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.history import read_history
from thread_store.chain.late_items import find_replayable
from thread_store.cli.failures import ExitCode
from thread_store.errors import NotCurrentRollout
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import make_revert
from thread_store.forks.take_over import move_on
from thread_store.home import Home
from thread_store.local_threads import LocalThreads

THREAD = uuid(0x1A)
HOLDER = WriterHolder(pid=1, host="elsewhere")


@pytest.fixture
def store(home: Path) -> Home:
    return Home(home)


def lines_of(texts: Sequence[str], first: int = 9) -> list[bytes]:
    """Lines as the old writer had numbered them: behind one turn with a call, which ends with 8."""
    script = Script(first)
    for text in texts:
        script.response("assistant", text)
    return script.lines


def append(path: str | Path, lines: Sequence[bytes]) -> None:
    with Path(path).open("ab") as file:
        file.write(b"".join(lines))


def keep(path: str | Path, lines: Sequence[bytes], offset: int | None = None) -> Path:
    """What a fenced writer of that file sets aside."""
    offset = os.stat(path).st_size if offset is None else offset
    kept = keep_unwritten(path, lines, thread_id=THREAD, offset_bytes=offset, items=len(lines))
    assert kept is not None
    return kept


def replay(path: str | Path, calls: FileCalls | None = None, *, dry_run: bool = False) -> RepairReport:
    return repair_rollout(
        path, dry_run=dry_run, replay=True, find_late=lambda: find_replayable(path), calls=calls
    )


def texts_in(path: str | Path, home: Home) -> list[str]:
    """What the assistant said in the whole history, the hand-written turns left out."""
    payloads = [json.loads(each) for each in history(path, home)]
    said = [each["payload"]["content"][0]["text"] for each in payloads if "content" in each["payload"]]
    return [text for text in said if not text.startswith(("question", "answer"))]


def ordinals_of(path: str | Path) -> list[int]:
    found = [json.loads(each).get("ordinal") for each in Path(path).read_bytes().splitlines()]
    return [each for each in found if each is not None]


def findings(path: str | Path, home: Home) -> list[str]:
    return [each.code for each in check_base(path, home)]


# One take-over


@pytest.mark.guarantee("G1")
def test_items_of_the_old_writer_come_into_the_current_rollout(store: Home) -> None:
    """They follow what was recorded since, with new numbers; the old file isn't touched; nothing waits."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    append(new, lines_of(["since"], first=10))
    kept, before = keep(old, lines_of(["a", "b"])), old.read_bytes()
    head = Path(new).read_bytes()
    report = replay(new)
    assert [each.kept_path for each in report.actions] == [str(kept)]
    assert Path(new).read_bytes() == head + b"".join(lines_of(["a", "b"], first=11))
    assert old.read_bytes() == before
    assert texts_in(new, store) == ["since", "a", "b"]
    assert Path(f"{kept}.replayed").exists()
    assert replay(new).actions == []
    assert check_rollout(new).findings == []


@pytest.mark.guarantee("G1")
def test_items_that_the_thread_had_taken_along_are_not_doubled(store: Home) -> None:
    """Handed to the OS before the take-over and never synced: they are in the base, and set aside as well."""
    old = write_thread(store, THREAD, turns(1))
    offset = old.stat().st_size
    append(old, lines_of(["a"]))
    new = move_on(old, store, HOLDER)
    keep(old, lines_of(["a", "b"]), offset)
    replay(new)
    assert texts_in(new, store) == ["a", "b"]


@pytest.mark.guarantee("G1")
def test_items_among_the_late_bytes_are_brought_in(store: Home) -> None:
    """Behind the base they are no part of the thread, so they are lacking."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    offset = old.stat().st_size
    append(old, lines_of(["a"]))
    keep(old, lines_of(["a", "b"]), offset)
    replay(new)
    assert texts_in(new, store) == ["a", "b"]


def test_what_tells_of_the_old_file_stays_out(store: Home) -> None:
    """Its meta line, its openings and its memory say nothing of the new one; no gap is claimed."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    script = Script(9)
    script.add("x_writer", {"event": "opened", "epoch": 7})
    said = script.response("assistant", "a")
    script.add("x_memory", {"version": 1, "upto_offset": 10, "max_ordinal": 99, "epoch": 7})
    script.add("x_writer", {"event": "closed", "epoch": 7})
    keep(old, [meta(THREAD), *script.lines], offset=1 << 20)
    head = Path(new).read_bytes()
    replay(new)
    assert Path(new).read_bytes() == head + said.replace(b'"ordinal":9', b'"ordinal":10')


def test_dry_run_says_it_and_changes_nothing(store: Home) -> None:
    """And without `replay` the file is named as one that waits."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    kept = keep(old, lines_of(["a", "b"]))
    before = Path(new).read_bytes()
    report = replay(new, dry_run=True)
    assert [(each.kind, each.kept_path) for each in report.actions] == [("replay", str(kept))]
    assert "2 lines" in report.actions[0].message
    assert repair_rollout(new, find_late=lambda: find_replayable(new)).waiting == [str(kept)]
    assert Path(new).read_bytes() == before
    assert kept.exists()


def test_items_of_the_current_writer_come_before_those_that_are_late(store: Home) -> None:
    """Its own kept lines belong to a byte of this file; the others to none."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    keep(old, lines_of(["late"]))
    keep(new, lines_of(["own"]))
    replay(new)
    assert texts_in(new, store) == ["own", "late"]
    assert check_rollout(new).findings == []


# Which rollouts are meant


def test_rollout_that_was_left_to_its_writer_is_not_repaired(store: Home) -> None:
    """Appended there the items would be no part of the thread: the error says where that goes on."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    kept, before = keep(old, lines_of(["a"])), old.read_bytes()
    for dry_run in (True, False):
        with pytest.raises(NotCurrentRollout) as caught:
            replay(old, dry_run=dry_run)
        assert (caught.value.current_path, caught.value.thread_id) == (new, THREAD)
    assert old.read_bytes() == before
    assert kept.exists()


@pytest.mark.guarantee("G1")
def test_every_take_over_is_followed_back(store: Home) -> None:
    """Two in a row: the items of both old writers, the older ones first."""
    first = write_thread(store, THREAD, turns(1))
    second = move_on(first, store, HOLDER)
    append(second, lines_of(["between"]))
    third = move_on(second, store, HOLDER)
    keep(second, lines_of(["b"], first=10))
    keep(first, lines_of(["a"]))
    assert findings(second, store) == []
    assert findings(third, store) == ["late_items", "late_items"]
    replay(third)
    assert texts_in(third, store) == ["between", "a", "b"]
    assert findings(third, store) == []


@pytest.mark.guarantee("G1")
def test_rollout_in_which_nothing_was_recorded_is_not_forgotten(store: Home) -> None:
    """The next one rests on what that rested on, so it is in no lineage; its writer's items wait still."""
    first = write_thread(store, THREAD, turns(1))
    second = move_on(first, store, HOLDER)
    third = move_on(second, store, HOLDER)
    keep(first, lines_of(["a"]))
    offset = os.stat(second).st_size
    append(second, lines_of(["b"]))
    keep(second, lines_of(["b", "c"]), offset)
    assert read_history(third, store).rollouts == (str(first), third)
    assert [each.path for each in read_history(third, store).late] == [second]
    with pytest.raises(NotCurrentRollout):
        replay(second)
    replay(third)
    assert texts_in(third, store) == ["a", "b", "c"]
    assert findings(third, store) == ["late_bytes"]


def test_items_follow_the_thread_through_a_revert(store: Home) -> None:
    """A replay that was cut short, then a revert to what it had appended: the rest comes in there."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    keep(old, lines_of(["a", "b"]))
    append(new, lines_of(["a"]))
    reverted = make_revert(new, home=store, point=ForkPoint.end()).path
    replay(reverted)
    assert texts_in(reverted, store) == ["a", "b"]


def test_revert_behind_the_take_over_takes_its_items_out(store: Home) -> None:
    """The thread was taken back on purpose: what came later doesn't come in. The old one may be repaired."""
    old = write_thread(store, THREAD, turns(2))
    new = move_on(old, store, HOLDER)
    reverted = make_revert(new, home=store, point=ForkPoint.turn(1)).path
    kept = keep(old, lines_of(["a"], first=17))
    assert findings(reverted, store) == []
    assert replay(reverted).actions == []
    assert [each.kept_path for each in replay(old).actions] == [str(kept)]


def test_items_of_the_source_are_not_the_forks(store: Home) -> None:
    """A reference fork shares the history; the late items are of the thread that was taken over."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    append(new, lines_of(["since"]))
    fork = make_fork(
        new, store.new_rollout_path(uuid(0x2B)), thread_id=uuid(0x2B), home=store, mode="reference"
    )
    keep(old, lines_of(["a"]))
    assert findings(fork.path, store) == []
    assert replay(fork.path).actions == []
    assert findings(new, store) == ["late_items"]


@pytest.mark.guarantee("G1")
def test_fork_in_which_nothing_was_recorded_gets_its_own_items(store: Home) -> None:
    """Taken over it rests on the file of its source, whose items are not its own."""
    source, thread = write_thread(store, THREAD, turns(1)), uuid(0x2B)
    target = store.new_rollout_path(thread)
    fork = make_fork(source, target, thread_id=thread, home=store, mode="reference").path
    new = move_on(fork, store, HOLDER)
    keep(source, lines_of(["source"]))
    keep(fork, lines_of(["a"]))
    replay(new)
    assert texts_in(new, store) == ["a"]


def test_meta_that_does_not_say_what_was_taken_means_its_base(store: Home) -> None:
    """`x_takeover` without `rollout`, as another program may write it."""
    old = write_thread(store, THREAD, turns(1))
    new = Path(move_on(old, store, HOLDER))
    new.write_bytes(new.read_bytes().replace(f'"rollout":"{THREAD}",'.encode(), b""))
    keep(old, lines_of(["a"]))
    replay(new)
    assert texts_in(new, store) == ["a"]


def test_take_overs_that_name_each_other_end(store: Home) -> None:
    """Ids in a meta are what somebody wrote: a ring is gone round once, an absent file passed over."""
    old = write_thread(store, THREAD, turns(1))
    rings = [uuid(0x30), uuid(0x31)]
    new = Path(move_on(old, store, HOLDER))
    named = f'"rollout":"{THREAD}"'.encode()
    for own, other in (rings, rings[::-1]):
        body = new.read_bytes().replace(named, f'"rollout":"{other}"'.encode())
        write_thread(store, THREAD, b"", rollout_id=own).write_bytes(body)
    new.write_bytes(new.read_bytes().replace(named, f'"rollout":"{rings[0]}"'.encode()))
    assert len(findings(new, store)) == 0
    new.write_bytes(new.read_bytes().replace(rings[0].encode(), uuid(0x99).encode()))
    assert findings(new, store) == []


def test_damaged_kept_file_is_reported_and_not_used(store: Home) -> None:
    """As one of the rollout's own."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    kept = keep(old, lines_of(["a"]))
    kept.write_bytes(kept.read_bytes()[:-3])
    assert findings(new, store) == ["kept_damaged"]


def test_copy_of_a_legacy_thread_gets_the_items_by_its_name(store: Home) -> None:
    """It stands where the old file stood: found once, and not doubled."""
    path = write_thread(store, THREAD, turns(1, ordinal=None), ordinal=None)
    offset = path.stat().st_size
    lines = lines_of(["a", "b"])
    bare = [each.replace(b'"ordinal":9,', b"").replace(b'"ordinal":10,', b"") for each in lines]
    append(path, bare[:1])
    assert move_on(path, store, HOLDER) == str(path)
    keep(path, bare, offset)
    data = path.read_bytes()
    assert len(replay(path).actions) == 1
    assert path.read_bytes() == data + bare[1]
    assert replay(path).actions == []


# Cut short


def faults() -> st.SearchStrategy[list[tuple[str, str, int]]]:
    calls = st.sampled_from(["write", "datasync", "pwrite", "sync_folder", "open_overwrite", "open_append"])
    kinds = st.sampled_from(["fails", "fails_after", "short"])
    return st.lists(st.tuples(calls, kinds, st.integers(1, 3)), max_size=6)


def cut_short(path: str, call: str, kind: str, nth: int) -> None:
    """A repair in which one call fails."""
    calls = FaultyCalls()
    effect = fails(errno.EIO) if kind == "fails" else fails_after(errno.EIO)
    if kind == "short" and call == "write":
        effect = short_then_fails(lambda size: size // 2, errno.ENOSPC)
    calls.arm(call, effect, first=nth)
    with suppress(RolloutWriteError, RolloutUnreadable):
        replay(path, calls)


@pytest.mark.guarantee("G3")
def test_lines_that_a_failed_sync_left_are_written_again(store: Home) -> None:
    """After EIO at the sync the second repair finds them in the cache only, and brings them to the disk."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    kept = keep(old, lines_of(["a", "b"]))
    calls = ForgetfulCalls()
    calls.trust(new)
    before = calls.after_power_loss(new)
    calls.arm("datasync", fails(errno.EIO))
    with pytest.raises(RolloutWriteError, match="sync"):
        replay(new, calls)
    assert calls.after_power_loss(new) == before
    assert kept.exists()
    replay(new, calls)
    assert not kept.exists()
    assert calls.after_power_loss(new) == Path(new).read_bytes()
    assert texts_in(new, store) == ["a", "b"]


@given(
    kept=st.lists(st.sampled_from("abc"), max_size=6),
    taken_along=st.integers(0, 6),
    late=st.integers(0, 6),
    between=st.lists(st.sampled_from("xyz"), max_size=3),
    second=st.none() | st.lists(st.sampled_from("def"), max_size=4),
    since=st.lists(st.sampled_from("uvw"), max_size=3),
    cuts=faults(),
)
@pytest.mark.guarantee("G1")
def test_each_accepted_item_comes_in_once_however_often_a_repair_is_cut_short(
    tmp_path_factory: pytest.TempPathFactory,
    kept: list[str],
    taken_along: int,
    late: int,
    between: list[str],
    second: list[str] | None,
    since: list[str],
    cuts: list[tuple[str, str, int]],
) -> None:
    """Some were taken along, some are late bytes; others recorded since, one of them lost its lock too."""
    home = Home(tmp_path_factory.mktemp("home"))
    current = old = str(write_thread(home, THREAD, turns(1)))
    offset = os.stat(old).st_size
    accepted = lines_of(kept)
    append(old, accepted[:taken_along])
    current = move_on(old, home, HOLDER)
    append(current, lines_of(between, first=ordinals_of(current)[-1] + 1))
    left = [old]
    if second is not None:
        left.append(current)
        current = move_on(current, home, HOLDER)
        keep(left[1], lines_of(second, first=ordinals_of(current)[-1] + 1))
    append(old, accepted[taken_along:][:late])
    keep(old, accepted, offset)
    append(current, lines_of(since, first=ordinals_of(current)[-1] + 1))
    before = [Path(each).read_bytes() for each in left]

    for cut in cuts:
        cut_short(current, *cut)
    for _ in range(2):
        replay(current)
        found = texts_in(current, home)
        assert [text for text in found if text in "abc"] == kept
        assert [text for text in found if text in "def"] == (second or [])
        assert [text for text in found if text in "uvwxyz"] == between + since
        assert ordinals_of(current) == sorted(set(ordinals_of(current)))
    assert [Path(each).read_bytes() for each in left] == before
    assert replay(current).actions == []
    assert [each for path in left for each in find_kept(path)] == []


# From the command line, with real writers


@pytest.fixture(params=["paginated", "legacy"])
def writer(request: pytest.FixtureRequest, store: Home) -> Iterator[BlockingThread]:
    """This process, writing the thread, until that is taken from it."""
    first = 1 if request.param == "paginated" else None
    write_thread(store, THREAD, turns(1, ordinal=first), ordinal=0 if first else None)
    with LocalThreads(store) as threads:
        # It finds out when it is asked to write, however long the commands take.
        thread = BlockingThread(threads.open(THREAD, config=RecorderConfig(sync_seconds=3600.0)))
        yield thread
        with suppress(WriterFenced):
            thread.close()


@pytest.mark.guarantee("G1")
def test_command_brings_in_what_a_fenced_writer_had_accepted(
    rollout: Run, store: Home, writer: BlockingThread
) -> None:
    """What check says to run does it; the error of the old writer says the same; nothing is there twice."""
    writer.record(tracks.user_message("flushed"))
    writer.flush()
    assert rollout("unlock", THREAD, "--force").returncode == 0
    assert rollout("record", "--text", "--thread", THREAD, input=b"since").returncode == 0
    writer.record(tracks.user_message("accepted"))
    with pytest.raises(WriterFenced) as caught:
        writer.sync()
    assert caught.value.hint.endswith(f"rollout repair --replay {THREAD}")
    with pytest.raises(WriterFenced):
        writer.close()

    current = store.find_thread(THREAD)
    done = rollout("check", THREAD, "--json")
    fixes = [each["fix"] for each in objects(done.stdout) if each.get("fix")]
    assert (done.returncode, fixes) == (ExitCode.PROBLEMS, [f"rollout repair --replay {current}"])
    assert rollout("repair", THREAD, "--replay").returncode == ExitCode.PROBLEMS
    assert rollout(*fixes[0].split()[1:], "-y").returncode == 0
    shown = rollout("show", THREAD).stdout
    assert [shown.count(text) for text in (b"flushed", b"since", b"accepted")] == [1, 1, 1]
    assert rollout("check", THREAD).returncode == 0
    assert b"nothing to repair" in rollout("repair", THREAD, "--replay").stderr


def test_command_refuses_the_rollout_that_was_left(rollout: Run, store: Home) -> None:
    """Exit code 7, and the current one is named."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    done = rollout("repair", old, "--replay", "-y", "--json")
    (error,) = objects(done.stderr)
    assert (done.returncode, error["code"]) == (ExitCode.REFUSED, "not_current_rollout")
    assert error["current_path"] == new


def test_check_of_the_rollout_that_was_left_names_no_repair(rollout: Run, store: Home) -> None:
    """What it would name is refused; it says where the thread goes on instead."""
    old = write_thread(store, THREAD, turns(1))
    new = move_on(old, store, HOLDER)
    with old.open("ab") as file:
        file.write(b'{"torn')
    done = rollout("check", old, "--json")
    found = [each for each in objects(done.stdout) if each["kind"] == "finding"]
    assert [each["fix"] for each in found] == [None] * len(found)
    assert {"torn_tail", "not_current_rollout"} <= {each["check"] for each in found}
    assert str(new) in next(each["message"] for each in found if each["check"] == "not_current_rollout")
