"""The rollout files of a home by their ids: which file a base means.

Invariant: an id becomes no path. It is compared with the ids in the names of files that are there.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from protocol.errors import InvalidThreadId
from protocol.ids import ThreadId
from rollout.paths import SESSIONS_FOLDER, RolloutName
from thread_store.home import Home

__all__ = ["RolloutFiles"]

_LAST_SECOND = 4102444800
"""The year 2100: ids that claim to be of later are of another version, or random."""


class RolloutFiles:
    """The rollout files of a home by rollout id. A live file before an archived one.

    An id tells when it was made, so most files are found in the folder of that day; the names of the
    whole home are looked through only for the others, and once.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self._by_id: dict[ThreadId, Path] | None = None

    def find(self, rollout_id: str) -> Path | None:
        """The file of that id; None if the home has none.

        Raises:
            RolloutUnreadable: it was not found, and a folder of the home can't be listed.
        """
        try:
            wanted = ThreadId.parse(rollout_id)
        except InvalidThreadId:
            return None
        found = self._find_by_day(wanted) or self._all().get(wanted)
        if found is None and self.home.passed_over:
            raise self.home.passed_over[0]
        return found

    def _find_by_day(self, wanted: ThreadId) -> Path | None:
        """Local time may be that of another place: the days beside it are looked at too."""
        made_at = int(wanted[:8] + wanted[9:13], 16) / 1000
        if made_at > _LAST_SECOND:
            return None
        for days in (0, -1, 1):
            day = datetime.fromtimestamp(made_at) + timedelta(days=days)
            folder = self.home.path / SESSIONS_FOLDER / day.strftime("%Y/%m/%d")
            names = sorted(_names_in(folder))  # a plain file before its compressed twin
            for name in names:
                found = RolloutName.match(name)
                if found is not None and (found.rollout_id or found.thread_id) == wanted:
                    return folder / name
        return None

    def _all(self) -> dict[ThreadId, Path]:
        if self._by_id is None:
            self._by_id = {}
            for found in self.home.rollouts():
                self._by_id.setdefault(found.name.rollout_id or found.name.thread_id, found.path)
        return self._by_id


def _names_in(folder: Path) -> list[str]:
    """Regular files alone. None if the folder can't be listed: the look through the whole home tells why."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
