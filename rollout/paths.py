"""Names of rollout files: when a rollout was begun and whose it is (FORMAT.md, Files).

Invariant: every name made here matches `rollout-YYYY-MM-DDThh-mm-ss-<uuid>[_<uuid>].jsonl`,
and `RolloutName.parse(name.text) == name`. An id has gone through `ThreadId.parse` before it
stands in a name, so a name never leads out of its folder. The time is local, as Codex writes
it, and the date folders come from the same time. Nothing here touches a disk.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from protocol.errors import NotARollout
from protocol.ids import ThreadId

__all__ = ["ARCHIVED_FOLDER", "SESSIONS_FOLDER", "RolloutName"]

SESSIONS_FOLDER = "sessions"
ARCHIVED_FOLDER = "archived_sessions"

_STAMP_FORMAT = "%Y-%m-%dT%H-%M-%S"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
# Read from the right: whatever stands between the prefix and the ids is the stamp.
_NAME = re.compile(
    rf"rollout-(?P<stamp>[^/\\\0]*)-(?P<thread>{_UUID})(?:_(?P<rollout>{_UUID}))?\.jsonl(?P<zst>\.zst)?\Z",
    re.DOTALL,
)


class RolloutName(NamedTuple):
    """The parts of a rollout's file name.

    `stamp` is the local time as it stands in the name; names made here always hold one that
    `created` can read. `rollout_id` is None for the first rollout of a thread and names one
    file of it after a revert.
    """

    stamp: str
    thread_id: ThreadId
    rollout_id: ThreadId | None = None
    compressed: bool = False

    @classmethod
    def make(cls, thread_id: str, *, created: datetime, rollout_id: str | None = None) -> RolloutName:
        """Name a new rollout. `created` is taken as local time, an aware one is converted.

        Raises:
            InvalidThreadId: an id is no UUID (a path, a prefix, an empty string).
        """
        local = created if created.tzinfo is None else created.astimezone()
        return cls(
            stamp=f"{local.year:04d}{local.strftime(_STAMP_FORMAT[2:])}",
            thread_id=ThreadId.parse(thread_id),
            rollout_id=None if rollout_id is None else ThreadId.parse(rollout_id),
        )

    @classmethod
    def match(cls, text: str) -> RolloutName | None:
        """Read a file name (without folder); None if it is no rollout's."""
        found = _NAME.match(text)
        if found is None:
            return None
        rollout_id = found["rollout"]
        return cls(
            stamp=found["stamp"],
            thread_id=ThreadId.parse(found["thread"]),
            rollout_id=None if rollout_id is None else ThreadId.parse(rollout_id),
            compressed=found["zst"] is not None,
        )

    @classmethod
    def parse(cls, text: str) -> RolloutName:
        """Read a file name (without folder).

        Raises:
            NotARollout: it is not of the form `rollout-<time>-<uuid>[_<uuid>].jsonl[.zst]`.
        """
        name = cls.match(text)
        if name is None:
            raise NotARollout(
                path=text, reason="its name is not of the form rollout-<time>-<uuid>[_<uuid>].jsonl[.zst]"
            )
        return name

    @property
    def text(self) -> str:
        """The file name."""
        ids = self.thread_id if self.rollout_id is None else f"{self.thread_id}_{self.rollout_id}"
        return f"rollout-{self.stamp}-{ids}.jsonl{'.zst' if self.compressed else ''}"

    @property
    def created(self) -> datetime | None:
        """The local time in the name, without a zone; None if another program wrote something else."""
        try:
            return datetime.strptime(self.stamp, _STAMP_FORMAT)
        except ValueError:
            return None

    @property
    def folder(self) -> str:
        """Where a live rollout of this name belongs below its home: `sessions/YYYY/MM/DD`.

        Raises:
            NotARollout: the name holds no time.
        """
        created = self.created
        if created is None:
            raise NotARollout(path=self.text, reason=f"its name holds no time but {self.stamp!r}")
        return f"{SESSIONS_FOLDER}/{created.year:04d}/{created.month:02d}/{created.day:02d}"
