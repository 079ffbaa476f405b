"""What git says of a folder: the commit, the branch and the repository that an agent works in.

Invariant: it answers within its time limit, or not at all; a git that is slow, absent or failing
means no information and never a wrong one. Passwords in a repository's URL are left out.

Asked is git itself, which knows every kind of worktree and reference storage. Blocking.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence

from protocol.meta import GitInfo

__all__ = ["SECONDS_MAX", "find_git_info"]

_log = logging.getLogger("thread_store.git")

SECONDS_MAX = 0.9
"""A thread begins within a second, whatever git does."""

_REAP_SECONDS_MAX = 1.0

_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",  # asking takes no lock in the user's repository
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def find_git_info(folder: str | os.PathLike[str], *, seconds_max: float = SECONDS_MAX) -> GitInfo | None:
    """The commit, branch and origin of the folder's repository; None where there is none or time ran out.

    A part that git doesn't know (no commit yet, a detached head, no origin) is None.
    """
    deadline = time.monotonic() + seconds_max
    asked = [
        _start(folder, "rev-parse", "--is-inside-work-tree"),
        _start(folder, "rev-parse", "--verify", "--quiet", "HEAD"),
        _start(folder, "symbolic-ref", "--quiet", "--short", "HEAD"),
        _start(folder, "config", "--get", "remote.origin.url"),
    ]
    answers = [_finish(process, deadline) for process in asked]
    inside, commit, branch, url = answers
    if inside != "true" or not (commit or branch):
        return None
    return GitInfo(commit, branch, None if url is None else _USER_INFO.sub("", url))


def _start(folder: str | os.PathLike[str], *arguments: str) -> subprocess.Popen[bytes] | None:
    command: Sequence[str] = ("git", "-C", os.fspath(folder), *arguments)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_QUIET},
            start_new_session=True,  # Ctrl-C at the terminal is none of its business
        )
    except OSError as error:  # no git, or no process to be had
        _log.debug("git can't be asked about %s: %s", folder, error)
        return None


def _finish(process: subprocess.Popen[bytes] | None, deadline: float) -> str | None:
    """What it printed; None if it failed, or didn't end in time."""
    if process is None:
        return None
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _log.info("git took too long: no information about the repository is recorded")
        _kill(process)
        return None
    text = output.decode("utf-8", "replace").strip()
    return text or None if process.returncode == 0 else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With whatever it has started. One that hangs in the kernel is left to be waited for later."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)  # not yet waited for: the number is still its own
    else:
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(_REAP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        _log.warning("git (process %d) can't be killed: it waits for a file system", process.pid)
