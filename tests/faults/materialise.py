"""States of the disk model, put on a real disk.

Invariant: what tells of a file by its inode (the journals of deletions and erasures) tells of the file that
takes its place here: a power cut doesn't give files other inodes, but this does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.disk_model import State

__all__ = ["materialise"]


def materialise(state: State, root: Path) -> None:
    """Make the tree below a folder that is empty."""
    for name in sorted(state, key=lambda each: each.count("/")):
        content, path = state[name], root / name
        if content is None:
            path.mkdir(mode=0o700)
        else:
            path.write_bytes(content)
    for path in root.glob("*/thread-store/deleting/*.json"):
        _patch(path, lambda data, home=path.parents[2]: _name_doomed(data, home))
    for path in root.glob("*/thread-store/kept/*.erasing"):
        _patch(path, _name_erased)


def _patch(path: Path, change: Callable[[bytes], bytes]) -> None:
    """One that isn't whole stays as it is: what the product makes of it is judged."""
    try:
        path.write_bytes(change(path.read_bytes()))
    except (ValueError, LookupError, TypeError):
        return


def _name_doomed(data: bytes, home: Path) -> bytes:
    journal = json.loads(data)
    for thread in journal["threads"]:
        for file in [*thread["rollouts"], *thread["others"]]:
            status = _status(home / file[0])
            if status is not None:
                file[1:] = [status.st_dev, status.st_ino, file[3], status.st_mtime_ns]
    return json.dumps(journal).encode() + b"\n"


def _name_erased(data: bytes) -> bytes:
    digest, _, content = data.partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        return data
    head, *files = [json.loads(each) for each in content.splitlines()]
    for file in files:
        _name_inode(file)
    content = b"".join(json.dumps(each).encode() + b"\n" for each in (head, *files))
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _name_inode(file: dict[str, Any]) -> None:
    status = _status(Path(file["path"]))
    if status is not None:
        file["device"], file["inode"] = status.st_dev, status.st_ino


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
