"""`rollout resume`: what an agent would go on from, and what stands against it."""

from __future__ import annotations

import click

from thread_store.cli.context_view import print_payload
from thread_store.cli.failures import ExitCode, report_error
from thread_store.cli.library_log import attach_log
from thread_store.cli.options import shared_options, terminal_of
from thread_store.cli.resume_view import (
    describe_refusal,
    exit_code_of,
    print_refusals,
    print_state,
    state_object,
)
from thread_store.cli.resumed_thread import ResumedThread, find_last, find_resumed
from thread_store.cli.safe_text import safe_text
from thread_store.cli.terminal import Terminal
from thread_store.context.request_body import MessageForm, request_body
from thread_store.resume.resume_refusals import REFUSAL_RULES, refuse
from thread_store.resume.resume_state import ResumeState

__all__ = ["command"]


@click.command("resume")
@click.argument("thread", required=False)
@click.option("--last", is_flag=True, help="The newest thread that nobody is writing.")
@click.option("--check", is_flag=True, help="Only say what stands against it; silent if nothing does.")
@click.option("--deep", is_flag=True, help="Read the thread from its start, not only what is needed.")
@click.option("--memory", is_flag=True, help="The session memory, as the model would read it.")
@click.option("--history", is_flag=True, help="What the model would see, one item a line.")
@click.option(
    "--format",
    "form",
    type=click.Choice([each.value for each in MessageForm]),
    help="The history as a part of a request, if nothing stands against it.",
)
@click.option(
    "--allow",
    type=click.Choice([each.value for each, rule in REFUSAL_RULES.items() if rule.waivable]),
    multiple=True,
    metavar="REASON",
    help="A reason that doesn't count, by the name that --check tells; may be repeated.",
)
@shared_options
@click.pass_context
def command(
    context: click.Context,
    thread: str | None,
    last: bool,
    check: bool,
    deep: bool,
    memory: bool,
    history: bool,
    form: str | None,
    allow: tuple[str, ...],
) -> int:
    """Show what an agent would go on from, and what stands against it.

    Nothing is written and nobody is kept out; an agent goes on with resume_thread of the library. Exit
    code 0 if nothing stands against going on, 6 if somebody is writing the thread, 7 for any other
    reason, such as an unsafe call that may have run. In --history each call has a result, if only that its
    outcome is unknown. --format gives one JSON object: messages for the OpenAI Responses API, openai for
    Chat Completions, anthropic for the Messages API; with --memory the session memory is in it too.

    \b
    Examples:
      rollout resume --last
      rollout resume 7f3a --check
      rollout resume 7f3a --format anthropic > request.json
    """
    terminal = terminal_of(context)
    attach_log(terminal)
    _require_one_view(context, check=check, memory=memory, history=history, form=form)
    if (thread is None) is not last:
        raise click.UsageError("name a thread, or --last" if thread is None else "THREAD or --last, not both")
    found = find_last(terminal, deep=deep) if thread is None else find_resumed(terminal, thread, deep=deep)
    found = found.allowing(allow)
    if form is not None:
        return _print_request(terminal, found.state, MessageForm(form), with_memory=memory)
    if terminal.json:
        _emit(terminal, found, memory=memory, history=history)
    elif check:
        print_refusals(terminal, found.state.refusals)
    elif memory or history:
        _print_part(terminal, found.state, history=history)
    else:
        print_state(terminal, found.state)
    return exit_code_of(found.state.refusals)


def _require_one_view(
    context: click.Context, *, check: bool, memory: bool, history: bool, form: str | None
) -> None:
    views = {"--check": check, "--history": history, "--format": form is not None, "--memory": memory}
    named = [name for name, given in views.items() if given]
    if len(named) > 1 and named != ["--format", "--memory"]:
        raise click.UsageError(f"{' and '.join(named)} can't be had together", ctx=context)


# What is printed of it


def _print_part(terminal: Terminal, state: ResumeState, *, history: bool) -> None:
    if history:
        for item in state.view().items:
            print_payload(terminal, item.payload)
    elif text := state.memory.render():
        terminal.print(safe_text(text))
    else:
        terminal.note("there is nothing to remember yet")
    for each in state.refusals:
        terminal.warn(describe_refusal(each), code=each.reason)


def _emit(terminal: Terminal, found: ResumedThread, *, memory: bool, history: bool) -> None:
    state = found.state
    if history:
        for item in state.view().items:
            payload = bytes(item.payload).decode("utf-8", "surrogatepass")
            fields = {"thread": state.thread_id, "type": item.kind, "role": item.role}
            terminal.emit_payload("context_item", payload, **fields, call_id=item.call_id)
    told = {"memory": state.memory.render()} if memory else {}
    terminal.emit("resume", **state_object(state, found.passed_over), **told)


def _print_request(terminal: Terminal, state: ResumeState, form: MessageForm, *, with_memory: bool) -> int:
    """Whoever reads this goes on from it, so it isn't given where something stands against that."""
    if state.refusals:
        report_error(terminal, refuse(state.refusals, thread_id=state.thread_id, path=state.path))
        return exit_code_of(state.refusals)
    body = request_body(state, form, with_memory=with_memory)
    if terminal.json:
        fields = {"thread": state.thread_id, "format": form, "left_out": body.left_out}
        terminal.emit_payload("request", body.json.decode(), **fields)
    else:
        print_payload(terminal, body.json)
        for kind, count in body.left_out.items():
            terminal.note(f"left out: {count:,} x {kind}, which has no counterpart there")
    return ExitCode.DONE
