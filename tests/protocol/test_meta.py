"""`session_meta`: always readable for Codex when written, never lost when read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from protocol import (
    BaseInstructions,
    GitInfo,
    HistoryBase,
    ItemNotEncodable,
    RawItem,
    RolloutLine,
    SessionMeta,
    ThreadId,
    decode_item,
    encode_item,
)
from protocol.meta import meta_of
from protocol.version import VERSION

STAMP = "2026-11-29T10:11:12.345Z"
THREAD = "01960000-0000-7000-8000-000000000100"


def payload_of(meta: SessionMeta) -> Any:
    return json.loads(encode_item(meta, timestamp=STAMP, ordinal=0))["payload"]


def decoded(payload: Any) -> SessionMeta:
    meta = decode_item("session_meta", json.dumps(payload).encode())
    assert isinstance(meta, SessionMeta)
    return meta


def test_folder_alone_makes_a_meta_that_codex_reads() -> None:
    """With the id and the time filled in, the five required keys and the mode are written."""
    meta = SessionMeta(cwd="/srv/demo").filled(thread_id=THREAD, timestamp=STAMP)
    assert payload_of(meta) == {
        "id": THREAD,
        "timestamp": STAMP,
        "cwd": "/srv/demo",
        "originator": "rollout-recorder",
        "cli_version": VERSION,
        "source": "cli",
        "history_mode": "paginated",
    }


def test_values_given_are_not_replaced() -> None:
    """What the caller says about the thread stands."""
    meta = SessionMeta(cwd="/", id="own", timestamp="then", originator="demo", cli_version="9", source="exec")
    filled = meta.filled(thread_id=THREAD, timestamp=STAMP)
    assert (filled.id, filled.timestamp, filled.originator) == ("own", "then", "demo")
    assert payload_of(filled)["source"] == "exec"
    assert (meta.id, SessionMeta(cwd="/").id) == ("own", None)


def test_required_key_without_text_is_refused() -> None:
    """A meta line that Codex couldn't read is not written."""
    for meta in (SessionMeta(cwd=None), SessionMeta(cwd="/", originator=7)):  # type: ignore[arg-type]
        with pytest.raises(ItemNotEncodable):
            meta.filled(thread_id=THREAD, timestamp=STAMP)


def test_unknown_history_mode_is_refused_when_written_and_read_all_the_same() -> None:
    """Codex can't read a file of an unknown mode: we don't write one, but we read it."""
    with pytest.raises(ItemNotEncodable, match="history_mode"):
        SessionMeta(cwd="/", history_mode="new").filled(thread_id=THREAD, timestamp=STAMP)
    assert decoded({"id": THREAD, "history_mode": "new"}).history_mode == "new"


def test_whole_meta_reads_back_as_it_was() -> None:
    """Every key of the format survives."""
    meta = SessionMeta(
        id=THREAD,
        session_id=THREAD,
        forked_from_id=THREAD,
        forked_from_ordinal_exclusive=3,
        parent_thread_id=THREAD,
        timestamp=STAMP,
        cwd="/srv/demo",
        source={"subagent": "review"},
        thread_source="user",
        agent_nickname="nick",
        agent_role="role",
        agent_path="/root",
        model_provider="openai",
        base_instructions=BaseInstructions("be brief", {"type": "custom"}),
        dynamic_tools=[{"name": "t"}],
        memory_mode="disabled",
        history_mode="legacy",
        history_base=HistoryBase(THREAD, 14, 13848, "ab" * 32),
        subagent_history_start_ordinal=4,
        multi_agent_version="v1",
        context_window={"window_id": "w"},
        runtime_workspace_roots=["/srv"],
        selected_capability_roots=[],
        account_scoped=True,
        git=GitInfo("c0ffee", "main", "https://example.org/x.git"),
        x_task={"prompt": "do it", "limits": {"turns": 3}},
        x_pad="   ",
    )
    assert decoded(payload_of(meta)) == meta
    keys = list(payload_of(meta))
    assert keys[-2:] == ["x_task", "x_pad"]
    assert payload_of(meta)["git"] == {
        "commit_hash": "c0ffee",
        "branch": "main",
        "repository_url": "https://example.org/x.git",
    }


def test_absent_keys_mean_what_they_mean_to_codex() -> None:
    """A file without a mode is legacy, one without a source came from the editor; nothing is made up."""
    meta = decoded({"id": THREAD})
    assert (meta.history_mode, meta.source) == ("legacy", "vscode")
    assert (meta.cwd, meta.originator, meta.cli_version, meta.timestamp) == ("", "", "", None)


@pytest.mark.case("B104")
def test_id_that_is_no_uuid_stays_text() -> None:
    """Ids of old writers are shown as they are; only `ThreadId` could become a path."""
    meta = decoded({"id": "../tsam-pxs-472"})
    assert meta.id == "../tsam-pxs-472"
    assert not isinstance(meta.id, ThreadId)


@pytest.mark.parametrize(
    ("git", "expected"),
    [
        ({"branch": "b", "commit": "ccf5433"}, GitInfo("ccf5433", "b")),
        ({"commit_hash": 7, "branch": "b"}, GitInfo(None, "b")),
        ({"commit_hash": "a", "extra": [1]}, GitInfo("a")),
        ({}, GitInfo()),
        (None, None),
        ("main", None),
    ],
)
def test_git_of_other_shapes_is_read(git: Any, expected: GitInfo | None) -> None:
    """Other names and wrong types cost their own key and nothing else."""
    meta = decoded({"id": THREAD, "cwd": "/srv", "git": git})
    assert meta.git == expected
    assert meta.cwd == "/srv"


def test_wrong_types_cost_their_own_key_only() -> None:
    """However many keys are unreadable, the others are read."""
    meta = decoded(
        {
            "id": 7,
            "cwd": "/srv",
            "timestamp": STAMP,
            "source": {"custom": "x"},
            "base_instructions": "plain text",
            "dynamic_tools": {"no": "list"},
            "multi_agent_version": 2,
            "history_base": {"thread_id": "only"},
            "instructions": "old place",
            "never_seen": {"a": 1},
        }
    )
    assert (meta.id, meta.cwd, meta.timestamp) == (None, "/srv", STAMP)
    assert meta.source == {"custom": "x"}
    assert meta.base_instructions == BaseInstructions("plain text")
    assert meta.instructions == "old place"
    assert (meta.dynamic_tools, meta.multi_agent_version, meta.history_base) == (None, None, None)


@pytest.mark.case("B40")
def test_meta_with_a_lone_surrogate_is_read() -> None:
    """Half a character in one key loses nothing."""
    meta = decode_item("session_meta", b'{"id":"x","cwd":"/srv/\\ud800"}')
    assert isinstance(meta, SessionMeta)
    assert meta.cwd == "/srv/\ud800"


@pytest.mark.parametrize("payload", [b"[1]", b"null", b"7", b'"x"', b"{oops"])
def test_meta_that_is_no_object_is_raw(payload: bytes) -> None:
    """What holds no keys comes back as its bytes."""
    assert decode_item("session_meta", payload) == RawItem("session_meta", payload)


@pytest.mark.parametrize("payload", [b"[1]", b"null", b"7", b'"x"', b"{oops", b'{"id":7}'])
def test_meta_line_that_says_nothing_is_a_meta_all_the_same(payload: bytes) -> None:
    """Whoever opens the rollout gets one without id, which is read as every old one is."""
    meta = meta_of(RolloutLine(type="session_meta", payload=msgspec.Raw(payload)))
    assert (meta.id, meta.cwd, meta.history_mode) == (None, "", "legacy")


@pytest.mark.parametrize("key", ["git", "forked_from_ordinal_exclusive", "dynamic_tools"])
def test_meta_with_half_a_character_where_none_belongs_keeps_the_rest(key: str) -> None:
    """Not even a text can be made of it, and a number can't either."""
    meta = decode_item("session_meta", b'{"id":"x","cwd":"/srv","%s":"\\ud800"}' % key.encode())
    assert isinstance(meta, SessionMeta)
    assert (meta.id, meta.cwd) == ("x", "/srv")
