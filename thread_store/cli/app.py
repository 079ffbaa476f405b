"""The command group: which commands exist, and where the code of each is.

Invariant: `rollout --help` imports no command. The table below holds the first line of each
help text; a test keeps it equal to what the command itself says.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from keyword import iskeyword

import click

from thread_store.cli.options import shared_options

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "archive": "Set threads aside: they are found and read as before, and nothing can be added.",
    "check": "Look for damage in rollouts; silent when they are good.",
    "compress": "Compress threads that nobody writes (zstd); they are read as before.",
    "context": "Print exactly what the model would see, one item a line.",
    "delete": "Delete threads for good, with everything that is their own.",
    "demo": "Watch an agent being killed and lose nothing it was promised.",
    "erase": "Overwrite what should not have been recorded; it can't be undone.",
    "fork": "Begin a new thread with the history of another one.",
    "import": "Import what other programs recorded, as threads of this home.",
    "label": "Put labels on a thread and take them off again.",
    "list": "List threads, the ones that were written last first.",
    "prune": "Delete old threads; without -y only say what would go.",
    "record": "Record items from stdin or a file into a rollout.",
    "rename": "Give a thread a name, by which it is listed and found.",
    "repair": "Heal a damaged rollout; without -y only say what would be done.",
    "resume": "Show what an agent would go on from, and what stands against it.",
    "revert": "Take a thread back to an earlier point; nothing is erased.",
    "search-recent": "Find what was said and done, the newest threads first.",
    "show": "Show a rollout as a conversation.",
    "stats": "Show where the bytes of a home are.",
    "tools": "Show what became of each tool call.",
    "tree": "Show which thread was forked from which, and whose sub-agents there are.",
    "unarchive": "Take threads out of the archive, so that they can go on.",
    "unlock": "Take a thread over from a writer that hangs.",
    "version": "Print the version.",
    "who": "Show who is writing which thread.",
}


class _LazyGroup(click.Group):
    """Loads `thread_store.cli.commands.<name>` when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name)
        command = import_module(f"thread_store.cli.commands.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            nearest = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            guess = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"unknown command {name!r}{guess}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Examples:
      rollout demo
      my-agent | rollout record
      rollout show @
    """,
)
@shared_options
def app() -> None:
    """Record what an AI agent does into files that survive crashes, and look at them.

    THREAD is an id, its beginning or end (4 characters or more), a path, @ (the newest),
    @2 (the second newest), or - (standard input). Exit codes: 0 done, 1 problems found,
    2 usage, 3 not found, 4 ambiguous, 5 too damaged, 6 busy, 7 refused, 8 I/O.
    """
