"""Thread ids: ordered when made, checked before they can become a path."""

from __future__ import annotations

import copy
import os
import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import InvalidThreadId, ThreadId, ids


def test_new_id_is_a_uuid_of_version_7() -> None:
    """A fresh id is an RFC 9562 UUIDv7 with the present time in it."""
    made = uuid.UUID(ThreadId.new())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert abs((made.int >> 80) - ids.time.time_ns() // 1_000_000) < 60_000


def test_new_ids_increase_within_the_process() -> None:
    """Ids of one process sort by when they were made, also within one millisecond."""
    made = [ThreadId.new() for _ in range(5000)]
    assert made == sorted(set(made))


def test_new_ids_increase_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back doesn't make ids that sort before earlier ones."""
    before = ThreadId.new()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000_000)
    assert before < ThreadId.new() < ThreadId.new()


def test_new_ids_of_many_threads_are_distinct() -> None:
    """Threads never make the same id."""
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: ThreadId.new(), range(2000)))
    assert len(set(made)) == len(made)


@pytest.mark.case("B36")
def test_id_lock_held_at_fork_is_free_in_the_child() -> None:
    """A fork while another thread makes an id leaves a child that can make ids."""
    held = ids._lock
    with held:
        child = os.fork()
        if child == 0:
            usable = ids._lock.acquire(timeout=5)
            os._exit(0 if usable else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_parse_takes_any_version_and_case() -> None:
    """Ids of other programs are taken whatever their version; the text becomes lower case."""
    for text in (
        "01960000-0000-7000-8000-000000000100",
        str(uuid.uuid4()),
        "A" * 8 + "-AAAA-1AAA-8AAA-" + "A" * 12,
    ):
        assert ThreadId.parse(text) == text.lower()


@pytest.mark.case("B104")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "../x",
        "/etc/passwd",
        "01960000-0000-7000-8000-00000000010",
        "01960000-0000-7000-8000-0000000001000",
        "01960000-0000-7000-8000-000000000100\n",
        "01960000-0000-7000-8000-000000000100\0",
        "01960000000070008000000000000100",
        "{01960000-0000-7000-8000-000000000100}",
        "urn:uuid:01960000-0000-7000-8000-000000000100",
        "01960000-0000-7000-8000-00000000010\u0661",
        "..-0000-7000-8000-000000000100",
        "tsam-pxs-472",
        None,
        7,
    ],
)
def test_text_that_is_no_uuid_never_becomes_an_id(text: str) -> None:
    """What could be a path is refused, however the id is made; the error names the text."""
    for make in (ThreadId.parse, ThreadId):
        with pytest.raises(InvalidThreadId) as caught:
            make(text)
        assert caught.value.text == text


@pytest.mark.case("B104")
@given(st.text(max_size=60))
def test_an_id_holds_nothing_that_a_path_minds(text: str) -> None:
    """Any text is either refused or the canonical form of a UUID."""
    try:
        made = ThreadId.parse(text)
    except InvalidThreadId:
        return
    assert set(made) <= set("0123456789abcdef-")
    assert str(uuid.UUID(made)) == made


def test_id_survives_copy_and_pickle() -> None:
    """An id stays an id through copies and processes."""
    made = ThreadId.new()
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert type(again) is ThreadId
    assert repr(made) == f"ThreadId({str(made)!r})"
