"""The tools of the demo's agent: real processes, harmless ones and one that does something to the world.

Invariant: a letter is one line of the outbox, and names its thread and call; so whoever looks there later
knows whether a call happened. A tool that waits says `inside` first, and waits for the end of its
standard input, which comes when nobody watches the agent any more.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import NamedTuple

from protocol.tool_safety import Effect

__all__ = [
    "INSIDE",
    "OUTBOX",
    "Moment",
    "Tool",
    "letter",
    "list_folder",
    "list_tool",
    "send_letter",
    "send_tool",
    "sent_letters",
    "tools_of_round",
]

INSIDE = b"inside\n"
"""What a tool that waits says before it does."""
OUTBOX = "outbox.txt"


class Moment(StrEnum):
    """Where a tool waits: before it has done what it does, or after."""

    BEFORE = "before"
    AFTER = "after"


class Tool(NamedTuple):
    """A tool with what it is given: a command line."""

    name: str
    words: list[str]
    effect: Effect


_WAIT = "\ndef wait():\n    print('inside', flush=True)\n    sys.stdin.read()\n"
_LIST = f"""import os, sys{_WAIT}
if sys.argv[2:]: wait()
print(*sorted(os.listdir(sys.argv[1])), sep='\\n')
"""
_SEND = f"""import sys{_WAIT}
if 'before' in sys.argv[3:]: wait()
with open(sys.argv[1], 'a', encoding='utf-8') as outbox: outbox.write(sys.argv[2] + '\\n')
if 'after' in sys.argv[3:]: wait()
print('sent')
"""


def list_tool(folder: str, wait: Moment | None = None) -> Tool:
    """Lists the folder: nothing outside the agent changes."""
    return Tool("list", [sys.executable, "-c", _LIST, folder, *_argument(wait)], Effect.NONE)


def send_tool(folder: str, text: str, wait: Moment | None = None) -> Tool:
    """Sends a letter: once is not the same as twice."""
    path = os.path.join(folder, OUTBOX)
    return Tool("send", [sys.executable, "-c", _SEND, path, text, *_argument(wait)], Effect.UNSAFE)


def _argument(wait: Moment | None) -> list[str]:
    return [] if wait is None else [wait.value]


def tools_of_round(folder: str, round_no: int) -> list[Tool]:
    """The harmless ones of a round; each round's differ, so that no two records are alike."""
    summing = f"print(sum(number * number for number in range({200_000 + round_no})))"
    cubes = f"for number in range({100 * (round_no % 9 + 1)}): print(number, 'cubed is', number**3)"
    return [
        list_tool(folder),
        Tool("sum", [sys.executable, "-c", summing], Effect.NONE),
        Tool("cubes", [sys.executable, "-c", cubes], Effect.NONE),
    ]


def letter(thread_id: str, call_id: str) -> str:
    """The line that a call to send leaves in the outbox."""
    return f"letter {call_id} of {thread_id}"


def list_folder(folder: str | os.PathLike[str]) -> str:
    """What the tool `list` says, without a process of its own."""
    return "\n".join(sorted(os.listdir(folder)))


def send_letter(folder: str | os.PathLike[str], text: str) -> None:
    """What the tool `send` does, without a process of its own."""
    with open(os.path.join(folder, OUTBOX), "a", encoding="utf-8") as outbox:
        outbox.write(text + "\n")


def sent_letters(folder: str | os.PathLike[str], thread_id: str) -> list[str]:
    """The letters of a thread that went out, in order."""
    try:
        with open(os.path.join(folder, OUTBOX), encoding="utf-8") as outbox:
            return [line.rstrip("\n") for line in outbox if line.rstrip("\n").endswith(f" of {thread_id}")]
    except FileNotFoundError:
        return []
