"""A home searched: order, twins, filters, chains, what can't be read, and streaming."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard

from protocol import tracks
from protocol.errors import RolloutUnreadable
from protocol.meta import SessionMeta
from tests.thread_store.search.written import STAMP, line, message, meta, thread_id, write_thread
from thread_store.chain.fork_point import ForkPoint
from thread_store.home import Home
from thread_store.local_threads import LocalThreads
from thread_store.search import line_blocks
from thread_store.search.line_blocks import LineBlock, LineBlocks
from thread_store.search.search_hit import SearchHit, SearchReport
from thread_store.search.search_query import make_query
from thread_store.search.thread_search import ThreadSearch


def search(home: Path, text: str, **options: Any) -> tuple[list[SearchHit], SearchReport]:
    with ThreadSearch(Home(home), make_query(text, **options)) as found:
        return list(found), found.report


def threads(home: Path, text: str, **options: Any) -> list[str]:
    return [hit.thread_id for hit in search(home, text, **options)[0]]


def make(home: Path, number: int, text: str, **options: Any) -> Path:
    options.setdefault("stamp", f"2026-03-04T05-06-{number:02d}")
    changes = options.pop("changes", {})
    lines = [meta(thread_id(number), **changes), message(text, ordinal=1)]
    return write_thread(home, lines, thread=thread_id(number), **options)


def test_newest_threads_come_first(tmp_path: Path) -> None:
    """And within a thread its hits as they stand in the file."""
    for number in range(30):
        make(tmp_path, number, f"needle {number}\nneedle again")
    hits, report = search(tmp_path, "needle")
    assert [hit.thread_id for hit in hits] == [thread_id(at) for at in range(29, -1, -1) for _ in range(2)]
    assert [hit.passage.line for hit in hits[:2]] == [1, 2]
    assert (report.hits, report.threads, report.searched_threads, report.finished) == (60, 30, 30, True)
    assert report.searched_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))


@pytest.mark.case("B124")
def test_twins_of_a_thread_are_one_hit(tmp_path: Path) -> None:
    """Live and archived, plain and compressed: the live plain one is searched."""
    path = make(tmp_path, 1, "needle")
    make(tmp_path, 1, "needle", folder="archived_sessions")
    path.with_name(path.name + ".zst").write_bytes(zstandard.compress(path.read_bytes()))
    hits, _ = search(tmp_path, "needle", archived=True, compressed=True)
    assert [hit.path for hit in hits] == [str(path)]


def test_archived_and_compressed_threads_are_searched_on_request(tmp_path: Path) -> None:
    """What is left out is counted; a thread that is named is searched wherever it is."""
    make(tmp_path, 1, "needle")
    make(tmp_path, 2, "needle", folder="archived_sessions")
    path = make(tmp_path, 3, "needle")
    path.with_name(path.name + ".zst").write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    hits, report = search(tmp_path, "needle")
    assert [hit.thread_id for hit in hits] == [thread_id(1)]
    assert (report.archived_left_out, report.compressed_left_out) == (1, 1)
    assert sorted(threads(tmp_path, "needle", archived=True)) == [thread_id(1), thread_id(2)]
    assert sorted(threads(tmp_path, "needle", compressed=True)) == [thread_id(1), thread_id(3)]
    assert sorted(threads(tmp_path, "needle", threads=[thread_id(2), thread_id(3)])) == [
        thread_id(2),
        thread_id(3),
    ]


@pytest.mark.case("B89")
@pytest.mark.case("B129")
def test_filters_of_threads_hold_together(tmp_path: Path) -> None:
    """Folder, thread and time; a folder means what is below it too, in any form of a Windows path."""
    make(tmp_path, 1, "needle", changes={"cwd": "/srv/demo"})
    make(tmp_path, 2, "needle", changes={"cwd": "/srv/demo/sub"})
    make(tmp_path, 3, "needle", changes={"cwd": "/srv/demo2"})
    make(tmp_path, 4, "needle", changes={"cwd": "\\\\?\\C:\\Work\\x"})
    moved = [meta(thread_id(5), cwd="/old"), line("turn_context", {"cwd": "/srv/demo"}), message("needle")]
    write_thread(tmp_path, moved, thread=thread_id(5))
    assert sorted(threads(tmp_path, "needle", cwd="/srv/demo/")) == [thread_id(1), thread_id(2), thread_id(5)]
    assert threads(tmp_path, "needle", cwd="/old") == [thread_id(5)]
    assert threads(tmp_path, "needle", cwd="c:/work") == [thread_id(4)]
    assert threads(tmp_path, "needle", cwd="/srv/demo", threads=[thread_id(2), thread_id(3)]) == [
        thread_id(2)
    ]
    assert threads(tmp_path, "needle", cwd="/srv/demo", threads=[thread_id(2)], since="2026-03-05") == []
    assert len(threads(tmp_path, "needle", since=STAMP, until="2026-03-05")) == 5


@pytest.mark.case("B138")
def test_filter_may_name_a_link(tmp_path: Path) -> None:
    """The folder that is asked for may be a link, and so may the home."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    home = tmp_path / "home"
    make(home, 1, "needle", changes={"cwd": str(tmp_path / "real" / "x")})
    (tmp_path / "home-link").symlink_to(home)
    assert threads(tmp_path / "home-link", "needle", cwd=str(tmp_path / "link")) == [thread_id(1)]


@pytest.mark.case("B130")
def test_no_stored_folder_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a thread says where it works, no system call is made on it."""
    make(tmp_path, 1, "needle", changes={"cwd": "/hung/mount"})
    touched: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | bytes | os.PathLike):
                touched.append(os.fsdecode(path))
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("stat", "lstat", "open", "scandir", "readlink", "listdir", "access"):
        watch(name)
    assert threads(tmp_path, "needle", cwd="/elsewhere") == []
    assert threads(tmp_path, "needle") == [thread_id(1)]
    assert not [path for path in touched if "hung" in path]


def test_threads_without_news_are_left_out(tmp_path: Path) -> None:
    """By the time of the file and that of its last record: a file whose time was set back is searched."""
    old, kept = make(tmp_path, 1, "needle"), make(tmp_path, 2, "needle")
    for path in (old, kept):
        os.utime(path, (1, 1))
    with kept.open("ab") as file:
        file.write(
            b'{"timestamp":"2026-03-06T00:00:00Z","type":"event_msg","payload":{"type":"agent_message",'
        )
        file.write(b'"message":"needle new"}}\n')
    hits, report = search(tmp_path, "needle", since=datetime(2026, 3, 5, tzinfo=UTC))
    assert [hit.passage.text for hit in hits] == ["needle new"]
    assert report.older_left_out == 1


def test_record_without_a_time_counts_by_its_file(tmp_path: Path) -> None:
    """Where a record doesn't say when it was made, the time of the file does."""
    path = make(tmp_path, 1, "x")
    path.write_bytes(
        path.read_bytes().replace(b'"timestamp":"2026-03-04T05:06:07.000Z","ordinal":1', b'"ordinal":1')
    )
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert threads(tmp_path, "x", until="2024-01-01") == [thread_id(1)]
    assert threads(tmp_path, "x", since="2024-01-01") == []


@pytest.mark.case("B88")
@pytest.mark.case("B138")
def test_odd_entries_are_passed_over(tmp_path: Path) -> None:
    """Folders and FIFOs named like rollouts, files of something else: no error, and no hang."""
    path = make(tmp_path, 1, "needle")
    (path.parent / f"rollout-2026-03-04T05-06-07-{thread_id(7)}.jsonl").mkdir()
    os.mkfifo(path.parent / f"rollout-2026-03-04T05-06-07-{thread_id(8)}.jsonl")
    (path.parent / f"rollout-2026-03-04T05-06-07-{thread_id(9)}.jsonl").write_bytes(b"")
    (path.parent / "notes.jsonl").write_text("needle")
    hits, report = search(tmp_path, "needle")
    assert [hit.thread_id for hit in hits] == [thread_id(1)]
    assert not report.skipped


def test_what_cannot_be_read_is_told_and_the_rest_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the system refuses, also in the middle, is named once; the others are searched."""
    make(tmp_path, 1, "needle")
    refused = make(tmp_path, 2, "needle")
    gone = make(tmp_path, 3, "needle")
    real = LineBlocks.read

    def read(self: LineBlocks, path: str, **options: Any) -> Iterator[Any]:
        if path == str(refused):
            raise RolloutUnreadable(
                path=path, cause=PermissionError(13, "Permission denied"), operation="open"
            )
        if path == str(gone):
            gone.unlink()
        return real(self, path, **options)

    monkeypatch.setattr(line_blocks.LineBlocks, "read", read)
    hits, report = search(tmp_path, "needle")
    assert [hit.thread_id for hit in hits] == [thread_id(1)]
    assert sorted((place.thread_id, place.reason) for place in report.skipped) == [
        (thread_id(2), "rollout_unreadable"),
        (thread_id(3), "thread_not_found"),
    ]
    assert report.searched_threads == 1


def test_hits_come_before_the_scan_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit of the newest thread is there while that very file, and the next one, are still being read."""
    make(tmp_path, 1, "needle")
    newest = make(tmp_path, 2, "needle")
    go_on = threading.Event()
    real = LineBlocks.read

    def read(self: LineBlocks, path: str, **options: Any) -> Iterator[Any]:
        if path != str(newest):
            go_on.wait()
        yield from real(self, path, **options)
        go_on.wait()

    monkeypatch.setattr(line_blocks.LineBlocks, "read", read)
    with ThreadSearch(Home(tmp_path), make_query("needle")) as found:
        assert next(found).thread_id == thread_id(2)
        go_on.set()
        assert [hit.thread_id for hit in found] == [thread_id(1)]


def test_search_that_is_left_ends_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops taking and closes it doesn't leave threads behind, however much there is to find."""
    for number in range(4):
        make(tmp_path, number, "needle\n" * 5000)
    before = set(threading.enumerate())
    with ThreadSearch(Home(tmp_path), make_query("needle")) as found:
        next(found)
        workers = set(threading.enumerate()) - before
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert list(found) == []
    assert not found.report.finished


def test_error_of_ours_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a worker is raised where the hits are taken, and nothing hangs."""
    make(tmp_path, 1, "needle")

    def broken(self: LineBlocks, path: str, **options: Any) -> Iterator[LineBlock]:
        raise ZeroDivisionError

    monkeypatch.setattr(line_blocks.LineBlocks, "read", broken)
    with pytest.raises(ZeroDivisionError), ThreadSearch(Home(tmp_path), make_query("needle")) as found:
        next(found)


def test_one_hit_of_each_thread_is_enough_where_that_is_asked_for(tmp_path: Path) -> None:
    """Nobody looks for more."""
    make(tmp_path, 1, "needle\nneedle")
    make(tmp_path, 2, "needle\nneedle")
    assert threads(tmp_path, "needle", hits_per_thread=1) == [thread_id(2), thread_id(1)]


def test_empty_home_has_no_hits(tmp_path: Path) -> None:
    """A home that doesn't exist yet is empty."""
    hits, report = search(tmp_path / "none", "needle")
    assert (hits, report.finished, report.searched_threads) == ([], True, 0)


# Chains


@pytest.fixture
def chained(tmp_path: Path) -> tuple[Path, str, str]:
    """A home, a thread that was reverted before its second turn, and a fork by reference of its end then."""
    home = tmp_path / "home"
    with LocalThreads(Home(home)) as store:
        opened = store.create(SessionMeta(cwd="/srv"), git_seconds=0)
        parent = str(opened.core.thread_id)
        for text in ("first needle", "second needle"):
            opened.core.pending.append(*tracks.user_message(text))
        close(opened)
        child = store.fork(parent, mode="reference")
        child.core.pending.append(*tracks.user_message("child needle"))
        close(child)
        reverted = store.revert(parent, point=ForkPoint.before_turn(2))
        reverted.core.pending.append(*tracks.user_message("third needle"))
        close(reverted)
    return home, parent, str(child.core.thread_id)


def close(opened: Any) -> None:
    opened.core.writer.close_soon()
    opened.released.result(60)


def test_history_in_older_files_is_searched(chained: tuple[Path, str, str]) -> None:
    """Of a reverted thread what it rests on, not what was taken out; of a fork what no other has."""
    home, parent, child = chained
    hits, report = search(home, "needle")
    assert not report.skipped
    found = {(hit.thread_id, hit.passage.text) for hit in hits}
    assert {text for thread, text in found if thread == parent} == {"first needle", "third needle"}
    assert (child, "child needle") in found
    assert (child, "second needle") in found


def test_base_that_is_gone_is_told(chained: tuple[Path, str, str]) -> None:
    """The rest of the thread is searched."""
    home, parent, _ = chained
    for path in home.rglob(f"*{parent}.jsonl"):
        path.unlink()
    hits, report = search(home, "needle")
    assert {hit.passage.text for hit in hits} == {"child needle", "third needle"}
    assert {place.reason for place in report.skipped} == {"base_missing"}
