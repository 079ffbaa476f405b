"""`rollout import`: what other programs recorded, as threads of this home."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from protocol.errors import RolloutError
from thread_store.cli.amounts import counted, format_bytes
from thread_store.cli.failures import ExitCode
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.progress import ByteProgress
from thread_store.cli.safe_text import safe_line
from thread_store.cli.terminal import Terminal
from thread_store.home import Home

if TYPE_CHECKING:
    from thread_store.importing.importer import Imported
    from thread_store.importing.sources import FoundSource
    from thread_store.upkeep.threads import Place

__all__ = ["command"]

_KINDS = ("auto", "claude", "gemini", "pi", "omp", "opencode", "mycodeagent", "atif", "codex")


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--from", "kind", type=click.Choice(_KINDS), default="auto", help="Whose files they are.")
@click.option("--dry-run", is_flag=True, help="Only say what would be imported.")
@shared_options
@click.pass_context
def command(context: click.Context, paths: tuple[str, ...], kind: str, dry_run: bool) -> int:
    """Import what other programs recorded, as threads of this home.

    PATH is a session file of Claude Code, Gemini CLI, pi, omp, opencode (an export), MyCodeAgent, of Codex
    from before its lines had envelopes, or an ATIF trajectory; or a folder with such files below it. They are
    only read. Importing again adds what is new since, and nothing twice. Records
    without counterpart are kept as they are, and counted; damaged places are named.

    \b
    Examples:
      rollout import ~/.claude/projects --dry-run
      rollout import session.jsonl --from pi
    """
    from thread_store.importing.sources import find_sources
    from thread_store.upkeep.threads import Place

    terminal = terminal_of(context)
    attach_log(terminal)
    summary = _Summary(terminal, dry_run=dry_run)
    place = Place.of(Home.resolve(terminal.home, terminal.environ))
    format = None if kind == "auto" else kind
    try:
        for source in find_sources(paths, format=format, refused=summary.refuse):
            summary.take(source, place)
    finally:
        summary.progress.clear()
    return summary.conclude(paths)


class _Summary:
    """What became of all sources."""

    def __init__(self, terminal: Terminal, *, dry_run: bool) -> None:
        self.progress = ByteProgress(terminal, "importing")
        self._terminal = terminal
        self._dry_run = dry_run
        self._states: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._damaged = 0
        self._bytes = 0
        self._read = 0

    def refuse(self, error: Exception) -> None:
        """A source that can't be read; the others go on."""
        self._states["unreadable"] += 1
        self._terminal.warn(safe_line(str(error)), code="source_unreadable")

    def take(self, source: FoundSource, place: Place) -> None:
        """Import one."""
        from thread_store.importing.importer import import_source

        try:
            done = import_source(
                source.open(),
                place,
                dry_run=self._dry_run,
                parent_id=source.parent_thread_id,
                progress=self._advance,
            )
        except RolloutError as error:
            self.refuse(error)
            return
        for each in done:
            self._states[each.state] += 1
            self._kept.update(each.kept)
            self._damaged += len(each.damaged)
            self._bytes += each.bytes
            self._tell(each)

    def _advance(self, size: int) -> None:
        self._read += size
        self.progress.update(self._read, None)

    def _tell(self, each: Imported) -> None:
        terminal, source = self._terminal, each.source
        if terminal.json:
            terminal.emit("import", **_import_object(each, dry_run=self._dry_run))
            return
        if each.state in ("new", "grown"):
            what = f"{each.state:<9} {each.thread_id}  {source.format}  {format_bytes(each.bytes)}"
            terminal.print(f"{what}  {safe_line(source.path)}")
        for damage in each.damaged:
            place = "" if damage.line is None else f"line {damage.line:,}, "
            terminal.warn(
                f"{safe_line(damage.path)}: {place}byte {damage.offset:,} is left out: "
                f"{safe_line(damage.reason)}",
                code="source_damaged",
            )
        if each.state == "changed":
            terminal.warn(f"{each.thread_id} is left alone: {each.hint}", code="source_changed")

    def conclude(self, paths: tuple[str, ...]) -> int:
        """Say how it went."""
        terminal, states = self._terminal, self._states
        figures: dict[str, Any] = {
            "new": states["new"],
            "grown": states["grown"],
            "unchanged": states["unchanged"],
            "changed": states["changed"],
            "empty": states["empty"],
            "unreadable": states["unreadable"],
            "damaged": self._damaged,
            "kept": dict(sorted(self._kept.items())),
        }
        if terminal.json:
            terminal.emit("import_summary", dry_run=self._dry_run, bytes=self._bytes, **figures)
        elif not states:
            terminal.note(f"no sessions of other programs at {safe_line(' '.join(paths))}")
        else:
            words = [f"{states[name]:,} {name}" for name in figures if states[name]]
            kept = sum(self._kept.values())
            words += [f"{counted(kept, 'record')} kept as they are"] if kept else []
            words += [f"{counted(self._damaged, 'place')} damaged"] if self._damaged else []
            terminal.note(", ".join(words) + ("; nothing was changed" if self._dry_run else ""))
        failed = self._damaged or states["changed"] or states["unreadable"]
        return ExitCode.PROBLEMS if failed or not states else ExitCode.DONE


def _import_object(each: Imported, *, dry_run: bool) -> dict[str, Any]:
    return {
        "state": str(each.state),
        "dry_run": dry_run,
        "thread": each.thread_id,
        "format": each.source.format,
        "source": each.source.id,
        "path": each.source.path,
        "records": each.records,
        "bytes": each.bytes,
        "kept": each.kept,
        "damaged": [
            {"line": damage.line, "offset": damage.offset, "bytes": damage.bytes, "reason": damage.reason}
            for damage in each.damaged
        ],
        "hint": each.hint or None,
    }
