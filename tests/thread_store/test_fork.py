"""Forks: what a child holds, what its source keeps, and that nothing is left behind where one fails."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import (
    ForkPointInvalid,
    ForkRefused,
    InvalidThreadId,
    ItemNotEncodable,
    NotARollout,
    RolloutError,
    RolloutExists,
    RolloutWriteError,
    ThreadNotFound,
)
from protocol.response_items import ResponseItem
from rollout import RolloutRecorder, read_rollout
from tests.rollout.faulty import Fault, fails
from tests.thread_store.histories import (
    Script,
    body_lines,
    history,
    line,
    meta,
    metas,
    place_of,
    turns,
    uuid,
    write_thread,
)
from tests.thread_store.scripted import ScriptedCalls
from thread_store.chain import open_rollout
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.forks.fork import Fork, ForkMode, make_fork
from thread_store.forks.fork_meta import ALIGNMENT_BYTES
from thread_store.home import Home

A, B, C, D = (uuid(number) for number in (0xA, 0xB, 0xC, 0xD))
MODES: tuple[ForkMode, ...] = ("copy", "reference")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def fork(home: Home, source: Path | str, child_id: str, **options: Any) -> Fork:
    """A child in the home, under its own name."""
    return make_fork(source, place_of(home, child_id), thread_id=child_id, home=home, **options)


def everything_in(home: Home) -> dict[str, bytes]:
    """All files below a folder, whatever they are called."""
    found = (path for path in home.path.rglob("*") if path.is_file())
    return {str(path.relative_to(home.path)): path.read_bytes() for path in found}


def append(path: str | Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


# What a child holds


def test_copy_holds_the_bytes_of_its_source_behind_a_padded_meta(home: Home) -> None:
    """The records stand there verbatim, own and damaged ones too, from a multiple of a block on."""
    source = write_thread(home, A, turns(2) + b"\0damaged\n" + turns(1))
    made = fork(home, source, B)
    data = Path(made.path).read_bytes()
    header = data.index(b"\n") + 1
    assert header == ALIGNMENT_BYTES
    assert data[header:] == source.read_bytes()
    assert made.copied_bytes == len(source.read_bytes())
    assert json.loads(data[:header])["ordinal"] == 0


def test_reference_holds_its_meta_alone(home: Home) -> None:
    """It names the rollout, the byte, the next ordinal and the hash of the last line."""
    source = write_thread(home, A, turns(2))
    made = fork(home, source, B, mode="reference", point=ForkPoint.turn(1))
    lines = Path(made.path).read_bytes().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["ordinal"] == 9
    assert made.base is not None
    assert metas(made.path)[0]["history_base"] == {
        "thread_id": A,
        "end_ordinal_exclusive": 9,
        "end_byte_offset": made.border.offset,
        "x_base_sha256": made.base.x_base_sha256,
    }
    assert Lineage.resolve(made.path, home).problem is None


@pytest.mark.parametrize("mode", MODES)
def test_meta_of_a_fork_is_its_own_and_keeps_how_the_agent_works(home: Home, mode: ForkMode) -> None:
    """Identity, descent and time are new; instructions, tools, git and keys nobody knows stay."""
    kept = {
        "cwd": "/srv/elsewhere",
        "model_provider": "mock",
        "base_instructions": {"text": "be brief", "provenance": {"type": "custom"}},
        "dynamic_tools": [{"name": "t", "description": "d", "inputSchema": {}}],
        "git": {"commit_hash": "abc", "branch": "main"},
        "x_task": {"prompt": "do it"},
        "of_a_later_version": {"deep": [1, 2.5, None]},
    }
    gone = {
        "session_id": A,
        "parent_thread_id": C,
        "agent_nickname": "Ada",
        "x_pad": "   ",
        "context_window": {},
    }
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": C, "depth": 1}}}
    source = write_thread(home, A, turns(1), **kept, **gone, source=spawned, thread_source="subagent")
    made = metas(fork(home, source, B, mode=mode).path)[0]
    assert {key: made[key] for key in kept} == kept
    assert made["id"] == made["session_id"] == B
    assert made["forked_from_id"] == A
    assert made["forked_from_ordinal_exclusive"] == 9
    assert made["history_mode"] == "paginated"
    assert made["source"] == "cli"
    assert made["timestamp"] > "2026-03-04T05:06:07.000Z"
    assert not {"parent_thread_id", "agent_nickname", "context_window", "thread_source"} & made.keys()


def test_caller_changes_the_meta_but_not_what_it_is(home: Home) -> None:
    """Keys are set or, with None, taken away; id, mode and descent are the fork's."""
    source = write_thread(home, A, turns(1))
    changes = {"cwd": "/new", "model_provider": None, "id": C, "history_mode": "legacy", "forked_from_id": C}
    changes |= {"history_base": {"thread_id": C, "end_ordinal_exclusive": 1, "end_byte_offset": 1}}
    made = metas(fork(home, source, B, meta_changes=changes).path)[0]
    assert (made["id"], made["forked_from_id"], made["history_mode"]) == (B, A, "paginated")
    assert made["cwd"] == "/new"
    assert not {"model_provider", "history_base"} & made.keys()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.case("B72")
def test_fork_at_each_turn_is_a_prefix_of_the_source(home: Home, mode: ForkMode) -> None:
    """First, middle and last: the history is the source's up to there."""
    source = write_thread(home, A, turns(4))
    whole = body_lines(source.read_bytes())
    for number in range(5):
        made = fork(home, source, uuid(0x10 + number), mode=mode, point=ForkPoint.turn(number))
        assert history(made.path, home) == whole[: number * 10]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.case("B69")
def test_fork_with_zero_turns_holds_nothing_but_metas(home: Home, mode: ForkMode) -> None:
    """A fresh start with the same instructions."""
    source = write_thread(home, A, turns(2))
    made = fork(home, source, B, mode=mode, point=ForkPoint.turn(0))
    assert history(made.path, home) == []
    assert made.border.end_ordinal == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.case("B71")
def test_fork_right_after_create_works(home: Home, mode: ForkMode) -> None:
    """A source that holds its meta alone has a history without records."""
    made = fork(home, write_thread(home, A, b""), B, mode=mode)
    assert history(made.path, home) == []
    append(made.path, turns(1, ordinal=made.border.end_ordinal))
    assert len(history(made.path, home)) == 10


@pytest.mark.parametrize("mode", MODES)
def test_fork_is_private_whatever_the_umask(home: Home, mode: ForkMode) -> None:
    """Mode 0600 in folders of 0700."""
    source = write_thread(home, A, turns(1))
    target = home.path / "sessions" / "2031" / "01" / "02" / f"rollout-2031-01-02T03-04-05-{B}.jsonl"
    before = os.umask(0o777)
    try:
        make_fork(source, target, thread_id=B, home=home, mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert {stat.S_IMODE(each.stat().st_mode) for each in list(target.parents)[:3]} == {0o700}


# Sources of all kinds


def family(home: Home) -> list[str]:
    """A thread, and reference forks of forks of it, each with a turn of its own."""
    paths = [str(write_thread(home, A, turns(3)))]
    for number in range(3):
        made = fork(home, paths[-1], uuid(0x20 + number), mode="reference", point=ForkPoint.turn(number + 2))
        append(made.path, turns(1, first=10 + number, ordinal=(made.border.end_ordinal or 0) + 1))
        paths.append(made.path)
    return paths


@pytest.mark.case("B69")
def test_fork_of_a_fork_of_a_fork_is_one_history(home: Home) -> None:
    """By reference and by copy the same; the copy needs none of the others."""
    paths = family(home)
    whole = history(paths[-1], home)
    assert len(whole) == 20 + 10 + 10 + 10
    for child_id, mode in ((B, "copy"), (C, "reference")):
        made = fork(home, paths[-1], child_id, mode=mode)
        assert history(made.path, home) == whole
    for path in paths:
        os.unlink(path)
    copied = place_of(home, B)
    assert history(copied, home) == whole
    assert Lineage.resolve(copied, home).problem is None


def test_copy_of_a_chain_holds_no_meta_in_its_midst(home: Home) -> None:
    """Codex forgets what stands before such a one; the oldest file's follows the child's own."""
    made = fork(home, family(home)[-1], B)
    kinds = [json.loads(each)["type"] for each in Path(made.path).read_bytes().splitlines()]
    assert kinds[:2] == ["session_meta"] * 2
    assert "session_meta" not in kinds[2:]


def test_reference_at_the_own_start_of_a_child_names_its_base(home: Home) -> None:
    """Nothing of the child itself counts, so the grandchild needs only the oldest file."""
    parent = write_thread(home, A, turns(2))
    child = fork(home, parent, B, mode="reference", point=ForkPoint.turn(1))
    append(child.path, turns(1, ordinal=10))
    grandchild = fork(home, child.path, C, mode="reference", point=ForkPoint.turn(1))
    assert grandchild.base == child.base
    os.unlink(child.path)
    assert history(grandchild.path, home) == body_lines(parent.read_bytes())[:10]


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_compressed_source_is_forked_by_its_decompressed_bytes(
    home: Home, mode: ForkMode, frames: int
) -> None:
    """At any point; the compressed file stays as it is."""
    data = meta(A) + turns(3)
    path = place_of(home, A)
    compressed = path.with_name(path.name + ".zst")
    cuts = [len(data) * each // frames for each in range(frames + 1)]
    packed = b"".join(zstandard.compress(data[start:end]) for start, end in pairwise(cuts))
    compressed.write_bytes(packed)
    made = fork(home, compressed, B, mode=mode, point=ForkPoint.turn(2))
    assert history(made.path, home) == body_lines(data)[:20]
    assert compressed.read_bytes() == packed
    assert not path.exists()


def test_compressed_source_is_decompressed_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is looked at until the fork is made."""
    path = place_of(home, A).with_suffix(".jsonl.zst")
    path.write_bytes(zstandard.compress(meta(A) + turns(3)))
    spools: list[str] = []
    original = open_rollout.spool
    monkeypatch.setattr(
        open_rollout, "spool", lambda name, blocks: spools.append(name) or original(name, blocks)
    )
    for number, mode in enumerate(MODES):
        fork(home, path, uuid(0x60 + number), mode=mode, point=ForkPoint.turn(2))
    assert spools == [str(path)] * 2


def test_damaged_compressed_source_is_refused_or_copied_in_part(home: Home) -> None:
    """Bytes are missing: nobody takes that for the history unasked."""
    data = meta(A) + turns(3)
    path = place_of(home, A).with_suffix(".jsonl.zst")
    path.write_bytes(zstandard.compress(data[:-200]) + zstandard.compress(data[-200:])[:-9])
    for mode in MODES:
        with pytest.raises(ForkRefused, match="zstd"):
            fork(home, path, B, mode=mode)
    made = fork(home, path, B, partial=True)
    assert history(made.path, home) == body_lines(data[:-200])[:-1]


def test_legacy_source_is_copied_and_stays_legacy(home: Home) -> None:
    """Nothing is numbered that was not; a reference to it is refused with what to do instead."""
    source = write_thread(home, A, turns(2, ordinal=None), ordinal=None)
    made = fork(home, source, B, point=ForkPoint.turn(1))
    data = Path(made.path).read_bytes()
    assert b'"ordinal"' not in data
    assert metas(made.path)[0]["history_mode"] == "legacy"
    assert "forked_from_ordinal_exclusive" not in metas(made.path)[0]
    assert history(made.path, home) == body_lines(source.read_bytes())[:10]
    with pytest.raises(ForkRefused, match=r"legacy rollout.*Copy it"):
        fork(home, source, C, mode="reference")


@pytest.mark.parametrize("mode", MODES)
def test_source_of_an_older_format_is_refused(home: Home, mode: ForkMode) -> None:
    """It can be read and imported; nothing is made."""
    source = place_of(home, A)
    source.write_bytes(b'{"id":"%s","timestamp":"x","instructions":null}\n' % A.encode())
    before = everything_in(home)
    with pytest.raises(NotARollout, match="import"):
        fork(home, source, B, mode=mode)
    assert everything_in(home) == before


def test_byte_order_mark_is_not_copied_into_the_midst(home: Home) -> None:
    """There it would be part of a line."""
    source = write_thread(home, A, turns(1))
    whole = source.read_bytes()
    source.write_bytes(b"\xef\xbb\xbf" + whole)
    made = fork(home, source, B)
    assert Path(made.path).read_bytes().endswith(b"\n" + whole)


@pytest.mark.parametrize("mode", MODES)
def test_source_that_is_being_written_is_cut_at_its_last_newline(home: Home, mode: ForkMode) -> None:
    """A half line is in flight, and what comes later is not the fork's."""
    source = write_thread(home, A, turns(2))
    whole = history(source, home)
    append(source, b'{"timestamp":"2026')
    made = fork(home, source, B, mode=mode)
    append(source, b'-03-04T05:06:07.000Z","ordinal":17,"type":"x","payload":{}}\n')
    assert history(made.path, home) == whole
    assert Lineage.resolve(made.path, home).problem is None


@pytest.mark.parametrize("mode", MODES)
def test_forks_of_a_source_under_a_busy_writer_are_prefixes(home: Home, mode: ForkMode) -> None:
    """Lines arrive in pieces all the while; each fork is whole and ends at one of them."""
    source = write_thread(home, A, b"")
    lines = body_lines(turns(300))
    stop = threading.Event()

    def write() -> None:
        with source.open("ab", buffering=0) as file:
            for each in lines:
                middle = len(each) // 2
                file.write(each[:middle])
                file.write(each[middle:] + b"\n")
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [fork(home, source, uuid(0x400 + number), mode=mode) for number in range(15)]
    finally:
        stop.set()
        writer.join()
    taken = [history(each.path, home) for each in made]
    assert all(each == lines[: len(each)] for each in taken)
    assert [len(each) for each in taken] == sorted(len(each) for each in taken)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.case("B68")
def test_parent_and_child_do_not_see_what_the_other_appends(home: Home, mode: ForkMode) -> None:
    """From the fork on they are two threads."""
    source = write_thread(home, A, turns(1))
    made = fork(home, source, B, mode=mode)
    common = history(source, home)
    append(source, turns(1, first=5, ordinal=9))
    append(made.path, turns(1, first=7, ordinal=10))
    assert history(source, home) == common + body_lines(turns(1, first=5, ordinal=9))
    assert history(made.path, home) == common + body_lines(turns(1, first=7, ordinal=10))


@pytest.mark.parametrize("mode", MODES)
def test_source_keeps_its_bytes_and_times(home: Home, mode: ForkMode) -> None:
    """It is only read: not even its time of change moves."""
    source = write_thread(home, A, turns(1))
    os.utime(source, ns=(10**18, 10**18))
    source.chmod(0o400)
    before = (source.read_bytes(), source.stat().st_mtime_ns, source.stat().st_ino)
    fork(home, source, B, mode=mode)
    assert (source.read_bytes(), source.stat().st_mtime_ns, source.stat().st_ino) == before


# Refusals


@pytest.mark.parametrize("mode", MODES)
def test_broken_chain_is_refused_and_copied_in_part_on_demand(home: Home, mode: ForkMode) -> None:
    """A fork must not lack what its source has lost without anybody saying so."""
    paths = family(home)
    os.unlink(paths[0])
    before = everything_in(home)
    with pytest.raises(ForkRefused, match=f"{A} is not in"):
        fork(home, paths[-1], B, mode=mode)
    assert everything_in(home) == before
    if mode == "copy":
        made = fork(home, paths[-1], B, mode=mode, partial=True)
        assert history(made.path, home) == history(paths[-1], home)


@pytest.mark.parametrize("mode", MODES)
def test_unknown_point_makes_nothing(home: Home, mode: ForkMode) -> None:
    """The refusal comes before any file."""
    source = write_thread(home, A, turns(1))
    before = everything_in(home)
    with pytest.raises(ForkPointInvalid):
        fork(home, source, B, mode=mode, point=ForkPoint.turn(7))
    assert everything_in(home) == before


def test_reference_to_a_file_that_no_id_finds_is_refused(home: Home, tmp_path: Path) -> None:
    """Outside the home, or under a name that is no rollout's; a copy of it is made all the same."""
    outside = tmp_path / "elsewhere.jsonl"
    outside.write_bytes(meta(A) + turns(1))
    odd = place_of(home, A).with_name("odd.jsonl")
    odd.write_bytes(outside.read_bytes())
    for number, source in enumerate((outside, odd)):
        with pytest.raises(ForkRefused, match="not found in"):
            fork(home, source, B, mode="reference")
        assert history(fork(home, source, uuid(0x50 + number)).path, home) == body_lines(outside.read_bytes())


def test_paginated_source_without_ordinals_is_copied_only(home: Home) -> None:
    """Nothing could say where its child goes on."""
    source = write_thread(home, A, turns(1, ordinal=None), ordinal=None, history_mode="paginated")
    with pytest.raises(ForkRefused, match="no ordinals"):
        fork(home, source, B, mode="reference")
    assert history(fork(home, source, B).path, home) == body_lines(source.read_bytes())


@pytest.mark.parametrize("mode", MODES)
def test_what_stands_at_the_target_is_never_replaced(home: Home, mode: ForkMode) -> None:
    """A file, a folder, and a link that leads nowhere."""
    source = write_thread(home, A, turns(1))
    target = place_of(home, B)
    for put in (lambda: target.write_bytes(b"mine"), target.mkdir, lambda: target.symlink_to("nowhere")):
        put()
        with pytest.raises(RolloutExists):
            fork(home, source, B, mode=mode)
        assert os.path.lexists(target)
        target.rmdir() if target.is_dir() else target.unlink()
    assert [path.name for path in target.parent.iterdir()] == [source.name]


def test_name_and_id_of_the_target_must_agree(home: Home) -> None:
    """Codex finds no thread whose name says something else than its meta."""
    source = write_thread(home, A, turns(1))
    with pytest.raises(ForkRefused, match="name"):
        make_fork(source, place_of(home, C), thread_id=B, home=home)
    with pytest.raises(InvalidThreadId):
        make_fork(source, place_of(home, C), thread_id="../x", home=home)


def test_meta_that_codex_could_not_read_is_not_written(home: Home) -> None:
    """An unknown history mode makes a file that is lost to it; values without a JSON form are refused too."""
    source = write_thread(home, A, turns(1), history_mode="of a later version")
    with pytest.raises(ItemNotEncodable, match="history_mode"):
        fork(home, source, B)
    known = write_thread(home, C, turns(1))
    with pytest.raises(ItemNotEncodable):
        fork(home, known, B, meta_changes={"x_task": float("nan")})
    assert len(list(home.rollouts())) == 2


def test_meta_without_what_codex_requires_gets_it(home: Home) -> None:
    """Old or foreign metas lack keys, or have them of a wrong type: the fork's can be read."""
    source = place_of(home, A)
    source.write_bytes(line("session_meta", {"id": A, "cwd": 7, "history_mode": "paginated"}, 0) + turns(1))
    made = metas(fork(home, source, B).path)[0]
    required = ("id", "timestamp", "cwd", "originator", "cli_version")
    assert all(isinstance(made[key], str) for key in required)


def test_reference_outside_the_home_of_its_base_is_refused(home: Home, tmp_path: Path) -> None:
    """There nothing would find the base; a copy may lie anywhere."""
    source = write_thread(home, A, turns(1))
    outside = tmp_path / f"rollout-2026-03-04T05-06-07-{B}.jsonl"
    with pytest.raises(ForkRefused, match="home of its base"):
        make_fork(source, outside, thread_id=B, home=home, mode="reference")
    assert not outside.exists()
    made = make_fork(source, outside, thread_id=B, home=home)
    assert history(made.path, home) == body_lines(source.read_bytes())


# Making a reference


def test_reference_gets_its_name_under_the_coordination_lock(home: Home) -> None:
    """And its base is still there at that moment; a copy needs no lock."""
    source = write_thread(home, A, turns(1))
    seen: list[bool] = []

    @contextmanager
    def held() -> Iterator[None]:
        seen.append(place_of(home, B).exists())
        yield
        seen.append(place_of(home, B).exists())

    fork(home, source, B, mode="reference", coordination=held())
    assert seen == [False, True]
    fork(home, source, C, coordination=held())
    assert len(seen) == 2


def test_base_that_is_deleted_before_the_reference_is_made_refuses_it(home: Home) -> None:
    """Whoever deletes it holds the same lock, so one of the two sees the other."""
    source = write_thread(home, A, turns(1))

    @contextmanager
    def deleting() -> Iterator[None]:
        source.unlink()
        yield

    with pytest.raises(ThreadNotFound):
        fork(home, source, B, mode="reference", coordination=deleting())
    assert everything_in(home) == {}


def test_base_is_durable_before_the_reference_has_a_name(home: Home) -> None:
    """Source synced, then the child, then its name, then the folders up to the home."""
    source = write_thread(home, A, turns(1))
    calls = ScriptedCalls()
    fork(home, source, B, mode="reference", calls=calls)
    names = [name for name, _ in calls.log if name in ("datasync", "link", "sync_folder", "write")]
    assert names == ["datasync", *["sync_folder"] * 5, "write", "datasync", "link", *["sync_folder"] * 5]
    assert calls.log[-1][1] == (str(home.path),)


def test_base_whose_sync_failed_is_not_believed_at_the_second_try(home: Home) -> None:
    """The system tells of it once, and counts the pages as clean: a sync that succeeds then proves nothing.
    Its writer can vouch for it, and a copy has pages of its own."""
    source = write_thread(home, A, turns(1))
    with pytest.raises(RolloutWriteError):
        fork(home, source, B, mode="reference", calls=ScriptedCalls(Fault("datasync", fails(5))))
    with pytest.raises(RolloutWriteError, match="copy"):
        fork(home, source, B, mode="reference")
    fork(home, source, B, mode="reference", synced=[str(source)])
    fork(home, source, C)


# One history, three ways to it

_STEP = st.tuples(
    st.sampled_from(["turn", "own", "damaged", "blank", "compacted", "message"]), st.integers(0, 9)
)


@given(st.lists(st.lists(_STEP, max_size=6), min_size=1, max_size=4), st.data())
def test_reference_copy_and_prefix_of_the_source_are_one(
    tmp_path_factory: pytest.TempPathFactory, generations: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    """Through forks of forks: a reference reads as a copy does, and as the records before the point."""
    home = Home(tmp_path_factory.mktemp("home"))
    path: str = str(write_thread(home, A, _body(generations[0], 1)))
    for number, steps in enumerate(generations):
        whole = history(path, home)
        count = data.draw(st.integers(0, len(_ordinals(whole))))
        point = ForkPoint.end()
        taken = whole
        if count < len(_ordinals(whole)):
            ordinal = _ordinals(whole)[count]
            point = ForkPoint.before_ordinal(ordinal)
            taken = whole[: [_ordinal(each) for each in whole].index(ordinal)]
        copied = fork(home, path, uuid(0x300 + number), point=point)
        referred = fork(home, path, uuid(0x200 + number), point=point, mode="reference")
        assert history(copied.path, home) == history(referred.path, home) == taken
        assert copied.border == referred.border
        path = data.draw(st.sampled_from([copied.path, referred.path]))
        append(path, _body(steps, (referred.border.end_ordinal or 0) + (path == referred.path)))


def _body(steps: list[tuple[str, int]], ordinal: int) -> bytes:
    script = Script(ordinal)
    for name, number in steps:
        if name == "turn":
            script.turn(number)
        elif name == "own":
            script.add("x_state", {"from": "a", "to": number})
        elif name == "damaged":
            script.lines.append(b"\0" * number + b"{\n")
        elif name == "blank":
            script.lines.append(b" \n\n")
        elif name == "compacted":
            script.compacted(f"summary {number}")
        else:
            script.response("assistant", f"é {number}")
    return script.bytes


def _ordinal(data: bytes) -> int | None:
    found: int | None = json.loads(data).get("ordinal")
    return found


def _ordinals(lines: list[bytes]) -> list[int]:
    return [number for number in map(_ordinal, lines) if number is not None]


@pytest.mark.parametrize("mode", MODES)
def test_fork_is_a_rollout_without_damage(home: Home, mode: ForkMode) -> None:
    """The plain reader finds no warning in what was made."""
    made = fork(home, write_thread(home, A, turns(2)), B, mode=mode)
    with read_rollout(made.path) as reader:
        assert not [each.warning for each in reader if each.warning]
        assert reader.thread_id == B


def test_errors_of_a_fork_are_of_this_library(home: Home) -> None:
    """A source that isn't there, a folder, and a text that is no path of a rollout."""
    for source in (home.path / "nowhere.jsonl", home.path, place_of(home, A)):
        with pytest.raises(RolloutError):
            fork(home, source, B)


# Going on in a fork


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.asyncio
async def test_recorder_goes_on_in_a_fork(home: Home, mode: ForkMode) -> None:
    """Its records are numbered behind the history, and the source sees none of them."""
    source = write_thread(home, A, turns(2))
    before = source.read_bytes()
    made = fork(home, source, B, mode=mode)
    async with await RolloutRecorder.open(made.path) as recorder:
        await recorder.record(ResponseItem.message("assistant", "in the child"))
    lines = history(made.path, home)
    assert lines[:20] == body_lines(before)
    added = [json.loads(each) for each in lines[20:]]
    assert [each["type"] for each in added] == ["x_writer", "response_item", "x_writer"]
    assert added[1]["ordinal"] == (made.border.end_ordinal or 0) + (mode == "reference")
    assert source.read_bytes() == before
    assert Lineage.resolve(made.path, home).problem is None
