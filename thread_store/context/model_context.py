"""What the model sees when a thread is resumed: the exact context, and the settings that belong to it.

Invariant: it depends on the bytes of the chain (and of the blobs that they name) alone, and equals what
reading everything from the start and replaying it would give; payloads keep their bytes, with what bounded
storage took out of them put back. It says where it had to leave something out, and why.

From the checkpoint on (`thread_store.context.checkpoint_scan`) records are replayed forward: items are
added; a rollback takes so many of the newest things typed, and all that follows the oldest of them,
whatever the history mode (Codex's display of a paginated thread ignores rollbacks, its model's context does
not); a checkpoint without history leaves what was typed so far, and its message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from msgspec import Raw, Struct

from protocol.codec import encode_value
from protocol.line import RolloutLine
from protocol.own import MemoryItem
from thread_store.chain.lineage import BaseProblem, Lineage, LineageRecord, Place
from thread_store.context.checkpoint_scan import CheckpointScan, Problem, scan_back
from thread_store.context.context_tail import ContextTail, FoundCheckpoint, Summary, TailEntry, TakenBack
from thread_store.context.inlined_items import inline_items
from thread_store.context.model_item import ModelItem, payload_item
from thread_store.home import Home

__all__ = ["DroppedTurns", "ModelContext", "build_model_context", "load_model_context"]


class DroppedTurns(NamedTuple):
    """What a rollback took out of the context: from the first item on, up to the rollback itself."""

    begin: Place | None
    rollback: Place
    turns: int
    """How many; fewer than it asked for, if there were no more."""


class ModelContext(Struct, frozen=True, kw_only=True):
    """The context of a thread's model, and what is known of its settings.

    `whole` says that nothing relevant lies before `examined_from`, except what `memory` tells.
    """

    items: list[ModelItem]
    base: Place | None
    """The checkpoint that it begins with; None if there is none that counts."""
    dropped: tuple[DroppedTurns, ...] = ()
    rolled_back_checkpoints: tuple[Place, ...] = ()
    turn_context: RolloutLine | None = None
    """The newest record of the settings of a turn that was not rolled back; see also `memory`."""
    base_instructions: Any = None
    dynamic_tools: list[Any] | None = None
    usage: RolloutLine | None = None
    """The newest `token_count` or `token_usage_record`; see also `memory`."""
    memory: LineageRecord | None = None
    """The newest `x_memory`: facts older than the checkpoint are in it."""
    memories: tuple[LineageRecord, ...] = ()
    """The newest of them that were met, rolled back or not (`fold_lineage` takes them)."""
    examined_from: Place
    whole: bool
    problems: tuple[Problem, ...] = ()
    """Damaged lines and what else is wrong in the range that was read, newest first; at most 1,000."""
    problem_count: int = 0
    base_problem: BaseProblem | None = None
    """Why the files that the thread rests on can't be read."""

    @property
    def passed_over(self) -> list[Problem]:
        """Newer checkpoints that are damaged or invalid: an older one had to do."""
        return [each for each in self.problems if each.checkpoint]

    @property
    def settings(self) -> Any:
        """The payload of the newest `turn_context` known, as plain values; None if none is."""
        if self.turn_context is not None:
            return self.turn_context.payload_object()
        memory = self._memory_item()
        told = None if memory is None else memory.turn_context
        return told.get("value") if isinstance(told, Mapping) else None

    @property
    def token_usage(self) -> Any:
        """What the newest record known says of tokens used, as plain values; None if there is none."""
        if self.usage is not None:
            return self.usage.payload_object()
        memory = self._memory_item()
        return None if memory is None else memory.usage

    def _memory_item(self) -> MemoryItem | None:
        line = None if self.memory is None else self.memory.record.line
        item = None if line is None else line.item()
        return item if isinstance(item, MemoryItem) else None


def load_model_context(path: str | os.PathLike[str], home: Home, *, deep: bool = False) -> ModelContext:
    """Read the context of a rollout and of what it rests on. Blocks, takes no lock, writes nothing.

    It costs what stands behind the newest checkpoint, whatever the size of the thread; `deep` reads
    everything.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable: the rollout can't be read.
        RolloutReplaced: a file of the chain was replaced meanwhile.
    """
    with Lineage.resolve(path, home) as lineage:
        return build_model_context(lineage, deep=deep)


def build_model_context(lineage: Lineage, *, deep: bool = False) -> ModelContext:
    """Read the context of a thread whose files are known; see `load_model_context`."""
    found = scan_back(lineage, deep=deep)
    replay = _Replay(found.tail)
    items, problems = inline_items(replay.items, lineage)
    instructions, tools = _from_metas(lineage)
    return ModelContext(
        items=items,
        base=None if found.tail.base is None else found.tail.base.place,
        dropped=tuple(replay.dropped),
        rolled_back_checkpoints=tuple(found.tail.rolled_back),
        turn_context=found.turn_context,
        base_instructions=instructions,
        dynamic_tools=_newest_tools(found, tools),
        usage=found.usage,
        memory=found.memory,
        memories=tuple(found.memories),
        examined_from=found.examined_from,
        whole=found.whole,
        problems=(*found.problems, *problems),
        problem_count=found.problem_count + len(problems),
        base_problem=lineage.problem,
    )


class _Replay:
    """The context so far, forward from the checkpoint."""

    def __init__(self, tail: ContextTail) -> None:
        self.items: list[ModelItem] = []
        self.dropped: list[DroppedTurns] = []
        self._turns: list[int] = []
        """Where in `items` those stand that a rollback counts: recorded, behind the checkpoint."""
        self._first_typed: int | None = None
        """Where the first stands that begins a turn, wherever it came from."""
        self._summaries: set[str] = set()
        """What checkpoints put there in the user's name; nobody typed it."""
        if tail.base is not None:
            self._begin(tail.base)
        if tail.has_cuts:
            for entry in tail.entries:
                self._take(entry)
        else:
            self.items += cast("list[ModelItem]", tail.entries)

    def _begin(self, base: FoundCheckpoint) -> None:
        self._summaries.add(base.checkpoint.message)
        for payload in base.checkpoint.history or ():
            item = payload_item(payload, *base.place)
            if item is not None:
                self._add(item)

    def _take(self, entry: TailEntry) -> None:
        if isinstance(entry, ModelItem):
            if entry.begins_turn:
                self._turns.append(len(self.items))
            self._add(entry)
        elif isinstance(entry, TakenBack):
            self._roll_back(entry)
        else:
            self._compact(entry)

    def _add(self, item: ModelItem) -> None:
        if self._first_typed is None and item.begins_turn:
            self._first_typed = len(self.items)
        self.items.append(item)

    def _roll_back(self, taken: TakenBack) -> None:
        """Before the oldest turn that goes, what a program put there for it goes too; what stood before the
        very first one stays."""
        turns, items = self._turns, self.items
        count = min(taken.turns, len(turns))
        if count == 0:
            return
        cut = turns[-count]
        if cut == self._first_typed:
            self._first_typed = None
        else:
            while items[cut - 1].is_injected:
                cut -= 1
        self.dropped.append(DroppedTurns(items[cut].place, taken.place, count))
        del items[cut:], turns[-count:]

    def _compact(self, summary: Summary) -> None:
        messages = [each for each in self.items if each.begins_turn and each.kind == "message"]
        typed = [each for each in messages if each.text not in self._summaries]
        self._summaries.add(summary.message)
        content = [{"type": "input_text", "text": summary.message}]
        payload = encode_value({"type": "message", "role": "user", "content": content})
        made = payload_item(Raw(payload), *summary.place)
        assert made is not None
        self._turns.clear()
        self._first_typed = 0
        self.items = [*typed, made]


def _from_metas(lineage: Lineage) -> tuple[Any, list[Any] | None]:
    """Base instructions and tools: of the youngest file whose meta names one of them."""
    for index in range(lineage.end.segment, -1, -1):
        with lineage.open(index) as file:
            meta = file.meta
        if meta.base_instructions is not None or meta.dynamic_tools is not None:
            return meta.base_instructions, meta.dynamic_tools
    return None, None


def _newest_tools(found: CheckpointScan, of_meta: list[Any] | None) -> list[Any] | None:
    update = None if found.tools_update is None else found.tools_update.payload_object()
    updated = update.get("tools") if isinstance(update, dict) else None
    if isinstance(updated, list):
        return updated
    known = None if found.tail.base is None else found.tail.base.checkpoint.dynamic_tools
    return of_meta if known is None else known
