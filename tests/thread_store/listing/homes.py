"""Homes made by hand for lists: rollouts with the names, times and bytes that a test gives them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from protocol.timestamps import format_timestamp
from thread_store.home import Home
from thread_store.listing.thread_entry import ThreadEntry, ThreadPage
from thread_store.listing.thread_list import list_threads
from thread_store.listing.thread_query import ThreadQuery

BEGIN_MS = 1_772_600_000_000
"""4 March 2026."""


def uuid(number: int) -> str:
    return f"01960000-0000-7000-8000-{number:012x}"


def stamp(seconds: float) -> str:
    """A timestamp so many seconds behind the beginning."""
    return format_timestamp(BEGIN_MS + round(seconds * 1000))


def record(kind: str, payload: Any, *, at: float | None = 1, ordinal: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {} if at is None else {"timestamp": stamp(at)}
    if ordinal is not None:
        found["ordinal"] = ordinal
    return {**found, "type": kind, "payload": payload}


def meta(number: int, *, at: float | None = 0, **extra: Any) -> dict[str, Any]:
    stated = {} if at is None else {"timestamp": stamp(at)}
    payload = {"id": uuid(number), **stated, "cwd": "/srv/demo", "originator": "hand", "cli_version": "0"}
    return record("session_meta", {**payload, "source": "cli", **extra}, at=at)


def typed(text: str, *, at: float | None = 1) -> dict[str, Any]:
    return record("event_msg", {"type": "user_message", "message": text}, at=at)


def seen(text: str, *, role: str = "user", at: float | None = 1) -> dict[str, Any]:
    content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
    return record("response_item", {"type": "message", "role": role, "content": content}, at=at)


def event(variant: str, *, at: float = 1, **extra: Any) -> dict[str, Any]:
    return record("event_msg", {"type": variant, **extra}, at=at)


def encoded(lines: Sequence[dict[str, Any] | bytes]) -> bytes:
    parts = (
        each
        if isinstance(each, bytes)
        else json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for each in lines
    )
    return b"".join(parts)


class HandMadeHome:
    """A home in a folder. Files are as old as their last record, so that the index takes them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def place(
        self,
        number: int,
        *,
        at: float = 0,
        archived: bool = False,
        rollout: int | None = None,
        ending: str = "",
    ) -> Path:
        """Where the rollout of a thread lies; the time in its name is that of `at`, written out as UTC."""
        name_time = stamp(at)[:19].replace(":", "-")
        day = name_time[:10].replace("-", "/")
        folder = "archived_sessions" if archived else f"sessions/{day}"
        second = "" if rollout is None else f"_{uuid(rollout)}"
        return self.path / folder / f"rollout-{name_time}-{uuid(number)}{second}.jsonl{ending}"

    def add(self, number: int, *lines: dict[str, Any] | bytes, at: float = 0, **where: Any) -> Path:
        """Write a rollout of these lines, by default of a meta and a prompt."""
        content = encoded(lines or (meta(number, at=at), typed(f"prompt {number}", at=at + 1)))
        return self.write(self.place(number, at=at, **where), content, at=at + 1)

    def write(self, path: Path, content: bytes, *, at: float) -> Path:
        """Put bytes there, written at that time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written = BEGIN_MS / 1000 + at
        os.utime(path, (written, written))
        return path

    def page(self, *, use_index: bool = True, **options: Any) -> ThreadPage:
        return list_threads(Home(self.path), ThreadQuery(**options), use_index=use_index)

    def list(self, **options: Any) -> list[ThreadEntry]:
        """All that fit, in pages of the size that is asked for: the same with the index and without it."""
        pages = [self._all(use_index=use_index, **options) for use_index in (False, True, True)]
        known = [[structs.replace(each, writer=None) for each in page] for page in pages]
        assert known[0] == known[1] == known[2]
        return pages[0]

    def _all(self, *, use_index: bool, **options: Any) -> list[ThreadEntry]:
        found: list[ThreadEntry] = []
        cursor = None
        while True:
            page = self.page(use_index=use_index, cursor=cursor, **options)
            assert len(page.threads) <= options.get("limit", 50)
            found += page.threads
            cursor = page.cursor
            if cursor is None:
                return found

    def numbers(self, **options: Any) -> list[int]:
        """The same, by the numbers of the threads."""
        return [int(each.thread_id[-12:], 16) for each in self.list(**options)]

    def one(self, **options: Any) -> ThreadEntry:
        (found,) = self.list(archived=None, **options)
        return found

    @property
    def index(self) -> Path:
        return self.path / "thread-store" / "derived" / "list.sqlite"
