"""Kept files: whole or absent, private, never deleted, found again."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import NotARollout, RolloutUnreadable, RolloutWriteError
from rollout.kept import find_kept, keep_torn_tail, keep_unwritten, kept_folder, make_folders
from rollout.syscalls import FileCalls
from rollout.unwritten import mark_replayed, read_unwritten
from tests.rollout.faulty import EIO, FaultyCalls, fails
from tests.rollout.written import THREAD_ID, message, rollout

NAME = f"rollout-2026-11-29T10-11-12-{THREAD_ID}.jsonl"


@pytest.fixture(params=[0o022, 0o077, 0o777, 0])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def home_rollout(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "sessions" / "2026" / "11" / "29" / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(rollout("one"))
    return path


def keep_tail(path: Path, start: int, end: int, calls: FileCalls | None = None) -> Path:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return keep_torn_tail(descriptor, start, end, path, calls=calls)
    finally:
        os.close(descriptor)


def keep(
    path: Path, *lines: bytes, spill: tuple[Path, ...] = (), calls: FileCalls | None = None
) -> Path | None:
    return keep_unwritten(
        path,
        lines,
        thread_id=THREAD_ID,
        offset_bytes=17,
        items=len(lines),
        spill_folders=spill,
        calls=calls,
    )


@pytest.mark.parametrize(
    ("rollout_path", "folder"),
    [
        (f"/h/sessions/2026/11/29/{NAME}", "/h/thread-store/kept"),
        (f"/h/sessions/{NAME}", "/h/thread-store/kept"),
        (f"/h/archived_sessions/{NAME}", "/h/thread-store/kept"),
        (f"/h/archived_sessions/{NAME}.zst", "/h/thread-store/kept"),
        (f"/sessions/x/h/sessions/a/{NAME}", "/sessions/x/h/thread-store/kept"),
        (f"/somewhere/else/{NAME}", "/somewhere/else"),
        ("/somewhere/agent.jsonl", "/somewhere"),
    ],
)
def test_kept_folder_is_in_the_home_or_beside_the_file(rollout_path: str, folder: str) -> None:
    """In a home: thread-store/kept. Anywhere else: beside the rollout."""
    assert kept_folder(rollout_path) == Path(folder)


def test_torn_tail_is_kept_as_it_was(home_rollout: Path) -> None:
    """The kept file holds exactly the bytes of the tail, and its name says where they stood."""
    start = home_rollout.stat().st_size
    torn = b'{"torn \xe2\x82'
    with home_rollout.open("ab") as file:
        file.write(torn)
    kept = keep_tail(home_rollout, start, start + len(torn))
    assert kept.read_bytes() == torn
    assert kept.parent == kept_folder(home_rollout)
    (found,) = find_kept(home_rollout)
    assert (found.kind, found.offset_bytes, found.size_bytes) == ("torn", start, len(torn))
    assert home_rollout.read_bytes() == rollout("one") + torn


@pytest.mark.case("B05")
def test_torn_tail_of_nuls_takes_no_room(tmp_path: Path) -> None:
    """A tail of very many NUL bytes is copied in blocks, and its copy has holes where they were."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(rollout("one") + b"half")
    size = path.stat().st_size + (512 << 20)
    os.truncate(path, size)
    with path.open("ab") as file:
        file.write(b"end")
    start = size - (512 << 20) - 4
    kept = keep_tail(path, start, size + 3)
    status = kept.stat()
    assert status.st_size == (512 << 20) + 7
    assert status.st_blocks * 512 < 4 << 20
    with kept.open("rb") as file:
        assert file.read(6) == b"half\0\0"
        file.seek(-5, os.SEEK_END)
        assert file.read() == b"\0\0end"


@pytest.mark.case("B101")
def test_kept_files_and_folders_are_private(tmp_path: Path, umask: int) -> None:
    """Files 0600, new folders 0700, under any umask."""
    path = tmp_path / "home" / "sessions" / "s.jsonl"
    assert keep(path, message("a")) is not None
    spill = tmp_path / "spill"
    os.mkdir(spill)
    os.chmod(spill, 0o777)
    blocked = tmp_path / "blocked"
    blocked.touch()
    assert keep(blocked / "sessions" / "s.jsonl", message("a"), spill=(spill,)) is not None
    made = [each for each in (tmp_path / "home", *tmp_path.rglob("*")) if each not in (spill, blocked)]
    assert len(made) >= 5
    for each in made:
        mode = stat.S_IMODE(each.stat().st_mode)
        assert mode == (0o700 if each.is_dir() else 0o600), each


def test_unwritten_lines_come_back_verified(home_rollout: Path) -> None:
    """One header line, then the raw lines; read again they are what they were, with all that it says."""
    lines = [message("a", 2), message("b", 3)]
    kept = keep(home_rollout, *lines)
    assert kept is not None
    head, _, content = kept.read_bytes().partition(b"\n")
    assert content == b"".join(lines)
    header = json.loads(head)
    assert header["kind"] == "unwritten"
    assert header["rollout"] == str(home_rollout)
    assert header["thread_id"] == THREAD_ID
    assert (header["offset_bytes"], header["items"], header["bytes"]) == (17, 2, len(content))
    assert header["sha256"] == hashlib.sha256(content).hexdigest()
    assert read_unwritten(kept).lines == lines


def test_lines_may_come_in_pieces_of_any_kind(tmp_path: Path) -> None:
    """Bytes, bytearrays and views, cut anywhere."""
    data = message("a", 1) + message("b", 2)
    pieces = [bytearray(data[:10]), memoryview(data)[10:50], data[50:]]
    kept = keep_unwritten(tmp_path / "r.jsonl", pieces, thread_id=None, offset_bytes=0, items=2)
    assert kept is not None
    assert read_unwritten(kept).lines == [message("a", 1), message("b", 2)]


def test_no_lines_are_kept_as_none(tmp_path: Path) -> None:
    """Nothing to keep is no special case."""
    kept = keep(tmp_path / "r.jsonl")
    assert kept is not None
    assert read_unwritten(kept).lines == []


@pytest.mark.parametrize("damage", ["cut", "flip", "header", "grow"])
def test_damaged_unwritten_file_is_not_used(tmp_path: Path, damage: str) -> None:
    """A file that isn't what was set aside is refused, whatever happened to it."""
    kept = keep(tmp_path / "r.jsonl", message("a", 1))
    assert kept is not None
    data = bytearray(kept.read_bytes())
    if damage == "cut":
        del data[-3:]
    elif damage == "flip":
        data[-9] ^= 1
    elif damage == "header":
        data[0] = 0
    else:
        data += message("b", 2)
    kept.write_bytes(data)
    with pytest.raises(NotARollout):
        read_unwritten(kept)


def test_unwritten_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """The system's refusal is translated."""
    with pytest.raises(RolloutUnreadable):
        read_unwritten(tmp_path / "gone.unwritten")


class FullDisk(FileCalls):
    """No room for data below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.bad: set[int] = set()

    def open_new(self, path: str) -> int:
        descriptor = super().open_new(path)
        if path.startswith(self.folder):
            self.bad.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.bad.discard(descriptor)
        super().close(descriptor)

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        if descriptor in self.bad:
            raise OSError(28, "No space left on device")
        return super().write(descriptor, data)


def test_full_disk_leaves_no_half_kept_file_and_takes_the_spill_folder(
    home_rollout: Path, tmp_path: Path
) -> None:
    """Where the kept folder has no room, the spill folder serves; no fragment is left behind."""
    spill = tmp_path / "spill"
    spill.mkdir()
    calls = FullDisk(tmp_path / "home")
    kept = keep(home_rollout, message("a", 2), spill=(spill,), calls=calls)
    assert kept is not None
    assert kept.is_relative_to(spill)
    assert list(kept_folder(home_rollout).iterdir()) == []
    (found,) = find_kept(home_rollout, spill_folders=[spill])
    assert found.path == str(kept)
    assert find_kept(home_rollout, spill_folders=[]) == []


def test_no_place_at_all_is_told(home_rollout: Path, tmp_path: Path) -> None:
    """If no place takes the lines the caller hears it, and keeps them."""
    assert keep(home_rollout, message("a", 2), spill=(tmp_path,), calls=FullDisk(tmp_path)) is None


def test_torn_tail_that_finds_no_room_is_an_error(home_rollout: Path, tmp_path: Path) -> None:
    """Nothing may be cut then: the error says so and names the rollout."""
    with pytest.raises(RolloutWriteError, match="No space left") as caught:
        keep_tail(home_rollout, 0, 5, calls=FullDisk(tmp_path))
    assert caught.value.path == str(home_rollout)
    assert list(kept_folder(home_rollout).iterdir()) == []


def test_tail_that_shrinks_while_it_is_copied_is_an_error(home_rollout: Path) -> None:
    """A copy that isn't whole is no copy."""
    with pytest.raises(RolloutWriteError, match="shrank"):
        keep_tail(home_rollout, 0, home_rollout.stat().st_size + 1)


@pytest.mark.guarantee("G2")
def test_kept_file_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data synced, then renamed, then the folder synced: at no time is there a name without content."""
    events: list[str] = []

    class Traced(FileCalls):
        def datasync(self, descriptor: int) -> None:
            events.append("datasync")
            super().datasync(descriptor)

        def sync_folder(self, path: str) -> None:
            events.append("sync_folder")
            super().sync_folder(path)

    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *names: (events.append("rename"), rename(*names)))
    keep(tmp_path / "r.jsonl", message("a"), calls=Traced())
    assert events == ["datasync", "rename", "sync_folder"]


@pytest.mark.case("B97")
@pytest.mark.parametrize("level", ["thread-store", "thread-store/kept"])
def test_planted_link_in_place_of_the_folder_is_refused(
    home_rollout: Path, tmp_path: Path, level: str
) -> None:
    """A link where kept files belong leads nowhere: nothing is written through it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "home" / level
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    assert keep(home_rollout, message("a")) is None
    with pytest.raises(RolloutWriteError):
        keep_tail(home_rollout, 0, 5)
    assert not any(each.is_file() for each in elsewhere.rglob("*"))


def test_kept_files_of_others_are_not_mixed_up(tmp_path: Path) -> None:
    """Names that begin alike, foreign files, folders and links are passed over; the oldest comes first."""
    path, other = tmp_path / "a.jsonl", tmp_path / "a.jsonl.b.jsonl"
    first = keep(path, message("1"))
    keep(other, message("other"))
    (tmp_path / "a.jsonl.torn").touch()
    (tmp_path / "a.jsonl.1-2-00000000.torn").mkdir()
    (tmp_path / "a.jsonl.1-2-00000001.torn").symlink_to(path)
    second = keep(path, message("2"))
    found = [each.path for each in find_kept(path, spill_folders=[])]
    assert sorted(found) == sorted(map(str, (first, second)))
    assert [each.at_ms for each in find_kept(path)] == sorted(each.at_ms for each in find_kept(path))


def test_kept_files_are_found_after_archiving_and_compressing(home_rollout: Path, tmp_path: Path) -> None:
    """They go by the rollout's name: moved within its home, or compressed, it still finds them."""
    kept = keep(home_rollout, message("a"))
    archived = tmp_path / "home" / "archived_sessions" / f"{NAME}.zst"
    assert [each.path for each in find_kept(archived)] == [str(kept)]


def test_rollouts_of_one_name_in_two_homes_do_not_share_a_spill_folder(tmp_path: Path) -> None:
    """In a spill folder the header tells whose the lines are."""
    paths = [tmp_path / home / "agent.jsonl" for home in "ab"]
    spill = tmp_path / "spill"
    spill.mkdir()
    for path in paths:
        assert keep(path, message(str(path)), spill=(spill,), calls=FullDisk(path.parent)) is not None
    for path in paths:
        (found,) = find_kept(path, spill_folders=[spill])
        assert read_unwritten(found.path).header.rollout == str(path)


def test_long_and_odd_names_are_kept_and_found(tmp_path: Path) -> None:
    """A name of the greatest length, and one that is no UTF-8."""
    for name in (b"n" * 249 + b".jsonl", b"odd-\xff-name.jsonl"):
        path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
        path.write_bytes(rollout("one"))
        assert keep(path, message("a")) is not None
        keep_tail(path, 0, 4)
        assert sorted(each.kind for each in find_kept(path)) == ["torn", "unwritten"]


def test_replayed_file_is_renamed_and_not_found_again(tmp_path: Path) -> None:
    """Nothing is deleted: the file stays under another name."""
    path = tmp_path / "r.jsonl"
    kept = keep(path, message("a"))
    assert kept is not None
    data = kept.read_bytes()
    replayed = mark_replayed(kept)
    assert find_kept(path) == []
    assert replayed.read_bytes() == data


@pytest.mark.guarantee("G2")
def test_folder_that_could_not_be_synced_is_synced_the_next_time(tmp_path: Path) -> None:
    """It is there then, and nobody would ever do it: what is placed in it could lose its name."""
    folder, calls = tmp_path / "thread-store" / "kept", FaultyCalls()
    calls.arm("sync_folder", fails(EIO))
    with pytest.raises(OSError, match="error"):
        make_folders(calls, folder, below=tmp_path)
    calls.lift()
    make_folders(calls, folder, below=tmp_path)
    calls.made.clear()
    make_folders(calls, folder, below=tmp_path)  # both are there
    assert calls.made["sync_folder"] == 2
