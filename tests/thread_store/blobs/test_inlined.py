"""Threads with bounded storage read as they were: for a model, for a line of the log, through forks."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from protocol import EventMsg, ResponseItem, SessionMeta, StorageBounds
from protocol.line import RolloutLine
from rollout import RecorderConfig, read_rollout
from thread_store import Compaction, ForkPoint, Home, LocalThreadStore, MemoryThreadStore, inline_blobs
from thread_store.cli import main
from thread_store.context.model_context import ModelContext, load_model_context

BOUNDS = StorageBounds(text_chars_max=1000, text_chars_kept=100, media_chars_min=300)
CONFIG = RecorderConfig(bounds=BOUNDS)
TEXT = "words " * 500
IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4).decode()
CONTENT = [{"type": "input_text", "text": TEXT}, {"type": "input_image", "image_url": IMAGE}]


async def write(home: Path) -> str:
    async with LocalThreadStore(home, config=CONFIG) as store:
        thread = await store.create_thread(SessionMeta(cwd="/"))
        await thread.record(ResponseItem.message("user", CONTENT), EventMsg.agent_message(TEXT))
        await thread.record(ResponseItem.message("assistant", "short"))
    return thread.path


def contents(context: ModelContext) -> list[list[dict[str, str]]]:
    return [json.loads(bytes(each.payload))["content"] for each in context.items]


def lines_of(path: str) -> list[RolloutLine]:
    return [each.line for each in read_rollout(path) if each.line is not None]


@pytest.mark.asyncio
async def test_model_sees_what_was_recorded(tmp_path: Path) -> None:
    """The log is small, and the context is whole."""
    path = await write(tmp_path)
    assert os.path.getsize(path) < 4000
    context = load_model_context(path, Home(tmp_path))
    assert contents(context) == [CONTENT, [{"type": "output_text", "text": "short"}]]
    assert not context.problems


@pytest.mark.parametrize("harm", ["missing", "damaged", "unreadable"])
@pytest.mark.asyncio
async def test_blob_that_is_gone_is_a_problem_and_no_error(tmp_path: Path, harm: str) -> None:
    """Its place says so, the rest is there, and the command tells of it."""
    path = await write(tmp_path)
    for each in (tmp_path / "blobs").iterdir():
        if each.stat().st_size == 1024:
            each.unlink()
            if harm == "damaged":
                each.write_bytes(b"other")
            elif harm == "unreadable":
                each.mkdir()
    context = load_model_context(path, Home(tmp_path))
    (text, picture), answer = contents(context)
    assert text["text"] == TEXT
    assert picture["type"] == "input_text"
    assert harm in picture["text"]
    assert answer[0]["text"] == "short"
    assert [each.reason for each in context.problems] == [f"blob_{harm}"]
    assert context.problem_count == 1


@pytest.mark.asyncio
async def test_context_command_warns_of_a_missing_blob(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the byte of the record that names it; what is there is printed."""
    path = await write(tmp_path)
    for each in (tmp_path / "blobs").iterdir():
        each.unlink()
    assert main(["context", path]) == 1
    said = capsys.readouterr()
    assert "blob" in said.err
    assert '"short"' in said.out


@pytest.mark.asyncio
async def test_lines_come_with_their_blobs_for_other_programs(tmp_path: Path) -> None:
    """One by one; what names no blob is the very line that was read."""
    path = await write(tmp_path)
    lines = lines_of(path)
    inlined = [*inline_blobs(lines, path)]
    payloads = [each.line.payload_object() for each in inlined]
    assert payloads[2]["content"] == CONTENT
    assert payloads[3]["message"] == TEXT
    for given, found in zip(lines, inlined, strict=True):
        assert not found.problems
        assert (found.line is given) == (given.ordinal not in (1, 2))
        assert (found.line.ordinal, found.line.timestamp) == (given.ordinal, given.timestamp)


@pytest.mark.asyncio
async def test_lines_whose_blobs_are_gone_say_so(tmp_path: Path) -> None:
    """And hide no other."""
    path = await write(tmp_path)
    for each in (tmp_path / "blobs").iterdir():
        each.unlink()
    problems = [[each.reason for each in found.problems] for found in inline_blobs(lines_of(path), path)]
    assert [each for each in problems if each] == [["missing", "missing"], ["missing"]]


@pytest.mark.parametrize("mode", ["copy", "reference"])
@pytest.mark.asyncio
async def test_forks_and_checkpoints_find_the_same_blobs(tmp_path: Path, mode: str) -> None:
    """A fork copies the names; a compaction names them anew; there is one blob of each all the same."""
    path = await write(tmp_path)
    before = sorted(os.listdir(tmp_path / "blobs"))
    async with LocalThreadStore(tmp_path, config=CONFIG) as store:
        (thread_id,) = await store.list_ids()
        fork = await store.fork_thread(thread_id, at=ForkPoint.end(), mode=mode)  # type: ignore[arg-type]

        async def summary(view: object) -> Compaction:
            return Compaction("so far", [ResponseItem.message("user", CONTENT)])

        await fork.compact(summary)
        await fork.aclose()
    assert sorted(os.listdir(tmp_path / "blobs")) == before
    assert contents(load_model_context(fork.path, Home(tmp_path)))[0] == CONTENT
    assert TEXT not in Path(fork.path).read_text() + Path(path).read_text()


@pytest.mark.asyncio
async def test_resume_state_is_whole(tmp_path: Path) -> None:
    """What a framework takes back holds the texts."""
    await write(tmp_path)
    async with LocalThreadStore(tmp_path, config=CONFIG) as store:
        (thread_id,) = await store.list_ids()
        state = await store.load_resume_state(thread_id)
    assert json.loads(bytes(state.items[0].payload))["content"] == CONTENT


@pytest.mark.asyncio
async def test_store_in_memory_keeps_everything_in_its_line() -> None:
    """It has no place for blobs."""
    async with MemoryThreadStore(config=CONFIG) as store:
        thread = await store.create_thread(SessionMeta(cwd="/"))
        await thread.record(ResponseItem.message("user", CONTENT))
        await thread.flush()
        history = await store.read_thread(thread.thread_id)
        lines = [each.line for each in history.records if each.line is not None]
        assert any(line.type == "response_item" and TEXT.encode() in (line.source or b"") for line in lines)
