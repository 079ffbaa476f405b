"""Any history with a canary anywhere: it is gone, and the rest is the history without those records."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import encode_item
from protocol.items import RolloutItem
from protocol.line import decode_line
from protocol.memory_text import render_memory
from rollout import read_rollout
from rollout.check import Severity, check_rollout
from rollout.scanner import ReverseJsonlScanner
from tests.protocol.histories import random_history
from tests.thread_store.erasing.escaping import escape
from tests.thread_store.erasing.homes import unpacked
from tests.thread_store.histories import STAMP, base_of, meta, place_of, turns, uuid
from thread_store.chain.lineage import Lineage
from thread_store.erasing.erase import Erasure
from thread_store.erasing.needle import Needle
from thread_store.folding.thread_folding import fold_lineage, snapshot_of
from thread_store.home import Home
from thread_store.resume.resume_state import ResumeState, read_resume_state

THREAD, FORK = uuid(0xF1), uuid(0xF2)
CANARIES = st.text(st.characters(min_codepoint=1), min_size=6, max_size=14).map(lambda text: f"Q7{text}Zk")


def held_line(rng: random.Random, ordinal: int | None, canary: str) -> bytes:
    """A record that holds it: on either track, in a call, in a checkpoint, as a key, deep within."""
    text = escape(f"a {canary} b", rng)
    deep = escape(f'{{"x":{escape(json.dumps({"y": canary}), rng)}}}', rng)
    message = f'{{"type":"message","role":"user","content":[{{"type":"input_text","text":{text}}}]}}'
    forms = [
        ("response_item", message),
        ("response_item", f'{{"type":"function_call","name":"n","call_id":"c1","arguments":{deep}}}'),
        ("response_item", f'{{"type":"function_call_output","call_id":"c1","output":{text}}}'),
        ("event_msg", f'{{"type":"user_message","message":{text}}}'),
        ("compacted", f'{{"message":"m","replacement_history":[{message}]}}'),
        ("unknown_kind", f"{{{text}:[{deep}]}}"),
        ("x_call", f'{{"call_id":"c2","state":"started","note":{text}}}'),
        ("x_state", f'{{"to":"waiting","reason":{text}}}'),
    ]
    kind, payload = rng.choice(forms)
    number = "" if ordinal is None or kind.startswith("x_") else f'"ordinal":{ordinal},'
    return f'{{"timestamp":"{STAMP}",{number}"type":"{kind}","payload":{payload}}}'.encode(
        errors="surrogatepass"
    )


class History:
    """A random rollout with snapshots in it; `held` are the numbers of the lines with the canary."""

    def __init__(self, rng: random.Random, home: Home, canary: str) -> None:
        self.path = place_of(home, THREAD)
        self.lines: list[bytes] = [meta(THREAD, x_task="do it", base_instructions=None).rstrip(b"\n")]
        self.held: set[int] = set()
        ordinal = 1
        for each in random_history(rng, aside=True, lines_max=30):
            if each.type == "x_erased":
                continue
            own = str(each.type).startswith("x_")
            self.lines.append(
                encoded(each.type, each.payload_object(), None if own else ordinal).rstrip(b"\n")
            )
            ordinal += not own
            if rng.random() < 0.3:
                held = held_line(rng, ordinal, canary)
                self.held.add(len(self.lines))
                self.lines.append(held)
                ordinal += b'"ordinal"' in held[:60]
            if rng.random() < 0.15:
                self._snapshot(home)
        self.path.write_bytes(self.data)

    def _snapshot(self, home: Home) -> None:
        self.path.write_bytes(self.data)
        with Lineage.resolve(self.path, home) as lineage:
            item = snapshot_of(lineage, fold_lineage(lineage, deep=True))
        self.lines.append(encode_item(item, timestamp=STAMP).rstrip(b"\n"))

    @property
    def data(self) -> bytes:
        return b"".join(each + b"\n" for each in self.lines)

    def without(self, home: Home) -> Path:
        """The same history as if those records had never been, numbered without a gap."""
        lines, ordinal = [], 0
        for number, each in enumerate(self.lines):
            if number in self.held or b'"type":"x_memory"' in each[:80]:
                continue
            found = decode_line(each)
            if found.ordinal is not None:
                each = each.replace(b'"ordinal":%d,' % found.ordinal, b'"ordinal":%d,' % ordinal, 1)
                ordinal += 1
            lines.append(each + b"\n")
        path = place_of(home, THREAD)
        path.write_bytes(b"".join(lines))
        return path


def encoded(kind: str | None, payload: Any, ordinal: int | None) -> bytes:
    return encode_item(RolloutItem.raw(str(kind), payload), timestamp=STAMP, ordinal=ordinal)


def told(state: ResumeState) -> Any:
    """What a resume goes on from, without the places of it."""
    return (
        [bytes(each.payload) for each in state.items],
        [(each.call_id, each.turn_id, each.verdict) for each in state.calls],
        [(each.approval_id, each.state) for each in state.approvals],
        [each.reason for each in state.damage],
        re.sub(r" \[#[^\]]*\]", "", render_memory(state.memory)),
        state.turn_id,
    )


def codes(path: Path) -> set[str]:
    return {each.code for each in check_rollout(path).findings if each.severity is not Severity.NOTE}


@pytest.mark.guarantee("G9")
@given(canary=CANARIES, seed=st.integers(0, 1 << 32), compressed=st.booleans())
@settings(max_examples=60, deadline=None)
def test_history_without_it_is_what_is_left(canary: str, seed: int, compressed: bool) -> None:
    """Gone from every byte; all other lines as they were; both directions, numbers, forks and check agree;
    the state is that of the history without those records."""
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp())
    try:
        home, other = Home(folder / "home"), Home(folder / "other")
        needle = Needle.text(canary)
        history = History(rng, home, canary)
        child = fork_of(rng, history, home)
        path, before = history.path, history.data
        before_codes = codes(path)
        if compressed:
            path = path.with_name(path.name + ".zst")
            path.write_bytes(zstandard.ZstdCompressor().compress(before))
            history.path.unlink()
        report = Erasure(home, needle=needle).carry_out()
        assert report.left == []
        for each in home.path.rglob("*"):
            assert not each.is_file() or not needle.is_in(unpacked(each))
        after = unpacked(path)
        first = min(history.held, default=len(history.lines))
        for number, (old, new) in enumerate(zip(history.lines, after.split(b"\n"), strict=False)):
            assert len(old) == len(new)
            goes = number in history.held or (number > first and b'"type":"x_memory"' in old[:80])
            assert (old != new) == goes
            if goes:
                assert decode_line(new).type == "x_erased"
                assert decode_line(new).number == decode_line(old).number
        forward = [each.offset for each in read_rollout(path) if each.line is not None]
        with ReverseJsonlScanner(path) as records:
            assert forward == [each.offset for each in records if each.line is not None][::-1]
        assert codes(path) <= before_codes
        with Lineage.resolve(child, home) as lineage:
            assert lineage.problem is None
        found, wanted = read_resume_state(path, home), read_resume_state(history.without(other), other)
        assert told(found) == told(wanted)
    finally:
        shutil.rmtree(folder)


def fork_of(rng: random.Random, history: History, home: Home) -> Path:
    """A reference fork that begins behind any line, most often behind one that is erased."""
    number = rng.choice(sorted(history.held)) if history.held and rng.random() < 0.7 else None
    number = rng.randrange(len(history.lines)) if number is None else number
    data = b"".join(each + b"\n" for each in history.lines[: number + 1])
    numbers = [decode_line(each).number for each in history.lines[: number + 1]]
    known = [each for each in numbers if each is not None]
    end = known[-1] + 1  # as the last one that has a number says
    base = base_of(history.path, THREAD, len(data), end)
    assert base["x_base_sha256"] == hashlib.sha256(data.split(b"\n")[-2]).hexdigest()
    path = place_of(home, FORK)
    path.write_bytes(meta(FORK, end, history_base=base) + turns(1, ordinal=end + 1))
    return path
