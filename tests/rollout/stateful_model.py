"""What the stateful test plays with and measures by: a disk with other programs on it, and a ledger.

Invariant: the ledger knows only what callers were told (accepted, flushed, synced) and what the
test itself destroyed; what the file must hold follows from that alone. It reads the bytes with
`json` and nothing of the code under test.
"""

from __future__ import annotations

import concurrent.futures
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rollout.service import Service
from tests.rollout.faulty import (
    Effect,
    ForgetfulCalls,
    answers,
    fails,
    fails_after,
    short,
    short_then_fails,
)

__all__ = [
    "FAULTS",
    "FOREIGN_HALF",
    "FOREIGN_LINE",
    "FREQUENT_FAULTS",
    "TORN",
    "Clock",
    "Disk",
    "Ledger",
    "WatchedService",
    "effect_of",
    "parse",
]

_T = TypeVar("_T")

MARK = b"somebody else"
FOREIGN_LINE = b'{"type":"x_foreign","payload":{"by":"somebody else"}}\n'
FOREIGN_HALF = b'{"type":"x_foreign","payload":{"by":"somebody else'

_ERRORS = {
    "write": (errno.ENOSPC, errno.EIO, errno.EAGAIN, errno.EDQUOT),
    "pwrite": (errno.ENOSPC, errno.EIO),
    "datasync": (errno.EIO, errno.ENOSPC),
    "sync_folder": (errno.EIO,),
    "open_append": (errno.EIO, errno.EMFILE),
    "open_new": (errno.ENOSPC, errno.EIO),
    "open_overwrite": (errno.EIO, errno.EMFILE),
    "truncate": (errno.EIO, errno.EPERM),
    "fstat": (errno.EIO,),
    "lstat": (errno.EIO,),
    "pread": (errno.EIO,),
    "dup": (errno.EMFILE,),
    "link": (errno.EIO,),
    "unlink": (errno.EIO,),
    "make_folder": (errno.ENOSPC,),
}
_DONE_AND_FAILED = ("datasync", "open_append", "open_new", "truncate", "sync_folder", "close", "link", "dup")


def _faults() -> Iterator[str]:
    for call, numbers in _ERRORS.items():
        yield from (f"{call} fails with {errno.errorcode[number]}" for number in numbers)
    yield from (f"{call} works and fails with EIO" for call in _DONE_AND_FAILED)
    for call in ("write", "pwrite"):
        yield f"{call} is short"
        yield f"{call} is short and fails with ENOSPC"
        yield f"{call} works and fails with EIO"
    yield "write returns 0"


FAULTS = tuple(_faults())
"""By name, so that a failing run reads well."""
FREQUENT_FAULTS = tuple(name for name in FAULTS if name.startswith(("write", "datasync")))
TORN = b'{"timestamp":"2026-11-29T10:11:12.345Z","ordi'
"""What a process that is killed in the middle of a line leaves."""


def effect_of(fault: str, percent: int) -> tuple[str, Effect]:
    """The call and what happens to it. `percent`: how much of a short write arrives."""

    def part(size: int) -> int:
        return size * percent // 100

    call, _, what = fault.partition(" ")
    number = getattr(errno, what.rpartition(" ")[2], 0)
    if what == "is short":
        return call, short(part)
    if what.startswith("is short and"):
        return call, short_then_fails(part, number)
    if what.startswith("works and"):
        return call, fails_after(number)
    if what == "returns 0":
        return call, answers(0)
    return call, fails(number)


class Disk(ForgetfulCalls):
    """The forgetful disk, and what other programs do on it: what those change is stable at once."""

    def stable_bytes(self, path: Path) -> int:
        """No byte behind this offset was ever covered by a sync that could have been believed."""
        with self._disk:
            status = os.stat(path)
            inode = self._inodes.get((status.st_dev, status.st_ino))
            return len(inode.stable) if inode is not None else 0

    def still(self) -> AbstractContextManager[object]:
        """While it is entered, no call changes anything: what was looked at is what is acted on. Without it a
        sync in another thread could end in between, and make durable what was thought not to be."""
        return self._disk

    def is_held(self, path: Path) -> bool:
        """Whether this process has the file at the path open. If an open or a link was reported as failed
        and yet worked, it has not, and can't know that the file is its own."""
        at_path = os.stat(path)
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                if os.path.samestat(os.stat(f"/proc/self/fd/{descriptor}"), at_path):
                    return True
            except OSError:
                continue  # closed meanwhile
        return False

    def append_by_others(self, path: Path, data: bytes) -> None:
        with self._disk, path.open("ab") as file:
            offset = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
            self._inode(file.fileno())._place(data, offset)

    def truncate_by_others(self, path: Path, size: int) -> None:
        with self._disk, path.open("r+b") as file:
            self._truncate(file.fileno(), size)

    def unlink_by_others(self, path: Path) -> None:
        with self._disk:
            path.unlink()
            self._names.pop(os.fspath(path), None)

    def put_back(self, aside: Path, path: Path) -> None:
        """A recorder that synced the folder meanwhile has made its absence stable."""
        with self._disk:
            aside.replace(path)
            status = os.stat(path)
            self._names[os.fspath(path)] = (status.st_dev, status.st_ino)

    def replace_by_copy(self, path: Path) -> None:
        with self._disk:
            copy = path.with_name("copy")
            shutil.copyfile(path, copy)
            copy.replace(path)
            self.trust(path)

    def lose_power(self, path: Path, *, luck_bytes: int) -> None:
        """Put at the path what a power cut leaves. `luck_bytes`: so much more had reached the disk,
        behind what had to."""
        with self._disk:
            left = self.after_power_loss(path)
            cached = path.read_bytes() if path.exists() else b""
            if left is not None and cached.startswith(left):
                left = cached[: len(left) + luck_bytes]
            loose = sorted(each for each in self._loose_folders if path.is_relative_to(each))
            if loose:
                shutil.rmtree(loose[0])
                self._loose_folders -= set(loose)
            path.unlink(missing_ok=True)
            self._names.pop(os.fspath(path), None)
            if left is not None:
                path.write_bytes(left)
                self.trust(path)


class WatchedService(Service):
    """Tells when none of its threads works for a writer, and lets others act between two of its steps."""

    def __init__(self) -> None:
        super().__init__("stateful-test")
        self._count = threading.Lock()
        self._syncing = self._healing = 0

    async def run_blocking(self, job: Callable[[], _T]) -> _T:
        self._healing += 1
        try:
            return await super().run_blocking(job)
        finally:
            self._healing -= 1

    def post_blocking(self, job: Callable[[], None]) -> None:
        def counted() -> None:
            try:
                job()
            finally:
                with self._count:
                    self._syncing -= 1

        with self._count:
            self._syncing += 1
        super().post_blocking(counted)

    @property
    def idle(self) -> bool:
        return not self._syncing and not self._healing

    def between_steps(self, act: Callable[[], _T]) -> concurrent.futures.Future[_T]:
        """Run `act` on the service loop while no writer is healing: so never between its look at the
        file and the write that follows, which nothing could make one step."""
        done: concurrent.futures.Future[_T] = concurrent.futures.Future()

        def attempt() -> None:
            if self._healing:
                self.loop.call_later(0.0005, attempt)
                return
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001  # for whoever waits
                done.set_exception(error)

        self.call(attempt)
        return done


class Clock:
    """The time of day as recorders see it; it can be set back."""

    def __init__(self) -> None:
        self.shift_seconds = 0.0

    def time(self) -> float:
        return time.time() + self.shift_seconds

    def time_ns(self) -> int:
        return time.time_ns() + int(self.shift_seconds * 1e9)


@dataclass(frozen=True)
class Line:
    """A line of the file. `kind`: item, gap, foreign, corrupt, blank, or its record type."""

    kind: str
    begin: int
    data: bytes
    value: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.begin + len(self.data) + 1

    @property
    def number(self) -> int:
        """The number of an item."""
        payload = self.value["payload"]
        return int(payload["content"][0]["text"].partition(":")[0] if "content" in payload else payload["n"])


def parse(data: bytes) -> tuple[list[Line], bytes]:
    """The whole lines, and what stands behind the last newline."""
    lines, offset = [], 0
    *whole, tail = data.split(b"\n")
    for each in whole:
        lines.append(_judge(each, offset))
        offset += len(each) + 1
    return lines, tail


def _judge(data: bytes, offset: int) -> Line:
    if not data:
        return Line("blank", offset, data)
    try:
        value = json.loads(data.decode())
    except ValueError:
        return Line("corrupt", offset, data)
    kinds = {"x_gap": "gap", "x_foreign": "foreign", "response_item": "item", "x_check": "item"}
    return Line(
        kinds.get(value["type"], "item" if "n" in value["payload"] else value["type"]), offset, data, value
    )


class Ledger:
    """What was promised about one rollout."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The rollout is gone, with nobody there who could bring it back; a new one begins."""
        self.accepted: list[int] = []
        self.flushed: set[int] = set()
        self.synced: set[int] = set()
        self.destroyed: set[int] = set()
        """May be missing for good, if a gap stands in their place."""
        self.at_risk: set[int] = set()
        """Were durable in a file that was unlinked: gone with it, should it never be rebuilt."""
        self.was_destroyed = False
        self.may_hold_fragments = False
        """Cutting was forbidden: broken lines could only be ended."""

    def acknowledge(self, upto: int, *, synced: bool) -> None:
        """A barrier returned that was called when `upto` items had been accepted."""
        covered = self.accepted[:upto]
        self.flushed.update(covered)
        self.at_risk.clear()
        if synced:
            self.synced.update(covered)

    def require_durable(self, left: bytes | None) -> None:
        """What a power cut would leave at this moment holds all that was acknowledged (G2, G3)."""
        found = {line.number for line in parse(left or b"")[0] if line.kind == "item"}
        lost = sorted(self.synced - found - self.destroyed)
        assert not lost, f"acknowledged, and lost by a power cut: {lost}"

    def truncated(self, lines: list[Line], size: int, *, durable_max: int) -> None:
        """Others cut the file to `size`; behind `durable_max` the recorder still has everything."""
        self.was_destroyed = self.was_destroyed or size < durable_max
        for line in lines:
            if line.kind == "item" and line.end > size:
                self.flushed.discard(line.number)
                self.synced.discard(line.number)
                if line.begin < durable_max:
                    self.destroyed.add(line.number)

    def unlinked(self, lines: list[Line], *, durable_max: int) -> None:
        """Nothing is safe until the next barrier, but the recorder holds it all."""
        self.flushed.clear()
        self.synced.clear()
        self.at_risk.update(line.number for line in lines if line.kind == "item" and line.begin < durable_max)

    def never_rebuilt(self) -> None:
        """The recorder was closed, and its unlinked file with it."""
        self.destroyed |= self.at_risk
        self.was_destroyed = True

    def require(self, data: bytes, *, upto: int) -> None:
        """The first `upto` accepted items stand in the file, once, in order (G1)."""
        index = {number: place for place, number in enumerate(self.accepted)}
        place, gap = 0, False
        # A line that lacks its newline only is whole: others cut it there, and nobody has written since.
        for line in parse(data + b"\n")[0]:
            if line.kind == "gap":
                gap = True
            elif line.kind == "item":
                assert line.number in index, f"item {line.number} was never accepted"
                at = index[line.number]
                assert at >= place, f"item {line.number} stands twice, or too late"
                self._excuse(self.accepted[place:at], gap)
                place, gap = at + 1, False
        self._excuse(self.accepted[place:upto], gap)

    def _excuse(self, missing: list[int], gap: bool) -> None:
        lost = [number for number in missing if number not in self.destroyed or not gap]
        assert not lost, f"items {lost} are missing, and no x_gap names them"

    def take_what_is_left(self, data: bytes, *, power_lost: bool) -> None:
        """The process died, or the machine: check that it kept its promises; what is left is the start."""
        # A whole line that lacks its newline only is one.
        found = [line.number for line in parse(data + b"\n")[0] if line.kind == "item"]
        promised = self.synced if power_lost else self.flushed
        assert not (lost := sorted(promised - set(found) - self.destroyed)), f"promised and lost: {lost}"
        order = [number for number in self.accepted if number in set(found)]
        assert found == order, f"not in order, or more than once: {found}"
        reached = self.accepted.index(found[-1]) if found else 0
        holes = set(self.accepted[:reached]) - set(found) - self.destroyed
        assert not holes, f"later items outlived these: {sorted(holes)}"
        self.accepted = found
        self.flushed = set(found)
        self.synced = set(found) if power_lost else self.synced & set(found)
        self.destroyed = set()
        self.at_risk = set()

    def require_clean(self, data: bytes, *, may_be_torn: bool) -> None:
        """The file of a recorder that was closed: everything is there, and nothing that isn't explained."""
        self.require(data, upto=len(self.accepted))
        lines, tail = parse(data)
        assert may_be_torn or MARK in tail or not tail, f"a torn tail: {tail[:200]!r}"
        ours = [line for line in lines if line.kind not in ("blank", "gap") and MARK not in line.data]
        # A header that was cut short with another program's bytes behind it begins anew behind those.
        heads = [line for line in ours if line.kind != "corrupt" or not self.may_hold_fragments]
        if heads and not self.was_destroyed:
            assert heads[0].kind == "session_meta", f"headless: {heads[0]}"
        assert any(line.kind == "session_meta" for line in lines) or not lines
        for line in lines:
            if line.kind == "corrupt" and MARK not in line.data and not self.may_hold_fragments:
                raise AssertionError(f"a corrupt line at {line.begin}: {line.data[:200]!r}")
        # A repair is no recorder: it replays lines that are older than its own note.
        numbered = [line for line in ours if line.kind != "corrupt" and b'"repaired"' not in line.data]
        if self.was_destroyed:  # the header was written again, perhaps more than once
            numbered = [line for line in numbered if line.kind != "session_meta"]
        self._require_numbered([line.value for line in numbered])

    def _require_numbered(self, values: list[dict[str, Any]]) -> None:
        ordinals = [value["ordinal"] for value in values if "ordinal" in value]
        if self.was_destroyed:
            assert ordinals == sorted(set(ordinals)), f"ordinals step back: {ordinals}"
        else:
            assert ordinals == list(range(len(ordinals))), f"ordinals are not dense: {ordinals}"
        stamps = [value["timestamp"] for value in values if "timestamp" in value]
        assert stamps == sorted(stamps), f"timestamps step back: {stamps}"
