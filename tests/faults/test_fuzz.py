"""Hostile bytes: some of what `python -m tests.faults fuzz` does, and the proof that it can fail.

Every input that ever failed stands in `PAST_INPUTS`, made small.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol import decoding, fold_block
from protocol.damage import DamageFold
from rollout import lines, repair, scanner
from tests.faults.fuzz import FuzzReport, fuzz, replay
from tests.faults.fuzz_input import Input, judge, make_input, minimise
from tests.faults.fuzz_samples import samples_of
from tests.faults.fuzz_targets import TARGETS, Workshop, kind_of
from tests.faults.mutator import mutate
from thread_store.locks import lease_file
from thread_store.locks.holder import LockHolder

INPUTS = 20_000
SEED = 20261130

PAST_INPUTS: list[tuple[str, tuple[bytes, ...]]] = [
    ("head", (rb'{"type":"response_item","payload":{"type":"\ud800","":"","":""}}',)),
    ("chain", (b"", b'{"timestamp":"","type":"session_meta","payload":"x"}\n')),
    ("replay", (b"", b'{"":' + b"[" * 5000)),
    ("state", (b'{"items":[{}],"":"\\ud800"}',)),
    ("state", (b'{"items":' + b"[" * 5000,)),
    ("resume", (b'{"timestamp":"","type":"session_meta","payload":[]}\n',)),
]
"""By target: what was wrong with it stands in docs/faults.md."""


@pytest.fixture
def shop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.close()


@pytest.mark.system
@pytest.mark.guarantee("G4")
def test_hostile_bytes_never_crash_hang_or_disagree(tmp_path: Path) -> None:
    """Readers both ways, heads, locks, folds, states, repair, replay, snapshots: in bounded memory."""
    report = FuzzReport()
    for report in fuzz(INPUTS, seed=SEED, keep=tmp_path):
        assert not report.failures, report.failures
    assert report.inputs == INPUTS
    assert set(report.counts) == set(TARGETS)


@pytest.mark.parametrize(("target", "parts"), PAST_INPUTS)
def test_input_that_failed_once_does_not_any_more(
    target: str, parts: tuple[bytes, ...], shop: Workshop
) -> None:
    """The smallest of each kind."""
    assert judge(Input(target, parts), shop) is None


@pytest.mark.parametrize("target", TARGETS)
def test_samples_as_they_are_hold(target: str, shop: Workshop) -> None:
    """What is mutated is in order itself."""
    for parts in samples_of(kind_of(target)):
        assert judge(Input(target, parts), shop) is None


def test_input_is_made_of_its_seed_alone() -> None:
    """The same in any process: a seed and a number are all that is needed."""
    names = list(TARGETS)
    made = [make_input(7, number, names) for number in range(50)]
    assert made == [make_input(7, number, names) for number in range(50)]
    assert len({each.parts for each in made}) > 40


def test_mutations_reach_all_that_they_shall_reach() -> None:
    """Of the inputs for readers many hold valid lines, many damage, many an unfinished end."""
    rng = random.Random(1)
    made = [mutate(rng, samples_of("rollout"))[0] for _ in range(500)]
    assert sum(b'"session_meta"' in each for each in made) > 300
    assert sum(not each.endswith(b"\n") for each in made) > 50
    assert sum(b"\0" in each for each in made) > 50
    assert max(map(len, made)) <= 1 << 16


def _forget_blocks(read_at: Any, start: int, end: int, **options: Any) -> Any:
    """A line that ends where a block begins is passed over."""
    for offset, line, terminated in honest_split(read_at, start, end, **options):
        if offset % 61 or not offset:
            yield offset, line, terminated


honest_split = lines.split_lines_backward


@pytest.mark.parametrize(
    ("target", "owner", "name", "bug"),
    [
        ("read", scanner, "split_lines_backward", _forget_blocks),
        ("head", decoding, "convert_plain", lambda value, kind, **_: msgspec.convert(value, kind)),
        ("fold", fold_block, "_may_nest_too_deep", lambda data, lines: False),
        ("fold", DamageFold, "to_plain", lambda self: []),
        ("lock", lease_file, "decode_holder", lambda data: msgspec.json.decode(data, type=LockHolder)),
        ("repair", repair, "keep_torn_tail", lambda *arguments, **named: "gone"),
    ],
)
def test_planted_bug_is_found(
    target: str, owner: Any, name: str, bug: Any, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof that it can fail: within some thousand inputs."""
    monkeypatch.setattr(owner, name, bug)
    for number in range(6000):
        if judge(make_input(1, number, [target]), shop) is not None:
            return
    pytest.fail(f"{name} of {owner.__name__} is broken, and {target} saw nothing")


def test_failure_is_kept_small_and_can_be_replayed(
    tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a character in a line of some kilobytes: what is kept is not much more than that."""
    monkeypatch.setattr(decoding, "convert_plain", lambda value, kind, **_: msgspec.convert(value, kind))
    for number in range(20_000):
        given = make_input(1, number, ["head"])
        verdict = judge(given, shop)
        if verdict is not None and "UnicodeEncodeError" in verdict.kind:
            break
    else:
        pytest.fail("it was never reached")
    small = minimise(given, verdict.kind, shop)
    assert len(small.parts[0]) < 200
    small.write(tmp_path / small.file_name)
    assert Input.read(tmp_path / small.file_name) == small
    assert judge(small, shop) is not None
    assert replay(tmp_path / small.file_name) is None  # without the bug, in a process of its own
