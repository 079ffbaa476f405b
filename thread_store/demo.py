"""The demo: an agent records itself, is killed without warning, and the file is held to what was promised.

Invariant: the verdict comes from comparing two lists, the digests that the agent reported after
its syncs returned, and the digests of the records that the public reader finds in the file. The
demo passes only if the first is the beginning of the second, each once and in order.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.errors import RolloutError

__all__ = ["Comparison", "DemoFailed", "DemoReport", "compare", "found_digests", "run_demo"]

_START_SECONDS = 30.0
"""So long the agent may take to its first acknowledgement, on a slow machine."""

_NOT_ITEMS = ("session_meta", "x_memory", "x_writer")
"""What a recorder writes of its own accord."""

Watcher = Callable[[dict[str, Any]], None]


class DemoFailed(RolloutError):
    """The demo could not be carried out: the agent ended by itself, or never began."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was promised against what is there. All counts are of records."""

    acknowledged: int
    found: int
    missing: int
    doubled: int
    in_order: bool

    @property
    def holds(self) -> bool:
        """Whether each acknowledged record is there exactly once, and in its place."""
        return self.in_order and not self.missing and not self.doubled


@dataclass(slots=True)
class DemoReport:
    """What happened. Sizes in bytes, times in seconds."""

    home: str
    path: str = ""
    thread_id: str = ""
    agent_pid: int = 0
    killed_after_seconds: float = 0.0
    interrupted: str = ""
    """What the agent was doing when it was killed."""
    acknowledged: list[str] = field(default_factory=list)
    synced_bytes: int = 0
    """Where the file ended, by the last acknowledgement."""
    file_bytes: int = 0
    torn_bytes: int = 0
    after_kill: Comparison | None = None
    after_reopen: Comparison | None = None
    kept_files: list[str] = field(default_factory=list)
    fork_id: str = ""
    """A thread that goes on from the end of the first turn, or from before a call that never ended in it."""
    fork_ordinal: int | None = None
    """The last item that it shares with the thread."""

    @property
    def holds(self) -> bool:
        """Whether every promise was kept, before and after the file was opened again."""
        return bool(
            self.after_kill and self.after_kill.holds and self.after_reopen and self.after_reopen.holds
        )


def compare(acknowledged: list[str], found: list[str]) -> Comparison:
    """Hold what is in a file against what was promised."""
    counts: dict[str, int] = {}
    for digest in found:
        counts[digest] = counts.get(digest, 0) + 1
    return Comparison(
        acknowledged=len(acknowledged),
        found=len(found),
        missing=sum(digest not in counts for digest in acknowledged),
        doubled=sum(count > 1 for count in counts.values()),
        in_order=found[: len(acknowledged)] == acknowledged,
    )


def found_digests(path: str | os.PathLike[str]) -> tuple[list[str], int]:
    """The digests of the items in a rollout, in file order, and the bytes of its torn tail."""
    from rollout.reader import read_rollout
    from thread_store.demo_agent import payload_digest

    digests: list[str] = []
    torn_bytes = 0
    for record in read_rollout(path):
        if record.line is None:
            torn_bytes += record.size
        elif record.line.type not in _NOT_ITEMS:
            digests.append(payload_digest(bytes(record.line.payload)))
    return digests, torn_bytes


def run_demo(
    home: str | os.PathLike[str], *, seconds: float, watch: Watcher = lambda event: None
) -> DemoReport:
    """Run the agent in a process of its own, kill it within `seconds`, and compare.

    `watch` is called with each message of the agent. The rollout stays in `home`.

    Raises:
        DemoFailed: the agent did not get as far as an acknowledgement.
    """
    report = DemoReport(home=os.fspath(home))
    # What the agent says goes to a file: nobody reads a pipe while it is being killed.
    with tempfile.TemporaryFile() as complaints:
        command = [sys.executable, "-P", "-m", "thread_store.demo_agent", report.home]
        agent = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": _import_path()},
        )
        try:
            report.agent_pid = agent.pid
            _watch_until_killed(agent, report, seconds, watch)
        finally:
            _end(agent)
        if not report.acknowledged:
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace").strip().splitlines()
            raise DemoFailed(f"the agent acknowledged nothing: {said[-1] if said else 'it said nothing'}")
    _look_at_file(report)
    _open_again(report)
    _fork(report)
    return report


def _import_path() -> str:
    """Where this very library is found, also when it is not installed."""
    source = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))


def _watch_until_killed(
    agent: subprocess.Popen[bytes], report: DemoReport, seconds: float, watch: Watcher
) -> None:
    assert agent.stdout is not None
    descriptor = agent.stdout.fileno()
    begun = 0.0
    deadline = time.monotonic() + _START_SECONDS
    rest = b""
    alive = True
    while True:
        left = deadline - time.monotonic()
        if alive and left <= 0:
            agent.kill()  # SIGKILL: it can neither be caught nor prepared for
            alive = False
            report.killed_after_seconds = time.monotonic() - begun if begun else 0.0
        readable, _, _ = select.select([descriptor], [], [], max(left, 0) if alive else None)
        if not readable:
            continue
        block = os.read(descriptor, 1 << 16)
        if not block:
            return  # it is dead, and everything that it said before has been read
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            message = json.loads(line)
            _note(report, message)
            watch(message)
            if not begun and report.acknowledged:
                begun = time.monotonic()
                deadline = begun + random.uniform(0.4, 1.0) * seconds


def _note(report: DemoReport, message: dict[str, Any]) -> None:
    match message["event"]:
        case "begun":
            report.path, report.thread_id = message["path"], message["thread_id"]
        case "doing":
            report.interrupted = f"{message['who']}: {message['text']}"
        case "synced":
            report.acknowledged += message["digests"]
            report.synced_bytes = message["offset_bytes"]


def _end(agent: subprocess.Popen[bytes]) -> None:
    """The agent, whatever happened, and the tools that outlived it."""
    agent.kill()
    if hasattr(os, "killpg"):
        try:
            os.killpg(agent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it left no tools
    agent.wait()
    if agent.stdout is not None:
        agent.stdout.close()


def _look_at_file(report: DemoReport) -> None:
    report.file_bytes = os.stat(report.path).st_size
    digests, report.torn_bytes = found_digests(report.path)
    report.after_kill = compare(report.acknowledged, digests)


def _open_again(report: DemoReport) -> None:
    """What the next run of an agent does: append. A torn tail is set aside first."""
    from protocol import tracks
    from rollout import blocking
    from rollout.kept import find_kept

    with blocking.open(report.path) as recorder:
        recorder.record(tracks.user_message("(demo) the agent was killed; somebody opened the rollout again"))
        recorder.sync()
    digests, _ = found_digests(report.path)
    report.after_reopen = compare(report.acknowledged, digests)
    report.kept_files = _paths(find_kept(report.path))


def _fork(report: DemoReport) -> None:
    """What somebody does who wants to try another way: a new thread with the history up to a point."""
    from protocol.errors import ForkPointInvalid
    from protocol.ids import ThreadId
    from thread_store.fork import Fork, make_fork
    from thread_store.fork_point import ForkPoint
    from thread_store.home import Home

    home, child = Home(report.home), ThreadId.new()

    def fork_at(point: ForkPoint) -> Fork:
        target = home.new_rollout_path(child)
        return make_fork(report.path, target, thread_id=child, home=home, point=point)

    try:
        fork = fork_at(ForkPoint.turn(1))
    except ForkPointInvalid as error:
        fork = fork_at(error.nearest[0])  # killed in its first turn, in the middle of a tool call
    report.fork_id = fork.thread_id
    report.fork_ordinal = None if fork.border.end_ordinal is None else fork.border.end_ordinal - 1


def _paths(kept: Iterable[Any]) -> list[str]:
    return [each.path for each in kept]
