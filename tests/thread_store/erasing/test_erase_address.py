"""A record that is named: one item, with everything that tells the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from protocol.errors import ThreadNotFound
from protocol.line import decode_line
from tests.thread_store.erasing.homes import CHILD, COPY, PARENT, QUIET, files_holding, memory_line
from tests.thread_store.histories import Script, base_of, dump, meta, place_of, turns, write_thread
from thread_store import LocalThreads
from thread_store.chain.fork_point import ForkPoint
from thread_store.erasing.erase import ErasureReport
from thread_store.erasing.erase_address import NamedRecord
from thread_store.erasing.errors import EraseRefused
from thread_store.erasing.needle import Needle
from thread_store.home import Home

LONG = "a long prompt that nobody types twice"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def erase(home: Home, ordinal: int | None = None, *, offset: int | None = None) -> ErasureReport:
    with LocalThreads(home) as store:
        return store.erase([PARENT], record=NamedRecord(ordinal=ordinal, offset=offset))


def kinds(path: Path) -> list[str | None]:
    return [decode_line(each).type for each in path.read_bytes().splitlines()]


def said(text: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_both_tracks_of_a_message_go(home: Home) -> None:
    """Whichever of its records is named; the same words said another time stay, where they are few."""
    for ordinal in (1, 2, 3):
        script = Script(1)
        script.user("go on")
        script.response("assistant", "done")
        script.user("go on")
        path = write_thread(home, PARENT, script.bytes)
        erase(home, ordinal)
        assert kinds(path)[1:5] == ["x_erased"] * 3 + ["response_item"]
        assert kinds(path).count("x_erased") == 3


def test_call_goes_with_its_result(home: Home) -> None:
    """As it is shown: one item."""
    script = Script(1)
    script.call("c1")
    script.add("x_call", {"call_id": "c1", "state": "started", "kind": "shell"})
    script.output("c1")
    script.response("assistant", "quiet")
    path = write_thread(home, PARENT, script.bytes)
    erase(home, 1)
    assert kinds(path)[-1] == "response_item"
    assert kinds(path)[1] == "x_erased"
    assert b"function_call" not in path.read_bytes()


def test_two_calls_that_printed_alike_are_two_items(home: Home) -> None:
    """What was printed twice is no quotation."""
    script = Script(1)
    for call_id in ("c1", "c2"):
        script.call(call_id)
        printed = {"type": "function_call_output", "call_id": call_id, "output": f"printed {LONG}"}
        script.add("response_item", printed)
    path = write_thread(home, PARENT, script.bytes)
    erase(home, 2)
    assert kinds(path)[1:] == ["x_erased", "x_erased", "response_item", "response_item"]


def test_checkpoint_that_repeats_it_goes(home: Home) -> None:
    """Though its text is short: the item is the same."""
    script = Script(1)
    script.response("user", "hi")
    script.add("compacted", {"message": "m", "replacement_history": [said("hi")]})
    script.add("compacted", {"message": "m", "replacement_history": [said("other")]})
    path = write_thread(home, PARENT, script.bytes)
    erase(home, 1)
    assert kinds(path) == ["session_meta", "x_erased", "x_erased", "compacted"]


def test_what_repeats_a_long_text_goes_everywhere(home: Home) -> None:
    """Prompt history, title, snapshots, a later quotation; a copy in a fork is named."""
    script = Script(1)
    script.user(LONG)
    script.response("assistant", f"you said: {LONG}")
    data = meta(PARENT) + script.bytes
    path = place_of(home, PARENT)
    path.write_bytes(data + memory_line(data, LONG))
    write_thread(home, COPY, script.bytes)
    (home.path / "history.jsonl").write_bytes(
        b"".join(dump({"session_id": each, "ts": 1, "text": LONG}) + b"\n" for each in (PARENT, QUIET))
    )
    report = erase(home, 1)
    assert not Needle.text(LONG).is_in(path.read_bytes())
    assert {each.thread_id for each in report.plan.copies} == {COPY, QUIET}
    assert len(files_holding(home, Needle.text(LONG))) == 2


def test_snapshots_behind_it_go(home: Home) -> None:
    """They were made of it, whatever they say; those before it stay."""
    script = Script(1)
    script.response("user", "one")
    data = meta(PARENT) + script.bytes
    data += memory_line(data, "before")
    offset = len(data)
    later = Script(2)
    later.response("user", "two")
    data += later.bytes
    path = place_of(home, PARENT)
    path.write_bytes(data + memory_line(data, "behind"))
    erase(home, offset=offset)
    assert kinds(path) == ["session_meta", "response_item", "x_memory", "x_erased", "x_erased"]


def test_record_without_a_number_is_named_by_its_place(home: Home) -> None:
    """`THREAD@offset`."""
    script = Script(1)
    script.add("x_state", {"to": "odd", "reason": "secret"})
    path = write_thread(home, PARENT, script.bytes)
    erase(home, offset=len(meta(PARENT)))
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("where", [{"ordinal": 77}, {"ordinal": None, "offset": 3}])
def test_record_that_is_not_there_is_not_found(home: Home, where: dict[str, int]) -> None:
    """Nothing is changed."""
    path = write_thread(home, PARENT, turns(1))
    before = path.read_bytes()
    with pytest.raises(ThreadNotFound):
        erase(home, where["ordinal"], offset=where.get("offset"))
    assert path.read_bytes() == before


def test_first_line_is_refused(home: Home) -> None:
    """Without it the file is no thread's."""
    path = write_thread(home, PARENT, turns(1))
    before = path.read_bytes()
    with pytest.raises(EraseRefused):
        erase(home, 0)
    assert path.read_bytes() == before


def test_record_that_another_thread_shares_is_refused_and_says_where(home: Home) -> None:
    """It stands in the file of the thread that was forked: to erase it is to change that."""
    parent = write_thread(home, PARENT, turns(1))
    size = parent.stat().st_size
    base = base_of(parent, PARENT, size, 9)
    write_thread(home, CHILD, turns(1, first=5, ordinal=10), history_base=base, ordinal=9)
    with LocalThreads(home) as store:
        with pytest.raises(EraseRefused) as caught:
            store.erase([CHILD], record=NamedRecord(ordinal=2))
        assert caught.value.thread_id == PARENT
        assert store.erase([CHILD], record=NamedRecord(ordinal=10)).done


def test_record_before_a_revert_is_erased_in_the_older_file(home: Home) -> None:
    """It is the same thread's."""
    path = write_thread(home, PARENT, turns(2))
    with LocalThreads(home) as store:
        store.revert(PARENT, point=ForkPoint.before_turn(2)).core.writer.discard()
    assert home.find_thread(PARENT) != path
    erase(home, 2)
    assert b"question 1" not in path.read_bytes()
    assert b"question 2" in path.read_bytes()


@pytest.mark.parametrize("shared", [False, True])
def test_blob_of_a_record_goes_unless_another_one_names_it(home: Home, shared: bool) -> None:
    """What was too large for the record is a part of it."""
    name = hashlib.sha256(b"all of it").hexdigest()
    blob = home.path / "blobs" / name
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"all of it")
    script = Script(1)
    for call_id in ("c1", "c2"):
        script.call(call_id)
        output = f"begin blob sha256:{name} end" if shared or call_id == "c1" else "small"
        payload = {"type": "function_call_output", "call_id": call_id, "output": output}
        script.add("response_item", payload)
    write_thread(home, PARENT, script.bytes)
    erase(home, 2)
    assert blob.exists() == shared


def test_erased_record_is_found_by_its_number_again(home: Home) -> None:
    """And erasing it once more changes only when it was."""
    path = write_thread(home, PARENT, turns(1))
    erase(home, 2)
    size = path.stat().st_size
    assert erase(home, 2).done
    assert path.stat().st_size == size
    assert decode_line(path.read_bytes().splitlines()[2]).number == 2
