"""Erasing: it is nowhere then, and everything else is what it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from protocol.errors import ActiveWriter
from protocol.line import decode_line
from rollout import read_rollout
from rollout.check import Severity, check_rollout
from rollout.scanner import ReverseJsonlScanner
from rollout.unwritten import read_unwritten
from tests.thread_store.erasing.homes import (
    CANARY,
    CHILD,
    COPY,
    NEEDLE,
    PACKED,
    PARENT,
    QUIET,
    erased_offsets,
    files_holding,
    full_home,
    tree,
    unpacked,
)
from tests.thread_store.histories import Script, dump, line, meta, place_of, turns, uuid, write_thread
from thread_store import LocalThreads, LocalThreadStore
from thread_store.chain.lineage import Lineage
from thread_store.erasing.erase import Erasure, ErasureReport
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.needle import Needle
from thread_store.home import Home
from thread_store.resume.resume_state import read_resume_state


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def erase(home: Home, *threads: str, needle: Needle = NEEDLE, reason: str | None = "pasted") -> ErasureReport:
    with LocalThreads(home) as store:
        return store.erase(threads or None, needle=needle, reason=reason)


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines()


@pytest.mark.case("B102")
def test_what_is_erased_everywhere_is_in_no_byte_of_the_home(home: Home) -> None:
    """Records of both tracks, checkpoints, snapshots, meta, titles, prompts, kept files, blobs, compressed
    and archived rollouts, derived files, what a killed program left."""
    full_home(home)
    assert len(files_holding(home)) == 10
    report = erase(home)
    assert report.done
    assert report.left == []
    assert files_holding(home) == []


def test_every_other_byte_stays_where_it_was(home: Home) -> None:
    """Each file is as long as before, and a line that didn't hold it, and wasn't made of it, is the same."""
    paths = full_home(home)
    before = {thread_id: unpacked(path) for thread_id, path in paths.items()}
    erase(home)
    for thread_id, path in paths.items():
        after = unpacked(path)
        changed = erased_offsets(before[thread_id], after)
        for offset in changed:
            old = before[thread_id][offset:].partition(b"\n")[0]
            assert NEEDLE.is_in(old) or b'"type":"x_memory"' in old
    assert unpacked(paths[QUIET]) == before[QUIET]


def test_only_the_threads_that_were_meant_are_changed_and_others_are_named(home: Home) -> None:
    """A copy in a fork is another thread's: it is told of, and so is its title."""
    paths = full_home(home)
    before = {thread_id: path.read_bytes() for thread_id, path in paths.items()}
    report = erase(home, PARENT)
    assert {each.thread_id for each in report.plan.copies} == {COPY, PACKED}
    assert paths[COPY].read_bytes() == before[COPY]
    assert paths[PACKED].read_bytes() == before[PACKED]
    names = {json.loads(each)["id"]: json.loads(each)["thread_name"] for each in titles(home)}
    assert names[COPY] == f"copy {CANARY}"
    assert CANARY not in names[PARENT]
    assert not NEEDLE.is_in(paths[PARENT].read_bytes())


def titles(home: Home) -> list[bytes]:
    return (home.path / "session_index.jsonl").read_bytes().splitlines()


def test_numbers_are_dense_and_both_directions_read_the_same(home: Home) -> None:
    """An erased record keeps its number; forward and backward give the same records."""
    paths = full_home(home)
    erase(home)
    for path in (paths[PARENT], paths[CHILD]):
        forward = [each.line.source for each in read_rollout(path) if each.line is not None]
        with ReverseJsonlScanner(path) as records:
            backward = [each.line.source for each in records if each.line is not None]
        assert forward == backward[::-1]
    numbers = [decode_line(each).number for each in lines_of(paths[COPY].read_bytes())]
    own = [each for each in numbers[1:] if each is not None]
    assert own == list(range(len(own)))


def test_check_finds_no_new_damage(home: Home) -> None:
    """What was in order is; what was damaged before (two records on one line) is told as before."""
    paths = full_home(home)
    before = {path: codes(path) for path in paths.values()}
    erase(home)
    for path in paths.values():
        assert codes(path) <= before[path]


def codes(path: Path) -> set[str]:
    return {each.code for each in check_rollout(path).findings if each.severity is not Severity.NOTE}


def test_fork_that_rests_on_an_erased_line_still_verifies(home: Home) -> None:
    """The border is where it was, and the erased line says what it had been."""
    paths = full_home(home)
    with Lineage.resolve(paths[CHILD], home) as lineage:
        assert lineage.problem is None
        end = lineage.segments[0].end
    before = paths[PARENT].read_bytes()
    assert NEEDLE.is_in(before[:end].splitlines()[-1])
    for _ in range(2):  # also when what stands there now is erased once more
        erase(home, reason="second-reason")
        with Lineage.resolve(paths[CHILD], home) as lineage:
            assert lineage.problem is None
        erase(home, needle=Needle.text("second-reason"), reason=None)


def test_state_is_that_of_the_history_without_the_records(home: Home, tmp_path: Path) -> None:
    """No snapshot tells what an erased record said: not in the thread, not in what rests on it."""
    paths = full_home(home)
    erase(home)
    other = Home(tmp_path / "other")
    for thread_id in (PARENT, CHILD):
        place_of(other, thread_id).write_bytes(
            b"".join(
                b" " * len(each) + b"\n" if b'"type":"x_memory"' in each else each + b"\n"
                for each in lines_of(paths[thread_id].read_bytes())
            )
        )
    for thread_id in (PARENT, CHILD):
        found = read_resume_state(paths[thread_id], home, deep=True)
        wanted = read_resume_state(place_of(other, thread_id), other, deep=True)
        assert [each.call_id for each in found.calls] == [each.call_id for each in wanted.calls]
        assert found.memory == wanted.memory
        assert [each.payload for each in found.items] == [each.payload for each in wanted.items]
        assert read_resume_state(paths[thread_id], home).memory == wanted.memory


def test_long_thread_resumes_from_its_end_though_its_snapshots_went(home: Home) -> None:
    """A derived snapshot takes their place, so that not everything must be read again."""
    script = Script(1)
    script.user(CANARY)
    for number in range(500):
        script.turn(number)
    path = write_thread(home, PARENT, script.bytes)
    erase(home)
    assert (home.path / "thread-store" / "derived" / f"{PARENT}.snapshot").exists()
    with LocalThreads(home) as store, Lineage.resolve(path, home) as lineage:
        found = store.derived.find(lineage)
        assert found is not None
        assert found.whole


def test_first_line_keeps_whose_file_it_is(home: Home) -> None:
    """What it was told is masked, with as many bytes; ids, time and mode stay."""
    paths = full_home(home)
    old = decode_line(lines_of(paths[PARENT].read_bytes())[0])
    erase(home)
    new = decode_line(lines_of(paths[PARENT].read_bytes())[0])
    before, after = old.payload_object(), new.payload_object()
    assert after["x_task"].startswith("use ***")
    assert {key: each for key, each in after.items() if key != "x_task"} == {
        key: each for key, each in before.items() if key != "x_task"
    }


def test_text_in_an_id_is_refused_and_nothing_changes(home: Home) -> None:
    """Without its ids a file is nobody's."""
    paths = full_home(home)
    before = {path: path.read_bytes() for path in paths.values()}
    with pytest.raises(EraseRefused):
        erase(home, needle=Needle.text(PARENT[-12:]))
    assert {path: path.read_bytes() for path in paths.values()} == before


def test_text_of_the_erased_line_itself_is_refused_or_left_out(home: Home) -> None:
    """What would stand there again can't be erased so; then only the number is kept, or nothing is done."""
    path = write_thread(home, PARENT, line("event_msg", {"type": "agent_message", "message": "x_erased"}, 1))
    erase(home, needle=Needle.text("x_erased"))
    assert path.read_bytes().splitlines()[1].rstrip() == b'{"ordinal":1}'
    with pytest.raises(EraseRefused):
        erase(home, needle=Needle.text("ordinal"))
    with pytest.raises(EraseRefused):
        erase(home, needle=Needle.text("pasted"), reason="it was pasted")


def test_thread_that_is_open_is_refused_and_named(home: Home) -> None:
    """Also where this very process has it open."""
    paths = full_home(home)
    with LocalThreads(home) as store:
        opened = store.open(PARENT)
        before = paths[PARENT].read_bytes()
        with pytest.raises(ActiveWriter) as caught:
            store.erase(None, needle=NEEDLE)
        assert caught.value.holder.pid == os.getpid()
        assert paths[PARENT].read_bytes() == before
        opened.core.writer.discard()


def test_open_fork_of_what_is_erased_is_refused(home: Home) -> None:
    """Its writer folded the older file: its next snapshot would tell of it."""
    full_home(home)
    with LocalThreads(home) as store:
        opened = store.open(CHILD)
        with pytest.raises(ActiveWriter) as caught:
            store.erase([PARENT], needle=NEEDLE)
        assert caught.value.thread_id == CHILD
        opened.core.writer.discard()


def test_thread_goes_on_with_the_next_number(home: Home) -> None:
    """Though its last record was erased."""
    path = write_thread(
        home, PARENT, turns(1) + line("event_msg", {"type": "agent_message", "message": CANARY}, 9)
    )
    last = max(decode_line(each).number or 0 for each in lines_of(path.read_bytes()))
    erase(home)
    with LocalThreads(home) as store:
        opened = store.open(PARENT)
        from protocol.events import EventMsg

        opened.core.pending.append(EventMsg.agent_message("next"))
    numbers = [decode_line(each).number for each in lines_of(path.read_bytes())]
    assert last + 1 in numbers
    assert not [each for each in check_rollout(path).findings if each.code.startswith("ordinal")]


def test_unwritten_items_can_still_be_replayed(home: Home) -> None:
    """Their header agrees with what is left, and the erased one comes as an erased record."""
    full_home(home)
    erase(home)
    (path,) = (home.path / "thread-store" / "kept").glob("*.unwritten")
    kinds = [decode_line(each.rstrip(b"\n")).type for each in read_unwritten(path).lines]
    assert kinds == ["event_msg", "x_erased"]


def test_second_erasure_finds_nothing(home: Home) -> None:
    """And changes nothing."""
    full_home(home)
    erase(home)
    before = {path: path.read_bytes() for path in tree(home.path)}
    report = erase(home)
    assert not report.done
    assert {path: path.read_bytes() for path in before} == before


def test_other_files_are_named_and_left(home: Home) -> None:
    """What isn't this library's is for its owner to see to."""
    full_home(home)
    notes = home.path / "notes.txt"
    notes.write_text(f"remember {CANARY}")
    report = erase(home)
    assert report.plan.elsewhere == [os.fspath(notes)]
    assert files_holding(home) == ["notes.txt"]


@pytest.mark.case("B131")
def test_of_two_records_on_one_line_only_the_one_that_holds_it_goes(home: Home) -> None:
    """The other one is still there byte for byte, to be saved by hand."""
    whole = line("event_msg", {"type": "agent_message", "message": "saved"}, 1).removesuffix(b"\n")
    held = line("event_msg", {"type": "agent_message", "message": CANARY}, 2)
    path = write_thread(home, PARENT, whole + held)
    erase(home)
    data = path.read_bytes()
    assert whole in data
    assert b'"x_erased","payload":{"ordinal":2' in data


@pytest.mark.case("B103")
def test_other_ids_hashes_and_signed_blocks_stay(home: Home) -> None:
    """A record that doesn't hold it is never touched, whatever it is."""
    script = Script(1)
    script.add("response_item", {"type": "reasoning", "encrypted_content": "Z" * 90, "summary": []})
    script.add("x_files", {"path": "/p", "sha256": "ab" * 32})
    script.user(CANARY)
    path = write_thread(home, PARENT, script.bytes)
    before = path.read_bytes()
    erase(home)
    assert path.read_bytes().splitlines()[:3] == before.splitlines()[:3]


def test_legacy_file_without_numbers_and_old_formats_are_erased_too(home: Home) -> None:
    """Bare items of an old format have no envelope; a line too short for more becomes blank."""
    content = [{"type": "input_text", "text": CANARY}]
    bare = dump({"type": "message", "role": "user", "content": content})
    path = place_of(home, PARENT)
    path.write_bytes(meta(PARENT, None) + bare + b'\n{"k":"abcd"}\n')
    erase(home)
    erase(home, needle=Needle.text("abcd"))
    assert codes(path) <= {"not_an_object", "no_timestamp"}
    assert path.read_bytes().endswith(b"\n            \n")
    assert files_holding(home) == []


def test_file_in_no_home_is_erased_with_what_was_kept_beside_it(tmp_path: Path) -> None:
    """Under the lock of the file itself; the journal lies beside it, and goes."""
    path = tmp_path / "alone.jsonl"
    path.write_bytes(meta(uuid(1)) + line("event_msg", {"type": "agent_message", "message": CANARY}, 1))
    beside = tmp_path / "alone.jsonl.5-6-0123abcd.torn"
    beside.write_bytes(dump(CANARY))
    report = Erasure(None, path=path, needle=NEEDLE).carry_out()
    assert report.left == []
    assert not NEEDLE.is_in(path.read_bytes())
    assert not NEEDLE.is_in(beside.read_bytes())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["alone.jsonl", beside.name]


def test_pattern_is_looked_for_in_each_value(home: Home) -> None:
    """Within JSON in JSON too, and never across two values."""
    script = Script(1)
    script.response("user", "key sk-ABCDEF123456 here")
    script.response("user", "harmless")
    script.add(
        "response_item",
        {"type": "function_call", "name": "n", "call_id": "c", "arguments": '{"k":"sk-\\u0041BCDEF99"}'},
    )
    path = write_thread(home, PARENT, script.bytes)
    erase(home, needle=Needle.pattern(r"^\{?.*sk-[A-Z]{6}\d{2,}"))
    kinds = [decode_line(each).type for each in lines_of(path.read_bytes())]
    assert kinds == ["session_meta", "x_erased", "response_item", "x_erased"]


@pytest.mark.asyncio
async def test_store_erases_off_its_loop(home: Home) -> None:
    """The same for code with a loop."""
    full_home(home)
    async with LocalThreadStore(home.path) as store:
        dry = await store.erase([PARENT], needle=NEEDLE, dry_run=True)
        assert not dry.done
        assert PARENT in {each.thread_id for each in dry.plan.records}
        assert NEEDLE.is_in(place_of(home, PARENT).read_bytes())
        assert (await store.erase(needle=NEEDLE)).done
    assert files_holding(home) == []


def test_plan_shows_nothing_of_it(home: Home) -> None:
    """What a person is shown has asterisks in its place."""
    full_home(home)
    with LocalThreads(home) as store:
        plan = store.erase(None, needle=NEEDLE, dry_run=True).plan
    assert any("***" in each.shown for each in plan.records)
    assert not any(NEEDLE.is_in(each.shown.encode(errors="surrogatepass")) for each in plan.records)
