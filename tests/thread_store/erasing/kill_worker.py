"""Erases in a child process for each system call, and has it killed there. Prints one JSON line a child.

Before each call, and in the midst of each write: a kill behind a call is one before the next.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tests.thread_store.erasing.homes import NEEDLE
from tests.thread_store.erasing.scripted_calls import WRITES, ScriptedCalls, kill_before, kill_within
from thread_store.erasing.erase import Erasure
from thread_store.home import Home

EFFECTS = {"before": kill_before, "within": kill_within}


def main(template: str, folder: str) -> None:
    """Every call, and one more that there isn't."""
    names = _names(template, Path(folder) / "all")
    for name in EFFECTS:
        for at in range(1, len(names) + 2):
            if name == "before" or names[at - 1 : at] in ([each] for each in WRITES):
                _run(template, Path(folder) / f"{name}-{at}", at, name)


def _names(template: str, home: Path) -> list[str]:
    """Which calls there are, in order."""
    shutil.copytree(template, home)
    calls = ScriptedCalls(0, kill_before)
    Erasure(Home(home), needle=NEEDLE, reason="pasted", calls=calls).carry_out()
    return calls.names


def _run(template: str, home: Path, at: int, name: str) -> None:
    shutil.copytree(template, home)
    child = os.fork()
    if child == 0:
        calls = ScriptedCalls(at, EFFECTS[name])
        Erasure(Home(home), needle=NEEDLE, reason="pasted", calls=calls).carry_out()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    print(json.dumps({"home": os.fspath(home), "killed": killed, "at": at, "effect": name}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
