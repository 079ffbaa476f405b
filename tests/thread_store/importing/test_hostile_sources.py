"""Sources in which any value may be any other: imported as far as they go, or refused with the reason."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import RolloutError
from rollout.check import check_rollout
from tests.thread_store.importing import test_importer, test_other_formats
from tests.thread_store.importing.made import take, write_lines
from thread_store.home import Home
from thread_store.importing.importer import ImportState
from thread_store.importing.sources import FORMATS

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
LINES: dict[str, list[dict[str, Any]]] = {
    "claude": test_importer.ROWS,
    "gemini": [
        test_other_formats.HEAD,
        test_other_formats.gemini(1, "user", [{"text": "read a"}]),
        test_other_formats.gemini(2, "gemini", "", toolCalls=[test_other_formats.CALL]),
        {"$set": {"messages": [test_other_formats.gemini(3, "gemini", "done")]}},
    ],
    "pi": [
        test_other_formats.SESSION,
        test_other_formats.spoke(1, "user", test_other_formats.block("one")),
        test_other_formats.spoke(
            2, "assistant", [{"type": "toolCall", "id": "t", "name": "n", "arguments": {}}], stopReason="stop"
        ),
        test_other_formats.spoke(3, "toolResult", test_other_formats.block("x"), toolCallId="t"),
        test_other_formats.pi(4, "compaction", summary="s", firstKeptEntryId="e1"),
    ],
    "mycodeagent": [
        {"event_id": "e", "event_type": "message", "payload": {"role": "user", "content": "go"}},
        {
            "event_id": "f",
            "event_type": "tool_lifecycle",
            "payload": {"tool_call_id": "c", "status": "started", "tool_name": "n"},
        },
        {"event_id": "g", "event_type": "checkpoint", "payload": {"summary": "s", "retain_start_idx": 0}},
    ],
    "codex": [
        {
            "id": "5b1c2d3e-0000-4000-8000-0000000000aa",
            "timestamp": "2026-01-01T00:00:00Z",
            "instructions": None,
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
    ],
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "opencode": test_other_formats.opencode(
        test_other_formats.asked(1, test_other_formats.words("go")),
        test_other_formats.replied(
            2,
            {"type": "tool", "tool": "bash", "callID": "c", "state": {"status": "completed", "input": {}}},
        ),
    ),
    "atif": {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "x", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hi"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}}],
                "observation": {"results": [{"source_call_id": "c", "content": "ok"}]},
            },
        ],
    },
}


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all values below one."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in pairs for found in ((*path, key), *places_in(each, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return made


def check(name: str, write: Callable[[Path], Path]) -> None:
    """Import twice: what is there is a rollout, and the second time there is nothing to add."""
    with tempfile.TemporaryDirectory() as folder:
        path, home = write(Path(folder)), Path(folder, "home")
        for expected in ((ImportState.NEW, ImportState.EMPTY), (ImportState.UNCHANGED, ImportState.EMPTY)):
            try:
                done = take(FORMATS[name][1](str(path), None), home)
            except RolloutError:
                return
            assert {each.state for each in done} <= set(expected)
        for each in Home(home).rollouts():
            assert not check_rollout(each.path).damaged_lines


@pytest.mark.parametrize("name", LINES)
@given(data=st.data())
def test_lines_with_any_value_are_imported_or_refused(name: str, data: st.DataObject) -> None:
    """No value of a kind that nobody thought of is a bug."""
    lines: Any = LINES[name]
    for _ in range(data.draw(st.integers(1, 3))):
        lines = changed(lines, data.draw(st.sampled_from(places_in(lines))), data.draw(VALUES))
    check(name, lambda folder: write_lines(folder / "source.jsonl", lines))


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
def test_documents_with_any_value_are_imported_or_refused(name: str, data: st.DataObject) -> None:
    """As lines."""
    document: Any = DOCUMENTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        document = changed(document, data.draw(st.sampled_from(places_in(document))), data.draw(VALUES))

    def write(folder: Path) -> Path:
        path = folder / "source.json"
        path.write_text(json.dumps(document))
        return path

    check(name, write)
