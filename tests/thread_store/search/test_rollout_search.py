"""One file searched: hits, addresses, damage, old formats, filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.thread_store.search.written import (
    THREAD,
    Line,
    call,
    encoded,
    event,
    line,
    message,
    meta,
    output,
    plain_json,
)
from thread_store.search.line_blocks import LineBlocks
from thread_store.search.rollout_search import RolloutSearch, SearchedFile
from thread_store.search.search_hit import SearchHit, SkippedPlace
from thread_store.search.search_query import make_query

Hits = list[SearchHit]


def run(
    path: Path, text: str, *, buffer_bytes: int = 1 << 20, **options: Any
) -> tuple[Hits, list[SkippedPlace]]:
    search = RolloutSearch(make_query(text, **options))
    search._blocks = LineBlocks(buffer_bytes)
    found = list(search.search(SearchedFile(THREAD, str(path))))
    hits = [each for each in found if isinstance(each, SearchHit)]
    return hits, [each for each in found if isinstance(each, SkippedPlace)]


def search(tmp_path: Path, lines: list[Line], text: str, **options: Any) -> Hits:
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(encoded(lines))
    hits, skipped = run(path, text, **options)
    assert not skipped
    return hits


def addresses(hits: Hits) -> list[tuple[int | None, str]]:
    return [(hit.ordinal, hit.field) for hit in hits]


@pytest.mark.case("B125")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_one_message_on_both_tracks_is_one_hit(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Under the address of what the model saw, whichever record comes first."""
    item = {"type": "AgentMessage", "id": "i", "content": [{"type": "Text", "text": "cancel scope"}]}
    twins = [
        message("cancel scope", ordinal=1),
        event("cancel scope", ordinal=2),
        line(
            "event_msg", {"type": "item_completed", "thread_id": "t", "turn_id": "u", "item": item}, ordinal=3
        ),
    ]
    found = search(tmp_path, [meta(), *(twins[at] for at in order)], "Cancel Scope")
    assert addresses(found) == [(1, "text")]
    assert found[0].passage.spans == ((0, 12),)


def test_message_with_an_image_is_one_hit(tmp_path: Path) -> None:
    """The word that stands for the image in a transcript doesn't part the twins, and isn't found."""
    parts = [
        {"type": "input_text", "text": "look here"},
        {"type": "input_image", "image_url": "data:x;base64,AAAA"},
    ]
    seen = line("response_item", {"type": "message", "role": "user", "content": parts}, ordinal=1)
    lines = [meta(), seen, event("look here", role="user", ordinal=2)]
    assert addresses(search(tmp_path, lines, "look")) == [(1, "text")]
    assert not search(tmp_path, lines, "image")
    assert not search(tmp_path, lines, "AAAA")


def test_only_content_is_found(tmp_path: Path) -> None:
    """Keys, ids, times, types, folders, signed blocks: none of them is text."""
    secret = {"type": "reasoning", "id": "rs_findme", "summary": [], "encrypted_content": "findme"}
    lines: list[Line] = [
        meta(cwd="/findme"),
        line("response_item", secret),
        line("turn_context", {"cwd": "/findme", "model": "findme"}),
        call('{"findme":"x"}', call_id="findme"),
        line("findme", {"type": "findme", "findme": "x"}),
        line("event_msg", {"type": "token_count", "info": {"findme": "findme"}}),
    ]
    assert not search(tmp_path, lines, "findme")
    assert not search(tmp_path, lines, "timestamp")


@pytest.mark.case("B86")
@pytest.mark.parametrize(
    "text",
    [
        'say "hi"',
        "C:\\x\\new",
        "a\nb",
        "tab\there",
        "naïve café",
        "日本語 😀",
        "a/b/c.py",
        "\u2028",
        "nul \0 byte",
    ],
)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_text_is_found_however_it_is_escaped(tmp_path: Path, text: str, ascii_only: bool) -> None:
    """Quotes, paths, line breaks, accents, emoji: in messages, and in arguments that are JSON in JSON."""
    arguments = json.dumps({"cmd": f"x {text} y"}, ensure_ascii=ascii_only)
    lines = [meta(), message(f"x {text} y", ordinal=1), call(arguments, ordinal=2)]
    raw = [
        json.dumps(each, ensure_ascii=ascii_only).replace("/", "\\/" if ascii_only else "/") for each in lines
    ]
    found = search(tmp_path, [each.encode() for each in raw], text)
    assert addresses(found) == [(1, "text"), (2, "args.cmd")]
    assert all(text == hit.passage.text[slice(*hit.passage.spans[0])] for hit in found)


@pytest.mark.case("B01")
@pytest.mark.case("B05")
def test_damaged_lines_are_told_and_hide_nothing(tmp_path: Path) -> None:
    """A line that may have held it and can't be read is named with its place; all others are searched."""
    path = tmp_path / "rollout.jsonl"
    bad = b'{"type":"response_item","payload":{"text":"needle'
    path.write_bytes(
        encoded([meta(), message("needle", ordinal=1), bad, b"\0" * 50, message("a needle", ordinal=2)])
    )
    hits, skipped = run(path, "needle")
    assert addresses(hits) == [(1, "text"), (2, "text")]
    (place,) = skipped
    assert (place.reason, place.offset) == ("not_json", path.read_bytes().index(bad))


def test_last_line_without_newline_is_searched(tmp_path: Path) -> None:
    """A whole one is a record; one that isn't finished is told."""
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(encoded([meta()]) + plain_json(message("needle", ordinal=1)))
    assert addresses(run(path, "needle")[0]) == [(1, "text")]
    path.write_bytes(encoded([meta()]) + plain_json(message("needle", ordinal=1))[:-3])
    hits, skipped = run(path, "needle")
    assert not hits
    assert [each.reason for each in skipped] == ["torn_tail"]


@pytest.mark.case("B136")
def test_old_and_odd_files_are_searched(tmp_path: Path) -> None:
    """A byte order mark, CRLF, lines without envelope, one JSON document."""
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + encoded([meta(), b"", b"[1]", message("needle", ordinal=1)]).replace(b"\n", b"\r\n")
    )
    assert addresses(run(path, "needle")[0]) == [(1, "text")]
    bare = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "needle"}]}
    path.write_bytes(encoded([{"id": THREAD, "timestamp": "2025-01-01T00:00:00Z"}, bare]))
    assert [hit.role for hit in run(path, "needle")[0]] == ["user"]
    document = {"session": {"id": THREAD, "timestamp": "2025-01-01T00:00:00Z"}, "items": [bare, bare]}
    path.write_text(json.dumps(document, indent=2))
    assert [hit.role for hit in run(path, "needle")[0]] == ["user", "user"]


def test_compressed_file_is_searched_on_request(tmp_path: Path) -> None:
    """Told by its bytes and not by its name; a damaged frame is told and the rest is searched."""
    path = tmp_path / "rollout.jsonl"
    frames = [zstandard.compress(encoded([meta(), message("needle", ordinal=1)])), b"junk!"]
    path.write_bytes(b"".join([*frames, zstandard.compress(encoded([message("needle 2", ordinal=2)]))]))
    assert run(path, "needle") == ([], [])
    hits, skipped = run(path, "needle", compressed=True)
    assert addresses(hits) == [(1, "text"), (2, "text")]
    assert [each.reason for each in skipped] == ["damaged_frame"]


@pytest.mark.case("B89")
def test_filters_of_records_hold_together(tmp_path: Path) -> None:
    """Role, tool and time: a hit passes all that are given."""
    early, late = "2026-03-04T05:00:00Z", "2026-03-05T05:00:00Z"
    lines: list[Line] = [
        meta(),
        message("needle", role="user", ordinal=1, stamp=early),
        message("needle!", role="user", ordinal=2, stamp=late),
        call('{"cmd":"needle"}', call_id="c1", name="shell", ordinal=3),
        output("a needle", call_id="c1", ordinal=4, stamp=late),
        call('{"q":"needle"}', call_id="c2", name="web", ordinal=5),
        output("b needle", call_id="c2", ordinal=6, stamp=late),
    ]

    def ordinals(**options: Any) -> list[int | None]:
        return [hit.ordinal for hit in search(tmp_path, lines, "needle", **options)]

    assert ordinals(roles=["user"]) == [1, 2]
    assert ordinals(roles=["user"], since=late) == [2]
    assert ordinals(roles="user", until=late) == [1]
    assert ordinals(tool="shell") == [3, 4]
    assert ordinals(tool="shell", since="2026-03-05") == [4]
    assert ordinals(tool="shell", roles=["user"]) == []


@pytest.mark.parametrize("distance", [10, 3000])
@pytest.mark.parametrize("packed", [False, True])
def test_result_knows_its_tool_however_far_its_call_stands(
    tmp_path: Path, distance: int, packed: bool
) -> None:
    """The call is looked for in the block, and then in the file."""
    filler = [message(f"filler {number}", ordinal=number) for number in range(2, distance)]
    lines = [
        meta(),
        call("{}", call_id="c1", name="ns.fetch", ordinal=1),
        *filler,
        output("needle", call_id="c1"),
    ]
    path = tmp_path / "rollout.jsonl"
    data = encoded(lines)
    path.write_bytes(zstandard.compress(data) if packed else data)
    hits, _ = run(path, "needle", compressed=True, tool="fetch", buffer_bytes=1 << 12)
    assert [hit.tool for hit in hits] == ["ns.fetch"]


@pytest.mark.case("B80")
def test_text_that_takes_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pattern is given up on a text, that is named, and the search goes on."""
    monkeypatch.setattr("thread_store.search.pattern_matcher._BYTES_FREE", 0)
    monkeypatch.setattr("thread_store.search.pattern_matcher._TIMES_MAX", 0)
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(
        encoded([meta(), output("éxxxxx", call_id="a", ordinal=1), output("x", call_id="b", ordinal=2)])
    )
    hits, skipped = run(path, r"x\b", regex=True)
    assert addresses(hits) == [(2, "output")]
    assert [(each.reason, each.offset is not None) for each in skipped] == [("too_costly", True)]


@pytest.mark.case("B75")
def test_base64_is_not_searched(tmp_path: Path) -> None:
    """Not in an image, and not in the output of a tool that printed one."""
    letters = "AbC1xyzNeedleQ9" * 100
    lines: list[Line] = [
        meta(),
        output(f"cat image: {letters}\nneedle in text", call_id="a", ordinal=1),
        message(f"![](data:image/png;base64,{letters[:60]}) needle", ordinal=2),
    ]
    found = search(tmp_path, lines, "needle")
    assert [(hit.ordinal, hit.passage.line, len(hit.passage.spans)) for hit in found] == [
        (1, 2, 1),
        (2, 1, 1),
    ]


def test_copied_meta_is_history(tmp_path: Path) -> None:
    """The task of the thread that a fork was made from isn't the fork's."""
    lines = [meta(x_task={"prompt": "own needle"}), meta(x_task={"prompt": "copied needle"})]
    assert [hit.passage.text for hit in search(tmp_path, lines, "needle")] == ["own needle"]
