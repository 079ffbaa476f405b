"""What was imported from other programs is listed, read, and gone on with by the real Codex."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.codex.conftest import Start
from tests.codex.model_service import ModelService
from tests.thread_store.importing.made import claude, take, text, write_lines
from thread_store.home import Home
from thread_store.importing.claude_code import ClaudeCodeReader
from thread_store.importing.gemini_cli import GeminiCliReader
from thread_store.importing.importer import ImportState
from thread_store.importing.source import SourceReader

pytestmark = [pytest.mark.asyncio, pytest.mark.codex]

KINDS = ["cli", "vscode", "exec", "appServer", "unknown"]
END = {"stop_reason": "end_turn"}

Write = Callable[[Path, Path], SourceReader]


def _claude(folder: Path, cwd: Path) -> SourceReader:
    """A call, then a turn that was taken back."""
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "one file"}
    rows = [
        claude(1, "user", "question 1"),
        claude(2, "assistant", [call]),
        claude(3, "user", [result]),
        claude(4, "assistant", text("answer 1"), message=END),
        claude(5, "user", "taken back"),
        claude(6, "assistant", text("never said"), message=END),
        claude(7, "user", "question 2", parent=4),
        claude(8, "assistant", text("answer 2"), message=END),
    ]
    rows = [{**each, "cwd": str(cwd)} for each in rows]
    return ClaudeCodeReader(str(write_lines(folder / "session.jsonl", rows)))


def _gemini(folder: Path, cwd: Path) -> SourceReader:
    """Which knows no folder, and no branches."""
    del cwd
    response = {"functionResponse": {"id": "c1", "response": {"output": "one file"}}}
    call = {"id": "c1", "name": "Bash", "args": {"command": "ls"}, "result": [response], "status": "success"}
    words: list[dict[str, Any]] = [
        {"type": "user", "content": "question 1"},
        {"type": "gemini", "content": "", "toolCalls": [call]},
        {"type": "gemini", "content": "answer 1"},
        {"type": "user", "content": "question 2"},
        {"type": "gemini", "content": "answer 2"},
    ]
    messages = [
        {"id": f"g{number}", "timestamp": f"2026-01-01T00:00:{number:02}.000Z", **each}
        for number, each in enumerate(words)
    ]
    path = folder / "session.json"
    path.write_text(
        json.dumps({"sessionId": "g", "startTime": "2026-01-01T00:00:00.000Z", "messages": messages})
    )
    return GeminiCliReader(str(path))


@pytest.mark.parametrize("write", [_claude, _gemini])
async def test_codex_goes_on_with_what_was_imported(
    home: Path, start: Start, model: ModelService, tmp_path: Path, write: Write
) -> None:
    """It lists and shows it, and sends the model the history that counts, complete and in order."""
    (done,) = take(write(tmp_path, tmp_path), home)
    before = Home(home).find_thread(done.thread_id).read_bytes()
    async with start() as server:
        listed = await server.call("thread/list", limit=100, modelProviders=[], sourceKinds=KINDS)
        assert [each["preview"] for each in listed["data"] if each["id"] == done.thread_id] == ["question 1"]
        await server.call("thread/resume", threadId=done.thread_id)
        turn = await server.turn(done.thread_id, "codex asks")
        assert turn["status"] == "completed"
        read = await server.call("thread/read", threadId=done.thread_id, includeTurns=True)
    sent = ["question 1", "answer 1", "question 2", "answer 2", "codex asks"]
    assert [each for each in model.texts() if each in (*sent, "taken back", "never said")] == sent
    [output] = [
        each["output"] for each in model.requests[-1]["input"] if each["type"] == "function_call_output"
    ]
    assert output == "one file"
    shown = [str(item.get("text")) for each in read["thread"]["turns"] for item in each["items"]]
    assert [each for each in shown if each.startswith("answer")] == ["answer 1", "answer 2"]
    assert Home(home).find_thread(done.thread_id).read_bytes().startswith(before)


async def test_thread_that_codex_went_on_with_is_not_grown_again(
    home: Path, start: Start, tmp_path: Path
) -> None:
    """Two programs would have said two things: it is told, and left alone."""
    (done,) = take(_claude(tmp_path, tmp_path), home)
    async with start() as server:
        await server.call("thread/resume", threadId=done.thread_id)
        await server.turn(done.thread_id, "codex asks")
    reader = _claude(tmp_path, tmp_path)
    source = Path(reader.threads()[0].path)
    more = json.dumps({**claude(9, "user", "question 3"), "cwd": str(tmp_path)})
    source.write_text(f"{source.read_text()}{more}\n")
    before = Home(home).find_thread(done.thread_id).read_bytes()
    (again,) = take(reader, home)
    assert again.state is ImportState.CHANGED
    assert Home(home).find_thread(done.thread_id).read_bytes() == before
