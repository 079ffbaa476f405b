"""What a command is pointed at: a thread, and items of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import ThreadNotFound
from tests.thread_store.conftest import NAME, THREAD, meta_line
from thread_store.cli.target import Target, find_target
from thread_store.cli.terminal import Terminal


@pytest.fixture
def terminal(home: Path) -> Terminal:
    return Terminal({"ROLLOUT_HOME": str(home)})


@pytest.mark.parametrize(
    ("suffix", "first", "last", "offset"),
    [
        ("", None, None, None),
        ("#42", 42, 42, None),
        ("#40..60", 40, 60, None),
        ("#40..", 40, None, None),
        ("@81234", None, None, 81234),
    ],
)
@pytest.mark.parametrize("thread", [THREAD, "f00d", "@", "@1", "-"])
def test_address_follows_any_name(
    terminal: Terminal,
    write: Callable[..., Path],
    thread: str,
    suffix: str,
    first: int | None,
    last: int | None,
    offset: int | None,
) -> None:
    """`THREAD#42`, `THREAD#40..60` and `THREAD@81234` work with every way to name a thread."""
    path = write(meta_line())
    target = find_target(terminal, thread + suffix)
    assert target == Target(thread, "-" if thread == "-" else str(path), first, last, offset)
    assert target.address == suffix


def test_file_whose_name_looks_like_an_address_is_a_file(
    terminal: Terminal, write: Callable[..., Path], tmp_path: Path
) -> None:
    """A path that exists is never cut up."""
    path = write(meta_line(), path=tmp_path / "notes.jsonl#3")
    assert find_target(terminal, str(path)) == Target(str(path), str(path))
    assert find_target(terminal, f"{path}#7").first == 7


def test_path_with_an_address_names_items_of_the_file(terminal: Terminal, write: Callable[..., Path]) -> None:
    """The address after a path is one."""
    path = write(meta_line())
    assert path.name == NAME
    assert find_target(terminal, f"{path}#0").selects_one
    assert not find_target(terminal, f"{path}#0..5").selects_one
    assert not find_target(terminal, str(path)).selects


def test_absent_thread_with_an_address_is_not_found(terminal: Terminal) -> None:
    """The error names the thread, without the address."""
    with pytest.raises(ThreadNotFound) as caught:
        find_target(terminal, "ffff#3")
    assert caught.value.name == "ffff"


def test_command_for_a_target_can_be_pasted(
    terminal: Terminal, write: Callable[..., Path], tmp_path: Path
) -> None:
    """A path with spaces and quotes is quoted for the shell."""
    path = write(meta_line(), path=tmp_path / "it's mine.jsonl")
    command = find_target(terminal, str(path)).command("show", "#3")
    assert command.startswith("rollout show '")
    assert command.endswith("'#3")
