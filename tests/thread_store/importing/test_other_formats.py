"""Gemini CLI, pi, omp, opencode, ATIF, MyCodeAgent, old Codex: what their records become."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.thread_store.histories import uuid
from tests.thread_store.importing.made import records, said, take, write_lines
from thread_store.importing.atif import AtifReader
from thread_store.importing.gemini_cli import GeminiCliReader
from thread_store.importing.my_code_agent import MyCodeAgentReader
from thread_store.importing.opencode import OpencodeReader
from thread_store.importing.pi import PiReader
from thread_store.importing.source import SourceReader
from thread_store.importing.sources import find_sources


def imported(reader: SourceReader, tmp_path: Path) -> list[tuple[str, Any]]:
    done = take(reader, tmp_path / "home")
    return said(tmp_path / "home", done[0].thread_id)


# Gemini CLI

HEAD = {"sessionId": "s1", "projectHash": "0" * 64, "startTime": "2026-01-01T00:00:00.000Z", "kind": "main"}


def gemini(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": f"g{number}", "timestamp": f"2026-01-01T00:00:{number:02}.000Z", "type": kind} | {
        "content": content,
        **more,
    }


CALL = {
    "id": "c1",
    "name": "read_file",
    "args": {"path": "a"},
    "result": [{"functionResponse": {"id": "c1", "response": {"output": "text of a"}}}],
    "resultDisplay": "short",
    "status": "success",
}


@pytest.mark.parametrize("as_log", [False, True])
def test_gemini_document_and_log_say_the_same(tmp_path: Path, as_log: bool) -> None:
    """Replies, thoughts, calls with their answers."""
    messages = [
        gemini(1, "user", [{"text": "read a"}]),
        gemini(2, "gemini", "", thoughts=[{"subject": "Plan", "description": "read"}], toolCalls=[CALL]),
        gemini(3, "gemini", "done", model="m"),
    ]
    if as_log:
        path = write_lines(tmp_path / "s.jsonl", [HEAD, *messages, {"$set": {"lastUpdated": "x"}}])
    else:
        path = tmp_path / "s.json"
        path.write_text(json.dumps({**HEAD, "messages": messages}, indent=2))
    assert imported(GeminiCliReader(str(path)), tmp_path) == [
        ("user", "read a"),
        ("thought", "Plan\nread"),
        ("call", ("c1", "read_file", '{"path":"a"}')),
        ("result", ("c1", "text of a")),
        ("agent", "done"),
        ("task_complete", None),
    ]


def test_gemini_message_counts_once_as_it_was_said_last(tmp_path: Path) -> None:
    """In a batch, bare, and replaced; what was put before the first prompt was not typed."""
    batch = [gemini(1, "user", "<session_context>\nfolders\n</session_context>"), gemini(2, "user", "first")]
    lines = [
        HEAD,
        {"$set": {"messages": batch}},
        gemini(3, "gemini", "par"),
        gemini(3, "gemini", "partial no more"),
    ]
    path = write_lines(tmp_path / "s.jsonl", lines)
    assert [each for each in imported(GeminiCliReader(str(path)), tmp_path) if each[1]] == [
        ("user", "first"),
        ("agent", "partial no more"),
    ]


def test_gemini_log_that_was_emptied_keeps_what_was_said(tmp_path: Path) -> None:
    """The patch is kept, so that one sees it."""
    emptied = {"$set": {"messages": []}}
    lines = [HEAD, gemini(1, "user", "keep me"), gemini(2, "gemini", "kept"), emptied]
    home = tmp_path / "home"
    (done,) = take(GeminiCliReader(str(write_lines(tmp_path / "s.jsonl", lines))), home)
    assert ("user", "keep me") in said(home, done.thread_id)
    assert done.kept == {"$set": 1}


def test_gemini_shows_what_was_typed_and_keeps_what_was_sent(tmp_path: Path) -> None:
    """`displayContent` beside `content`."""
    typed = gemini(1, "user", [{"text": "sent"}], displayContent=[{"text": "typed"}])
    home = tmp_path / "home"
    (done,) = take(GeminiCliReader(str(write_lines(tmp_path / "s.jsonl", [HEAD, typed]))), home)
    assert said(home, done.thread_id) == [("user", "typed")]
    models = [each["payload"] for each in records(home, done.thread_id) if each["type"] == "response_item"]
    assert models[0]["content"][0]["text"] == "sent"


# pi and omp


def pi(number: int, kind: str, *, parent: int | None = None, **more: Any) -> dict[str, Any]:
    before = number - 1 if parent is None else parent
    return {
        "type": kind,
        "id": f"e{number}",
        "parentId": f"e{before}" if before else None,
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        **more,
    }


def spoke(number: int, role: str, content: Any, *, parent: int | None = None, **more: Any) -> dict[str, Any]:
    return pi(number, "message", parent=parent, message={"role": role, "content": content, **more})


SESSION = {
    "type": "session",
    "version": 3,
    "id": "p1",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "cwd": "/srv",
}


def block(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def test_pi_tree_goes_on_in_its_last_branch(tmp_path: Path) -> None:
    """Calls, answers, a shell command of the user; a branch takes back the turns behind its parent."""
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}}
    lines = [
        SESSION,
        spoke(1, "user", "one"),
        spoke(2, "assistant", [{"type": "thinking", "thinking": "hm"}, call], stopReason="toolUse"),
        spoke(3, "toolResult", block("text"), toolCallId="t1", isError=False),
        spoke(4, "assistant", block("1"), stopReason="stop"),
        spoke(5, "user", "two"),
        spoke(6, "user", "instead", parent=4),
        pi(7, "message", message={"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}),
    ]
    found = imported(PiReader(str(write_lines(tmp_path / "s.jsonl", lines))), tmp_path)
    assert [each for each in found if each[0] != "task_complete"] == [
        ("user", "one"),
        ("thought", "hm"),
        ("call", ("t1", "read", '{"path":"a"}')),
        ("result", ("t1", "text")),
        ("agent", "1"),
        ("user", "two"),
        ("back", 1),
        ("user", "instead"),
        ("call", ("call-1", "bash", '{"command":"ls"}')),
        ("result", ("call-1", "a")),
    ]


def test_pi_compaction_keeps_what_it_names(tmp_path: Path) -> None:
    """The summary, then the entries from the first that was kept."""
    lines = [
        SESSION,
        spoke(1, "user", "old"),
        spoke(2, "assistant", block("done"), stopReason="stop"),
        spoke(3, "user", "recent"),
        pi(4, "compaction", summary="in short", firstKeptEntryId="e3", tokensBefore=9),
    ]
    home = tmp_path / "home"
    (done,) = take(PiReader(str(write_lines(tmp_path / "s.jsonl", lines))), home)
    (compacted,) = (each["payload"] for each in records(home, done.thread_id) if each["type"] == "compacted")
    texts = [each["content"][0]["text"] for each in compacted["replacement_history"]]
    assert texts == ["in short", "recent"]


def test_pi_of_the_first_version_is_linear(tmp_path: Path) -> None:
    """No ids, no parents."""
    lines = [
        {key: value for key, value in SESSION.items() if key != "version"},
        {"type": "message", "timestamp": "x", "message": {"role": "user", "content": "a"}},
        {"type": "message", "timestamp": "x", "message": {"role": "assistant", "content": block("b")}},
    ]
    assert imported(PiReader(str(write_lines(tmp_path / "s.jsonl", lines))), tmp_path) == [
        ("user", "a"),
        ("agent", "b"),
    ]


def test_omp_has_a_title_slot_and_images_in_files(tmp_path: Path) -> None:
    """The slot stands before the header; an image is found by its hash, or its name stays."""
    content = b"\x89PNG of a cat"
    digest = hashlib.sha256(content).hexdigest()
    folder = tmp_path / "agent" / "sessions" / "x"
    folder.mkdir(parents=True)
    (tmp_path / "agent" / "blobs").mkdir()
    (tmp_path / "agent" / "blobs" / digest).write_bytes(content)
    images = [
        {"type": "image", "data": f"blob:sha256:{each}", "mimeType": "image/png"}
        for each in (digest, "0" * 64)
    ]
    title = {"type": "title", "v": 1, "title": "The cat", "pad": " " * 100}
    lines = [title, SESSION, spoke(1, "user", [*block("look"), *images])]
    home = tmp_path / "home"
    (done,) = take(PiReader(str(write_lines(folder / "s.jsonl", lines))), home)
    assert done.source.originator == "omp"
    assert "The cat" in (home / "session_index.jsonl").read_text()
    event = next(
        each["payload"]
        for each in records(home, done.thread_id)
        if each["payload"].get("type") == "user_message"
    )
    assert event["images"] == ["data:image/png;base64,iVBORyBvZiBhIGNhdA==", f"blob:sha256:{'0' * 64}"]


# opencode


def opencode(*messages: dict[str, Any], **info: Any) -> dict[str, Any]:
    head = {"id": "ses_1", "directory": "/srv", "title": "t", "version": "1", "time": {"created": 1}}
    return {"info": {**head, **info}, "messages": list(messages)}


def asked(number: int, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"info": {"id": f"m{number}", "role": "user", "time": {"created": number}}, "parts": list(parts)}


def replied(number: int, *parts: dict[str, Any], **info: Any) -> dict[str, Any]:
    made = asked(number, *parts)
    return {**made, "info": {**made["info"], "role": "assistant", "finish": "stop", **info}}


def words(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def test_opencode_part_of_a_tool_is_a_call_and_its_answer(tmp_path: Path) -> None:
    """One that runs still has no answer; what is synthetic was not typed."""
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a", "time": {"start": 2, "end": 3}}
    document = opencode(
        asked(1, words("go"), words("by the way", synthetic=True)),
        replied(
            2,
            {"type": "step-start"},
            {"type": "tool", "tool": "bash", "callID": "c1", "state": state},
            {"type": "tool", "tool": "bash", "callID": "c2", "state": {"status": "running", "input": {}}},
            finish="tool-calls",
        ),
        replied(4, words("done")),
    )
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document))
    assert imported(OpencodeReader(str(path)), tmp_path) == [
        ("user", "go"),
        ("call", ("c1", "bash", '{"command":"ls"}')),
        ("result", ("c1", "a")),
        ("call", ("c2", "bash", "{}")),
        ("agent", "done"),
        ("task_complete", None),
    ]


def test_opencode_compaction_and_revert_are_what_they_are(tmp_path: Path) -> None:
    """The summary is a checkpoint; what the revert hides is taken back."""
    document = opencode(
        asked(1, words("one")),
        replied(2, words("1")),
        asked(3, {"type": "compaction", "auto": True}),
        replied(4, words("in short"), summary=True),
        asked(5, words("two")),
        replied(6, words("2")),
        revert={"messageID": "m5"},
    )
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document))
    kinds = [each[0] for each in imported(OpencodeReader(str(path)), tmp_path)]
    said_or_done = [each for each in kinds if each != "task_complete"]
    assert said_or_done == ["user", "agent", "compacted", "user", "agent", "back"]


# ATIF


def test_atif_step_is_an_answer_with_its_calls(tmp_path: Path) -> None:
    """Thought, text, calls and what they gave back; context that was copied was not typed."""
    call = {"tool_call_id": "c1", "function_name": "f", "arguments": {"a": 1}}
    steps = [
        {"step_id": 1, "source": "system", "message": "be good"},
        {"step_id": 2, "source": "user", "message": "earlier", "is_copied_context": True},
        {"step_id": 3, "source": "user", "message": "hi"},
        {
            "step_id": 4,
            "source": "agent",
            "message": "",
            "reasoning_content": "hm",
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": "c1", "content": "ok"}]},
        },
        {"step_id": 5, "source": "agent", "message": "done"},
    ]
    path = tmp_path / "t.json"
    agent = {"name": "x", "version": "1"}
    path.write_text(
        json.dumps({"schema_version": "ATIF-v1.8", "session_id": "s", "agent": agent, "steps": steps})
    )
    assert imported(AtifReader(str(path)), tmp_path) == [
        ("user", "hi"),
        ("thought", "hm"),
        ("call", ("c1", "f", '{"a":1}')),
        ("result", ("c1", "ok")),
        ("agent", "done"),
        ("task_complete", None),
    ]


# MyCodeAgent


def test_my_code_agent_transcript_is_a_conversation(tmp_path: Path) -> None:
    """Messages, the lifecycle of calls, a checkpoint with what it keeps; another session's record is kept."""

    def event(number: int, kind: str, session: str = "s", **payload: Any) -> dict[str, Any]:
        return {
            "event_id": f"evt-{number}",
            "timestamp": f"2026-01-01T00:00:{number:02}.000001Z",
            "session_id": session,
            "event_type": kind,
            "payload": payload,
            "schema_version": 1,
        }

    read = {"tool_name": "Read", "tool_call_id": "c1"}
    lines = [
        event(1, "message", role="user", content="go"),
        event(
            2, "tool_lifecycle", tool_name="Read", tool_call_id="c1", status="requested", arguments={"p": 1}
        ),
        event(3, "tool_lifecycle", **read, status="started"),
        event(4, "tool_lifecycle", **read, status="completed", output="text"),
        event(5, "message", role="assistant", content="done"),
        event(6, "message", "other", role="user", content="not ours"),
        event(7, "checkpoint", summary="in short", retain_start_idx=1),
        event(8, "terminal", reason="final"),
    ]
    home = tmp_path / "home"
    (done,) = take(MyCodeAgentReader(str(write_lines(tmp_path / "t.jsonl", lines))), home)
    assert said(home, done.thread_id) == [
        ("user", "go"),
        ("call", ("c1", "Read", '{"p":1}')),
        ("result", ("c1", "text")),
        ("agent", "done"),
        ("compacted", None),
        ("task_complete", None),
    ]
    assert done.kept == {"message/user": 1}
    (compacted,) = (each["payload"] for each in records(home, done.thread_id) if each["type"] == "compacted")
    texts = [each["content"][0]["text"] for each in compacted["replacement_history"]]
    assert texts == ["in short", "done"]


# Codex, before the envelope


def test_old_codex_rollout_goes_on(tmp_path: Path) -> None:
    """Bare items get both tracks; the folder is that of the first context, which nobody typed."""

    def message(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    lines = [
        {"id": uuid(5), "timestamp": HEAD["startTime"], "instructions": None},
        {"record_type": "state"},
        message("user", "<environment_context>\n  <cwd>/srv/old</cwd>\n</environment_context>"),
        message("user", "go"),
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
        message("assistant", "done"),
    ]
    path = write_lines(tmp_path / f"rollout-2025-05-07T17-24-21-{uuid(5)}.jsonl", lines)
    (found,) = find_sources([str(path)], refused=pytest.fail)
    assert found.format == "codex"
    home = tmp_path / "home"
    (done,) = take(found.open(), home)
    assert done.source.cwd == "/srv/old"
    assert said(home, done.thread_id) == [
        ("user", "go"),
        ("call", ("c1", "shell", '{"command":["ls"]}')),
        ("result", ("c1", "a")),
        ("agent", "done"),
    ]
    assert done.kept == {"state": 1}
