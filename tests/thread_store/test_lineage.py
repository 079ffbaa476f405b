"""Chains of bases: what is read of them, and what is said where one is broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from protocol.errors import NotARollout, RolloutReplaced, ThreadNotFound
from tests.thread_store.histories import (
    Script,
    base_of,
    body_lines,
    history,
    line,
    meta,
    place_of,
    turns,
    uuid,
    write_thread,
)
from thread_store.chain.lineage import Lineage, Place, read_lineage
from thread_store.home import Home

A, B, C, D = (uuid(number) for number in (0xA, 0xB, 0xC, 0xD))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def child_of(home: Home, parent: Path, parent_id: str, child_id: str, *, ordinal: int, **keys: Any) -> Path:
    """A child of all of a file, with a turn of its own."""
    base = base_of(parent, parent_id, parent.stat().st_size, ordinal)
    body = turns(1, first=ordinal, ordinal=ordinal + 1)
    return write_thread(home, child_id, body, ordinal=ordinal, **{"history_base": base, **keys})


def next_ordinal(path: Path) -> int:
    found = [int(each.split(b'"ordinal":')[1].split(b",")[0]) for each in _numbered(path)]
    return found[-1] + 1


def _numbered(path: Path) -> list[bytes]:
    return [each for each in path.read_bytes().splitlines() if b'"ordinal":' in each]


@pytest.fixture
def chain(home: Home) -> list[Path]:
    """A thread, its child, and the child's child."""
    paths = [write_thread(home, A, turns(2))]
    for parent_id, child_id in ((A, B), (B, C)):
        paths.append(child_of(home, paths[-1], parent_id, child_id, ordinal=next_ordinal(paths[-1])))
    return paths


def expected(paths: list[Path]) -> list[bytes]:
    return [each for path in paths for each in body_lines(path.read_bytes())]


# Reading


def test_rollout_without_base_is_its_own_history(home: Home) -> None:
    """One segment, and every record of the file in order, the meta first."""
    path = write_thread(home, A, turns(2) + b"\0bad\n" + turns(1))
    lineage = Lineage.resolve(path, home)
    assert lineage.problem is None
    assert [each.path for each in lineage.segments] == [str(path)]
    records = [each.record for each in read_lineage(path, home)]
    assert [each.offset for each in records] == sorted(each.offset for each in records)
    assert (
        b"".join(path.read_bytes()[each.offset :][: each.size] + b"\n" for each in records)
        == path.read_bytes()
    )


@pytest.mark.case("B121")
def test_chain_reads_as_one_history(home: Home, chain: list[Path]) -> None:
    """The thread's own meta, then the records of all its files, oldest first, without their metas."""
    records = list(read_lineage(chain[-1], home))
    assert [each.segment for each in records] == [2] + [0] * 20 + [1] * 10 + [2] * 10
    first = records[0].record.line
    assert first is not None
    assert first.item().id == C  # type: ignore[attr-defined]
    assert history(chain[-1], home) == expected(chain)


def test_backward_is_forward_reversed(home: Home, chain: list[Path]) -> None:
    """The same records with the same places, from either end and from any border between."""
    lineage = Lineage.resolve(chain[-1], home)
    forward = list(lineage.forward())
    assert list(lineage.backward()) == forward[::-1]
    for at, each in enumerate(forward):
        assert list(lineage.backward(each.place)) == forward[:at][::-1]
        assert list(lineage.forward(each.end)) == forward[at + 1 :]
        assert list(lineage.forward(end=each.place)) == forward[:at]


@pytest.mark.case("B68")
def test_what_the_base_appends_later_is_not_seen(home: Home, chain: list[Path]) -> None:
    """A base ends where the child says, and so does a history that is being read."""
    before = history(chain[-1], home)
    reading = read_lineage(chain[-1], home)
    next(reading)
    for path in chain[:2]:
        with path.open("ab") as file:
            file.write(turns(1, first=50))
    assert [each.record.line.source for each in reading if each.record.line] == before
    assert history(chain[-1], home) == before


def test_unfinished_tail_is_read_of_the_youngest_only(home: Home) -> None:
    """It is no part of the border, but a reader sees it."""
    path = write_thread(home, A, turns(1) + b'{"half')
    lineage = Lineage.resolve(path, home)
    assert lineage.end == Place(0, path.stat().st_size - 6)
    assert [each.record.warning.reason for each in lineage.forward() if each.record.warning] == ["torn_tail"]
    assert not [each for each in lineage.forward(end=lineage.end) if each.record.warning]


def test_meta_copied_into_a_history_stays_in_it(home: Home) -> None:
    """Only the first meta of a file is left out; others are history."""
    path = write_thread(home, A, meta(B) + turns(1))
    found = [each.record.line.item() for each in read_lineage(path, home) if each.record.line]
    assert [each.id for each in found if each.record_type == "session_meta"] == [A, B]  # type: ignore[attr-defined]


def test_base_may_be_archived_or_compressed(home: Home, chain: list[Path]) -> None:
    """It is found by its rollout id wherever it lies, and offsets are those of its decompressed bytes."""
    whole = expected(chain)
    archived = place_of(home, A, archived=True)
    chain[0].rename(archived)
    compressed = chain[1].with_name(chain[1].name + ".zst")
    compressed.write_bytes(zstandard.compress(chain[1].read_bytes()))
    chain[1].unlink()
    lineage = Lineage.resolve(chain[-1], home)
    assert lineage.problem is None
    assert [each.path for each in lineage.segments] == [str(archived), str(compressed), str(chain[2])]
    assert history(chain[-1], home) == whole


def test_base_of_a_reverted_thread_is_named_by_its_rollout_id(home: Home) -> None:
    """Two files of one thread are two rollouts: the base is the one that is meant."""
    first = write_thread(home, A, turns(2))
    end = base_of(first, A, first.stat().st_size, next_ordinal(first))
    second = write_thread(
        home, A, turns(1, first=3, ordinal=24), rollout_id=B, ordinal=next_ordinal(first), history_base=end
    )
    third = child_of(home, second, B, C, ordinal=next_ordinal(second))
    assert history(third, home) == expected([first, second, third])


def test_base_without_hash_is_taken(home: Home) -> None:
    """Codex writes none: then offset and ordinals must do."""
    parent = write_thread(home, A, turns(1))
    base = base_of(parent, A, parent.stat().st_size, next_ordinal(parent), hashed=False)
    child = write_thread(home, B, b"", ordinal=next_ordinal(parent), history_base=base)
    assert Lineage.resolve(child, home).problem is None


@pytest.mark.parametrize("offset", ["start", "meta"])
def test_base_at_the_own_start_of_a_file_is_that_files_base(
    home: Home, chain: list[Path], offset: str
) -> None:
    """Nothing of the file itself counts, so its base is the history."""
    head = chain[1].read_bytes().index(b"\n") + 1
    ordinal = next_ordinal(chain[0])
    base = {"thread_id": B, "end_ordinal_exclusive": ordinal, "end_byte_offset": 0}
    if offset == "meta":
        base = base_of(chain[1], B, head, ordinal + 1)
    child = write_thread(home, D, b"", ordinal=base["end_ordinal_exclusive"], history_base=base)
    assert Lineage.resolve(child, home).problem is None
    assert history(child, home) == expected(chain[:1])


# Broken chains

Break = Callable[[Path, dict[str, Any]], None]


def _edit(**changes: Any) -> Break:
    def change(parent: Path, base: dict[str, Any]) -> None:
        for key, value in changes.items():
            base[key] = value(base[key]) if callable(value) else value

    return change


def _make_legacy(parent: Path, base: dict[str, Any]) -> None:
    parent.write_bytes(parent.read_bytes().replace(b'"paginated"', b'"legacy"'))


def _change_last_line(parent: Path, base: dict[str, Any]) -> None:
    data = parent.read_bytes()
    parent.write_bytes(data[:-30] + data[-30:].replace(b"null", b"true"))


def _compress_with_damage(parent: Path, base: dict[str, Any]) -> None:
    data = parent.read_bytes()
    frames = [zstandard.compress(data[:-100]), zstandard.compress(data[-100:])[:-10]]
    parent.with_name(parent.name + ".zst").write_bytes(b"".join(frames))
    parent.unlink()


BREAKS: list[tuple[str, Break]] = [
    ("missing", lambda parent, base: parent.unlink()),
    ("missing", _edit(thread_id="../../etc/passwd")),
    ("unreadable", lambda parent, base: parent.write_bytes(b"no rollout\n") and None),
    ("legacy", _make_legacy),
    ("damaged", _compress_with_damage),
    ("offset_outside", _edit(end_byte_offset=lambda offset: offset + 1)),
    ("offset_outside", _edit(end_byte_offset=-1)),
    ("offset_outside", lambda parent, base: os.truncate(parent, base["end_byte_offset"] // 2)),
    ("offset_inside_line", _edit(end_byte_offset=lambda offset: offset - 1)),
    ("ordinal_differs", _edit(end_ordinal_exclusive=lambda ordinal: ordinal + 1)),
    ("hash_differs", _edit(x_base_sha256="0" * 64)),
    ("hash_differs", _change_last_line),
    ("malformed", _edit(end_byte_offset="many")),
]


@pytest.mark.case("B55")
@pytest.mark.parametrize(
    ("code", "damage"), BREAKS, ids=[f"{at}-{code}" for at, (code, _) in enumerate(BREAKS)]
)
def test_broken_base_leaves_the_own_part(home: Home, code: str, damage: Break) -> None:
    """The thread still reads from where its own file begins; the problem is a value that says what it is."""
    parent = write_thread(home, A, turns(2))
    base = base_of(parent, A, parent.stat().st_size, next_ordinal(parent))
    ordinal = next_ordinal(parent)
    damage(parent, base)
    child = write_thread(home, B, turns(1, ordinal=ordinal + 1), ordinal=ordinal, history_base=base)
    lineage = Lineage.resolve(child, home)
    assert lineage.problem is not None
    assert lineage.problem.code == code
    assert lineage.problem.message
    assert history(child, home) == body_lines(child.read_bytes())


def test_chain_broken_further_up_reads_down_to_there(home: Home, chain: list[Path]) -> None:
    """What is younger than the break is verified, and stays."""
    chain[0].unlink()
    lineage = Lineage.resolve(chain[-1], home)
    assert lineage.problem is not None
    assert (lineage.problem.code, lineage.problem.rollout_id) == ("missing", A)
    assert history(chain[-1], home) == expected(chain[1:])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ring_of_bases_ends(home: Home, size: int) -> None:
    """A chain that comes back to itself is cut where it does."""
    ids = [A, B, C][:size]
    paths = [place_of(home, each) for each in ids]
    for path, thread_id in zip(paths, ids, strict=True):
        path.write_bytes(meta(thread_id) + turns(1))
    end = paths[0].stat().st_size
    for _ in range(3):  # the metas tell their own lengths: until they agree
        for at, (path, thread_id) in enumerate(zip(paths, ids, strict=True)):
            base = {"thread_id": ids[at - 1], "end_ordinal_exclusive": 9, "end_byte_offset": end}
            path.write_bytes(meta(thread_id, history_base=base) + turns(1))
        end = paths[0].stat().st_size
    lineage = Lineage.resolve(paths[0], home)
    assert lineage.problem is not None
    assert lineage.problem.code == "cycle"
    assert len(lineage.segments) == size


# The rollout itself


@pytest.mark.parametrize(
    "data", [b"", b"x\n", turns(1), meta(A)[:-1], b'{"session":{},"items":[]}'], ids=range(5)
)
def test_what_is_no_rollout_of_this_format_is_refused(home: Home, data: bytes) -> None:
    """Empty, foreign, headless, with an unfinished header, or of an older format."""
    path = place_of(home, A)
    path.write_bytes(data)
    with pytest.raises(NotARollout):
        Lineage.resolve(path, home)


def test_bare_header_of_an_older_format_is_refused_with_a_hint(home: Home) -> None:
    """Its lines have no envelope: it is read and imported, not continued."""
    path = place_of(home, A)
    path.write_bytes(b'{"id":"%s","timestamp":"x","instructions":null}\n' % A.encode() + turns(1))
    with pytest.raises(NotARollout, match="import it"):
        Lineage.resolve(path, home)


def test_absent_rollout_is_not_found(home: Home) -> None:
    """As everywhere."""
    with pytest.raises(ThreadNotFound):
        Lineage.resolve(place_of(home, A), home)


def test_file_that_was_replaced_meanwhile_ends_the_reading(home: Home, chain: list[Path]) -> None:
    """What was verified is what is read, or an error."""
    lineage = Lineage.resolve(chain[-1], home)
    copy = chain[0].with_name("copy")
    copy.write_bytes(chain[0].read_bytes())
    copy.rename(chain[0])
    with pytest.raises(RolloutReplaced):
        list(lineage.forward())


def test_deep_chain_needs_few_descriptors(home: Home) -> None:
    """Files are opened one at a time."""
    path = write_thread(home, uuid(0), turns(1))
    ordinal = next_ordinal(path)
    for number in range(1, 40):
        base = base_of(path, uuid(number - 1), path.stat().st_size, ordinal)
        body = line("response_item", {"type": "other"}, ordinal + 1)
        path = write_thread(home, uuid(number), body, ordinal=ordinal, history_base=base)
        ordinal += 2
    held = len(os.listdir("/proc/self/fd"))
    reading = read_lineage(path, home)
    most = max(len(os.listdir("/proc/self/fd")) for _ in reading)
    assert most <= held + 3
    assert len(Lineage.resolve(path, home).segments) == 40


def test_script_of_the_tests_numbers_densely() -> None:
    """What these tests are made of is what a recorder would write."""
    script = Script()
    script.turn(1, calls=["c"])
    assert [each.count(b'"ordinal"') for each in script.lines].count(0) == 2


def test_byte_order_mark_is_passed_over(home: Home) -> None:
    """In both directions, as the plain reader does."""
    path = write_thread(home, A, turns(1))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    lineage = Lineage.resolve(path, home)
    forward = list(lineage.forward())
    assert len(forward) == 10
    assert not [each.record.warning for each in forward if each.record.warning]
    assert list(lineage.backward()) == forward[::-1]


def test_ring_of_a_compressed_file_ends(home: Home) -> None:
    """A file that rests on itself is met twice and opened once."""
    path = place_of(home, A).with_suffix(".jsonl.zst")
    base = {"thread_id": A, "end_ordinal_exclusive": 0, "end_byte_offset": 0}
    path.write_bytes(zstandard.compress(meta(A, history_base=base) + turns(1)))
    lineage = Lineage.resolve(path, home)
    assert lineage.problem is not None
    assert lineage.problem.code == "cycle"
    assert len(list(lineage.forward())) == 10


def test_folder_that_can_not_be_listed_is_no_missing_base(
    home: Home, chain: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base may be there: what the system refused is said."""
    chain[0].rename(place_of(home, A, archived=True))
    scandir = os.scandir

    def refuse(path: str | Path) -> Any:
        if "archived" in str(path):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    problem = Lineage.resolve(chain[-1], home).problem
    assert problem is not None
    assert problem.code == "unreadable"
    assert "Permission denied" in problem.message
