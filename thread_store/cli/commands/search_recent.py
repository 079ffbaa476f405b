"""`rollout search-recent`: find what was said and done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from thread_store.cli.failures import ExitCode
from thread_store.cli.hit_json import hit_object, skipped_object
from thread_store.cli.hit_view import HitView
from thread_store.cli.moments import EVER, parse_moment
from thread_store.cli.named_thread import find_named
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.errors import NotInHome
from thread_store.home import Home
from thread_store.search.search_hit import SearchHit, SearchReport
from thread_store.search.search_query import CONTEXT_LINES_MAX, ROLES, SearchQuery, make_query
from thread_store.search.thread_search import ThreadSearch

__all__ = ["command"]

_DEFAULT_SINCE = "7d"
_SKIPPED_SHOWN = 5


@click.command("search-recent")
@click.argument("pattern")
@click.option("-i", "--ignore-case", "ignore_case", is_flag=True, help="In upper or lower case; the default.")
@click.option("-s", "--case-sensitive", is_flag=True, help="Exactly as it is written.")
@click.option("-e", "--regex", is_flag=True, help="PATTERN is a regular expression (RE2).")
@click.option("-w", "--word", is_flag=True, help="Whole words only.")
@click.option("-C", "--context", "context_lines", type=click.IntRange(0, CONTEXT_LINES_MAX), default=0,
              metavar="N", help="N lines before and after each hit.")  # fmt: skip
@click.option("--role", "roles", multiple=True, type=click.Choice(ROLES), help="Whose text; may be repeated.")
@click.option("--tool", metavar="NAME", help="Only what this tool was told and answered.")
@click.option("--in", "folder", metavar="DIR", help="Only threads that work in DIR, or below it.")
@click.option("--thread", "threads", multiple=True, metavar="THREAD", help="Only this one; may be repeated.")
@click.option(
    "--since", metavar="T", help="Records from then on: 2h, 3d, yesterday, 2026-11-29 [7d]; or ever."
)
@click.option("--until", metavar="T", help="Records before then.")
@click.option("-n", "--max", "count", type=click.IntRange(1), default=50, metavar="N",
              help="Stop after N hits [50].")  # fmt: skip
@click.option("-l", "--ids", "ids_only", is_flag=True, help="Only the ids of threads with a hit.")
@click.option("-c", "--count", "counts", is_flag=True, help="Only how many hits each thread has.")
@click.option("--archived", is_flag=True, help="Archived threads too.")
@click.option("--compressed", is_flag=True, help="Compressed threads too.")
@shared_options
@click.pass_context
def command(context: click.Context, /, pattern: str, **given: Any) -> int:
    """Find what was said and done, the newest threads first.

    Looked at is what people and models saw: messages, thoughts, calls and their results. Hits come as
    they are found; one line of a text is one hit. Without --since only the last seven days are searched,
    unless --until or --thread is given. Exit code 1 without a hit.

    \b
    Examples:
      rollout search-recent "cancel scope"
      rollout search-recent -e "time(d )?out" --role tool --since 2d -C 2
      rollout search-recent -l --in . --since ever --archived deadline
    """
    terminal = terminal_of(context)
    if given["ignore_case"] and given["case_sensitive"]:
        raise click.UsageError("-i and -s exclude each other")
    if given["ids_only"] and given["counts"]:
        raise click.UsageError("-l and -c exclude each other")
    home, query = _query(terminal, pattern, given)
    begun = time.monotonic()
    with ThreadSearch(home, query) as search:
        shown = _print(terminal, search, given)
        is_empty = not any(True for _ in search.thread_ids)
    milliseconds = round((time.monotonic() - begun) * 1000)
    _conclude(terminal, home, query, search.report, milliseconds=milliseconds, is_empty=is_empty)
    return ExitCode.DONE if shown else ExitCode.PROBLEMS


def _query(terminal: Terminal, pattern: str, given: dict[str, Any]) -> tuple[Home, SearchQuery]:
    home = Home.resolve(terminal.home, terminal.environ)
    threads: list[str] = []
    for argument in given["threads"]:
        named = find_named(terminal, argument)
        if named.thread is None:
            raise NotInHome(named.path)
        if threads and named.thread.home.path != home.path:
            raise click.UsageError("the threads lie in different homes")
        home = named.thread.home
        threads.append(named.thread.thread_id)
    since = given["since"] or (EVER if threads or given["until"] else _DEFAULT_SINCE)
    until = given["until"]
    return home, make_query(
        pattern,
        regex=given["regex"],
        word=given["word"],
        case_sensitive=given["case_sensitive"],
        roles=given["roles"],
        tool=given["tool"],
        threads=threads,
        cwd=given["folder"],
        since=parse_moment("--since", since, utc=terminal.utc),
        until=None if until is None else parse_moment("--until", until, utc=terminal.utc),
        archived=given["archived"],
        compressed=given["compressed"],
        context_lines=given["context_lines"],
        hits_per_thread=1 if given["ids_only"] else None,
    )


def _print(terminal: Terminal, search: ThreadSearch, given: dict[str, Any]) -> int:
    """Print what is found; returns how many hits there were."""
    if given["ids_only"]:
        return _print_ids(terminal, search, given["count"])
    if given["counts"]:
        return _print_counts(terminal, search)
    view, shown = HitView(terminal, search), 0
    for hit in _first(search, given["count"]):
        if terminal.json:
            terminal.emit("hit", **hit_object(hit))
            terminal.stdout.flush()
        else:
            view.show(hit)
        shown += 1
    return shown


def _first(search: ThreadSearch, count: int) -> Iterator[SearchHit]:
    """So many hits, and not one step further."""
    for number, hit in enumerate(search, 1):
        yield hit
        if number == count:
            return


def _print_ids(terminal: Terminal, search: ThreadSearch, count: int) -> int:
    known: dict[str, None] = {}
    for hit in search:
        if hit.thread_id in known:
            continue
        known[hit.thread_id] = None
        if terminal.json:
            terminal.emit("thread", id=hit.thread_id)
        else:
            terminal.print(hit.thread_id)
        terminal.stdout.flush()
        if len(known) == count:
            break
    return len(known)


def _print_counts(terminal: Terminal, search: ThreadSearch) -> int:
    counts = Counter(hit.thread_id for hit in search)
    for thread_id, hits in counts.items():
        if terminal.json:
            terminal.emit("count", thread=thread_id, hits=hits)
        else:
            terminal.print(f"{thread_id} {hits}")
    return len(counts)


# The end


def _conclude(
    terminal: Terminal,
    home: Home,
    query: SearchQuery,
    report: SearchReport,
    *,
    milliseconds: int,
    is_empty: bool,
) -> None:
    if terminal.json:
        terminal.emit(
            "summary",
            hits=report.hits,
            threads=report.threads,
            searched_threads=report.searched_threads,
            bytes=report.searched_bytes,
            ms=milliseconds,
            finished=report.finished,
            archived_left_out=report.archived_left_out,
            compressed_left_out=report.compressed_left_out,
            older_left_out=report.older_left_out,
            skipped=[skipped_object(each) for each in report.skipped],
        )
        return
    for each in report.skipped[: None if terminal.verbose else _SKIPPED_SHOWN]:
        place = "" if each.offset is None else f", byte {each.offset:,}"
        terminal.warn(f"{safe_line(each.path)}{place}: {safe_line(each.message)}", code=each.reason)
    if len(report.skipped) > _SKIPPED_SHOWN and not terminal.verbose:
        terminal.note(f"{len(report.skipped) - _SKIPPED_SHOWN:,} more places could not be searched (-v)")
    if is_empty:
        terminal.note(f"there is no thread to search in {safe_line(home.path)}. Try: rollout list --all")
        return
    terminal.note(_summary(query, report, milliseconds))


def _summary(query: SearchQuery, report: SearchReport, milliseconds: int) -> str:
    found = f"{_count(report.hits, 'hit')} in {_count(report.threads, 'thread')}" if report.hits else "no hit"
    searched = f"searched {_count(report.searched_threads, 'thread')}, {_megabytes(report.searched_bytes)}"
    left_out = _left_out(query, report)
    told = f" ({'; '.join(left_out)})" if left_out else ""
    return f"{found}; {searched} in {milliseconds / 1000:.2f} s{told}"


def _left_out(query: SearchQuery, report: SearchReport) -> list[str]:
    told = []
    if not report.finished:
        told.append("not searched to the end: -n")
    if report.older_left_out or (query.since is not None and not report.hits):
        older = f"{report.older_left_out:,} older " if report.older_left_out else "older records "
        told.append(f"{older}not searched: --since")
    if report.archived_left_out:
        told.append(f"{report.archived_left_out:,} archived not searched: --archived")
    if report.compressed_left_out:
        told.append(f"{report.compressed_left_out:,} compressed not searched: --compressed")
    if report.skipped:
        told.append(f"{_count(len(report.skipped), 'place')} could not be searched")
    return told


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
