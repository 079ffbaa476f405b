"""A home to search: threads as agents write them, made from a seed.

Text of some thousand different words, code, results of tools with escape sequences, other scripts; both
tracks; arguments that are JSON in JSON. Each needle stands where it is said to.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from benches.workload import STAMP
from protocol import EventMsg, ResponseItem, RolloutItem, SessionMeta, ThreadId
from protocol.codec import encode_item
from thread_store.home import Home

__all__ = ["NEEDLE", "NEWEST", "NOWHERE", "link_threads", "write_home"]

NEEDLE = "Cancel Scope"
"""In about one record in five thousand."""

NEWEST = "only in the newest"
NOWHERE = "nowhere at all"

_WORDS = 6000
_PARAGRAPHS = 4000
_OTHER = ["größe", "naïve", "日本語", "Straße", "—", "“so”", "été", "модель", "✓", "\x1b[32mok\x1b[0m"]
_CODE = [
    "def run(self) -> None:",
    'if name == "main":',
    "return {k: v}",
    "C:\\src\\main.py",
    "\tassert x",
    "a/b/c.py",
]
_BEGUN = datetime(2026, 3, 4, 5, 6, 7)


def write_home(folder: Path, *, threads: int, thread_bytes: int) -> Home:
    """A home of so many threads of so many bytes each, begun a minute apart."""
    chance, home = random.Random(11), Home(folder)
    words = _words(chance)
    texts = [_paragraph(chance, words) for _ in range(_PARAGRAPHS)]
    for number in range(threads):
        thread_id = ThreadId.new()
        path = home.new_rollout_path(thread_id, created=_BEGUN + timedelta(minutes=number))
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = SessionMeta(cwd="/srv/demo").filled(thread_id=thread_id, timestamp=STAMP)
        with path.open("wb") as file:
            file.write(encode_item(meta, timestamp=STAMP, ordinal=0))
            if number == threads - 1:
                newest = ResponseItem.message("user", f"this is {NEWEST} thread")
                file.write(encode_item(newest, timestamp=STAMP, ordinal=1))
            for ordinal, item in enumerate(_items(chance, texts), 2):
                file.write(encode_item(item, timestamp=STAMP, ordinal=ordinal))
                if file.tell() >= thread_bytes:
                    break
    return home


def link_threads(home: Home, *, times: int) -> Home:
    """A home beside it in which each file is so many threads, without a byte more on the disk."""
    larger = Home(home.path.with_name("larger"))
    for number, found in enumerate(list(home.rollouts())):
        for copy in range(times):
            created = _BEGUN + timedelta(minutes=number * times + copy)
            path = larger.new_rollout_path(ThreadId.new(), created=created)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(found.path, path)
    return larger


def _words(chance: random.Random) -> list[str]:
    letters = "eeeeaaaoooiiitttnnnsssrrrhhhlldddcumwfgypbvkjxqz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(_WORDS)]
    return [*words, *_OTHER]


def _paragraph(chance: random.Random, words: list[str]) -> str:
    size = chance.choice((80, 300, 700, 700, 2500))
    parts: list[str] = []
    while sum(map(len, parts)) + len(parts) < size:
        word = chance.choice(words)
        parts.append(word.capitalize() if chance.random() < 0.1 else word)
        if chance.random() < 0.08:
            parts.append("\n" + (chance.choice(_CODE) if chance.random() < 0.4 else ""))
    return " ".join(parts)


def _items(chance: random.Random, texts: list[str]) -> Iterator[RolloutItem]:
    number = 0
    while True:
        number += 1
        text = chance.choice(texts)
        if chance.random() < 1 / 5000:
            text = f"{text[:40]} {NEEDLE} {text[40:]}"
        kind = chance.random()
        if kind < 0.3:
            yield ResponseItem.message("assistant", text)
            yield EventMsg.agent_message(text)
        elif kind < 0.4:
            yield EventMsg.agent_reasoning(text)
        else:
            call_id = f"call_{number}"
            arguments = _arguments(text[:200])
            yield ResponseItem.function_call(name="shell", arguments=arguments, call_id=call_id)
            yield ResponseItem.function_call_output(call_id=call_id, output=text)


def _arguments(command: str) -> str:
    """A command as models write it into a call: JSON in a string."""
    return json.dumps({"cmd": command, "timeout": 30}, ensure_ascii=False)
