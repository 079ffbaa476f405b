"""The demo: an agent records itself, is killed inside a tool, and the file is held to what was promised.

Invariant: the verdict comes from comparing two lists, the digests that the agent reported after
its syncs returned, and the digests of the records that the public reader finds in the file. The
demo passes only if the first is the beginning of the second, each once and in order; and if no side
effect was repeated or forgotten (`thread_store.demo.demo_resume`). The agent is killed when it says that it
is inside its last tools, where it waits for that: how fast the machine is doesn't matter.
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
from typing import IO, TYPE_CHECKING, Any

from protocol.errors import RolloutError
from thread_store.demo.demo_tools import Moment

if TYPE_CHECKING:
    from thread_store.demo.demo_resume import ResumeReport

__all__ = ["Comparison", "DemoFailed", "DemoReport", "compare", "found_digests", "run_demo"]

_PATIENCE_SECONDS = 60.0
"""So long beyond its time the agent may take to its last tools, on a slow machine."""

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
    inside: list[str] = field(default_factory=list)
    """Ids of the calls that it was killed in."""
    acknowledged: list[str] = field(default_factory=list)
    synced_bytes: int = 0
    """Where the file ended, by the last acknowledgement."""
    file_bytes: int = 0
    torn_bytes: int = 0
    after_kill: Comparison | None = None
    resume: ResumeReport | None = None
    after_resume: Comparison | None = None
    kept_files: list[str] = field(default_factory=list)
    fork_id: str = ""
    """A thread that goes on from the end of the first turn, or from before a call that never ended in it."""
    fork_ordinal: int | None = None
    """The last item that it shares with the thread."""

    @property
    def holds(self) -> bool:
        """Whether every promise was kept, before and after the thread was resumed."""
        found = (self.after_kill, self.resume, self.after_resume)
        return bool(self.acknowledged) and all(each is not None and each.holds for each in found)


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
    from thread_store.demo.demo_agent import payload_digest

    digests: list[str] = []
    torn_bytes = 0
    for record in read_rollout(path):
        if record.line is None:
            torn_bytes += record.size
        elif record.line.type not in _NOT_ITEMS:
            digests.append(payload_digest(bytes(record.line.payload)))
    return digests, torn_bytes


def run_demo(
    home: str | os.PathLike[str],
    *,
    seconds: float,
    moment: Moment | None = None,
    watch: Watcher = lambda event: None,
) -> DemoReport:
    """Let an agent work in a process of its own for up to `seconds`, kill it inside its tools, resume it.

    `watch` is called with each message of the agent. `moment`: whether the tool with a side effect is
    killed before it or after; by default nobody knows. The rollout stays in `home`.

    Raises:
        DemoFailed: the agent did not get into its last tools.
    """
    report = DemoReport(home=os.fspath(home))
    work_seconds = random.uniform(0.4, 1.0) * seconds
    moment = moment or random.choice(list(Moment))
    # What the agent says goes to a file: nobody reads a pipe while it is being killed.
    with tempfile.TemporaryFile() as complaints:
        agent = _start_agent(report.home, work_seconds, moment, complaints)
        try:
            report.agent_pid = agent.pid
            _watch_until_killed(agent, report, work_seconds + _PATIENCE_SECONDS, watch)
        finally:
            _end(agent)
        if not report.inside:
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace").strip().splitlines()
            what = "never got into its last tools" if report.acknowledged else "acknowledged nothing"
            raise DemoFailed(f"the agent {what}: {said[-1] if said else 'it said nothing'}")
    _look_at_file(report)
    _resume(report)
    _fork(report)
    return report


def _start_agent(home: str, seconds: float, moment: Moment, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "thread_store.demo.demo_agent", home, str(seconds), moment],
        stdin=subprocess.PIPE,  # its end tells the agent that nobody watches any more
        stdout=subprocess.PIPE,
        stderr=complaints,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": _import_path()},
    )


def _import_path() -> str:
    """Where this very library is found, also when it is not installed."""
    source = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))


def _watch_until_killed(
    agent: subprocess.Popen[bytes], report: DemoReport, seconds: float, watch: Watcher
) -> None:
    """Read what it says until it is dead: killed inside its last tools, or after so many seconds."""
    assert agent.stdout is not None
    descriptor = agent.stdout.fileno()
    begun = time.monotonic()
    rest = b""
    alive = True
    while True:
        left = begun + seconds - time.monotonic()
        if alive and (report.inside or left <= 0):
            agent.kill()  # SIGKILL: it can neither be caught nor prepared for
            alive = False
            report.killed_after_seconds = time.monotonic() - begun
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


def _note(report: DemoReport, message: dict[str, Any]) -> None:
    match message["event"]:
        case "begun":
            report.path, report.thread_id = message["path"], message["thread_id"]
        case "inside":
            report.inside = message["calls"]
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
    for stream in (agent.stdin, agent.stdout):
        if stream is not None:
            stream.close()


def _look_at_file(report: DemoReport) -> None:
    report.file_bytes = os.stat(report.path).st_size
    digests, report.torn_bytes = found_digests(report.path)
    report.after_kill = compare(report.acknowledged, digests)


def _resume(report: DemoReport) -> None:
    """What the next run of an agent does: look at what is open, and go on. A torn tail is set aside first."""
    from rollout.kept import find_kept
    from thread_store.demo.demo_resume import resume_demo

    report.resume = resume_demo(report.home, report.thread_id, report.path)
    digests, _ = found_digests(report.path)
    report.after_resume = compare(report.acknowledged, digests)
    report.kept_files = _paths(find_kept(report.path))


def _fork(report: DemoReport) -> None:
    """What somebody does who wants to try another way: a new thread with the history up to a point."""
    from protocol.errors import ForkPointInvalid
    from protocol.ids import ThreadId
    from thread_store.chain.fork_point import ForkPoint
    from thread_store.forks.fork import Fork, make_fork
    from thread_store.home import Home

    home, child = Home(report.home), ThreadId.new()

    def fork_at(point: ForkPoint) -> Fork:
        target = home.new_rollout_path(child)
        return make_fork(report.path, target, thread_id=child, home=home, point=point)

    try:
        fork = fork_at(ForkPoint.turn(1))
    except ForkPointInvalid as error:
        fork = fork_at(error.nearest[0])  # in the middle of a tool call
    report.fork_id = fork.thread_id
    report.fork_ordinal = None if fork.border.end_ordinal is None else fork.border.end_ordinal - 1


def _paths(kept: Iterable[Any]) -> list[str]:
    return [each.path for each in kept]
