"""`rollout list`: the threads of a home."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
from msgspec import structs

from thread_store.cli.failures import ExitCode
from thread_store.cli.list_view import entry_object, table_lines
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.safe_text import safe_line
from thread_store.cli.since import read_since
from thread_store.cli.terminal import Terminal
from thread_store.home import Home
from thread_store.listing.thread_entry import ThreadEntry, ThreadPage
from thread_store.listing.thread_list import list_thread_ids, list_threads
from thread_store.listing.thread_query import LIMIT_MAX, Sort, ThreadQuery

__all__ = ["command"]

_SORTS: dict[str, Sort] = {"recent": "updated", "created": "created", "size": "size", "items": "items"}


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="All threads, archived ones too.")
@click.option("--archived", is_flag=True, help="Those in the archive.")
@click.option("--here", is_flag=True, help="Those of the current folder.")
@click.option("--cwd", metavar="DIR", help="Those of this folder.")
@click.option("--under", metavar="DIR", help="Those of this folder and the ones below it.")
@click.option("--name", "named", metavar="GLOB", help="Name or title fits, as in 'fix*'.")
@click.option("--title", metavar="TEXT", help="It stands in the title.")
@click.option("--label", metavar="TAG", help="Those that have this label.")
@click.option("--source", metavar="S", help="How it was started: cli, vscode, exec, mcp, subagent, …")
@click.option("--provider", metavar="P", help="Whose model it used.")
@click.option("--live", is_flag=True, help="Those that somebody writes now.")
@click.option("--broken", is_flag=True, help="Those with something wrong about their file.")
@click.option(
    "--since", callback=read_since, metavar="T", help="Written since: 2h, 3d, yesterday, 2026-11-29."
)
@click.option("--until", callback=read_since, metavar="T", help="Not written since.")
@click.option("-n", "limit", type=click.IntRange(min=1), metavar="N", help="At most so many (50).")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="recent", help="What stands first.")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--ids", is_flag=True, help="Only the ids, one a line.")
@click.option("--cursor", metavar="C", help="Go on where a page ended, as its last object with --json says.")
@shared_options
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
    """List threads, the ones that were written last first.

    Nothing is hidden: sub-agents, threads of other programs and damaged ones are there too. With --json a
    last object of kind `page` has the cursor, if there is more. Exit code 1 if filters left nothing.

    \b
    Examples:
      rollout list
      rollout list --here --since 3d
      rollout list --all --json
    """
    terminal = terminal_of(context)
    home = Home.resolve(terminal.home, terminal.environ)
    everything, ids = options["everything"], options["ids"]
    query = _query(options)
    entries: list[ThreadEntry] = []
    page = ThreadPage(())
    for page in _pages(terminal, home, query, options["limit"], everything=everything):
        if terminal.json or ids:
            _print_each(terminal, page, ids=ids)
        entries += page.threads
    if terminal.json:
        if page.cursor is not None:
            terminal.emit("page", cursor=page.cursor)
    elif not ids and entries:
        _print_table(terminal, home, entries)
    if entries:
        return ExitCode.DONE
    return _say_nothing(terminal, home, query)


_AS_THEY_ARE = ("under", "named", "title", "label", "source", "provider", "cursor")


def _query(options: dict[str, Any]) -> ThreadQuery:
    everything, cwd = options["everything"], options["cwd"]
    if options["here"]:
        if cwd is not None:
            raise click.UsageError("--here and --cwd exclude each other")
        cwd = os.getcwd()
    return ThreadQuery(
        sort=_SORTS[options["sort"]],
        order="oldest" if options["reverse"] else "newest",
        limit=min(options["limit"] or (LIMIT_MAX if everything else 50), LIMIT_MAX),
        archived=True if options["archived"] else None if everything else False,
        cwd=cwd,
        live=options["live"] or None,
        broken=options["broken"] or None,
        updated_since=options["since"],
        updated_until=options["until"],
        **{name: options[name] for name in _AS_THEY_ARE},
    )


def _pages(
    terminal: Terminal, home: Home, query: ThreadQuery, limit: int | None, *, everything: bool
) -> Iterator[ThreadPage]:
    """As many as it takes; what went wrong is said once."""
    left, said = limit, set[str]()
    while True:
        page = list_threads(home, query)
        for error in page.passed_over:
            if error.message not in said:
                terminal.warn(
                    f"{safe_line(error.message)}; it was passed over", code=error.code, path=error.path
                )
                said.add(error.message)
        for note in page.notes:
            if note not in said:
                terminal.note(safe_line(note))
                said.add(note)
        yield page
        left = None if left is None else left - len(page.threads)
        if page.cursor is None or left == 0 or (left is None and not everything):
            return
        query = structs.replace(query, cursor=page.cursor, limit=min(left or LIMIT_MAX, LIMIT_MAX))


def _print_each(terminal: Terminal, page: ThreadPage, *, ids: bool) -> None:
    for entry in page.threads:
        if ids and not terminal.json:
            terminal.print(entry.thread_id)
        else:
            terminal.emit("thread", **entry_object(entry))


def _print_table(terminal: Terminal, home: Home, entries: list[ThreadEntry]) -> None:
    from thread_store.cli.short_ids import ShortIds

    known = list_thread_ids(home)
    for line in table_lines(terminal, entries, ShortIds(known)):
        terminal.print(line)
    if terminal.is_tty:
        counts = Counter(each.state for each in entries)
        dot = f" {terminal.mark('dot')} "
        parts = [f"{len(entries):,} of {len(known):,} threads"]
        parts += [f"{counts[state]} {state}" for state in ("live", "crashed", "damaged") if counts[state]]
        if len(entries) < len(known):
            parts.append("rollout list --all")
        terminal.print(terminal.style(dot.join(parts), "dim"))


def _say_nothing(terminal: Terminal, home: Home, query: ThreadQuery) -> int:
    filters: dict[str, Any] = structs.asdict(query)
    for name in ("sort", "order", "limit", "archived"):
        filters.pop(name)
    if any(each is not None for each in filters.values()):
        terminal.note(f"no thread of {safe_line(home.path)} is like that. Try: rollout list --all")
        return ExitCode.PROBLEMS
    where = "in the archive of" if query.archived else "in"
    terminal.note(f"no threads yet {where} {safe_line(home.path)}. Try: rollout record")
    return ExitCode.DONE
