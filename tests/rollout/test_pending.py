"""The pending queue: what is accepted is encoded, stamped and numbered at once, or leaves no trace."""

from __future__ import annotations

import dis
import gc
import json
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from protocol.errors import ItemNotEncodable, PendingQueueFull, RecorderClosed, RecordTooLarge, RolloutError
from protocol.items import RolloutItem
from rollout import pending as pending_module
from rollout.config import Durability, RecorderConfig
from rollout.pending import Pending
from rollout.redaction import Redaction
from tests.rollout.recorded import message, messages, own

HEADER = b'{"type":"session_meta","payload":{}}\n'
NOTE_TYPE = "x_writer"


def opening(stamp_ms: int) -> bytes:
    return b'{"type":"x_writer","payload":{"at_ms":%d}}\n' % stamp_ms


def make(
    *, next_ordinal: int | None = 1, header: bytes = HEADER, stamp_ms: int = 0, **config: Any
) -> Pending:
    return Pending(
        path="/rollout.jsonl",
        config=RecorderConfig(**config),
        header=header,
        opening=opening,
        next_ordinal=next_ordinal,
        stamp_ms=stamp_ms,
    )


def taken(pending: Pending) -> bytes:
    return b"".join(bytes(chunk.data) for chunk in pending.take())


def records(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n") or not data
    return [json.loads(line) for line in data.splitlines()]


def items(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] not in ("session_meta", NOTE_TYPE)]


def refusal() -> RolloutError:
    return RecorderClosed(path="/rollout.jsonl")


def nested(levels: int) -> RolloutItem:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return RolloutItem.raw("x_check", {"value": value})


BAD = {
    "not an item": object(),
    "NaN": RolloutItem.raw("x_check", {"value": float("nan")}),
    "not JSON": RolloutItem.raw("x_check", b"{"),
    "an object": RolloutItem.raw("x_check", {"value": object()}),
    "too deep": nested(200),
    "too large": message("x" * 5000),
    "no type": RolloutItem.raw("", {}),
}


def test_first_record_brings_header_and_opening_once() -> None:
    """The meta line and the opening note stand before the first record, and nowhere else."""
    pending = make()
    for name in "abc":
        pending.append(message(name))
    lines = records(taken(pending))
    assert [line["type"] for line in lines] == ["session_meta", NOTE_TYPE, *["response_item"] * 3]


@pytest.mark.guarantee("G1")
def test_ordinals_are_dense_and_own_types_have_none() -> None:
    """Codex's types count up by one from the first free number; our own types carry no number at all."""
    pending = make(next_ordinal=7)
    pending.append(message("a"), own("x"), [message("b"), own("y"), message("c")])
    pending.append(own("z"))
    pending.append(message("d"))
    lines = items(records(taken(pending)))
    assert [line["ordinal"] for line in lines if line["type"] == "response_item"] == [7, 8, 9, 10]
    assert all("ordinal" not in line for line in lines if line["type"] == "x_check")


@pytest.mark.case("B34")
def test_ordinal_after_99_999_is_100_000() -> None:
    """Numbers have no width."""
    pending = make(next_ordinal=99_999)
    pending.append(messages("ab"))
    assert [line["ordinal"] for line in items(records(taken(pending)))] == [99_999, 100_000]


def test_legacy_rollout_stays_without_ordinals() -> None:
    """A file that numbers nothing gets no numbers, and the items are counted all the same."""
    pending = make(next_ordinal=None)
    pending.append(messages("abc"), own("x"))
    assert all("ordinal" not in line for line in records(taken(pending)))
    assert pending.accepted_items == 4


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("begun", [False, True], ids=["first call", "later call"])
def test_bad_item_in_a_call_leaves_no_trace_of_the_call(bad: Any, begun: bool) -> None:
    """One unfit item: none of the call's items is accepted, and no number or opening note is used up."""
    pending = make(record_bytes_max=4096)
    if begun:
        pending.append(message("before"))
    before = pending.position()
    for call in ([message("a"), bad, message("b")], [bad], [[message("a"), own("x"), bad]]):
        with pytest.raises((ItemNotEncodable, RecordTooLarge)):
            pending.append(*call)
        assert pending.position() == before
    pending.append(message("after"))
    lines = records(taken(pending))
    names = ["before", "after"] if begun else ["after"]
    assert [line["payload"]["content"][0]["text"] for line in items(lines)] == names
    assert [line["ordinal"] for line in items(lines)] == list(range(1, len(names) + 1))
    assert [line["type"] for line in lines[:2]] == ["session_meta", NOTE_TYPE]


@pytest.mark.parametrize("begun", [False, True], ids=["first call", "later call"])
def test_call_without_items_accepts_nothing(begun: bool) -> None:
    """An empty list is no record: it brings no header and wakes nobody."""
    pending = make()
    if begun:
        pending.append(message("before"))
        taken(pending)
    pending.append()
    pending.append([])
    pending.append([], ())
    assert taken(pending) == b""


@pytest.mark.parametrize("begun", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("make_item", [message, own], ids=["numbered", "own"])
def test_record_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(
    begun: bool, make_item: Callable[[str], RolloutItem]
) -> None:
    """The limit counts the whole line with its newline."""
    probe = make()
    probe.append(message("before"), make_item(""))
    bare = len(taken(probe).splitlines(keepends=True)[-1])
    pending = make(record_bytes_max=1000, next_ordinal=1 if begun else 2)
    if begun:
        pending.append(message("before"))
    with pytest.raises(RecordTooLarge) as caught:
        pending.append(make_item("x" * (1001 - bare)))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (1001, 1000)
    assert caught.value.item_type == make_item("").record_type
    pending.append(make_item("x" * (1000 - bare)))
    assert len(taken(pending).splitlines(keepends=True)[-1]) == 1000


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("size", [0, 1, -1], ids=["exact", "one byte more room", "one byte less room"])
def test_queue_is_full_at_its_limit_and_not_before(size: int) -> None:
    """What fits to the byte is accepted; what doesn't is refused whole, before it takes a number."""
    probe = make(header=b"")
    probe.append(message("a"))
    probe.append(message("b"))
    limit = probe.accepted_bytes + size
    pending = make(header=b"", pending_bytes_max=limit, stamp_ms=int(probe._stamp_ms))
    pending.append(message("a"))
    if size >= 0:
        pending.append(message("b"))
    with pytest.raises(PendingQueueFull) as caught:
        pending.append(message("b"))
    assert caught.value.pending_bytes == pending.accepted_bytes
    assert caught.value.limit_bytes == limit
    pending.note_durable(pending.accepted_bytes)
    pending.append(message("c"))
    lines = items(records(taken(pending)))
    assert [line["ordinal"] for line in lines] == list(range(1, len(lines) + 1))


def test_fact_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    """It could never be recorded otherwise; while anything waits it must wait too."""
    pending = make(pending_bytes_max=1000)
    pending.append(message("x" * 5000))
    with pytest.raises(PendingQueueFull):
        pending.append(message("y"))
    pending.note_durable(pending.accepted_bytes)
    pending.append(messages(["y" * 600, "z" * 600]))
    with pytest.raises(PendingQueueFull):
        pending.append(message("w"))


def test_full_queue_tells_the_writers_last_error() -> None:
    """Whoever meets a full queue learns why nothing moves."""
    pending = make(pending_bytes_max=10)
    pending.append(message("a"))
    pending.last_error = OSError(28, "No space left on device")
    with pytest.raises(PendingQueueFull, match="No space left") as caught:
        pending.append(message("b"))
    assert caught.value.last_error is pending.last_error


class Clock:
    """Replaces the wall clock of the queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 1_700_000_000_123_456_789
        monkeypatch.setattr(pending_module, "time_ns", lambda: self.ns)
        monkeypatch.setattr(pending_module, "time", lambda: self.ns / 1e9)


def test_timestamps_never_step_back_when_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back stops the stamps until it has caught up; then they go on."""
    clock = Clock(monkeypatch)
    pending = make()
    stamps = []
    for step_s in (0, 5, -3600, 1, 3590, 20):
        clock.ns += step_s * 1_000_000_000
        pending.append(message("a"), own("b"))
        stamps += [line["timestamp"] for line in items(records(taken(pending)))]
    assert stamps == sorted(stamps)
    assert stamps[0] == "2023-11-14T22:13:20.123Z"
    assert stamps[2:8] == ["2023-11-14T22:13:25.123Z"] * 6
    assert stamps[-1] == "2023-11-14T22:13:36.123Z"


def test_stamp_follows_the_clock_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stamp that is used again is used within its millisecond only."""
    clock = Clock(monkeypatch)
    pending = make()
    for _ in range(5):
        pending.append(message("a"))
        clock.ns += 500_000
    stamps = [line["timestamp"][-4:-1] for line in items(records(taken(pending)))]
    assert stamps == ["123", "123", "124", "124", "125"]


def test_timestamps_never_lie_before_those_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file written by a machine whose clock is ahead goes on from its last stamp, opening note included."""
    clock = Clock(monkeypatch)
    ahead = clock.ns // 1_000_000 + 60_000
    pending = make(stamp_ms=ahead)
    pending.append(message("a"))
    note, item = records(taken(pending))[1:]
    assert note["payload"]["at_ms"] == ahead
    assert item["timestamp"] == "2023-11-14T22:14:20.123Z"


def test_note_between_what_was_taken_and_what_was_not_fits_in_by_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer's own notes don't step back, nor do the items that come behind them."""
    clock = Clock(monkeypatch)
    pending = make()
    first = clock.ns // 1_000_000
    pending.append(message("a"))
    taken(pending)
    clock.ns -= 3_600_000_000_000
    assert pending.note_ms() == first  # the clock was set back
    clock.ns += 3_605_000_000_000
    assert pending.note_ms() == first + 5000  # nothing waits: it is now
    clock.ns += 1_000_000_000
    pending.append(message("b"))
    assert pending.note_ms() <= first + 6000
    clock.ns += 1_000_000_000
    assert pending.note_ms() <= first + 6000  # "b" comes behind it


def test_opening_note_and_first_item_carry_one_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note that goes with a record is never later than the record, however long it takes to make."""
    clock = Clock(monkeypatch)
    seen = []

    def slow_opening(stamp_ms: int) -> bytes:
        seen.append(stamp_ms)
        clock.ns += 10_000_000
        return opening(stamp_ms)

    pending = make()
    pending._opening = slow_opening
    pending.append(message("a"))
    (item,) = items(records(taken(pending)))
    assert seen == [1_700_000_000_123]
    assert item["timestamp"] == "2023-11-14T22:13:20.123Z"


def test_object_changed_after_record_changes_nothing() -> None:
    """What was accepted are bytes."""
    pending = make()
    payload = {"name": "before"}
    item = RolloutItem.raw("x_check", payload)
    pending.append(item)
    payload["name"] = "after"
    assert items(records(taken(pending)))[0]["payload"]["name"] == "before"


@pytest.mark.case("B40")
def test_lone_surrogates_and_huge_integers_are_stored() -> None:
    """What msgspec refuses is written by the rule, in its place and with its number."""
    pending = make()
    pending.append(message("a\ud800b"), RolloutItem.raw("x_check", {"value": 10**40}), message("c"))
    data = taken(pending)
    assert b"a\\ud800b" in data
    lines = items(records(data))
    assert [line.get("ordinal") for line in lines] == [1, None, 2]
    assert lines[1]["payload"]["value"] == 10**40


@pytest.mark.guarantee("G1")
def test_refused_queue_takes_nothing_and_keeps_what_it_has() -> None:
    """After `refuse` every call raises, also the quick one; what was accepted before is still there."""
    pending = make()
    pending.append(message("a"))
    pending.append(message("b"))
    pending.refuse(refusal)
    for call in ([message("c")], [own("c")], [[]], []):
        with pytest.raises(RecorderClosed):
            pending.append(*call)
    assert len(items(records(taken(pending)))) == 2


@pytest.mark.parametrize("idle", [False, True], ids=["awake", "idle"])
@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
def test_note_of_the_recorder_is_taken_even_when_full_and_refused(idle: bool, begun: bool) -> None:
    """The closing note gets into the file whatever state the queue is in, and counts as no item."""
    pending = make(pending_bytes_max=10)
    if begun:
        pending.append(message("a"))
        if idle:
            taken(pending)
            assert pending.rest()
    pending.refuse(refusal)
    before = pending.accepted_items
    pending.append_note(RolloutItem.raw("x_writer", {"event": "closed"}))
    assert records(taken(pending))[-1]["payload"] == {"event": "closed"}
    assert pending.accepted_items == before


def test_header_alone_makes_no_item_and_comes_once() -> None:
    """`persist` brings the meta line; the first record then brings the opening note only."""
    pending = make()
    pending.append_header()
    pending.append_header()
    assert pending.accepted_items == 0
    assert not pending.opened
    pending.append(message("a"))
    assert [line["type"] for line in records(taken(pending))] == ["session_meta", NOTE_TYPE, "response_item"]
    assert pending.opened


def test_wake_comes_once_until_the_writer_rests() -> None:
    """The writer is told of the first item only; after it rested, of the next one again."""
    woken: list[bool] = []
    pending = make()
    pending.wake = woken.append
    pending.append(message("a"))
    pending.append(message("b"))
    assert woken == [False]
    taken(pending)
    assert pending.rest()
    pending.append(message("c"))
    assert woken == [False, False]


def test_rest_is_refused_while_something_waits() -> None:
    """What came in between the writer's last look and its rest is seen."""
    pending = make()
    pending.append(message("a"))
    assert not pending.rest()
    taken(pending)
    assert pending.rest()


@pytest.mark.parametrize(
    ("level", "hurry", "sync"), [("pending", False, False), ("flush", True, False), ("sync", True, True)]
)
def test_durability_of_a_kind_decides_how_the_writer_is_woken(level: str, hurry: bool, sync: bool) -> None:
    """`flush` and `sync` wake it at once, `sync` also names the position to be synced."""
    woken: list[bool] = []
    pending = make(durability={"x_check": Durability(level)})
    pending.wake = woken.append
    pending.append(message("a"))
    pending.append(own("x"))
    assert woken == [False, True][: 1 + hurry]
    assert pending.sync_wanted == (pending.accepted_bytes if sync else 0)


@pytest.mark.parametrize("kind", ["x_call", "x_approval"])
@pytest.mark.guarantee("G8")
def test_calls_and_approvals_are_always_synced(kind: str) -> None:
    """No setting can weaken what a resume rests on."""
    pending = make(durability={kind: Durability.PENDING})
    pending.append(message("a"), RolloutItem.raw(kind, {"call_id": "c", "state": "started"}), message("b"))
    assert pending.sync_wanted == pending.accepted_bytes


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_chunks_are_sealed_on_line_borders(size: int) -> None:
    """Whatever a chunk's size is, every chunk holds whole lines, and their positions have no gap."""
    line = make(header=b"")
    line.append(message("a"))
    pending = make(chunk_bytes=(line.accepted_bytes + size))
    for number in range(100):
        pending.append(message(str(number)))
    chunks = list(pending.take())
    position = 0
    for chunk in chunks:
        assert chunk.data.endswith(b"\n")
        assert chunk.start == position
        position = chunk.end
    assert position == pending.accepted_bytes
    assert sum(chunk.items for chunk in chunks) == pending.accepted_items == 100
    assert len(chunks) > 1


def test_threads_that_record_at_once_lose_and_mix_nothing() -> None:
    """8 threads, 5,000 items each, while the writer takes chunks: all there, each thread's in its order,
    ordinals dense."""
    pending = make(pending_bytes_max=1 << 40)
    chunks: list[bytes] = []
    done = threading.Event()

    def produce(name: int) -> None:
        for number in range(5_000):
            pending.append(message(f"{name}:{number}"))

    def consume() -> None:
        while not done.is_set():
            chunks.append(taken(pending))
            pending.rest()

    writer = threading.Thread(target=consume)
    producers = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
    for thread in (writer, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    done.set()
    writer.join()
    lines = items(records(b"".join([*chunks, taken(pending)])))
    assert [line["ordinal"] for line in lines] == list(range(1, 40_001))
    seen = [line["payload"]["content"][0]["text"].split(":") for line in lines]
    for name in range(8):
        assert [int(number) for who, number in seen if who == str(name)] == list(range(5_000))


# A signal handler or a finalizer may run between any two instructions.


SIGNALS_COME_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD")


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes_of(each)


PENDING_CODES = [
    code
    for holder in (pending_module, Pending)
    for value in vars(holder).values()
    for function in (getattr(value, "fget", None) or value,)
    if isinstance(function, FunctionType) and function.__module__ == pending_module.__name__
    for code in _codes_of(function.__code__)
]


class Interrupter:
    """Runs `action` before the n-th instruction that `rollout/pending.py` executes in this thread.

    `signals`: only those before which the interpreter may raise what a signal handler raises.
    """

    def __init__(self, nth: int, action: Callable[[], None], *, signals: bool = False) -> None:
        self.count = 0
        self.acted = False
        self._nth = nth
        self._action = action
        self._signals = signals
        self._last: dict[FrameType, int] = {}
        self._thread = threading.get_ident()
        self._busy = False

    def __enter__(self) -> Interrupter:
        if hasattr(sys, "monitoring"):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.DEBUGGER_ID, "interrupter")
            instruction = monitoring.events.INSTRUCTION
            monitoring.register_callback(monitoring.DEBUGGER_ID, instruction, self._instruction)
            for code in PENDING_CODES:
                monitoring.set_local_events(monitoring.DEBUGGER_ID, code, instruction)
        else:
            sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *error: object) -> None:
        if hasattr(sys, "monitoring"):
            for code in PENDING_CODES:
                sys.monitoring.set_local_events(sys.monitoring.DEBUGGER_ID, code, 0)
            sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)
        else:
            sys.settrace(None)
        self._last.clear()

    def _instruction(self, code: CodeType, offset: int) -> None:
        """Python 3.12 and newer."""
        if self._busy or threading.get_ident() != self._thread:
            return
        self._busy = True
        try:
            self._see(sys._getframe(1), offset)
        finally:
            self._busy = False

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Python 3.11."""
        if frame.f_code.co_filename != pending_module.__file__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self._see(frame, frame.f_lasti)
        return self._step

    def _see(self, frame: FrameType, offset: int) -> None:
        before = self._last.get(frame)
        self._last[frame] = offset
        if self._signals and before is not None and not self._may_raise(frame, before):
            return
        self.count += 1
        if self.count == self._nth:
            self.acted = True
            self._action()

    def _may_raise(self, frame: FrameType, before: int) -> bool:
        return dis.opname[frame.f_code.co_code[before]].startswith(SIGNALS_COME_AFTER)


def steps(pending: Pending) -> dict[str, Callable[[], object]]:
    """What callers and the writer do with a queue."""
    return {
        "express": lambda: pending.append(message("outer")),
        "long way": lambda: pending.append(own("outer"), message("outer")),
        "synced": lambda: pending.append(RolloutItem.raw("x_call", {"call_id": "outer", "state": "started"})),
        "header": lambda: pending.append_header(),
        "note": lambda: pending.append_note(RolloutItem.raw("x_writer", {"event": "closed"})),
        "take": lambda: sink.append(taken(pending)),
        "rest": lambda: pending.rest(),
        "durable": lambda: pending.note_durable(pending.accepted_bytes),
        "position": lambda: pending.position(),
    }


sink: list[bytes] = []


def prepared(begun: bool) -> Pending:
    sink.clear()
    pending = make()
    if begun:
        pending.append(message("before"))
        sink.append(taken(pending))
        pending.append(message("before too"))
    return pending


STEPS = list(steps(make()))


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("begun", [False, True], ids=["fresh", "begun"])
@pytest.mark.parametrize("step", STEPS)
def test_item_recorded_by_a_signal_handler_is_kept_whatever_it_interrupts(
    step: str, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two instructions of the queue a handler records: both items are there once, in dense
    numbering and order of time, and a barrier that follows covers them."""
    clock = Clock(monkeypatch)
    nth = 0
    while True:
        nth += 1
        pending = prepared(begun)

        def handle(pending: Pending = pending) -> None:
            clock.ns += 1_000_000
            pending.append(message("inner"), own("inner"))

        with Interrupter(nth, handle) as interrupter:
            steps(pending)[step]()
        if not interrupter.acted:
            break
        covered, count = pending.position()
        data = b"".join([*sink, taken(pending)])
        assert len(data) == covered, f"a barrier after step {nth} would not cover all"
        lines = records(data)
        inner = [line for line in items(lines) if "inner" in json.dumps(line)]
        outer = [line for line in items(lines) if "outer" in json.dumps(line)]
        assert [line["type"] for line in inner] == ["response_item", "x_check"], f"step {nth}"
        assert len(outer) == {"express": 1, "long way": 2, "synced": 1}.get(step, 0), f"step {nth}"
        assert [line["type"] for line in lines].count("session_meta") == 1, f"step {nth}"
        ordinals = [line["ordinal"] for line in lines if "ordinal" in line]
        assert ordinals == list(range(1, len(ordinals) + 1)), f"step {nth}"
        stamps = [line["timestamp"] for line in items(lines)]
        assert stamps == sorted(stamps), f"step {nth}"
        assert count == len(items(lines)), f"step {nth}"
    assert nth > 2


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("begun", [False, True], ids=["fresh", "begun"])
@pytest.mark.parametrize("step", ["express", "long way", "header", "position"])
def test_interrupt_at_any_instruction_leaves_the_queue_whole(step: str, begun: bool) -> None:
    """Ctrl-C between any two instructions: the call's items are all there or none is, the lock is free,
    counts and numbers stay right, and what comes later is accepted."""
    nth = 0
    while True:
        nth += 1
        pending = prepared(begun)

        def interrupt() -> None:
            raise KeyboardInterrupt

        try:
            with Interrupter(nth, interrupt, signals=True) as interrupter:
                steps(pending)[step]()
        except KeyboardInterrupt:
            pass
        if not interrupter.acted:
            break
        free = []
        other = threading.Thread(target=lambda p=pending, f=free: f.append(p._lock.acquire(timeout=5)))
        other.start()
        other.join()
        assert free == [True], f"step {nth}: the lock is still held"
        pending._lock = threading.RLock()
        pending._acquire, pending._release = pending._lock.acquire, pending._lock.release
        pending.append(message("after"))
        count = pending.accepted_items
        lines = records(b"".join([*sink, taken(pending)]))
        outer = [line for line in items(lines) if "outer" in json.dumps(line)]
        assert len(outer) in (0, {"express": 1, "long way": 2}.get(step, 0)), f"step {nth}"
        assert items(lines)[-1]["payload"]["content"][0]["text"] == "after", f"step {nth}"
        ordinals = [line["ordinal"] for line in lines if "ordinal" in line]
        assert ordinals == list(range(1, len(ordinals) + 1)), f"step {nth}"
        assert count == len(items(lines)), f"step {nth}"
    assert nth > 2


@pytest.mark.guarantee("G1")
def test_bad_item_in_a_signal_handler_takes_its_whole_call_with_it() -> None:
    """All or nothing holds for a call that interrupts another one too."""
    pending = prepared(begun=True)
    caught: list[RolloutError] = []

    def handle() -> None:
        try:
            pending.append(message("inner"), RolloutItem.raw("x_check", {"value": float("inf")}))
        except ItemNotEncodable as error:
            caught.append(error)

    with Interrupter(60, handle) as interrupter:
        pending.append(own("outer"))
    assert interrupter.acted
    assert len(caught) == 1
    assert b"inner" not in taken(pending)


class Dropped:
    """Records when it is collected."""


def test_finalizer_may_record() -> None:
    """The collector runs a finalizer in the middle of a call: its item is kept too."""
    pending = prepared(begun=True)

    class Item:
        def __iter__(self) -> Iterator[RolloutItem]:
            yield message("outer")

    circle = Dropped()
    circle.itself = circle  # type: ignore[attr-defined]
    weakref.finalize(circle, pending.append, message("from the finalizer"))
    del circle
    with Interrupter(12, lambda: (gc.collect(), None)[1]):
        pending.append(message("outer"))
    data = taken(pending)
    assert b"outer" in data
    assert b"from the finalizer" in data


def test_forked_child_has_nothing_pending_even_if_the_lock_was_held() -> None:
    """In the child the queue is empty, refuses, and waits for no thread of the parent."""
    pending = prepared(begun=True)
    held = threading.Thread(target=pending._lock.acquire)
    held.start()
    held.join()
    pending.reset_after_fork(refusal)
    assert taken(pending) == b""
    with pytest.raises(RecorderClosed):
        pending.append(message("a"))


def test_items_that_must_be_the_next_are_refused_behind_others() -> None:
    """Accepted where nothing came since the position that was looked at, and with nothing left out."""
    pending = make()
    pending.append(message("a"))
    position, _ = pending.position()
    pending.append(message("b"))
    assert not pending.append_if_last(position, message("never"))
    position, items = pending.position()
    assert pending.append_if_last(position, message("c"), message("d"))
    assert pending.position()[1] == items + 2
    assert not pending.append_if_last(position, message("never"))
    data = taken(pending)
    assert b"never" not in data
    assert data.index(b'"c"') < data.index(b'"d"')


def test_items_that_must_be_the_next_are_refused_while_the_queue_is_busy() -> None:
    """In a finalizer or signal handler that comes in between: what is being accepted comes first."""
    answers: list[bool] = []
    pending = make()
    pending.append(message("a"))
    position, _ = pending.position()

    def ask(item: RolloutItem) -> RolloutItem:
        answers.append(pending.append_if_last(position, message("never")))
        return item

    redaction = Redaction(None, ask)
    pending._redaction = redaction  # the one place where code of others runs inside
    pending._lines.clear()
    pending.append(message("b"))
    assert answers == [False]
    assert b"never" not in taken(pending)
