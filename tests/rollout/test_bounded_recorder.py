"""A recorder with bounded storage: a line that names a blob is never there, nor durable, before it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol import EventMsg, ResponseItem, RolloutItem, StorageBounds, tracks
from protocol.blobs import BLOB_NAME
from protocol.errors import PendingQueueFull, RecordTooLarge, RolloutWriteError, UnwrittenItems
from protocol.inlining import inline_payload
from rollout import RecorderConfig, RolloutRecorder, read_rollout, repair_rollout
from rollout.blobs import BlobFolder, blob_folder
from rollout.core import create_core
from rollout.pending import Pending
from rollout.service import shared_service
from tests.rollout.blob_faults import FaultyBlobCalls
from tests.rollout.faulty import Fault, FaultyCalls, fails
from tests.rollout.test_pending import HEADER, opening

BOUNDS = StorageBounds(text_chars_max=1000, text_chars_kept=100, media_chars_min=300)
CONFIG = RecorderConfig(bounds=BOUNDS)
ROOT = Path(__file__).resolve().parents[2]


def long(letter: str = "x", size: int = 5000) -> RolloutItem:
    return ResponseItem.message("user", letter * size)


def name_of(letter: str = "x", size: int = 5000) -> str:
    return hashlib.sha256(letter.encode() * size).hexdigest()


def texts(path: Path) -> list[str]:
    """The texts of all messages, with their blobs in them."""
    folder = BlobFolder(blob_folder(path))
    found = []
    for record in read_rollout(path):
        if record.line is not None and record.line.type == "response_item":
            payload, problems = inline_payload(bytes(record.line.payload), folder.read)
            assert not problems
            found.append(json.loads(payload)["content"][0]["text"])
    return found


def begin(path: Path, config: RecorderConfig = CONFIG, **calls: Any) -> RolloutRecorder:
    return RolloutRecorder(create_core(path, None, config=config, service=shared_service(), **calls))


@pytest.mark.asyncio
async def test_long_text_is_kept_apart_and_reads_as_it_was(tmp_path: Path) -> None:
    """The line is short, the blob holds it all, once for both tracks."""
    path = tmp_path / "r.jsonl"
    async with RolloutRecorder.create(path, config=CONFIG) as recorder:
        await recorder.record(tracks.user_message("x" * 5000), long("short", 3))
        await recorder.sync()
        assert os.listdir(tmp_path / "blobs") == [name_of()]
    assert path.stat().st_size < 4000
    assert texts(path) == ["x" * 5000, "short" * 3]


@pytest.mark.asyncio
async def test_by_default_everything_stands_in_its_line(tmp_path: Path) -> None:
    """Codex can't follow a blob."""
    path = tmp_path / "r.jsonl"
    async with RolloutRecorder.create(path) as recorder:
        await recorder.record(long(size=600_000))
    assert os.listdir(tmp_path) == ["r.jsonl"]
    assert path.stat().st_size > 600_000


@pytest.mark.asyncio
async def test_rollout_that_is_opened_again_is_bounded_too(tmp_path: Path) -> None:
    """A blob that is there serves the new line as well."""
    path = tmp_path / "r.jsonl"
    for _ in range(2):
        recorder = RolloutRecorder.open if path.exists() else RolloutRecorder.create
        async with recorder(path, config=CONFIG) as opened:
            await opened.record(long())
    assert texts(path) == ["x" * 5000] * 2
    assert os.listdir(tmp_path / "blobs") == [name_of()]


@pytest.mark.asyncio
async def test_record_does_no_disk_work(tmp_path: Path) -> None:
    """A blob waits in memory as its line does."""
    calls = FaultyBlobCalls()
    recorder = begin(tmp_path / "r.jsonl", RecorderConfig(bounds=BOUNDS, linger_seconds=30), blob_calls=calls)
    recorder.record_nowait(long(), long("y"))
    assert not calls.log
    assert recorder.health.pending_bytes > 10_000
    await recorder.aclose()
    assert recorder.health.pending_bytes == 0


@pytest.mark.guarantee("G2")
@pytest.mark.asyncio
async def test_blob_is_durable_before_its_line_is_acknowledged(tmp_path: Path) -> None:
    """Placed before the line is handed over, synced before a sync is answered; a flush waits for none."""
    calls = FaultyBlobCalls()
    recorder = begin(tmp_path / "r.jsonl", RecorderConfig(bounds=BOUNDS, sync_seconds=60), blob_calls=calls)
    recorder.record_nowait(long())
    await recorder.flush()
    assert texts(tmp_path / "r.jsonl") == ["x" * 5000]
    assert not calls.made["datasync"]
    await recorder.sync()
    assert calls.made["datasync"] == 1
    named = [name for name, _ in calls.log]
    assert named.index("rename") < named.index("datasync") < len(named) - 1 - named[::-1].index("sync_folder")
    await recorder.aclose()


@pytest.mark.guarantee("G3")
@pytest.mark.asyncio
async def test_sync_fails_while_the_blob_can_not_be_synced(tmp_path: Path) -> None:
    """It is written anew before the next one counts: a failed fsync marks pages clean."""
    calls = FaultyBlobCalls(Fault("datasync", fails(errno.EIO), times=None))
    recorder = begin(tmp_path / "r.jsonl", blob_calls=calls)
    recorder.record_nowait(long())
    with pytest.raises(RolloutWriteError):
        await recorder.sync()
    await recorder.flush()
    inode = os.stat(tmp_path / "blobs" / name_of()).st_ino
    calls.lift()
    await recorder.sync()
    assert os.stat(tmp_path / "blobs" / name_of()).st_ino != inode
    await recorder.aclose()
    assert texts(tmp_path / "r.jsonl") == ["x" * 5000]


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("call", ["make_folder", "open_new", "write", "rename"])
@pytest.mark.asyncio
async def test_blob_that_can_not_be_placed_holds_its_line_back(tmp_path: Path, call: str) -> None:
    """Exactly as a line that can't be written: kept in order, and written when the disk works again."""
    calls = FaultyBlobCalls(Fault(call, fails(errno.ENOSPC), times=None))
    path = tmp_path / "r.jsonl"
    recorder = begin(path, blob_calls=calls)
    recorder.record_nowait(long(), EventMsg.agent_message("behind it"))
    with pytest.raises(RolloutWriteError):
        await recorder.flush()
    assert name_of().encode() not in path.read_bytes()
    assert b"behind it" not in path.read_bytes()
    assert recorder.health.pending_items == 2
    calls.lift()
    await recorder.flush()
    await recorder.aclose()
    assert texts(path) == ["x" * 5000]
    assert path.read_bytes().count(b"behind it") == 1


@pytest.mark.guarantee("G1")
@pytest.mark.asyncio
async def test_what_is_set_aside_needs_no_blob(tmp_path: Path) -> None:
    """A recorder that ends while its blobs can't be placed keeps the whole texts; a replay brings them in."""
    path = tmp_path / "sessions" / "r.jsonl"
    calls = FaultyBlobCalls(Fault("open_new", fails(errno.ENOSPC), times=None))
    config = RecorderConfig(bounds=BOUNDS, close_seconds=0.3)
    recorder = begin(path, config, blob_calls=calls)
    recorder.record_nowait(long("a"), long("short", 2), long("b"))
    with pytest.raises(UnwrittenItems) as caught:
        await recorder.aclose()
    assert caught.value.kept_path is not None
    kept = Path(caught.value.kept_path).read_bytes()
    assert b"a" * 5000 in kept
    assert not BLOB_NAME.search(kept)
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a" * 5000, "shortshort", "b" * 5000]


@pytest.mark.guarantee("G1")
@pytest.mark.asyncio
async def test_line_that_fails_behind_its_blob_is_set_aside_once(tmp_path: Path) -> None:
    """Its blob is there, so the kept line names it; a replay adds nothing twice."""
    path = tmp_path / "sessions" / "r.jsonl"
    calls = FaultyCalls(Fault("write", fails(errno.ENOSPC), times=None))
    recorder = begin(path, RecorderConfig(bounds=BOUNDS, close_seconds=0.3), calls=calls)
    recorder.record_nowait(long("a"))
    with pytest.raises(UnwrittenItems):
        await recorder.aclose()
    repair_rollout(path, dry_run=False, replay=True)
    assert texts(path) == ["a" * 5000]


# Bounds


def make(**config: Any) -> Pending:
    return Pending(
        path="/r.jsonl",
        config=RecorderConfig(**config),
        header=HEADER,
        opening=opening,
        next_ordinal=1,
        bounds=BOUNDS,
    )


@pytest.mark.guarantee("G7")
def test_pending_limit_counts_blobs() -> None:
    """Until they are durable; then there is room again."""
    pending = make(pending_bytes_max=12_000)
    pending.append(long("a"))
    pending.append(long("b"))
    with pytest.raises(PendingQueueFull) as caught:
        pending.append(long("c"))
    assert caught.value.pending_bytes > 10_000
    chunks = [*pending.take()]
    assert [len(each.blobs) for each in chunks] == [2]
    with pytest.raises(PendingQueueFull):
        pending.append(long("c"))
    pending.note_durable(pending.accepted_bytes)
    assert pending.blob_bytes == 0
    pending.append(long("c"))


@pytest.mark.guarantee("G7")
def test_blobs_count_until_their_own_line_is_durable() -> None:
    """A sync that covered what stands before them makes no room for them."""
    pending = make(pending_bytes_max=12_000)
    pending.append(long("a"))
    first = pending.accepted_bytes
    pending.append(long("b"))
    pending.note_durable(first)
    assert pending.blob_bytes == 5000
    pending.append(long("c"))
    with pytest.raises(PendingQueueFull):
        pending.append(long("d"))


@pytest.mark.guarantee("G7")
def test_record_limit_counts_blobs() -> None:
    """A record is as large as what it holds, wherever that is kept; what is refused leaves no trace."""
    pending = make(record_bytes_max=4000)
    with pytest.raises(RecordTooLarge) as caught:
        pending.append(long())
    assert caught.value.size_bytes > 5000
    assert (pending.accepted_bytes, pending.blob_bytes) == (0, 0)


@pytest.mark.guarantee("G7")
@pytest.mark.asyncio
async def test_more_blobs_than_the_queue_holds_go_through(tmp_path: Path) -> None:
    """`record` waits for room, and gets it."""
    path = tmp_path / "r.jsonl"
    config = RecorderConfig(bounds=BOUNDS, pending_bytes_max=20_000)
    async with RolloutRecorder.create(path, config=config) as recorder:
        for number in range(30):
            await recorder.record(long(str(number % 10), 6000), timeout=30)
    assert len(texts(path)) == 30
    assert len(os.listdir(tmp_path / "blobs")) == 10


@pytest.mark.asyncio
async def test_two_recorders_may_place_the_same_blob(tmp_path: Path) -> None:
    """At the same time, in one home."""
    paths = [tmp_path / f"{number}.jsonl" for number in range(6)]

    async def run(path: Path) -> None:
        async with RolloutRecorder.create(path, config=CONFIG) as recorder:
            for number in range(20):
                await recorder.record(long("abc"[number % 3]))
                await recorder.sync()

    await asyncio.gather(*map(run, paths))
    for path in paths:
        assert len(texts(path)) == 20
    assert sorted(os.listdir(tmp_path / "blobs")) == sorted(name_of(letter) for letter in "abc")


# Killed at any system call

_CHILD = """
import asyncio, os, signal, sys
from rollout import RecorderConfig
from tests.rollout.blob_faults import FaultyBlobCalls
from tests.rollout.faulty import Fault
from tests.rollout.test_bounded_recorder import begin, long

def dies(calls, name, arguments):
    if sys.argv[4] == "after":
        calls.perform(name, arguments)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    from pathlib import Path
    calls = FaultyBlobCalls(Fault(sys.argv[2], dies, int(sys.argv[3])))
    recorder = begin(Path(sys.argv[1]), blob_calls=calls)
    for number, letter in enumerate("abab"):
        recorder.record_nowait(long(letter))
        await recorder.sync()
        os.write(1, b"%d\\n" % (number + 1))
    await recorder.aclose()

asyncio.run(main())
"""


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "call", ["make_folder", "open_new", "write", "close", "rename", "datasync", "sync_folder", "touch"]
)
def test_kill_at_any_call_leaves_each_acknowledged_record_whole(tmp_path: Path, call: str, when: str) -> None:
    """And no line that names a blob which isn't there."""
    for first in range(1, 12):
        path = tmp_path / str(first) / "r.jsonl"
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, path, call, str(first), when],
            cwd=ROOT,
            capture_output=True,
            timeout=120,
        )
        if done.returncode == 0:
            return
        assert done.returncode == -signal.SIGKILL, done.stderr
        acknowledged = len(done.stdout.splitlines())
        found = texts(path) if path.exists() else []
        assert found == ["a" * 5000, "b" * 5000, "a" * 5000, "b" * 5000][: len(found)]
        assert len(found) >= acknowledged
        asyncio.run(_goes_on(path))


async def _goes_on(path: Path) -> None:
    opening = RolloutRecorder.open if path.exists() and path.stat().st_size else RolloutRecorder.create
    async with opening(path, config=CONFIG) as recorder:
        await recorder.record(long("a"), long("b"), long("c"))
    assert texts(path)[-3:] == ["a" * 5000, "b" * 5000, "c" * 5000]
