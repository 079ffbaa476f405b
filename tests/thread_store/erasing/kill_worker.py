"""Erases in a child process for each system call, and has it killed there. Prints one JSON line a child."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tests.thread_store.erasing.homes import NEEDLE
from tests.thread_store.erasing.scripted_calls import ScriptedCalls, kill_after, kill_before, kill_within
from thread_store.erasing.erase import Erasure
from thread_store.home import Home

EFFECTS = {"before": kill_before, "within": kill_within, "after": kill_after}


def main(template: str, folder: str) -> None:
    """Until an erasure gets through."""
    for name, effect in EFFECTS.items():
        at = 1
        while _run(template, Path(folder) / f"{name}-{at}", at, name):
            at += 1
        del effect


def _run(template: str, home: Path, at: int, name: str) -> bool:
    """Returns whether it was killed."""
    shutil.copytree(template, home, symlinks=True)
    child = os.fork()
    if child == 0:
        calls = ScriptedCalls(at, EFFECTS[name])
        Erasure(Home(home), needle=NEEDLE, reason="pasted", calls=calls).carry_out()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    print(json.dumps({"home": os.fspath(home), "killed": killed, "at": at, "effect": name}), flush=True)
    return killed


if __name__ == "__main__":
    main(*sys.argv[1:])
