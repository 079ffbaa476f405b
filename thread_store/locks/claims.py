"""Claims: the exclusive right to remove or replace one lease, among any number of processes.

There is no compare-and-swap for names: between reading a dead lease and unlinking it, somebody else may
have put a live one in its place. So whoever wants to touch the lease of key K first makes the *marker*
of K, a file whose name holds K and whose text names its maker; link(2) lets only one of many succeed.
Then it reads the path again, and acts only if K still stands there.

Why nobody is ever in another's way, and why the dead are not either:

1. K leaves the path only by the hand of who has the right to K, and never comes back (`lease_file`).
   So while the right is held, what stands at the path stays; and once K is gone, every marker that
   was made for it means nothing and may be removed by anybody at any time.
2. A maker that died leaves its marker behind. It is not removed, because two who try would be where
   we began. It is *succeeded*: a claim has a token of its own, and the marker named after that token is the
   right to act in the dead one's place. So the rights to K form a chain of names, each made
   exclusively, each of whose earlier makers is dead: at most the last one acts.
3. A live maker may give up and remove its own marker while K stands. Who judged it dead from an older look
   finds that out: after making its own marker it looks at all earlier ones again, and if one
   of them is not as it was, removes its own and begins anew. The marker of a maker that is really dead
   stays as long as K does, so this second look is final.

A maker that was stopped keeps its right: it is alive, and everybody is told so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from protocol.errors import ActiveWriter, InvalidThreadId
from protocol.ids import ThreadId
from thread_store.locks.calls import LockCalls
from thread_store.locks.folder import LockFolder
from thread_store.locks.holder import Verdict, describe_self
from thread_store.locks.lease_file import Standing, look_at, may_act, publish, remove_quietly, temporary

__all__ = ["Claim", "Claims"]

_MARKER = ".claim"


class Claim(NamedTuple):
    """The right to one lease. `earlier`: markers of makers that are dead, and the keys of those makers."""

    marker: str
    earlier: tuple[tuple[str, str], ...]


class Claims:
    """The claims in one folder."""

    def __init__(self, folder: LockFolder, calls: LockCalls) -> None:
        self._folder = folder
        self._calls = calls

    def take(self, thread_id: ThreadId, key: str) -> Claim | None:
        """Get the right to the thread's lease of this key. None: things changed; look at the lease again.

        Raises:
            ActiveWriter: a live process has it, and is about to change the lease.
        """
        with temporary(self._calls, self._folder.path, describe_self(fence=0, lease=True)) as source:
            claim = self._follow(thread_id, key, source)
        if claim is None:
            return None
        try:
            valid = all(self._stands(marker, maker) for marker, maker in claim.earlier)
        except BaseException:
            self.end(claim, gone=False)
            raise
        if not valid:
            self.end(claim, gone=False)
        return claim if valid else None

    def _follow(self, thread_id: ThreadId, key: str, source: str) -> Claim | None:
        """Make the first marker of the chain that isn't there yet."""
        earlier: list[tuple[str, str]] = []
        while True:
            marker = self._marker(thread_id, key)
            if publish(self._calls, source, marker):
                return Claim(marker, tuple(earlier))
            maker = look_at(self._calls, marker)
            if maker is None:
                return None
            if may_act(maker) is not Verdict.DEAD:
                raise ActiveWriter(path=marker, holder=maker.writer, thread_id=thread_id)
            earlier.append((marker, key := maker.key))

    def _stands(self, marker: str, maker: str) -> bool:
        found: Standing | None = look_at(self._calls, marker)
        return found is not None and found.key == maker

    def end(self, claim: Claim, *, gone: bool) -> None:
        """Give the right up. `gone`: its lease left the path, so the whole chain means nothing any more."""
        if gone:
            for marker, _ in claim.earlier:
                remove_quietly(self._calls, marker)
        remove_quietly(self._calls, claim.marker)

    def _marker(self, thread_id: ThreadId, key: str) -> str:
        return os.path.join(self._folder.path, f"{thread_id}.{key}{_MARKER}")

    def sweep(self, names: Iterable[str]) -> None:
        """Remove those of the markers in `names` that mean nothing any more.

        The names were listed before: the lease that stands now is looked at afterwards, so that a marker that
        isn't of its chain is of a lease that is gone for good.
        """
        markers: dict[ThreadId, set[str]] = {}
        for name in names:
            thread_id = _thread_of(name)
            if thread_id is not None:
                markers.setdefault(thread_id, set()).add(os.path.join(self._folder.path, name))
        for thread_id, listed in markers.items():
            for marker in listed - self._chain(thread_id):
                remove_quietly(self._calls, marker)

    def _chain(self, thread_id: ThreadId) -> set[str]:
        """The markers that stand for the lease that stands now."""
        found: set[str] = set()
        standing = look_at(self._calls, self._folder.lock_path(thread_id))
        while standing is not None:
            marker = self._marker(thread_id, standing.key)
            found.add(marker)
            standing = look_at(self._calls, marker)
        return found


def _thread_of(name: str) -> ThreadId | None:
    """Of a marker, the thread; None: it is no marker."""
    thread_id, _, rest = name.partition(".")
    if not rest.endswith(_MARKER):
        return None
    try:
        return ThreadId.parse(thread_id)
    except InvalidThreadId:  # somebody else's file
        return None
