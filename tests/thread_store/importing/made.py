"""Sources made by hand, and what stands in a home after they were imported."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thread_store.home import Home
from thread_store.importing.importer import Imported, import_source
from thread_store.importing.source import SourceReader
from thread_store.upkeep.threads import Place

SESSION = "5b1c2d3e-0000-4000-8000-0000000000aa"


def write_lines(path: Path, objects: Iterable[object]) -> Path:
    lines = (json.dumps(each, ensure_ascii=False) for each in objects)
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    return path


def claude(number: int, role: str, content: Any, *, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """A row of Claude Code's; by default it hangs on the one before."""
    before = number - 1 if parent is None else parent
    message = {"role": role, "content": content, **more.pop("message", {})}
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": f"u{before}" if before else None,
        "isSidechain": False,
        "sessionId": SESSION,
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "cwd": "/srv/demo",
        "gitBranch": "main",
        "version": "2.1.0",
        "message": message,
        **more,
    }


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def take(reader: SourceReader, home: Path, **options: Any) -> list[Imported]:
    return import_source(reader, Place.of(Home(home)), **options)


def records(home: Path, thread_id: str) -> list[dict[str, Any]]:
    """The lines of a thread, as they stand on the disk."""
    path = Home(home).find_thread(thread_id)
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def said(home: Path, thread_id: str) -> list[tuple[str, Any]]:
    """What a person is shown of it: who spoke or what happened, in order."""
    found: list[tuple[str, Any]] = []
    for each in records(home, thread_id):
        payload = each["payload"]
        match payload.get("type"):
            case "user_message":
                found.append(("user", payload["message"]))
            case "agent_message":
                found.append(("agent", payload["message"]))
            case "agent_reasoning":
                found.append(("thought", payload["text"]))
            case "function_call":
                found.append(("call", (payload["call_id"], payload["name"], payload["arguments"])))
            case "function_call_output":
                found.append(("result", (payload["call_id"], payload["output"])))
            case "thread_rolled_back":
                found.append(("back", payload["num_turns"]))
            case "context_compacted":
                found.append(("compacted", None))
            case "task_complete" | "turn_aborted" as kind:
                found.append((kind, None))
    return found
