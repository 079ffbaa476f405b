"""The agent of `rollout demo`: a child process that records itself until it is killed.

Invariant: what it reports as synced is what a `sync()` that returned has covered, told by the
SHA-256 of each record's payload, in the order of acceptance. It never ends by itself.

Its tools are real processes, three at a time, each recording from a task of its own. It talks
to its parent by JSON lines on standard output.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from protocol import tracks
from protocol.codec import encode_payload, kind_of
from protocol.events import EventMsg
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from protocol.own import CallItem
from protocol.response_items import ResponseItem
from protocol.timestamps import now_ms
from rollout.recorder import RolloutRecorder
from thread_store.home import Home

__all__ = ["payload_digest", "work"]

_QUESTIONS = (
    "Which files are here, and does the arithmetic of this machine still hold?",
    "Look again: did anything change?",
    "Once more, and print the cubes in full this time.",
)


def payload_digest(payload: bytes | bytearray) -> str:
    """How a record is told apart from every other: the SHA-256 of its payload's bytes, as hex."""
    return hashlib.sha256(payload).hexdigest()


def _tools(folder: str, round_no: int) -> list[tuple[str, list[str]]]:
    """The command lines of one round; each round's differ, so that no two records are alike."""
    listing = (
        ["ls", "-l", folder]
        if shutil.which("ls")
        else [sys.executable, "-c", "import os; print(os.listdir())"]
    )
    summing = f"print(sum(number * number for number in range({200_000 + round_no})))"
    cubes = f"for number in range({100 * (round_no % 9 + 1)}): print(number, 'cubed is', number**3)"
    return [
        ("list", listing),
        ("sum", [sys.executable, "-c", summing]),
        ("cubes", [sys.executable, "-c", cubes]),
    ]


class _Agent:
    """One conversation with itself."""

    def __init__(self, recorder: RolloutRecorder, folder: str) -> None:
        self._recorder = recorder
        self._folder = folder
        self._turn_id = ""
        self._accepted: list[str] = []
        self._reported = 0

    async def work(self) -> None:
        """Turn after turn."""
        round_no = 0
        while True:
            self._turn_id = str(ThreadId.new())
            question = f"{_QUESTIONS[round_no % len(_QUESTIONS)]} (question {round_no + 1})"
            self._record(EventMsg.task_started(self._turn_id))
            self._record(tracks.user_message(question))
            await self._acknowledge("user", question)
            async with asyncio.TaskGroup() as group:
                for name, words in _tools(self._folder, round_no):
                    group.create_task(self._use_tool(f"call-{round_no}-{name}", name, words))
            answer = f"Round {round_no + 1} is done: three tools ran, and what they said is above."
            self._record(tracks.agent_message(answer))
            self._record(EventMsg.task_complete(self._turn_id, last_agent_message=answer))
            await self._acknowledge("assistant", answer)
            round_no += 1

    async def _use_tool(self, call_id: str, name: str, words: list[str]) -> None:
        self._record(ResponseItem.function_call(name=name, arguments={"command": words}, call_id=call_id))
        self._record(self._call_state(call_id, "started", name))
        await self._acknowledge("tool", f"{name}: {' '.join(words)}")
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        state = "failed" if process.returncode else "completed"
        self._record(self._call_state(call_id, state, name))
        text = f"exit code {process.returncode}\n{output.decode('utf-8', 'replace')}"
        self._record(ResponseItem.function_call_output(call_id=call_id, output=text))
        await self._acknowledge("result", f"{name}: exit code {process.returncode}, {len(output):,} bytes")

    def _call_state(self, call_id: str, state: str, name: str) -> RolloutItem:
        return CallItem(
            call_id=call_id,
            turn_id=self._turn_id,
            state=state,
            kind="shell",
            name=name,
            effect="none",
            at_ms=now_ms(),
        )

    def _record(self, items: RolloutItem | Iterable[RolloutItem]) -> None:
        """Hand items to the recorder, and remember what exactly was handed over."""
        listed = [items] if isinstance(items, RolloutItem) else list(items)
        bound = [each.bound(self._recorder.thread_id, self._turn_id) for each in listed]
        for item in bound:
            payload = bytearray()
            encode_payload(item, payload, kind_of(item))
            self._accepted.append(payload_digest(payload))
        self._recorder.record_nowait(bound)

    async def _acknowledge(self, who: str, text: str) -> None:
        """Wait until it is on stable storage; only then say so."""
        _tell(event="doing", who=who, text=text)
        receipt = await self._recorder.sync()
        if receipt.items > self._reported:
            digests = self._accepted[self._reported : receipt.items]
            self._reported = receipt.items
            _tell(event="synced", items=receipt.items, offset_bytes=receipt.offset_bytes, digests=digests)


def _tell(**message: Any) -> None:
    # One write of less than a pipe's atomic size for most messages; the parent reads to the last newline.
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


async def work(folder: str) -> None:
    """Record a new thread into the home `folder`, for ever."""
    home = Home(folder)
    thread_id = ThreadId.new()
    path = home.new_rollout_path(thread_id)
    async with RolloutRecorder.create(path, SessionMeta(id=thread_id, cwd=folder)) as recorder:
        _tell(event="begun", path=os.fspath(path), thread_id=thread_id)
        await _Agent(recorder, folder).work()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
