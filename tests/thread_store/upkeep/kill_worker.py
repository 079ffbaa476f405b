"""The process that dies at each call in turn: makes a home, does a work, and is killed there by itself.

    python -m tests.thread_store.upkeep.kill_worker FOLDER WORK

Of each attempt a home is left in FOLDER: `<number>-before` and `<number>-after`. It forks for each, which is
a hundred times as fast as a new interpreter. It ends when an attempt was not killed any more.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from tests.thread_store.upkeep.interrupted import Cut, dies
from tests.thread_store.upkeep.works import WORKS, place_with
from thread_store.home import Home

__all__: list[str] = []


def main(folder: Path, name: str) -> None:
    work = WORKS[name]
    for after in (False, True):
        for number in count(1):
            home = Home(folder / f"{number:03d}-{'after' if after else 'before'}")
            work.prepare(home)
            if _attempt(home, name, number, after=after) == 0:
                break


def _attempt(home: Home, name: str, number: int, *, after: bool) -> int:
    """The signal that ended it; 0 if it came to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            WORKS[name].do(place_with(home, Cut(number, dies, after=after)))
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "it failed instead"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
