"""A model of a disk under a file system: what a power cut may leave of what a process wrote.

Invariant: `volatile()` is what a reader sees now (the page cache), and what is left when only the
process dies. `crash_states()` are states that ext4, xfs or btrfs may leave when the power goes.

The rules, each taken at its harshest:
* A write reaches the disk by sectors of 512 bytes, each on its own, in any order, whole.
* The size of a file follows apart from its data: where it grew first, there are zeros.
* A sync that succeeds covers what was written before it began. After one that failed the sectors
  count as clean, though they may be lost: no later sync brings them out, unless they are written again.
* A name (made, linked, renamed, removed) is on the disk when its folder was synced; until then the
  changes of a folder reach it in their order, of two folders independently. But what was renamed from one
  folder into another is never gone from both: journals make that one step, though both may have it.
* What was cut off does not come back together with a later size.

With `names_follow` one rule is milder, as in ext4, xfs and btrfs: the sync of a file brings its name
out too, and the names of the folders above it. POSIX promises no such thing.
"""

from __future__ import annotations

import enum
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.shim import Call

__all__ = ["SECTOR_BYTES", "DiskModel", "Loss", "State"]

SECTOR_BYTES = 512

State = dict[str, bytes | None]
"""A tree: the content of each file by its path relative to the root; of a folder None."""


class Loss(enum.StrEnum):
    """What kind of damage a state has. `PROCESS`: none, only the process died."""

    PROCESS = "process"
    LOST = "lost"
    TORN = "torn"
    ZEROS = "zeros"
    BLOCKS = "blocks"
    NAMES = "names"
    RANDOM = "random"


def _sectors(begin: int, end: int) -> range:
    return range(begin // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)


class _File:
    """One inode."""

    def __init__(self, content: bytes = b"") -> None:
        self.versions = [content]
        """The content after each change; the first one is on the disk."""
        self.synced_size = 0
        """The version whose size is on the disk for sure."""
        self.image = bytearray(content)
        """What is on the disk for sure, as far as it goes."""
        self._image_versions: dict[int, int] = {}
        self.later: dict[int, list[int]] = {}
        """By sector: versions that may have replaced what `image` has."""
        self._dirty: dict[int, int] = {}
        """By sector: the newest version that the next sync has to bring out."""
        self._cuts: list[tuple[int, int]] = []
        """Versions that made the file shorter, and how short."""
        self.lost_clean = False
        """A sync failed: some of `later` is clean in the cache and may never come out."""

    @property
    def content(self) -> bytes:
        return self.versions[-1]

    @property
    def is_clean(self) -> bool:
        return not self.later and self.synced_size == len(self.versions) - 1

    def write(self, offset: int, data: bytes) -> None:
        old = self.content
        grown = old.ljust(offset, b"\0")
        self.versions.append(grown[:offset] + data + grown[offset + len(data) :])
        self._touch(offset, offset + len(data))

    def cut(self, size: int) -> None:
        old = self.content
        self.versions.append(old[:size].ljust(size, b"\0"))
        if size < len(old):
            self._cuts.append((len(self.versions) - 1, size))
            self._touch(size, len(old))

    def _touch(self, begin: int, end: int) -> None:
        version = len(self.versions) - 1
        for sector in _sectors(begin, end):
            self.later.setdefault(sector, []).append(version)
            self._dirty[sector] = version

    def begin_sync(self) -> tuple[int, frozenset[int]]:
        """What the sync that begins now will cover."""
        return len(self.versions) - 1, frozenset(self._dirty)

    def end_sync(self, covered: tuple[int, frozenset[int]], *, succeeded: bool) -> None:
        version, sectors = covered
        for sector in sectors:
            if self._dirty.get(sector, version + 1) <= version:
                del self._dirty[sector]
        if not succeeded:
            self.lost_clean = True
            return
        content = self.versions[version]
        for sector in sectors:
            self._put(sector, content)
            self._image_versions[sector] = version
            newer = [each for each in self.later.pop(sector, ()) if each > version]
            if newer:
                self.later[sector] = newer
        self.synced_size = max(self.synced_size, version)

    def _put(self, sector: int, content: bytes) -> None:
        begin = sector * SECTOR_BYTES
        part = content[begin : begin + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
        if len(self.image) < begin + SECTOR_BYTES:
            self.image.extend(bytes(begin + SECTOR_BYTES - len(self.image)))
        self.image[begin : begin + SECTOR_BYTES] = part

    def build(self, size_version: int, size: int, choices: dict[int, int]) -> bytes:
        """The content with the size of one version and, by sector, the bytes of others."""
        built = bytearray(self.image[:size].ljust(size, b"\0"))
        for sector, version in choices.items():
            begin = sector * SECTOR_BYTES
            if begin < size:
                part = self.versions[version][begin : begin + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
                built[begin : begin + SECTOR_BYTES] = part[: size - begin]
        for version, end in self._cuts:
            if version <= size_version and end < size:
                self._clear_cut(built, version, end, choices)
        return bytes(built)

    def _clear_cut(self, built: bytearray, version: int, end: int, choices: dict[int, int]) -> None:
        """What was cut off is gone with the size, whatever became of its sectors."""
        for sector in _sectors(end, len(built)):
            if choices.get(sector, self._image_versions.get(sector, 0)) < version:
                begin, stop = max(end, sector * SECTOR_BYTES), min(len(built), (sector + 1) * SECTOR_BYTES)
                built[begin:stop] = bytes(stop - begin)

    def newest(self, *, leave_out: frozenset[int] = frozenset(), upto: int | None = None) -> dict[int, int]:
        """By sector the newest version, not beyond `upto`, except for those left out."""
        choices = {}
        for sector, versions in self.later.items():
            fitting = [each for each in versions if upto is None or each <= upto]
            if fitting and sector not in leave_out:
                choices[sector] = fitting[-1]
        return choices

    def some_size(self, rng: random.Random) -> tuple[int, int]:
        """A version, and a size that the file had on its way to it."""
        version = rng.randint(self.synced_size, len(self.versions) - 1)
        size = len(self.versions[version])
        before = len(self.versions[max(version - 1, self.synced_size)])
        if size - before > SECTOR_BYTES and rng.random() < 0.5:
            steps = _sectors(before, size)
            size = min(size, rng.choice(steps) * SECTOR_BYTES + SECTOR_BYTES)
        return version, size


class _Folder:
    """The names in one folder."""

    def __init__(self, entries: dict[str, _File | None] | None = None) -> None:
        self.versions = [entries or {}]
        """After each change; the first one is on the disk."""
        self.synced = 0

    def change(self) -> dict[str, _File | None]:
        """A new version of the entries, to be changed by the caller."""
        self.versions.append(dict(self.versions[-1]))
        return self.versions[-1]


class _Move(NamedTuple):
    """A rename from one folder into another: the versions of their entries that it made."""

    old: str
    left: int
    new: str
    came: int


class DiskModel:
    """The tree below one folder. Feed it the calls of a log, one after the other."""

    def __init__(self, root: str) -> None:
        self.names_follow = False
        self._root = root
        self._folders: dict[str, _Folder] = {"": _Folder()}
        self._files: dict[int, _File] = {}
        self._syncs: dict[tuple[str, int, int], tuple[int, frozenset[int]] | int] = {}
        self._moves: list[_Move] = []

    @classmethod
    def of_folder(cls, root: Path) -> DiskModel:
        """The tree as it stands, all of it on stable storage."""
        model = cls(os.fspath(root))
        for folder, folders, files in os.walk(root):
            entries: dict[str, _File | None] = dict.fromkeys(folders)
            for name in files:
                path = Path(folder, name)
                entries[name] = model._files[path.stat().st_ino] = _File(path.read_bytes())
            model._folders[model._relative(folder)] = _Folder(entries)
        return model

    def _relative(self, path: str) -> str:
        return path[len(self._root) :].strip("/")

    # What happens

    def apply(self, call: Call) -> bool:
        """Take in one call. True if the tree, or what is safe of it, may have changed."""
        if call.name in ("fdatasync", "fsync"):
            return self._sync(call)
        if not call.happened:
            return False
        changer = getattr(self, f"_apply_{call.name}", None)
        if changer is None:
            return False
        changer(call)
        return True

    def _entries(self, path: str) -> tuple[dict[str, _File | None], str]:
        """A fresh version of the entries of the folder that holds `path`, and the name there."""
        folder, _, name = self._relative(path).rpartition("/")
        return self._folders[folder].change(), name

    def _apply_open(self, call: Call) -> None:
        if call.created:
            entries, name = self._entries(call.path)
            entries[name] = self._files[call.inode] = _File()
        elif call.size & os.O_TRUNC and call.inode in self._files:
            self._files[call.inode].cut(0)

    def _apply_write(self, call: Call) -> None:
        if call.data:
            self._files[call.inode].write(call.offset, call.data)

    _apply_pwrite = _apply_copy_file_range = _apply_sendfile = _apply_write

    def _apply_ftruncate(self, call: Call) -> None:
        self._files[call.inode].cut(call.size)

    def _apply_link(self, call: Call) -> None:
        entries, name = self._entries(call.second_path)
        entries[name] = self._files[call.inode]

    def _apply_unlink(self, call: Call) -> None:
        entries, name = self._entries(call.path)
        del entries[name]

    def _apply_rename(self, call: Call) -> None:
        entries, name = self._entries(call.path)
        moved = entries.pop(name)
        old_folder = self._relative(call.path).rpartition("/")[0]
        folder, _, new_name = self._relative(call.second_path).rpartition("/")
        if folder != old_folder:
            entries = self._folders[folder].change()
            left, came = len(self._folders[old_folder].versions) - 1, len(self._folders[folder].versions) - 1
            self._moves.append(_Move(old_folder, left, folder, came))
        entries[new_name] = moved

    def _apply_mkdir(self, call: Call) -> None:
        entries, name = self._entries(call.path)
        entries[name] = None
        self._folders[self._relative(call.path)] = _Folder()

    def _sync(self, call: Call) -> bool:
        key = (call.name, call.nth, call.inode)
        folder = self._folders.get(self._relative(call.path))
        file = self._files.get(call.inode)
        if folder is not None:
            if call.begins:
                self._syncs[key] = len(folder.versions) - 1
            elif key in self._syncs and call.happened:
                covered = self._syncs.pop(key)
                assert isinstance(covered, int)
                folder.synced = max(folder.synced, covered)
                self._settle_moves()
        elif file is not None:
            if call.begins:
                self._syncs[key] = file.begin_sync()
            elif key in self._syncs:
                covered = self._syncs.pop(key)
                assert isinstance(covered, tuple)
                if call.happened and self.names_follow:
                    self._sync_names(self._relative(call.path))
                if call.happened or call.errno != errno.EINTR:  # a signal writes nothing and loses nothing
                    file.end_sync(covered, succeeded=call.happened)
        return True

    def _sync_names(self, path: str) -> None:
        while path:
            path = path.rpartition("/")[0]
            folder = self._folders[path]
            folder.synced = len(folder.versions) - 1
        self._settle_moves()

    def _settle_moves(self) -> None:
        """Where a name is gone for sure, the one that took its place is there for sure."""
        for move in self._moves:
            if self._folders[move.old].synced >= move.left:
                self._folders[move.new].synced = max(self._folders[move.new].synced, move.came)

    # What is there

    def volatile(self) -> State:
        """What a reader sees, and what is left when the process dies."""
        return self._tree({}, lambda file: file.content)

    def secure(self) -> State:
        """The poorest state after a power cut: only what syncs have covered."""
        cuts = {path: folder.synced for path, folder in self._folders.items()}
        return self._tree(
            cuts, lambda file: file.build(file.synced_size, len(file.versions[file.synced_size]), {})
        )

    @property
    def is_secure(self) -> bool:
        """A power cut now would change nothing."""
        return all(folder.synced == len(folder.versions) - 1 for folder in self._folders.values()) and all(
            file.is_clean for file in self._files.values()
        )

    def _tree(self, versions: dict[str, int], content_of: Callable[[_File], bytes]) -> State:
        state: State = {}
        todo = [""]
        while todo:
            folder = todo.pop()
            made = self._folders[folder]
            for name, file in made.versions[versions.get(folder, len(made.versions) - 1)].items():
                path = f"{folder}/{name}".strip("/")
                if file is None:
                    state[path] = None
                    todo.append(path)
                else:
                    state[path] = content_of(file)
        return state

    def crash_states(self, rng: random.Random, count: int) -> Iterator[tuple[Loss, State]]:
        """Extremes of each kind, then random mixtures; some may be equal."""
        yield Loss.LOST, self.secure()
        files = [file for file in self._files.values() if not file.is_clean]
        if files:
            yield Loss.ZEROS, self._tree({}, lambda f: f.build(len(f.versions) - 1, len(f.content), {}))
            for _ in range(count // 4):
                yield Loss.TORN, self._torn(rng)
                yield Loss.BLOCKS, self._blocks(rng)
        if any(folder.synced < len(folder.versions) - 1 for folder in self._folders.values()):
            for _ in range(max(1, count // 8)):
                yield Loss.NAMES, self._tree(self._some_names(rng), lambda f: f.content)
        for _ in range(count // 2):
            yield Loss.RANDOM, self._tree(self._some_names(rng), lambda f: self._some_content(f, rng))

    def _torn(self, rng: random.Random) -> State:
        """Everything came out in its order, up to some sector."""

        def content(file: _File) -> bytes:
            version, size = file.some_size(rng)
            return file.build(version, size, file.newest(upto=version))

        return self._tree({}, content)

    def _blocks(self, rng: random.Random) -> State:
        """Everything came out but for a few sectors."""

        def content(file: _File) -> bytes:
            sectors = sorted(file.later)
            missing = frozenset(rng.sample(sectors, min(len(sectors), rng.randint(1, 3))))
            return file.build(len(file.versions) - 1, len(file.content), file.newest(leave_out=missing))

        return self._tree({}, content)

    def _some_names(self, rng: random.Random) -> dict[str, int]:
        chosen = {
            path: rng.randint(folder.synced, len(folder.versions) - 1)
            for path, folder in self._folders.items()
        }
        for move in self._moves:
            if chosen[move.old] >= move.left:
                chosen[move.new] = max(chosen[move.new], move.came)
        return chosen

    @staticmethod
    def _some_content(file: _File, rng: random.Random) -> bytes:
        version, size = file.some_size(rng)
        share = rng.random()
        choices = {
            sector: rng.choice(versions) for sector, versions in file.later.items() if rng.random() < share
        }
        return file.build(version, size, choices)
