"""The command line as a whole: help, mistakes, exit codes, streams, what is loaded."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from protocol import errors
from tests.thread_store.conftest import COMMAND, THREAD, Run, environment, line, meta_line, objects, said
from thread_store.cli.app import COMMANDS, app
from thread_store.cli.failures import ExitCode, report_error
from thread_store.cli.terminal import Terminal
from thread_store.errors import (
    AmbiguousThread,
    NotCurrentRollout,
    NotInHome,
    StoreClosed,
    ThreadsUnwritten,
)
from thread_store.locks import LocksBusy

HEAVY = {"aiofiles", "anyio", "asyncio", "msgspec", "platformdirs", "rich", "watchfiles", "zstandard"}


# Help


@pytest.mark.parametrize("arguments", [("--help",), ("-h",)])
def test_help_lists_every_command(rollout: Run, arguments: tuple[str, ...]) -> None:
    """`rollout --help` says what there is, on stdout."""
    done = rollout(*arguments)
    assert done.returncode == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary[:40])}", done.stdout.decode(), re.MULTILINE)


def test_no_command_prints_help_as_a_mistake(rollout: Run) -> None:
    """`rollout` alone is a usage error that shows the help on stderr."""
    done = rollout()
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Commands:" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_matches_the_list_and_ends_in_examples(name: str) -> None:
    """The first line is the one in the list of commands, and the last ones can be tried."""
    context = click.Context(app, info_name="rollout")
    command = app.get_command(context, name)
    assert command is not None
    text = command.get_help(click.Context(command, parent=context, info_name=name))
    assert (command.help or "").startswith(COMMANDS[name])
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(examples) in (2, 3)
    assert all(f"rollout {name}" in example for example in examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_shared_options_may_stand_on_either_side(rollout: Run, name: str) -> None:
    """Each command takes --json, --home and the like after its name too."""
    done = rollout(name, "--help")
    for option in ("--home", "--json", "--color", "--ascii", "--utc", "-q, --quiet", "-v, --verbose"):
        assert option in done.stdout.decode()


def test_version_is_printed(rollout: Run) -> None:
    """As words and as an object, with the option on either side."""
    assert re.fullmatch(rb"rollout-recorder \d+\.\d+\.\d+\n", rollout("version").stdout)
    for arguments in (("--json", "version"), ("version", "--json")):
        (found,) = objects(rollout(*arguments).stdout)
        assert (found["v"], found["kind"], found["name"]) == (1, "version", "rollout-recorder")


# What a command loads


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (("--help",), set()),
        (("version",), set()),
        (("tial",), set()),
        (("show", "FILE"), {"msgspec"}),
        (("show", "FILE", "--json"), {"msgspec"}),
        (("show", "FILE", "-n", "1"), {"msgspec"}),
        (("show", "FILE", "--raw"), {"msgspec"}),
        (("show", THREAD), {"msgspec"}),
        (("check", "FILE"), {"msgspec"}),
        (("repair", "FILE"), {"msgspec"}),
        (("tree",), {"msgspec"}),
        (("who",), {"msgspec"}),
        (("fork", THREAD), {"msgspec"}),
        (("context", THREAD), {"msgspec"}),
        (("tools", THREAD), {"msgspec"}),
        (("resume", THREAD), {"msgspec"}),
        (("search-recent", "hi"), {"msgspec"}),
    ],
)
def test_command_loads_nothing_that_it_does_not_need(
    home: Path, write: Callable[..., Path], tmp_path: Path, arguments: tuple[str, ...], allowed: set[str]
) -> None:
    """Its first line comes without waiting for an event loop, tables or compression."""
    path = write(meta_line(), line(1, "response_item", said("user", "hi")))
    words = [str(path) if each == "FILE" else each for each in arguments]
    script = "import sys; from thread_store.cli import main; main(sys.argv[1:])\n"
    script += "print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(home),
        timeout=120,
    )
    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert not loaded & (HEAVY - allowed)


# Mistakes


def test_unknown_command_suggests_the_nearest(rollout: Run) -> None:
    """A mistyped command is answered in one line, with a guess."""
    done = rollout("shwo")
    assert done.returncode == 2
    assert done.stderr == b"rollout: unknown command 'shwo'; did you mean 'show'? Try: rollout --help\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", "--no-such-option", "@"),
        ("show", "-n", "0", "@"),
        ("show", "-n", "many", "@"),
        ("check",),
        ("repair", "-"),
        ("record", "/no/such/file"),
        ("record", "."),
        ("record", "--thread", "@", "--cwd", "/"),
        ("--color", "sometimes", "version"),
        ("nonsense",),
        ("fork",),
        ("fork", "-"),
        ("fork", "--turn", "-1", "@"),
        ("fork", "--mode", "link", "@"),
        ("revert", "-"),
        ("unlock", "-"),
        ("unlock",),
        ("who", "@"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(rollout: Run, arguments: tuple[str, ...]) -> None:
    """It says what is wrong and what to try, without a traceback."""
    done = rollout(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(rb"rollout: [^\n]+ Try: rollout[^\n]* --help\n", done.stderr)


def test_mistake_with_json_is_one_object_on_stderr(rollout: Run) -> None:
    """Also where the arguments themselves are wrong."""
    done = rollout("--json", "shwo")
    (error,) = objects(done.stderr)
    assert (done.returncode, done.stdout) == (2, b"")
    assert error["kind"] == "error"
    assert error["code"] == "usage"
    assert error["retryable"] is False


@pytest.mark.case("B56")
@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("ffff0000", ExitCode.NOT_FOUND, "thread_not_found"),
        ("./absent.jsonl", ExitCode.NOT_FOUND, "thread_not_found"),
        ("@", ExitCode.NOT_FOUND, "thread_not_found"),
        ("./folder", ExitCode.DAMAGED, "not_a_rollout"),
        ("./empty.jsonl", ExitCode.DAMAGED, "not_a_rollout"),
        ("./text.jsonl", ExitCode.DAMAGED, "not_a_rollout"),
    ],
)
def test_thread_that_is_none_gets_its_own_answer(
    rollout: Run, tmp_path: Path, name: str, code: int, kind: str
) -> None:
    """Unknown, a folder, empty, something else: each has its code and message, with and without JSON."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "text.jsonl").write_text("dear diary\n")
    done = rollout("show", name)
    assert (done.returncode, done.stdout) == (code, b"")
    assert re.fullmatch(rb"rollout: [^\n]+\n", done.stderr)
    done = rollout("show", name, "--json")
    (error,) = objects(done.stderr)
    assert (done.returncode, done.stdout, error["code"]) == (code, b"", kind)


@pytest.mark.parametrize("command", ["show", "check", "repair"])
def test_ambiguous_name_lists_the_threads(
    rollout: Run, home: Path, write: Callable[..., Path], command: str
) -> None:
    """A beginning that two threads share is exit code 4."""
    other = THREAD.replace("f00d", "beef")
    path = write(meta_line())
    write(meta_line(other), path=path.with_name(path.name.replace(THREAD, other)))
    done = rollout(command, "0196")
    assert done.returncode == ExitCode.AMBIGUOUS
    assert THREAD in done.stderr.decode()
    assert other in done.stderr.decode()


@pytest.mark.case("B57")
def test_unreadable_file_is_named_with_what_to_do(
    rollout: Run, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the system refuses is exit code 8, and its name is in the message."""
    path = write(meta_line())
    cause = PermissionError(13, os.strerror(13))
    terminal = Terminal({})
    told: list[str] = []
    monkeypatch.setattr(terminal, "fail", lambda message, hint, **_: told.append(message + hint))
    assert report_error(terminal, errors.RolloutUnreadable(path=path, cause=cause)) == ExitCode.SYSTEM
    assert str(path) in told[0]
    assert "mode" in told[0]


EXAMPLES: dict[type[errors.RolloutError], errors.RolloutError] = {
    type(each): each
    for each in (
        errors.InvalidThreadId("../x"),
        errors.ItemNotEncodable("NaN"),
        errors.RecordTooLarge(size_bytes=2, limit_bytes=1),
        errors.PendingQueueFull(pending_bytes=1, limit_bytes=1, path="p", last_error=None),
        errors.RecorderClosed(path="p"),
        errors.ThreadNotFound("x"),
        errors.ForkPointInvalid("turn(9)", "x"),
        errors.ForkRefused(path="p", reason="x"),
        errors.CallNotResolvable("c", "x"),
        errors.ThreadReferenced("x"),
        errors.ResumeRefused(["x"]),
        errors.ActiveWriter(path="p", holder=errors.WriterHolder(7, "here")),
        errors.WriterFenced(path="p", reason="x"),
        errors.InvalidLine("not_json"),
        errors.NotARollout(path="p", reason="x"),
        errors.RolloutExists(path="p", reason="x"),
        errors.RolloutUnreadable(path="p", cause=OSError(13, "no")),
        errors.RolloutWriteError(path="p", operation="write", cause=OSError(28, "full")),
        errors.RolloutMoved(path="p", moved_to="q"),
        errors.RolloutReplaced(path="p", reason="x"),
        errors.UnwrittenItems(path="p", cause=None, kept_path="k", unwritten=b"", pending_items=3),
        AmbiguousThread("x", ["a", "b"]),
        LocksBusy(path="p", seconds=5),
        NotCurrentRollout(path="p", thread_id="t", current_path="q"),
        NotInHome("p"),
        StoreClosed("h"),
        ThreadsUnwritten({"t": errors.RolloutError("x")}, threads=2),
    )
}


def test_every_error_has_an_exit_code_of_its_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """The caller's faults, the bytes', another writer's and the system's are told apart by number."""
    codes = {kind.__name__: report_error(Terminal({}), error) for kind, error in EXAMPLES.items()}
    assert codes == {
        "InvalidThreadId": 2,
        "ItemNotEncodable": 2,
        "RecordTooLarge": 2,
        "ForkPointInvalid": 2,
        "CallNotResolvable": 2,
        "ThreadNotFound": 3,
        "AmbiguousThread": 4,
        "NotARollout": 5,
        "InvalidLine": 5,
        "ActiveWriter": 6,
        "WriterFenced": 6,
        "ResumeRefused": 7,
        "ThreadReferenced": 7,
        "ForkRefused": 7,
        "RolloutExists": 7,
        "PendingQueueFull": 8,
        "RecorderClosed": 8,
        "RolloutUnreadable": 8,
        "RolloutWriteError": 8,
        "RolloutMoved": 8,
        "RolloutReplaced": 8,
        "UnwrittenItems": 8,
        "LocksBusy": 6,
        "NotCurrentRollout": 7,
        "NotInHome": 7,
        "StoreClosed": 8,
        "ThreadsUnwritten": 8,
    }
    written = capsys.readouterr()
    assert written.out == ""
    assert all(each.startswith("rollout: ") for each in written.err.splitlines())


@pytest.mark.parametrize("debug", ["", "1"])
def test_bug_is_one_line_unless_debugging(rollout: Run, tmp_path: Path, debug: str) -> None:
    """Even a bug of ours shows no traceback, except with ROLLOUT_DEBUG=1."""
    script = (
        "import sys, thread_store.cli.run as run\n"
        "def break_down(*arguments, **options): raise RuntimeError('broken \\x1b[31m')\n"
        "run.app.invoke = break_down\n"
        "sys.exit(run.run(['version']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        cwd=tmp_path,
        env=environment(tmp_path, ROLLOUT_DEBUG=debug),
        timeout=120,
    )
    assert done.returncode == ExitCode.SYSTEM
    assert (b"Traceback" in done.stderr) is bool(debug)
    assert b"rollout: internal error: RuntimeError: broken; this is a bug" in done.stderr


# Streams


def many_lines(write: Callable[..., Path], count: int = 5000) -> Path:
    return write(
        meta_line(), *(line(n, "response_item", said("user", f"message {n}")) for n in range(1, count))
    )


@pytest.mark.parametrize("options", [(), ("--json",), ("--raw",), ("-n", "4000"), ("--reverse",)])
def test_closed_pipe_ends_quietly(
    home: Path, write: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """`rollout show … | head -1` prints one line and no complaint, exit code 141."""
    path = many_lines(write)
    show = subprocess.Popen(
        [*COMMAND, "show", str(path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(home),
    )
    head = subprocess.run(["head", "-1"], stdin=show.stdout, capture_output=True, timeout=120)
    assert show.stdout is not None
    assert show.stderr is not None
    show.stdout.close()
    complaints = show.stderr.read()
    show.stderr.close()
    assert show.wait(120) == ExitCode.CLOSED_PIPE
    assert len(head.stdout.splitlines()) == 1
    assert complaints == b""


def test_closed_stdout_is_no_crash(home: Path, write: Callable[..., Path], tmp_path: Path) -> None:
    """`rollout show … >&-` has nowhere to print to, and says nothing."""
    path = write(meta_line(), line(1, "response_item", said("user", "hi")))
    command = " ".join([*COMMAND, "show", f"'{path}'", ">&-"])
    done = subprocess.run(
        command, shell=True, capture_output=True, cwd=tmp_path, env=environment(home), timeout=120
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("options", [(), ("--json",), ("--raw",)])
def test_full_disk_behind_stdout_is_an_error(
    home: Path, write: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    """What could not be printed is not passed over: exit code 8 and one line."""
    path = many_lines(write)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "show", str(path), *options],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment(home),
            timeout=120,
        )
    assert done.returncode == ExitCode.SYSTEM
    assert re.fullmatch(rb"[^\n]*No space left on device[^\n]*\n", done.stderr)


def run_on_terminal(arguments: list[str], cwd: Path, environ: dict[str, str]) -> bytes:
    """What the command prints when stdout is a terminal."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=terminal, stderr=terminal, cwd=cwd, env=environ
    ) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                block = os.read(control, 1 << 16)
            except OSError:  # Linux says so when the last one closed its end
                break
            if not block:
                break
            output += block
        process.wait(120)
    os.close(control)
    return output


@pytest.mark.parametrize(
    ("options", "environ", "colored"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"NO_COLOR": ""}, True),
        ((), {"TERM": "dumb"}, False),
        ((), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_colour_on_a_terminal_obeys_flag_then_environment(
    home: Path,
    write: Callable[..., Path],
    tmp_path: Path,
    options: tuple[str, ...],
    environ: dict[str, str],
    colored: bool,
) -> None:
    """The flag decides, then NO_COLOR, FORCE_COLOR, TERM, and at last that it is a terminal."""
    path = write(meta_line(), line(1, "response_item", said("user", "hi")))
    output = run_on_terminal(
        [*options, "show", str(path), "--no-pager"],
        tmp_path,
        environment(home, **{"TERM": "xterm", **environ}),
    )
    assert b"hi" in output
    assert (b"\x1b[" in output) is colored


@pytest.mark.parametrize(
    ("options", "environ", "colored"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"CLICOLOR_FORCE": "1"}, True),
        ((), {"FORCE_COLOR": "0"}, False),
        (("--color", "always"), {}, True),
    ],
)
def test_colour_in_a_pipe_only_if_forced(
    rollout: Run, write: Callable[..., Path], options: tuple[str, ...], environ: dict[str, str], colored: bool
) -> None:
    """A pipe gets plain text unless somebody asked."""
    path = write(meta_line(), line(1, "response_item", said("user", "hi")))
    assert (b"\x1b[" in rollout(*options, "show", path, **environ).stdout) is colored


@pytest.mark.case("B44")
@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_ascii_locale_gets_replacements(
    rollout: Run, write: Callable[..., Path], environ: dict[str, str]
) -> None:
    """Where the terminal has only ASCII, other characters are escaped; JSON stays equal; nothing fails."""
    call = {"type": "function_call", "name": "t", "arguments": "{}", "call_id": "c"}
    path = write(
        meta_line(), line(1, "response_item", said("user", "grüße 日本")), line(2, "response_item", call)
    )
    done = rollout("show", path, **environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"gr\\xfc\\xdfe" in done.stdout
    assert done.stdout.isascii()
    shown = rollout("show", path, "--json", **environ).stdout
    assert shown.isascii()
    assert "grüße 日本" in {each["text"] for each in objects(shown)}


def test_ascii_option_replaces_signs_only(rollout: Run, write: Callable[..., Path]) -> None:
    """`--ascii` is about the marks that the command itself prints."""
    call = {"type": "function_call", "name": "t", "arguments": "grüße", "call_id": "c"}
    path = write(meta_line(), line(1, "response_item", call))
    assert "⚙ t" in rollout("show", path).stdout.decode()
    plain = rollout("show", path, "--ascii").stdout.decode()
    assert "⚙" not in plain
    assert "grüße" in plain


def test_pager_gets_long_output_and_may_be_left(
    home: Path, write: Callable[..., Path], tmp_path: Path
) -> None:
    """On a terminal the pager of the environment is used; that it quits early is no error."""
    path = many_lines(write)
    environ = environment(home, TERM="xterm", ROLLOUT_PAGER="head -2", PAGER="false")
    output = run_on_terminal(["show", str(path)], tmp_path, environ)
    assert len(output.splitlines()) == 2
    assert b"Traceback" not in output


def test_json_goes_to_stdout_and_nothing_else(rollout: Run, write: Callable[..., Path]) -> None:
    """Every line of stdout is an object with `v` and `kind`."""
    path = write(meta_line(), b"{broken\n", line(1, "response_item", said("user", "hi")))
    for arguments in (("show", path), ("check", path), ("repair", path)):
        done = rollout(*arguments, "--json")
        for each in objects(done.stdout):
            assert each["v"] == 1
            assert isinstance(each["kind"], str)
        assert all(json.loads(each) for each in done.stderr.splitlines())
