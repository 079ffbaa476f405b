"""`rollout context`: the exact context of the model, as JSON Lines."""

from __future__ import annotations

import click

from thread_store.chain.lineage import BaseProblem, Lineage
from thread_store.cli.context_view import item_object, print_payload, summary_object
from thread_store.cli.failures import ExitCode
from thread_store.cli.older_files import home_of
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.piped_file import ReadableFile, open_readable
from thread_store.cli.reading import find_writer
from thread_store.cli.safe_text import safe_line
from thread_store.cli.target import Target, find_target
from thread_store.cli.terminal import Terminal
from thread_store.context.checkpoint_scan import Problem
from thread_store.context.model_context import ModelContext, build_model_context

__all__ = ["command"]

_PROBLEMS_SHOWN = 10


@click.command("context")
@click.argument("thread")
@click.option("--deep", is_flag=True, help="Read the thread from its start, not only what is needed.")
@shared_options
@click.pass_context
def command(context: click.Context, thread: str, deep: bool) -> int:
    """Print exactly what the model would see, one item a line.

    Each line is the payload of an item, byte for byte as it was recorded: the replacement history of the
    newest compaction, then what came later, without what was rolled back. What is wrong is told on
    stderr; exit code 1 if something is missing because of it. With --json each item comes in an object
    that says where it stands, and an object with the settings follows.

    \b
    Examples:
      rollout context @
      rollout context 7f3a --deep > context.jsonl
      rollout context 7f3a --json
    """
    terminal = terminal_of(context)
    target = find_target(terminal, thread)
    if target.selects:
        raise click.UsageError("name a thread; its context is printed as a whole", ctx=context)
    with open_readable(target) as file, Lineage.resolve(file.path, home_of(terminal, file.path)) as lineage:
        found = build_model_context(lineage, deep=deep)
        problems = _problems(found, is_live=find_writer(target) is not None)
    _print(terminal, found, lineage, file)
    if found.base_problem is not None:
        _warn_of_base(terminal, found.base_problem)
    for problem in problems[:_PROBLEMS_SHOWN]:
        path = lineage.segments[problem.place.segment].path
        _warn(terminal, problem, file.named(path), is_own=path == file.path)
    if len(problems) > _PROBLEMS_SHOWN:
        more = found.problem_count - _PROBLEMS_SHOWN
        terminal.warn(f"{more:,} damaged places more. See: {target.command('check')}", code="damage")
    _note_extent(terminal, target, found)
    lost = problems or found.base_problem is not None
    return ExitCode.PROBLEMS if lost else ExitCode.DONE


def _problems(found: ModelContext, *, is_live: bool) -> list[Problem]:
    """What is wrong in the range that was read. A line that is still being written is not."""
    return [each for each in found.problems if not (is_live and each.reason == "torn_tail")]


def _print(terminal: Terminal, found: ModelContext, lineage: Lineage, file: ReadableFile) -> None:
    for item in found.items:
        if terminal.json:
            payload = bytes(item.payload).decode("utf-8", "surrogatepass")
            terminal.emit_payload("context_item", payload, **item_object(item, lineage, file))
        else:
            print_payload(terminal, item.payload)
    if terminal.json:
        terminal.emit("context", **summary_object(found, lineage, file))


def _warn_of_base(terminal: Terminal, problem: BaseProblem) -> None:
    terminal.warn(
        f"the beginning of its history can't be read: {safe_line(problem.message)}",
        code=f"base_{problem.code}",
        path=problem.path,
    )


def _warn(terminal: Terminal, problem: Problem, path: str | None, *, is_own: bool) -> None:
    what = "a compaction that can't be read, so an older one counts: " if problem.checkpoint else ""
    where = "" if is_own else f"{safe_line(path)}: "
    terminal.warn(
        f"{where}byte {problem.place.offset:,}: {what}{safe_line(problem.message)}",
        code=problem.reason,
        path=path,
        offset_bytes=problem.place.offset,
    )


def _note_extent(terminal: Terminal, target: Target, found: ModelContext) -> None:
    if not found.whole and found.base_problem is None:
        begin = f"{found.examined_from.offset:,}"
        terminal.note(
            f"nothing before byte {begin} was needed, nor looked at. Try: {target.command('context')} --deep"
        )
    if terminal.verbose:
        size = sum(each.size_bytes for each in found.items)
        terminal.note(f"{len(found.items):,} items, {size:,} bytes")
