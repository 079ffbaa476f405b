"""RolloutRecorder: opening, the lazy file, handles, loops, processes; what a user meets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import (
    ActiveWriter,
    ItemNotEncodable,
    NotARollout,
    RecorderClosed,
    RecordTooLarge,
    RolloutError,
    RolloutExists,
    RolloutUnreadable,
    ThreadNotFound,
)
from protocol.ids import ThreadId
from protocol.items import RolloutItem
from protocol.meta import SessionMeta
from rollout import RecorderConfig, RolloutRecorder, read_rollout
from rollout import core as core_module
from rollout.state import WriterState
from tests.rollout.faulty import EIO, FaultyCalls, ForgetfulCalls, Gate, fails, fails_after
from tests.rollout.recorded import (
    QUICK,
    ROOT,
    append_by_others,
    created,
    eventually,
    json_lines,
    message,
    messages,
    opened,
    own,
    recorder_of,
    run_script,
    texts,
)
from tests.rollout.sinking import META, lines

pytestmark = pytest.mark.asyncio

TORN = b'{"timestamp":"2026-11-29T10:00:01.000Z","ordinal":4,"type":"resp'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def as_it_was(path: Path) -> tuple[bytes, int, int]:
    status = path.stat()
    return path.read_bytes(), status.st_mtime_ns, status.st_ino


# The lazy file


async def test_thread_that_never_said_anything_leaves_nothing(tmp_path: Path) -> None:
    """No file, no folder, no lock, whatever else was called."""
    path = tmp_path / "x" / "a.jsonl"
    async with RolloutRecorder.create(path, config=QUICK) as recorder:
        assert recorder.health.state is WriterState.DEFERRED
        await recorder.flush()
        await recorder.sync()
        recorder.record_nowait()
        recorder.record_nowait([])
        await recorder.record([])
        await recorder.sync()
        with pytest.raises(ItemNotEncodable):
            recorder.record_nowait(RolloutItem.raw("x_check", {"value": float("nan")}))
        await recorder.flush()
    assert list(tmp_path.iterdir()) == []


async def test_file_begins_with_its_meta_line_and_the_opening_note(path: Path) -> None:
    """Line 1 names the thread and has ordinal 0, items count from 1, own records stand without number."""
    async with RolloutRecorder.create(path, SessionMeta(cwd="/here"), config=QUICK) as recorder:
        recorder.record_nowait(message("a"), own("b"), message("c"))
        await recorder.flush()
        thread_id = recorder.thread_id
    found = json_lines(path)
    assert [each["type"] for each in found] == [
        *("session_meta", "x_writer", "response_item", "x_check", "response_item", "x_writer")
    ]
    assert [each.get("ordinal") for each in found] == [0, None, 1, None, 2, None]
    assert found[0]["payload"]["id"] == thread_id == str(ThreadId.parse(thread_id))
    assert (found[0]["payload"]["cwd"], found[0]["payload"]["history_mode"]) == ("/here", "paginated")
    opened_note, closed_note = found[1]["payload"], found[-1]["payload"]
    assert (opened_note["event"], opened_note["epoch"], opened_note["pid"]) == ("opened", 1, os.getpid())
    assert (closed_note["event"], closed_note["epoch"]) == ("closed", 1)
    stamps = [each["timestamp"] for each in found]
    assert stamps == sorted(stamps)


async def test_persist_makes_the_file_without_an_item(tmp_path: Path) -> None:
    """It is there with its meta line, durable with its folders; no opening note, and none at the end."""
    calls = ForgetfulCalls()
    path = tmp_path / "x" / "y" / "a.jsonl"
    async with created(path, calls=calls) as recorder:
        receipt = await recorder.persist()
        assert (receipt.items, receipt.offset_bytes) == (0, path.stat().st_size)
        assert calls.after_power_loss(path) == path.read_bytes()
        assert await recorder.persist() == receipt
    assert [each["type"] for each in json_lines(path)] == ["session_meta"]


async def test_record_after_persist_goes_on_behind_the_meta_line(path: Path) -> None:
    """The meta line is not written twice."""
    async with created(path) as recorder:
        await recorder.persist()
        recorder.record_nowait(message("a"))
    types = [each["type"] for each in json_lines(path)]
    assert types == ["session_meta", "x_writer", "response_item", "x_writer"]


async def test_meta_takes_its_id_from_the_name_of_the_file(tmp_path: Path) -> None:
    """A file of a thread belongs to that thread; another id is refused."""
    thread_id = "01960000-0000-7000-8000-000000000100"
    path = tmp_path / f"rollout-2026-11-29T10-00-00-{thread_id}.jsonl"
    async with RolloutRecorder.create(path, config=QUICK) as recorder:
        assert recorder.thread_id == thread_id
        recorder.record_nowait(message("a"))
    assert json_lines(path)[0]["payload"]["id"] == thread_id
    path.unlink()
    with pytest.raises(NotARollout):
        await RolloutRecorder.create(path, SessionMeta(cwd="/", id=str(ThreadId.new())))


# What stands at the path


@pytest.mark.parametrize("content", [None, b""], ids=["absent", "empty"])
async def test_create_takes_an_absent_or_empty_file(path: Path, content: bytes | None) -> None:
    """An empty file is nobody's work."""
    if content is not None:
        path.write_bytes(content)
    async with RolloutRecorder.create(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
    assert texts(path) == ["a"]


@pytest.mark.parametrize("content", [b"\n", b"x", META, META + lines(1)])
async def test_create_refuses_a_file_that_holds_something(path: Path, content: bytes) -> None:
    """Not a byte of it changes."""
    path.write_bytes(content)
    before = as_it_was(path)
    with pytest.raises(RolloutExists) as caught:
        await RolloutRecorder.create(path)
    assert caught.value.path == os.fspath(path)
    assert as_it_was(path) == before


async def test_create_refuses_a_file_that_came_before_its_first_item(path: Path) -> None:
    """Between the call and the first item somebody else began: theirs is left alone, items are kept."""
    recorder = recorder_of(path)
    path.write_bytes(b"somebody's\n")
    recorder.record_nowait(message("a"))
    with pytest.raises(RolloutExists):
        await recorder.flush()
    assert path.read_bytes() == b"somebody's\n"
    path.unlink()
    await recorder.flush()
    assert texts(path) == ["a"]
    await recorder.aclose()


def make_odd(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        target = path.with_name("target")
        target.write_bytes(META + lines(1))
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(path.with_name("nowhere"))
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.fspath(path))


@pytest.mark.case("B97")
@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "dangling link", "socket"])
async def test_create_refuses_what_is_no_regular_file(path: Path, kind: str) -> None:
    """Nothing is followed, nothing hangs."""
    make_odd(path, kind)
    with pytest.raises(RolloutExists):
        await RolloutRecorder.create(path)
    assert not path.with_name("nowhere").exists()


@pytest.mark.case("B56")
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("nothing", ThreadNotFound),
        ("folder", NotARollout),
        ("fifo", NotARollout),
        ("socket", NotARollout),
        ("device", NotARollout),
        ("link", (RolloutUnreadable, NotARollout)),
        ("dangling link", (RolloutUnreadable, NotARollout)),
    ],
)
async def test_open_names_what_is_no_file(path: Path, kind: str, error: Any) -> None:
    """Each has its own error; a link is not followed where we write."""
    where = Path("/dev/null") if kind == "device" else path
    make_odd(path, kind)
    with pytest.raises(error) as caught:
        await RolloutRecorder.open(where)
    assert caught.value.path == os.fspath(where)


@pytest.mark.case("B56")
@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"\0" * 4096, TORN, b"a letter\nof two lines\n", b'{"json":"but no rollout"}\n'],
    ids=["zero bytes", "blank", "NUL", "torn only", "text", "other JSON"],
)
async def test_open_of_what_is_no_rollout_is_refused_and_changes_nothing(path: Path, content: bytes) -> None:
    """A file without one whole line of a rollout; it is let go of at once."""
    path.write_bytes(content)
    before = as_it_was(path)
    for _ in range(2):
        with pytest.raises(NotARollout):
            await RolloutRecorder.open(path)
    assert as_it_was(path) == before


async def test_open_of_a_compressed_rollout_says_what_to_do(tmp_path: Path) -> None:
    """Nothing can be appended to it."""
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(NotARollout, match="zstd -d"):
        await RolloutRecorder.open(path)


@pytest.mark.case("B57")
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE])
async def test_open_that_the_system_refuses_names_the_file_and_the_reason(path: Path, number: int) -> None:
    """No permission, a read-only disk, no descriptor left."""
    path.write_bytes(META + lines(1))
    calls = FaultyCalls()
    calls.arm("open_append", fails(number))
    with pytest.raises(RolloutUnreadable) as caught:
        recorder_of(path, calls=calls, reopen=True)
    assert (caught.value.errno, caught.value.path) == (number, os.fspath(path))
    assert os.strerror(number) in str(caught.value)


OPEN_AS_NOBODY = """
import asyncio, os, sys
from protocol.errors import RolloutError
from protocol.response_items import ResponseItem
from rollout import RolloutRecorder

async def record(path):
    async with RolloutRecorder.open(path) as recorder:
        recorder.record_nowait(ResponseItem.message("user", "x"))
        await recorder.flush()

async def main():
    await record(sys.argv[2])  # loads what it takes, while this user may read it
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        await record(sys.argv[1])
    except RolloutError as error:
        print(type(error).__name__, error.errno, os.path.basename(error.path))

asyncio.run(main())
"""


@pytest.mark.case("B57")
@pytest.mark.parametrize("mode", [0o400, 0o444, 0o000])
async def test_file_that_may_not_be_written_is_refused_by_name(tmp_path: Path, mode: int) -> None:
    """A user without the right to write is told so, with errno and file; the file stays as it is."""
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    path, other = tmp_path / "a.jsonl", tmp_path / "other.jsonl"
    path.write_bytes(META + lines(1))
    other.write_bytes(META)
    path.chmod(mode)
    before = path.stat().st_mtime_ns
    done = await asyncio.to_thread(run_script, OPEN_AS_NOBODY, path, other)
    assert done.stdout.split() == ["RolloutUnreadable", str(errno.EACCES), "a.jsonl"]
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("call", ["open_append", "fstat", "dup", "pread"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("closing", ["works", "is reported as failed"])
async def test_opening_that_failed_holds_nothing(path: Path, call: str, nth: int, closing: str) -> None:
    """Wherever it failed: descriptors and lock are let go of, the next opening succeeds. What closing them
    is reported as hides nothing."""
    path.write_bytes(META + lines(1))
    calls = FaultyCalls()
    if closing != "works":
        calls.arm("close", fails_after(EIO), times=None)
    before = len(os.listdir("/proc/self/fd"))
    calls.arm(call, fails(EIO), first=nth)
    try:
        recorder = recorder_of(path, calls=calls, reopen=True)
    except RolloutUnreadable as error:
        assert error.errno == EIO
        assert len(os.listdir("/proc/self/fd")) == before
    else:
        await recorder.aclose()
    async with opened(path) as recorder:
        recorder.record_nowait(message("a"))
    assert texts(path)[-1] == "a"


# Opening to append


@pytest.mark.case("B08")
async def test_open_that_records_nothing_changes_nothing(path: Path) -> None:
    """Bytes, mtime and inode stay, whatever else was called, also with a torn tail or a missing newline."""
    for content in (META + lines(1), META + lines(1)[:-1], META + lines(1) + TORN):
        path.write_bytes(content)
        before = as_it_was(path)
        async with RolloutRecorder.open(path, config=QUICK) as recorder:
            await recorder.flush()
            await recorder.sync()
            recorder.record_nowait([])
            with pytest.raises(RecordTooLarge):
                recorder.record_nowait(message("x" * (33 << 20)))
            await recorder.flush()
        assert as_it_was(path) == before
        assert not list(path.parent.glob("*.torn"))


@pytest.mark.case("B08")
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "no final newline"])
async def test_open_appends_behind_the_old_bytes(path: Path, ended: bool) -> None:
    """The old bytes are an exact prefix of the new file; a valid last line gets the newline it lacked."""
    content = META + lines(1, 2)
    path.write_bytes(content if ended else content[:-1])
    async with RolloutRecorder.open(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
        receipt = await recorder.flush()
        assert receipt.items == 1
    data = path.read_bytes()
    assert data.startswith(content)
    assert b"\n\n" not in data
    assert texts(path)[-1] == "a"


@pytest.mark.case("B02", "B10")
async def test_torn_tail_is_kept_aside_and_cut_with_the_first_record(path: Path) -> None:
    """The new record parses, the fragment is found beside the file, and the note tells of the cut."""
    path.write_bytes(META + lines(1) + TORN)
    async with RolloutRecorder.open(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
    assert path.read_bytes().startswith(META + lines(1))
    found = json_lines(path)
    assert [each["type"] for each in found[2:]] == ["x_writer", "response_item", "x_writer"]
    assert found[2]["payload"]["cut_bytes"] == len(TORN)
    (kept,) = path.parent.glob("*.torn")
    assert kept.read_bytes() == TORN
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.case("B04")
async def test_last_line_cut_at_any_byte_is_followed_by_good_records(path: Path) -> None:
    """Also inside a character of several bytes: what was whole stays, open, append and reopen are clean."""
    envelope = '{"timestamp":"2026-11-29T10:00:00.000Z","ordinal":1,"type":"event_msg",'
    last = (envelope + '"payload":{"type":"x","é":"🜁"}}\n').encode()
    for cut in range(len(last)):
        path.write_bytes(META + lines(1) + last[:cut])
        for text in "ab":
            async with opened(path) as recorder:
                recorder.record_nowait(message(text))
        data = path.read_bytes()
        whole = last if cut == len(last) - 1 else b""
        assert data.startswith(META + lines(1) + whole)
        assert [record.warning for record in read_rollout(path)] == [None] * data.count(b"\n")
        assert texts(path)[-2:] == ["a", "b"]
        for kept in path.parent.glob("*.torn"):
            assert kept.read_bytes() == last[:cut]
            kept.unlink()


@pytest.mark.case("B33", "B34")
@pytest.mark.parametrize(
    ("ordinals", "following"),
    [([1, 2], 3), ([5, 3], 6), ([2, 2], 3), ([None, 7], 8), ([99_999, 4], 100_000), ([None, None], 1)],
)
async def test_ordinals_go_on_from_the_greatest(
    path: Path, ordinals: list[int | None], following: int
) -> None:
    """Whatever numbers stand there: the next is the maximum plus one."""
    rows = [
        b'{"timestamp":"2026-11-29T10:00:00.000Z"%b,"type":"event_msg","payload":{"type":"x"}}\n'
        % (b"" if ordinal is None else b',"ordinal":%d' % ordinal)
        for ordinal in ordinals
    ]
    path.write_bytes(META + b"".join(rows))
    async with RolloutRecorder.open(path, config=QUICK) as recorder:
        recorder.record_nowait(messages("ab"))
    found = [each for each in json_lines(path) if each["type"] == "response_item"]
    assert [each["ordinal"] for each in found] == [following, following + 1]


async def test_legacy_rollout_stays_without_ordinals(path: Path) -> None:
    """Appending to a file that numbers nothing numbers nothing."""
    path.write_bytes(META.replace(b',"ordinal":0', b"").replace(b',"history_mode":"paginated"', b""))
    async with RolloutRecorder.open(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
        assert recorder.health.pending_items == 1
    assert all("ordinal" not in each for each in json_lines(path))


async def test_each_opening_has_a_new_epoch(path: Path) -> None:
    """Writers of one file are told apart by a number that only grows."""
    async with created(path) as recorder:
        recorder.record_nowait(message("1"))
    for number in (2, 3):
        async with opened(path) as recorder:
            recorder.record_nowait(message(str(number)))
    notes = [each["payload"] for each in json_lines(path) if each["type"] == "x_writer"]
    assert [(note["event"], note["epoch"]) for note in notes] == [
        (event, epoch) for epoch in (1, 2, 3) for event in ("opened", "closed")
    ]


async def test_stamps_go_on_where_the_file_ended(path: Path) -> None:
    """A file from a machine whose clock is ahead: stamps never step back in it."""
    ahead = (
        b'{"timestamp":"2199-01-01T00:00:00.000Z","ordinal":1,"type":"event_msg","payload":{"type":"x"}}\n'
    )
    path.write_bytes(META + ahead)
    async with RolloutRecorder.open(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
    assert [each["timestamp"] for each in json_lines(path)[1:]] == ["2199-01-01T00:00:00.000Z"] * 4


# One writer


@pytest.mark.case("B35")
@pytest.mark.guarantee("G4")
async def test_second_recorder_in_one_process_is_refused(path: Path) -> None:
    """It is told who holds the file; afterwards it may."""
    async with created(path) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.flush()
        with pytest.raises(ActiveWriter) as caught:
            await RolloutRecorder.open(path)
        assert caught.value.holder.pid == os.getpid()
        assert str(os.getpid()) in str(caught.value)
    async with opened(path):
        pass


HOLD = """
import asyncio, sys
from rollout import RolloutRecorder

async def main():
    async with RolloutRecorder.open(sys.argv[1]):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.case("B32")
@pytest.mark.guarantee("G4")
async def test_second_process_is_refused_and_told_who_holds_it(path: Path) -> None:
    """Its pid, its host and its command; killed, it holds nothing any more."""
    path.write_bytes(META + lines(1))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, path, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    with pytest.raises(ActiveWriter) as caught:
        await RolloutRecorder.open(path)
    holder = caught.value.holder
    assert (holder.pid, holder.host) == (process.pid, os.uname().nodename)
    assert "python" in (holder.command or "")
    process.kill()
    await process.wait()
    async with opened(path):
        pass


@pytest.mark.case("B37")
@pytest.mark.guarantee("G4")
async def test_subprocess_does_not_keep_the_lock(path: Path) -> None:
    """A child that outlives the recorder has inherited no descriptor of it."""
    async with created(path) as recorder:
        recorder.record_nowait(message("a"))
        await recorder.flush()
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import sys; sys.stdin.read()"), stdin=subprocess.PIPE, close_fds=False
        )
    try:
        async with opened(path):
            pass
    finally:
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()


# Modes


@pytest.mark.case("B101")
@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_everything_that_is_made_is_private(tmp_path: Path, umask: int) -> None:
    """Rollout, folders, torn tails and unwritten items: 0600 and 0700 under any umask."""
    path = tmp_path / "sessions" / "2026" / "a.jsonl"
    before = os.umask(umask)
    try:
        async with created(path) as recorder:
            recorder.record_nowait(message("a"))
        append_by_others(path, TORN)
        calls = FaultyCalls()
        recorder = recorder_of(path, calls=calls, reopen=True, config=RecorderConfig(close_seconds=0.05))
        recorder.record_nowait(message("b"))
        await recorder.flush()
        calls.arm("datasync", fails(EIO), times=None)
        recorder.record_nowait(message("c"))
        with pytest.raises(RolloutError):
            await recorder.aclose()
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    kinds = {each.suffix for each in made}
    assert {".jsonl", ".torn", ".unwritten"} <= kinds
    for each in made:
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each


# Loops, threads, handles


@pytest.mark.case("B117")
async def test_two_runs_one_after_the_other_with_one_recorder(path: Path) -> None:
    """A recorder belongs to no loop: made in one, used in the next, closed in a third."""

    def three_runs() -> None:
        async def make() -> RolloutRecorder:
            recorder = await RolloutRecorder.create(path, config=QUICK)
            recorder.record_nowait(message("1"))
            await recorder.flush()
            return recorder

        async def use(recorder: RolloutRecorder) -> None:
            await recorder.record(message("2"))
            await recorder.sync()

        recorder = asyncio.run(make())
        asyncio.run(use(recorder))
        asyncio.run(_close(recorder))

    await asyncio.to_thread(three_runs)
    assert texts(path) == ["1", "2"]


async def _close(recorder: RolloutRecorder) -> None:
    await recorder.aclose()


@pytest.mark.case("B117")
async def test_callers_on_several_loops_at_once(path: Path) -> None:
    """Four loops in four threads share a recorder; each is answered on its own loop."""
    async with RolloutRecorder.create(path, config=QUICK) as recorder:

        async def produce(name: int) -> None:
            loop = asyncio.get_running_loop()
            for number in range(50):
                await recorder.record(message(f"{name}:{number}"))
                await (recorder.sync() if number % 10 == 0 else recorder.flush())
                assert asyncio.get_running_loop() is loop

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, produce(name)) for name in range(4)))
    seen = [text.split(":") for text in texts(path)]
    for name in range(4):
        assert [int(number) for who, number in seen if who == str(name)] == list(range(50))


async def test_eight_threads_of_five_thousand_items(path: Path) -> None:
    """40,000 items from 8 threads, written while they come: each once, each thread's in order."""
    async with RolloutRecorder.create(path, config=RecorderConfig(sync_seconds=0.01)) as recorder:

        def produce(name: int) -> None:
            for number in range(5_000):
                recorder.record_nowait(message(f"{name}:{number}"))

        await asyncio.gather(*(asyncio.to_thread(produce, name) for name in range(8)))
        receipt = await recorder.sync()
        assert receipt.items == 40_000
    found = [each for each in json_lines(path) if each["type"] == "response_item"]
    assert [each["ordinal"] for each in found] == list(range(1, 40_001))
    seen = [each["payload"]["content"][0]["text"].split(":") for each in found]
    for name in range(8):
        assert [int(number) for who, number in seen if who == str(name)] == list(range(5_000))


async def test_loop_that_only_records_lets_the_others_run(path: Path) -> None:
    """`await record()` gives way now and then, though there is room."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with RolloutRecorder.create(path, config=QUICK) as recorder:
        other = asyncio.create_task(count())
        for _ in range(100):
            await recorder.record(message("x" * 20_000))
        other.cancel()
    assert turns > 3


async def test_item_recorded_by_a_signal_handler_is_kept(path: Path) -> None:
    """The handler runs in the middle of record_nowait, thousands of times; nothing is lost or mixed."""
    recorder = await RolloutRecorder.create(path, config=QUICK)
    numbers = itertools.count()  # a handler may be interrupted by the next one

    def handle(number: int, frame: object) -> None:
        recorder.record_nowait(message(f"handler:{next(numbers)}"))

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for number in range(30_000):
            recorder.record_nowait(message(f"body:{number}"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    receipt = await recorder.aclose()
    handled = next(numbers)
    assert handled > 10
    assert receipt.items == 30_000 + handled
    found = [each for each in json_lines(path) if each["type"] == "response_item"]
    assert [each["ordinal"] for each in found] == list(range(1, 30_001 + handled))
    seen = [each["payload"]["content"][0]["text"].split(":") for each in found]
    assert [int(number) for who, number in seen if who == "body"] == list(range(30_000))
    assert sorted(int(number) for who, number in seen if who == "handler") == list(range(handled))


async def test_dropped_recorder_is_drained_and_warns_once(path: Path) -> None:
    """Nobody closed it: the items are saved, the lock is freed, and one warning names the file."""
    recorder = await RolloutRecorder.create(path, config=QUICK)
    recorder.record_nowait(messages("ab"))
    writer = recorder._core.writer
    with pytest.warns(ResourceWarning, match="a.jsonl was dropped without aclose") as caught:
        del recorder
        gc.collect()
    assert len(caught) == 1
    await eventually(lambda: writer.state is WriterState.CLOSED)
    assert texts(path) == ["a", "b"]
    async with opened(path):
        pass


@pytest.mark.parametrize("end", ["aclose", "discard"])
async def test_recorder_that_was_ended_is_dropped_in_silence(path: Path, end: str) -> None:
    """No warning after aclose() or discard()."""
    recorder = await RolloutRecorder.create(path, config=QUICK)
    outcome = getattr(recorder, end)()
    if outcome is not None:
        await outcome
    del recorder, outcome
    gc.collect()


@pytest.mark.case("B16")
@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("kind", ["create", "open"])
async def test_cancelled_opening_holds_nothing(
    path: Path, kind: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is gone while the file is being opened: it is closed again as soon as it was."""
    path.write_bytes(META + lines(1) if kind == "open" else b"")
    gate = Gate()
    real = getattr(core_module, f"{kind}_core")

    def slow(*given: Any, **named: Any) -> Any:
        core = real(*given, **named)
        gate.wait()
        return core

    monkeypatch.setattr(core_module, f"{kind}_core", slow)
    task = asyncio.ensure_future(_await(getattr(RolloutRecorder, kind)(path)))
    for _ in range(steps):
        await asyncio.sleep(0)
    if steps == 3:
        await asyncio.to_thread(gate.reached.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    monkeypatch.undo()
    if kind == "open":
        await eventually(lambda: _can_be_opened(path))
    async with getattr(RolloutRecorder, kind)(path, config=QUICK) as recorder:
        recorder.record_nowait(message("a"))
    assert texts(path)[-1] == "a"


async def _await(opening: Awaitable[RolloutRecorder]) -> RolloutRecorder:
    return await opening


def _can_be_opened(path: Path) -> bool:
    from rollout import blocking

    def probe() -> bool:
        try:
            blocking.open(path).close()
        except ActiveWriter:
            return False
        return True

    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(probe()))
    thread.start()
    thread.join()
    return found[0]


async def test_opening_whose_loop_ended_meanwhile_holds_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.run was over before the file was open: nobody is left to hear of it, and it is closed."""
    path.write_bytes(META + lines(1))
    gate = Gate()
    real = core_module.open_core

    def slow(*given: Any, **named: Any) -> Any:
        core = real(*given, **named)
        gate.wait()
        return core

    monkeypatch.setattr(core_module, "open_core", slow)

    async def give_up() -> None:
        task = asyncio.ensure_future(_await(RolloutRecorder.open(path)))
        await asyncio.to_thread(gate.reached.wait)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    await asyncio.to_thread(asyncio.run, give_up())
    gate.open()
    monkeypatch.undo()
    await eventually(lambda: _can_be_opened(path))


async def test_body_that_raises_is_closed_and_its_error_passes(path: Path) -> None:
    """Leaving the block by an exception saves what was recorded."""
    with pytest.raises(ZeroDivisionError):
        async with RolloutRecorder.create(path, config=QUICK) as recorder:
            recorder.record_nowait(message("a"))
            raise ZeroDivisionError
    assert texts(path) == ["a"]
    with pytest.raises(RecorderClosed):
        recorder.record_nowait(message("b"))


async def test_recorder_tells_what_it_is(path: Path) -> None:
    """Its repr names thread, state and path."""
    async with RolloutRecorder.create(path, config=QUICK) as recorder:
        assert repr(recorder) == f"<RolloutRecorder {recorder.thread_id} deferred {str(path)!r}>"
        assert recorder.path == os.fspath(path)


async def test_relative_path_is_fixed_at_the_call(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A change of the working folder later changes nothing."""
    monkeypatch.chdir(tmp_path)
    async with RolloutRecorder.create("a.jsonl", config=QUICK) as recorder:
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        recorder.record_nowait(message("a"))
    assert texts(path) == ["a"]


# The end of the process


EXIT = """
import asyncio, sys
from protocol.response_items import ResponseItem
from rollout import RecorderConfig, RolloutRecorder

async def main():
    config = RecorderConfig(linger_seconds=3600, sync_seconds=3600)
    recorder = await RolloutRecorder.create(sys.argv[1], config=config)
    for number in range(100):
        recorder.record_nowait(ResponseItem.message("user", str(number)))
    return recorder

kept = asyncio.run(main())
if sys.argv[2] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("raise", 3)])
async def test_interpreter_that_exits_with_an_open_recorder_drains_it(
    path: Path, how: str, code: int
) -> None:
    """Nobody closed it, nothing was flushed: the items are in the file, and the exit takes no notice."""
    done = await asyncio.to_thread(run_script, EXIT, path, how, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert texts(path) == [str(number) for number in range(100)]
    assert json_lines(path)[-1]["payload"]["event"] == "closed"


HANG = """
import asyncio, os, sys, threading
from protocol.response_items import ResponseItem
from rollout import RecorderConfig, RolloutRecorder
from rollout.syscalls import FileCalls

real, hung = FileCalls.datasync, threading.Event()

def hang(self, descriptor):
    if os.path.samestat(os.fstat(descriptor), os.stat(sys.argv[1])):
        hung.set()
        threading.Event().wait()
    real(self, descriptor)

FileCalls.datasync = hang
config = RecorderConfig(close_seconds=0.1, sync_seconds=0.01)

async def main():
    recorder = await RolloutRecorder.create(sys.argv[1], config=config)
    recorder.record_nowait(ResponseItem.message("user", "a"))
    await asyncio.to_thread(hung.wait)
    return recorder

kept = asyncio.run(main())
"""


async def test_exit_does_not_wait_for_a_hung_disk(path: Path) -> None:
    """A sync that never returns keeps a thread, not the process; what isn't durable is set aside."""
    done = await asyncio.to_thread(run_script, HANG, path, check=False)
    assert done.returncode == 0
    assert texts(path) == ["a"]
    (kept,) = path.parent.glob("*.unwritten")
    assert b'"a"' in kept.read_bytes()


FORK = """
import asyncio, json, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from protocol.errors import RecorderClosed
from protocol.response_items import ResponseItem
from rollout import RecorderConfig, RolloutRecorder, blocking
from rollout.syscalls import FileCalls

path, how = sys.argv[1:3]
gate = os.path.join(os.path.dirname(path), "gate")
config = RecorderConfig(linger_seconds=3600, sync_seconds=3600)
recorder = blocking.create(path, config=config)
recorder.record_nowait(ResponseItem.message("user", "before"))
recorder.flush()
if how == "sync":
    import threading
    release, real = threading.Event(), FileCalls.datasync
    def slow(self, descriptor):
        release.wait()
        real(self, descriptor)
    FileCalls.datasync = slow
    threading.Thread(target=recorder.sync).start()
    import time
    while not recorder._core.writer._syncing.under_way:
        time.sleep(0.001)
recorder.record_nowait(ResponseItem.message("user", "pending"))
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    told = []
    record = lambda: recorder.record_nowait(ResponseItem.message("user", "child"))
    for call in (record, recorder.flush, recorder.sync):
        try:
            call()
            told.append("no error")
        except RecorderClosed as error:
            told.append("closed")
    if how == "close":
        recorder.close()
    elif how == "drop":
        del recorder
    elif how == "own":
        with blocking.create(path + ".child", config=config) as mine:
            mine.record_nowait(ResponseItem.message("user", "mine"))
    os.write(writer, json.dumps(told).encode() + b"\\n")
    if how == "exec":
        os.execv(sys.executable, [sys.executable, "-c", "pass"])
    if how == "stay" or how == "sync":
        os.close(writer)
        os.read(0, 1)
        os._exit(0)
    sys.exit(0) if how == "exit" else os._exit(0)
os.close(writer)
print(os.read(reader, 1000).decode(), end="", flush=True)
if how not in ("stay", "sync"):
    os.waitpid(pid, 0)
else:
    if how == "sync":
        release.set()
recorder.record_nowait(ResponseItem.message("user", "parent"))
recorder.sync()
recorder.close()
with blocking.open(path) as again:
    pass
print("reopened")
"""


@pytest.mark.case("B36")
@pytest.mark.guarantee("G4")
@pytest.mark.parametrize("how", ["exit", "leave", "close", "drop", "exec", "own", "stay", "sync"])
async def test_forked_child_is_closed_and_its_parent_goes_on(path: Path, how: str) -> None:
    """In the child every call says closed, however it ends; the parent keeps its lock while it needs it and
    no longer, also if the child lives on or a sync was under way; nothing is written twice."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORK, path, how),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    said = [await process.stdout.readline(), await process.stdout.readline()]
    process.stdin.close()
    _, errors_text = await process.communicate()
    assert said == [b'["closed", "closed", "closed"]\n', b"reopened\n"], errors_text.decode()
    assert process.returncode == 0
    assert texts(path) == ["before", "pending", "parent"]
    if how == "own":
        assert texts(Path(f"{path}.child")) == ["mine"]


@pytest.mark.case("B36")
async def test_forked_child_of_a_loop_gets_an_error_from_every_coroutine(path: Path) -> None:
    """A child that runs its own loop with the parent's recorder is told, and hangs nowhere."""
    script = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from protocol.errors import RecorderClosed
from rollout import RolloutRecorder
from protocol.response_items import ResponseItem

async def make():
    recorder = await RolloutRecorder.create(sys.argv[1])
    recorder.record_nowait(ResponseItem.message("user", "a"))
    return recorder

async def child(recorder):
    for call in (recorder.flush, recorder.sync, recorder.persist):
        try:
            await call()
        except RecorderClosed:
            print("closed", flush=True)
    print((await recorder.aclose()).items, flush=True)

recorder = asyncio.run(make())
pid = os.fork()
if pid == 0:
    asyncio.run(child(recorder))
    os._exit(0)
os.waitpid(pid, 0)
asyncio.run(recorder.aclose())
"""
    done = await asyncio.to_thread(run_script, script, path)
    assert done.stdout.split() == ["closed", "closed", "closed", "0"]
    assert texts(path) == ["a"]


@pytest.mark.case("B44")
async def test_files_are_utf8_whatever_the_locale_is(path: Path) -> None:
    """In the C locale too."""
    script = """
import asyncio, sys
from protocol.response_items import ResponseItem
from rollout import RolloutRecorder

async def main():
    async with RolloutRecorder.create(sys.argv[1]) as recorder:
        recorder.record_nowait(ResponseItem.message("user", "h\\u00e9\\U0001f701"))

asyncio.run(main())
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(ROOT)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, path],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hé🜁".encode() in path.read_bytes()


@pytest.mark.case("B39", "B41")
async def test_line_breaks_of_others_and_nul_are_data(path: Path) -> None:
    """U+2028, U+2029, U+0085, VT, FF, FS, GS, RS and NUL inside a text break no line."""
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\x00j\r\nk"
    async with created(path) as recorder:
        recorder.record_nowait(message(text))
    assert texts(path) == [text]


@pytest.mark.case("B108")
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("left", [0, 300, 500])
async def test_durable_bytes_cut_and_written_over_are_named_in_a_gap(path: Path, left: int) -> None:
    """The file is no shorter than before, so only its bytes tell: what is still held follows a gap and,
    where the meta line is gone, a new one."""
    async with RolloutRecorder.create(path, SessionMeta(cwd="/")) as recorder:
        recorder.record_nowait([message(f"old {number}") for number in range(5)])
        await recorder.sync()
        recorder.record_nowait(message("held"))
        await recorder.flush()
        with path.open("r+b", buffering=0) as file:  # one write: the writer may look at any moment
            file.seek(left)
            assert file.write(b"somebody else\n" * 400) > path.stat().st_size - left - 1
        recorder.record_nowait(message("new"))
        await recorder.sync()
    lines = [record.line for record in read_rollout(path) if record.line is not None]
    types = [line.type for line in lines]
    gap = lines[types.index("x_gap")].payload_object()
    assert gap["cause"] == "overwritten"
    assert gap["bytes"] > 0
    assert types.count("session_meta") == 1
    said = [line.payload_object() for line in lines[types.index("x_gap") :] if line.type == "response_item"]
    assert [each["content"][0]["text"] for each in said] == ["held", "new"]
