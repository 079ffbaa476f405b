"""`rollout search-recent`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from tests.thread_store.conftest import Run
from tests.thread_store.search.written import call, message, meta, output, thread_id, write_thread
from thread_store.cli.moments import parse_moment

OLD = "2026-01-01T00:00:00Z"


@pytest.fixture
def make(home: Path) -> Callable[..., Path]:
    """Writes a thread whose records are of just now, unless `stamp` says when."""

    def write(number: int, *texts: str, stamp: str | None = None, **options: Any) -> Path:
        stamp = stamp or datetime.now(UTC).isoformat()
        lines = [
            meta(thread_id(number)),
            *(message(text, role="user", ordinal=at, stamp=stamp) for at, text in enumerate(texts, 1)),
        ]
        return write_thread(
            home, lines, thread=thread_id(number), stamp=f"2026-03-04T05-06-{number:02d}", **options
        )

    return write


def objects(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(each) for each in data.splitlines()]


def test_hits_stand_under_their_threads(rollout: Run, make: Callable[..., Path]) -> None:
    """The newest thread first, each line with its address, what was found marked; a summary on stderr."""
    make(1, "please fix the socket", "the Cancel Scope leaks")
    make(2, "cancel scope")
    done = rollout("search-recent", "cancel scope")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines == [
        "0002 cancel scope · now",
        "  #1     you        »cancel scope«",
        "0001 please fix the socket · now",
        "  #2     you        the »Cancel Scope« leaks",
    ]
    assert done.stderr.startswith(b"rollout: 2 hits in 2 threads; searched 2 threads, ")


def test_without_a_hit_the_exit_code_is_one(rollout: Run, make: Callable[..., Path]) -> None:
    """And the summary says what was not searched."""
    make(1, "other")
    make(2, "needle", folder="archived_sessions")
    done = rollout("search-recent", "needle")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no hit; searched 1 thread" in done.stderr
    assert b"1 archived not searched: --archived" in done.stderr
    assert rollout("search-recent", "needle", "--archived").returncode == 0


def test_json_gives_hits_and_a_summary(rollout: Run, make: Callable[..., Path]) -> None:
    """One object a line; spans are places in the text."""
    make(1, "a\nfind the needle here\nb")
    done = rollout("search-recent", "needle", "--json", "-C", "1")
    hit, summary = objects(done.stdout)
    assert hit["kind"] == "hit"
    assert (hit["thread"], hit["ordinal"], hit["role"], hit["field"], hit["line"]) == (
        thread_id(1),
        1,
        "user",
        "text",
        2,
    )
    assert [hit["text"][begin:end] for begin, end in hit["spans"]] == ["needle"]
    assert (hit["before"], hit["after"]) == (["a"], ["b"])
    assert (summary["kind"], summary["hits"], summary["threads"], summary["skipped"]) == ("summary", 1, 1, [])
    assert summary["finished"] is True
    assert done.stderr == b""


def test_only_the_last_days_are_searched_unless_more_is_asked_for(
    rollout: Run, make: Callable[..., Path]
) -> None:
    """By the time of records; `--since ever`, a thread or an end lift it."""
    make(1, "needle", stamp=OLD)
    assert rollout("search-recent", "needle").returncode == 1
    for options in (
        ["--since", "ever"],
        ["--since", "2025-12-31"],
        ["--until", "2026-02-01"],
        ["--thread", "0001"],
    ):
        assert rollout("search-recent", "needle", *options).returncode == 0
    assert rollout("search-recent", "needle", "--until", "2025-12-01").returncode == 1


def test_ids_and_counts(rollout: Run, make: Callable[..., Path]) -> None:
    """`-l` gives the ids of threads, `-c` how many hits each has."""
    make(1, "needle\nneedle", "needle")
    make(2, "needle")
    assert rollout("search-recent", "-l", "needle").stdout.decode().split() == [thread_id(2), thread_id(1)]
    assert rollout("search-recent", "-c", "needle").stdout.decode().splitlines() == [
        f"{thread_id(2)} 1",
        f"{thread_id(1)} 3",
    ]
    kinds = [
        (each["kind"], each.get("hits"))
        for each in objects(rollout("search-recent", "-c", "--json", "needle").stdout)
    ]
    assert kinds == [("count", 1), ("count", 3), ("summary", 4)]


def test_count_of_hits_ends_the_search(rollout: Run, make: Callable[..., Path]) -> None:
    """After -n hits it stops, and says so."""
    make(1, "needle\n" * 20)
    done = rollout("search-recent", "needle", "-n", "3")
    assert done.stdout.count("»".encode()) == 3
    assert b"not searched to the end: -n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hits"),
    [
        (["NEEDLE"], 3),
        (["-s", "NEEDLE"], 1),
        (["-i", "needle"], 3),
        (["-w", "needle"], 2),
        (["-e", "need.e"], 3),
        (["-s", "-w", "-e", "N[A-Z]+E"], 1),
        (["--role", "tool", "needle"], 0),
        (["--in", "/srv", "needle"], 3),
        (["--in", "/elsewhere", "needle"], 0),
    ],
)
def test_options_narrow_the_search(
    rollout: Run, make: Callable[..., Path], arguments: list[str], hits: int
) -> None:
    """Case, words, patterns, roles, folders."""
    make(1, "needle", "needles", "NEEDLE")
    done = rollout("search-recent", "--json", *arguments)
    assert objects(done.stdout)[-1]["hits"] == hits
    assert done.returncode == (0 if hits else 1)


def test_tool_is_named_and_filtered(rollout: Run, home: Path) -> None:
    """A call's arguments and its result are the tool's."""
    stamp = datetime.now(UTC).isoformat()
    lines = [meta(), call('{"cmd":"x"}', name="shell", ordinal=1), output("needle", ordinal=2, stamp=stamp)]
    write_thread(home, lines)
    done = rollout("search-recent", "needle", "--tool", "shell")
    assert "#2     ⚙ shell    »needle«".encode() in done.stdout
    assert rollout("search-recent", "needle", "--tool", "web").returncode == 1


@pytest.mark.case("B105")
def test_recorded_text_is_harmless_on_a_terminal(rollout: Run, make: Callable[..., Path]) -> None:
    """Escape sequences and characters that turn the writing are taken out or named."""
    make(1, "\x1b]0;owned\x07needle \x1b[31mred \u202e reversed")
    done = rollout("search-recent", "needle", "--color", "never")
    assert b"\x1b" not in done.stdout
    assert "»needle« red <U+202E> reversed".encode() in done.stdout


@pytest.mark.case("B44")
def test_ascii_terminal_gets_ascii(rollout: Run, make: Callable[..., Path]) -> None:
    """Signs and marks have a form in ASCII."""
    make(1, "größe needle")
    done = rollout("search-recent", "needle", LC_ALL="C")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b">>needle<<" in done.stdout


def test_damage_is_told_and_the_rest_is_found(rollout: Run, make: Callable[..., Path]) -> None:
    """On stderr, and in the summary with --json."""
    path = make(1, "needle")
    with path.open("ab") as file:
        file.write(b'{"broken needle\n')
    done = rollout("search-recent", "needle")
    assert done.returncode == 0
    assert path.name.encode() in done.stderr
    assert b"1 place could not be searched" in done.stderr
    summary = objects(rollout("search-recent", "needle", "--json").stdout)[-1]
    assert [each["reason"] for each in summary["skipped"]] == ["not_json"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-e", "("], 2, "no regular expression"),
        ([""], 2, "nothing to look for"),
        (["x", "--since", "2 hrs"], 2, "bad --since '2 hrs'; use 2h, 3d, yesterday or 2026-11-29"),
        (["x", "--role", "nobody"], 2, "nobody"),
        (["x", "-l", "-c"], 2, "exclude each other"),
        (["x", "--thread", "ffff"], 3, "ffff"),
    ],
)
def test_mistakes_are_told_in_one_line(rollout: Run, arguments: list[str], code: int, words: str) -> None:
    """With the code of the kind of mistake."""
    done = rollout("search-recent", *arguments)
    assert done.returncode == code
    assert words in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_empty_home_is_told(rollout: Run) -> None:
    """Nothing to search is no error, and no hit."""
    done = rollout("search-recent", "needle")
    assert done.returncode == 1
    assert b"there is no thread to search in" in done.stderr


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", "2026-03-05T10:00:00+00:00"),
        ("3d", "2026-03-02T12:00:00+00:00"),
        ("1w", "2026-02-26T12:00:00+00:00"),
        ("today", "2026-03-05T00:00:00+00:00"),
        ("yesterday", "2026-03-04T00:00:00+00:00"),
        ("2026-11-29", "2026-11-29T00:00:00+00:00"),
        ("2026-11-29T10:00:00+02:00", "2026-11-29T10:00:00+02:00"),
        ("2026-11-29T10:00", "2026-11-29T10:00:00+00:00"),
    ],
)
def test_moments_are_read(text: str, moment: str) -> None:
    """Ages, days and times."""
    now = datetime(2026, 3, 5, 12, tzinfo=UTC)
    read = parse_moment("--since", text, utc=True, now=now)
    assert read is not None
    assert read.isoformat() == moment
    assert parse_moment("--since", "ever", utc=True) is None


@pytest.mark.parametrize("text", ["", "2 hrs", "2x", "2026-13-01", "tomorrowish", "-3d"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With the forms that are taken."""
    with pytest.raises(click.UsageError, match="use 2h, 3d, yesterday"):
        parse_moment("--since", text, utc=True)
