"""`python -m benches codec`: lines to bytes and back, against msgspec and orjson."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import msgspec

from benches.measure import Case, per_item, run_rounds
from benches.report import Row, bound_row, note_row, speed_rows
from benches.workload import SAMPLE_LINES, STAMP, build_item, encode, make_line
from protocol import decode_line
from protocol.codec import encode_item
from rollout import RecorderConfig
from rollout.pending import Pending

__all__ = ["codec_rows"]

MSGSPEC = "msgspec, the whole line as a Struct"
WHOLE_LINE = "encode_item, one line as bytes"
QUEUE = "the pending queue of a recorder"
ORJSON = "orjson.loads"
DECODE_LINE = "decode_line"
ENVELOPE = "msgspec, the bare envelope"


class Envelope(msgspec.Struct, gc=False):
    """The least that a reader needs of a line."""

    timestamp: str
    type: str
    payload: msgspec.Raw
    ordinal: int | None = None


FETCH_ITEMS = 2_000
"""The queue is emptied so often: about 1 MiB, as its writer would."""


async def codec_rows(*, rounds: int, items: int) -> list[Row]:
    """Encoding one message, then decoding lines of the shapes in a real rollout."""
    return [*await _encoding(rounds, items), *await _decoding(rounds, items)]


async def _encoding(rounds: int, items: int) -> list[Row]:
    line = make_line(7)
    item = line.payload
    cases = [
        _case(MSGSPEC, lambda: encode(line), items),
        _case(WHOLE_LINE, lambda: encode_item(item, timestamp=STAMP, ordinal=7), items),
        _queue_case(items),
    ]
    samples = await run_rounds(cases, rounds)
    return [
        *speed_rows(samples, [case.name for case in cases]),
        bound_row(
            "cost of encode_item / cost of msgspec", samples.ratio([WHOLE_LINE], [MSGSPEC]), at_most=1.5
        ),
        bound_row("cost of the queue / cost of msgspec", samples.ratio([QUEUE], [MSGSPEC]), at_most=1.5),
    ]


def _queue_case(items: int) -> Case:
    """What the producer pays: encoded, stamped and numbered under the lock; nothing is written."""
    item = build_item(7)

    def fill() -> None:
        queue = Pending(
            path="", config=RecorderConfig(), header=b"", opening=lambda at_ms: b"", next_ordinal=1
        )
        for number in range(items):
            queue.append(item)
            if not number % FETCH_ITEMS:
                queue.take()
                queue.note_durable(queue.accepted_bytes)

    async def run() -> float:
        return per_item(fill, items)

    return Case(QUEUE, run)


async def _decoding(rounds: int, items: int) -> list[Row]:
    lines = SAMPLE_LINES
    decode_envelope = msgspec.json.Decoder(Envelope).decode
    cases = [
        _lines_case(DECODE_LINE, decode_line, lines, items),
        _lines_case(ENVELOPE, decode_envelope, lines, items),
    ]
    if find_spec("orjson") is None:
        samples = await run_rounds(cases, rounds)
        note = note_row("orjson is not installed, so there is no ratio to it (extra: bench)")
        return [*speed_rows(samples, [case.name for case in cases]), note]
    import orjson

    samples = await run_rounds([*cases, _lines_case(ORJSON, orjson.loads, lines, items)], rounds)
    return [
        *speed_rows(samples, [DECODE_LINE, ENVELOPE, ORJSON]),
        bound_row(
            "speed of decode_line / speed of orjson.loads",
            samples.ratio([ORJSON], [DECODE_LINE]),
            at_least=2.5,
        ),
        bound_row(
            "speed of the envelope / speed of orjson.loads", samples.ratio([ORJSON], [ENVELOPE]), at_least=2.5
        ),
    ]


def _case(name: str, work: Callable[[], object], items: int) -> Case:
    def repeat() -> None:
        for _ in range(items):
            work()

    async def run() -> float:
        return per_item(repeat, items)

    return Case(name, run)


def _lines_case(name: str, decode: Callable[[bytes], object], lines: Sequence[bytes], items: int) -> Case:
    def decode_all() -> None:
        for _ in range(items // len(lines)):
            for line in lines:
                decode(line)

    async def run() -> float:
        return per_item(decode_all, items // len(lines) * len(lines))

    return Case(name, run)
