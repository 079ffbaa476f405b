"""Names of rollout files: what is made matches Codex's form, what is read is read from the right."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import InvalidThreadId, NotARollout
from protocol.ids import ThreadId
from rollout.paths import RolloutName

THREAD = "01960000-0000-7000-8000-000000000100"
OTHER = "01960000-0000-7000-8000-000000000200"
CREATED = datetime(2026, 11, 29, 8, 5, 9)
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FORM = re.compile(rf"rollout-\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d-{UUID}(?:_{UUID})?\.jsonl")

UUIDS = st.uuids().map(str)
MOMENTS = st.datetimes()


@pytest.mark.case("B137")
def test_made_name_has_the_form_of_codex() -> None:
    """A name is `rollout-`, the time with dashes for colons, and the thread id."""
    name = RolloutName.make(THREAD, created=CREATED)
    assert name.text == f"rollout-2026-11-29T08-05-09-{THREAD}.jsonl"
    assert name.folder == "sessions/2026/11/29"


@pytest.mark.case("B137")
@given(thread_id=UUIDS, rollout_id=st.none() | UUIDS, created=MOMENTS)
def test_any_made_name_matches_and_reads_back(
    thread_id: str, rollout_id: str | None, created: datetime
) -> None:
    """Whatever the ids and the time are, the name matches the form exactly and is parsed to itself."""
    name = RolloutName.make(thread_id, created=created, rollout_id=rollout_id)
    assert FORM.fullmatch(name.text)
    assert RolloutName.parse(name.text) == name
    assert name.created == created.replace(microsecond=0)


@pytest.mark.case("B137")
def test_name_of_a_revert_holds_both_ids() -> None:
    """The rollout id follows the thread id after an underscore."""
    name = RolloutName.make(THREAD, created=CREATED, rollout_id=OTHER)
    assert name.text == f"rollout-2026-11-29T08-05-09-{THREAD}_{OTHER}.jsonl"


def test_aware_time_is_taken_as_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and date folders follow the local time, as Codex's do."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        name = RolloutName.make(THREAD, created=datetime(2026, 11, 29, 20, 0, tzinfo=UTC))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert name.stamp == "2026-11-30T05-00-00"
    assert name.folder == "sessions/2026/11/30"


@pytest.mark.case("B104")
@pytest.mark.parametrize(
    "text", ["../x", "/etc/passwd", "", "\0", f"{THREAD}/..", f"{THREAD}\n", THREAD[:-1], f"{THREAD}.jsonl"]
)
@pytest.mark.parametrize("which", ["thread_id", "rollout_id"])
def test_id_that_is_no_uuid_never_becomes_a_name(text: str, which: str) -> None:
    """An id is parsed before it stands in a path."""
    ids = {"thread_id": THREAD, "rollout_id": OTHER, which: text}
    with pytest.raises(InvalidThreadId):
        RolloutName.make(ids["thread_id"], created=CREATED, rollout_id=ids["rollout_id"])


@pytest.mark.parametrize(
    ("text", "stamp", "thread", "rollout", "compressed"),
    [
        (f"rollout-2026-11-29T08-05-09-{THREAD}.jsonl", "2026-11-29T08-05-09", THREAD, None, False),
        (f"rollout-2026-11-29T08-05-09-{THREAD}.jsonl.zst", "2026-11-29T08-05-09", THREAD, None, True),
        (f"rollout-2026-11-29T08-05-09-{THREAD}_{OTHER}.jsonl", "2026-11-29T08-05-09", THREAD, OTHER, False),
        (
            f"rollout-2026-11-29T08-05-09-{OTHER}-{THREAD}.jsonl",
            f"2026-11-29T08-05-09-{OTHER}",
            THREAD,
            None,
            False,
        ),
        (f"rollout-someday-{THREAD.upper()}.jsonl", "someday", THREAD, None, False),
    ],
)
def test_name_is_read_from_the_right(
    text: str, stamp: str, thread: str, rollout: str | None, compressed: bool
) -> None:
    """The last uuid, or the last pair, are the ids; what stands before them is the stamp."""
    assert RolloutName.parse(text) == (stamp, thread, rollout, compressed)


@pytest.mark.parametrize(
    "text",
    [
        f"rollout-2026-11-29T08-05-09-{THREAD}.json",
        f"rollout-2026-11-29T08-05-09-{THREAD}.jsonl.bak",
        f"rollout-2026-11-29T08-05-09-{THREAD[:-1]}.jsonl",
        f"rollout-2026-11-29T08-05-09-{THREAD}_{OTHER[:-1]}.jsonl",
        f"session-2026-11-29T08-05-09-{THREAD}.jsonl",
        f"a/rollout-2026-11-29T08-05-09-{THREAD}.jsonl",
        f"rollout-../../x-{THREAD}.jsonl",
        f"rollout-2026-11-29T08-05-09-{THREAD}.jsonl\n",
        "history.jsonl",
        "",
    ],
)
def test_other_name_is_no_rollouts(text: str) -> None:
    """What doesn't have the form is told apart, also if it looks alike."""
    assert RolloutName.match(text) is None
    with pytest.raises(NotARollout):
        RolloutName.parse(text)


def test_name_with_another_programs_stamp_keeps_it() -> None:
    """A stamp that holds no time is kept as it is; it just has no folder by date."""
    name = RolloutName.parse(f"rollout-someday-{THREAD}.jsonl")
    assert name.created is None
    assert name.text == f"rollout-someday-{THREAD}.jsonl"
    with pytest.raises(NotARollout):
        _ = name.folder


@given(st.text())
def test_any_text_is_a_name_or_none(text: str) -> None:
    """Matching never fails, and what matches can't lead out of its folder."""
    name = RolloutName.match(text)
    assert name is None or os.path.basename(name.text) == name.text


def test_id_in_a_name_is_a_thread_id() -> None:
    """Ids come back parsed."""
    assert isinstance(RolloutName.parse(f"rollout-x-{THREAD}.jsonl").thread_id, ThreadId)
