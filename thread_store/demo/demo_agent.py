"""The agent of `rollout demo`: a child process that records itself until it is killed inside a tool.

Invariant: what it reports as synced is what a `sync()` that returned has covered, told by the
SHA-256 of each record's payload, in the order of acceptance. It says that it is in its last tools only
when both processes have said so, and then waits: whoever kills it now kills it inside them.

Its tools are real processes, several at a time, each recording from a task of its own. It talks
to its parent by JSON lines on standard output. If its parent goes, its standard input ends, and so does it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from protocol.codec import encode_payload, kind_of
from protocol.ids import ThreadId
from protocol.items import RolloutItem, bind
from protocol.meta import SessionMeta
from rollout.barrier import Receipt
from rollout.pending import Records
from thread_store.demo.demo_tools import INSIDE, Moment, Tool, letter, list_tool, send_tool, tools_of_round
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.thread import OpenThread, Thread
from thread_store.turns.turn import Turn

__all__ = ["WitnessedThread", "payload_digest", "work"]

_QUESTIONS = (
    "Which files are here, and does the arithmetic of this machine still hold?",
    "Look again: did anything change?",
    "Once more, and print the cubes in full this time.",
)
_LAST_QUESTION = "Tell the others by letter, and see whether it is in the folder."


def payload_digest(payload: bytes | bytearray) -> str:
    """How a record is told apart from every other: the SHA-256 of its payload's bytes, as hex."""
    return hashlib.sha256(payload).hexdigest()


class WitnessedThread(Thread):
    """A thread that tells which of its records are acknowledged as soon as they are."""

    def __init__(self, opened: OpenThread) -> None:
        super().__init__(opened)
        self._hand_over = self.record_nowait
        self.record_nowait = self._record_witnessed  # type: ignore[method-assign]  # as the handle itself does
        self.turn_id = ""
        """Of the turn whose records are handed over."""
        self._accepted: list[str] = []
        self._reported = 0

    def _record_witnessed(self, *items: Records) -> None:
        """As `record_nowait`, and remembers what exactly was handed over."""
        bound = [bind(each, self.thread_id, self.turn_id) for each in _listed(items)]
        self._hand_over(bound)
        for item in bound:
            payload = bytearray()
            encode_payload(item, payload, kind_of(item))
            self._accepted.append(payload_digest(payload))

    async def sync(self) -> Receipt:
        """As `Thread.sync`, and tells what it covered."""
        receipt = await super().sync()
        if receipt.items > self._reported:
            digests = self._accepted[self._reported : receipt.items]
            self._reported = receipt.items
            _tell(event="synced", items=receipt.items, offset_bytes=receipt.offset_bytes, digests=digests)
        return receipt


def _listed(items: Iterable[Records]) -> list[RolloutItem]:
    return [item for each in items for item in ([each] if isinstance(each, RolloutItem) else each)]


class _Agent:
    """One conversation with itself."""

    def __init__(self, thread: WitnessedThread, folder: str, moment: Moment) -> None:
        self._thread = thread
        self._folder = folder
        self._moment = moment
        self._inside: list[str] = []
        self._letters = 0

    async def work(self, until: float) -> None:
        """Turn after turn until then (by the monotonic clock); the last one never ends."""
        round_no = 0
        while time.monotonic() < until:
            await self._round(round_no)
            round_no += 1
        await self._last_round(round_no)

    def _turn(self) -> Turn:
        self._thread.turn_id = str(ThreadId.new())
        return self._thread.turn(turn_id=self._thread.turn_id)

    async def _round(self, round_no: int) -> None:
        async with self._turn() as turn:
            await self._ask(turn, f"{_QUESTIONS[round_no % len(_QUESTIONS)]} (question {round_no + 1})")
            call_id = f"call-{round_no}-send"
            send = send_tool(self._folder, letter(self._thread.thread_id, call_id))
            async with asyncio.TaskGroup() as group:
                for tool in tools_of_round(self._folder, round_no):
                    group.create_task(self._use(turn, tool, f"call-{round_no}-{tool.name}"))
                group.create_task(self._use(turn, send, call_id))
            answer = f"Round {round_no + 1} is done: four tools ran, and what they said is above."
            _tell(event="doing", who="assistant", text=answer)
            turn.agent_message(answer)
        await self._thread.sync()

    async def _last_round(self, round_no: int) -> None:
        """Two tools at a time that don't end: one that may run again, and one that must not."""
        async with self._turn() as turn:
            await self._ask(turn, _LAST_QUESTION)
            call_id = f"call-{round_no}-send"
            text = letter(self._thread.thread_id, call_id)
            async with asyncio.TaskGroup() as group:
                for tool, each in (
                    (list_tool(self._folder, Moment.BEFORE), f"call-{round_no}-list"),
                    (send_tool(self._folder, text, self._moment), call_id),
                ):
                    group.create_task(self._use(turn, tool, each, waits=True))

    async def _ask(self, turn: Turn, question: str) -> None:
        _tell(event="doing", who="user", text=question)
        turn.user_message(question)
        await self._thread.sync()

    async def _use(self, turn: Turn, tool: Tool, call_id: str, *, waits: bool = False) -> None:
        _tell(event="doing", who="tool", text=f"{tool.name} ({tool.effect}): {_shown(tool)}")
        arguments = {"command": tool.words}
        async with turn.tool_call(
            tool.name, arguments, effect=tool.effect, call_id=call_id, kind="shell", key=call_id
        ) as call:
            process = await asyncio.create_subprocess_exec(
                *tool.words,
                stdin=None if waits else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            if waits and process.stdout is not None and await process.stdout.readline() == INSIDE:
                self._tell_inside(turn, call_id)
            output, _ = await process.communicate()
            text = f"exit code {process.returncode}\n{output.decode('utf-8', 'replace')}"
            if process.returncode:
                call.failed(f"exit code {process.returncode}", text)
            else:
                call.completed(text)
        said = f"{tool.name}: exit code {process.returncode}, {len(output):,} bytes"
        _tell(event="doing", who="result", text=said)

    def _tell_inside(self, turn: Turn, call_id: str) -> None:
        self._inside.append(call_id)
        if len(self._inside) == 2:
            # Nobody was told that this is safe: it may be in the file or not.
            turn.agent_reasoning("Both tools run. I wait for them.")
            _tell(event="inside", calls=sorted(self._inside))


def _shown(tool: Tool) -> str:
    """The command line without the script of the tool."""
    return " ".join(os.path.basename(word) for word in tool.words[3:] or tool.words[2:])


def _tell(**message: Any) -> None:
    # One write of less than a pipe's atomic size for most messages; the parent reads to the last newline.
    data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


async def work(folder: str, seconds: float, moment: Moment) -> None:
    """Record a new thread into the home `folder`: for `seconds`, and then inside two tools for ever."""
    with LocalThreads(Home(folder)) as threads:
        opened = threads.create(SessionMeta(cwd=folder), git_seconds=0)
        async with WitnessedThread(opened) as thread:
            _tell(event="begun", path=thread.path, thread_id=thread.thread_id)
            await _Agent(thread, folder, moment).work(time.monotonic() + seconds)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], float(sys.argv[2]), Moment(sys.argv[3])))
