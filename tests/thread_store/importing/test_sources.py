"""Which files are found below a folder, and what each one is taken for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.errors import NotARollout, ThreadNotFound
from tests.thread_store.importing.made import SESSION, claude, write_lines
from thread_store.importing.sources import find_sources
from thread_store.importing.threads import thread_id_of

STAMP = "2026-01-01T00:00:00Z"
PI = {"type": "session", "version": 3, "id": "p", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/"}
GEMINI = {"sessionId": "g", "projectHash": "0", "startTime": "2026-01-01T00:00:00Z", "messages": []}


def test_files_are_known_by_what_stands_in_them(tmp_path: Path) -> None:
    """In the order of their names; whatever is no session is passed over: rollouts, settings, odd files."""
    write_lines(tmp_path / "a.jsonl", [{"type": "summary", "leafUuid": "x"}, claude(1, "user", "hi")])
    write_lines(tmp_path / "b.jsonl", [{"type": "title", "v": 1, "title": ""}, PI])
    (tmp_path / "c.json").write_text(json.dumps(GEMINI))
    (tmp_path / "d.json").write_text(json.dumps({"info": {"id": "ses"}, "messages": []}))
    meta = {
        "timestamp": "2026-01-01T00:00:00Z",
        "type": "session_meta",
        "payload": {"id": SESSION, "cwd": "/"},
    }
    write_lines(tmp_path / "rollout.jsonl", [meta])
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "dangling.jsonl").symlink_to("nowhere")
    found = [*find_sources([str(tmp_path)], refused=pytest.fail)]
    assert [(Path(each.path).name, each.format) for each in found] == [
        ("a.jsonl", "claude"),
        ("b.jsonl", "pi"),
        ("c.json", "gemini"),
        ("d.json", "opencode"),
    ]


def test_file_of_a_sub_agent_belongs_to_the_session_that_it_lies_beside(tmp_path: Path) -> None:
    """`<session>/subagents/agent-….jsonl`."""
    folder = tmp_path / SESSION / "subagents"
    folder.mkdir(parents=True)
    main = write_lines(tmp_path / f"{SESSION}.jsonl", [claude(1, "user", "go")])
    write_lines(folder / "agent-1.jsonl", [claude(1, "user", "task", isSidechain=True)])
    parent, child = find_sources([str(tmp_path)], refused=pytest.fail)
    assert (child.parent, parent.parent) == (SESSION, None)
    assert child.parent_thread_id == thread_id_of(parent.open().threads()[0])
    main.unlink()
    assert child.parent_thread_id is None


def test_file_that_is_named_and_is_none_is_refused(tmp_path: Path) -> None:
    """By its name, with what to do."""
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(NotARollout, match="--from"):
        [*find_sources([str(tmp_path / "x.json")], refused=pytest.fail)]
    with pytest.raises(ThreadNotFound):
        [*find_sources([str(tmp_path / "none")], refused=pytest.fail)]
