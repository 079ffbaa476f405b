"""Resume state: all that an agent needs to go on with a thread, and what stands against it.

Invariant: it is a pure function of the bytes of the chain, the same whether it was folded on from an
`x_memory` or from the start; only refusals of the surroundings are added to it by whoever loads it.
It can be written as JSON and read back, with payloads byte for byte.

Theory of operation. One pass back finds the context and the `x_memory` records on the way; one forward
from the newest of those that fits folds what was recorded since. An unfinished last line is looked at
too: a valid one counts, as it will once the thread is opened; a torn one is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from protocol.approvals import Approval
from protocol.checks import Check
from protocol.damage import Damage
from protocol.meta import GitInfo, SessionMeta
from protocol.plans import Todo
from protocol.session_memory import SessionMemory
from protocol.thread_facts import Setting, Usage
from protocol.tool_calls import ToolCall
from protocol.tool_safety import DEFAULT_TOOL_SAFETY, ToolSafety
from thread_store.chain.lineage import BaseProblem, Lineage, Place
from thread_store.context.model_context import DroppedTurns, ModelContext, build_model_context
from thread_store.context.model_item import ModelItem
from thread_store.context.model_view import ModelView, valid_view
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.fold_range import take_record
from thread_store.folding.thread_folding import FoldedThread, fold_lineage
from thread_store.home import Home
from thread_store.resume.resume_json import decode_state, encode_state
from thread_store.resume.resume_outputs import missing_outputs
from thread_store.resume.resume_refusals import Refusal, bytes_refusals, refuse, split_allowed
from thread_store.resume.resume_text import explain_state

if TYPE_CHECKING:
    from thread_store.resume.resume_host import ResumeHost

__all__ = [
    "LookedBack",
    "ResumeState",
    "build_resume_state",
    "look_back",
    "read_resume_state",
    "state_of_look",
]


class ResumeState(Struct, frozen=True, kw_only=True):
    """What a thread is at its end. Offsets are bytes of the file of their segment."""

    thread_id: str | None
    path: str
    """Its current rollout."""
    rollout_ids: tuple[str | None, ...]
    """Of the files that its history is made of, oldest first."""
    history_mode: str
    cwd: str
    git: GitInfo | None
    """The repository as it was when the thread began."""
    task: Any
    """The contract that the agent was given (`x_task`)."""

    items: list[ModelItem]
    """What the model saw, as it was recorded; see `view`."""
    checkpoint: Place | None
    """The checkpoint that the items begin with."""
    passed_over: tuple[Place, ...] = ()
    """Newer checkpoints that are damaged or invalid: an older one had to do."""
    dropped: tuple[DroppedTurns, ...] = ()
    settings: Any = None
    """The newest `turn_context`."""
    thread_settings: Any = None
    base_instructions: Any = None
    dynamic_tools: list[Any] | None = None
    usage: Usage | None = None
    """Tokens used."""

    turn_id: str | None = None
    """The turn that was not ended."""
    epoch: int | None = None
    """Counts the writers so far."""
    calls: list[ToolCall] = []
    """Those whose end is known, as many as are kept, in the order of their ends; then the open ones."""
    approvals: list[Approval] = []
    checks: list[Check] = []
    damage: list[Damage] = []
    memory: SessionMemory
    files: dict[str, dict[str, Any]] = {}
    """By path, the files that the agent read: size, time and hash as they were then."""
    agents: dict[str, dict[str, Any]] = {}
    """By thread id, its sub-agents: what each did last."""

    examined_from: Place
    """Where the range begins that was looked at, directly or by an `x_memory`."""
    whole: bool
    """Whether there is nothing older."""
    base_problem: BaseProblem | None = None
    refusals: tuple[Refusal, ...] = ()
    """What stands against going on automatically."""
    waived: tuple[Refusal, ...] = ()
    """What stood against it, and was allowed by name."""

    @property
    def state(self) -> str | None:
        """Where the newest `x_state` went."""
        return self.memory.state

    @property
    def todos(self) -> list[Todo]:
        """The steps of the newest plan."""
        return self.memory.todos

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls whose end is not known: pending and uncertain ones."""
        return [each for each in self.calls if each.is_open]

    def can_name(self, call: ToolCall) -> bool:
        """Whether a record with the id and the turn of an open call would surely mean that one. It need not
        for a call outside any turn, while a turn is open and another call has its id."""
        if call.turn_id is not None or self.turn_id is None:
            return True
        return all(each is call or each.call_id != call.call_id for each in self.calls)

    @property
    def pending_approvals(self) -> list[Approval]:
        """Questions without an answer: a resume withdraws them, so that they are asked again."""
        return [each for each in self.approvals if each.state == "requested"]

    @property
    def standing_approvals(self) -> list[Approval]:
        """Consents for the session or as a rule, which outlive a resume where the policy lets them."""
        lasting = ("session", "rule")
        return [each for each in self.approvals if each.state == "approved" and each.scope in lasting]

    @property
    def can_resume(self) -> bool:
        """Whether nothing stands against going on automatically."""
        return not self.refusals

    def view(self) -> ModelView:
        """The items as a model takes them: each call has a result, which says what is known of it."""
        return valid_view(self.items, outputs=missing_outputs(self.items, self.calls))

    def with_refusals(self, more: Iterable[Refusal]) -> ResumeState:
        """The same with what the surroundings say against it."""
        return structs.replace(self, refusals=(*self.refusals, *more))

    def allowing(self, allow: Iterable[str]) -> ResumeState:
        """The same once its caller said which reasons don't count.

        Raises:
            ResumeRefused: others are left.
            ValueError: `allow` names something that is no reason, or can't be waived.
        """
        standing, waived = split_allowed(self.refusals, allow)
        if standing:
            raise refuse(standing, thread_id=self.thread_id, path=self.path)
        return structs.replace(self, refusals=(), waived=(*self.waived, *waived))

    def apply_to(self, host: ResumeHost, *, allow: Iterable[str] = ()) -> None:
        """Hand everything to an agent framework, part by part (`ResumeHost`).

        Raises:
            ResumeRefused: something stands against it that `allow` doesn't name; the host was given nothing.
            ValueError: `allow` names something that is no reason, or can't be waived.
        """
        self.allowing(allow)
        host.restore_task(self.task)
        host.restore_history(self.view(), self.checkpoint)
        host.restore_calls(self.calls)
        host.restore_todos(self.todos)
        host.restore_files(self.files)
        host.restore_memory(self.memory)
        host.restore_agents(self.agents)

    def explain(self) -> str:
        """For people: what would be resumed, what is open, and why it isn't done automatically."""
        return explain_state(self)

    def to_json(self) -> bytes:
        """As one JSON object."""
        return encode_state(self)

    @classmethod
    def from_json(cls, data: bytes) -> ResumeState:
        """From what `to_json` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        return decode_state(data, cls)


def read_resume_state(
    path: str | os.PathLike[str],
    home: Home,
    *,
    deep: bool = False,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    derived: DerivedSnapshots | None = None,
) -> ResumeState:
    """The state of a rollout and of what it rests on. Blocks, takes no lock, writes nothing, and knows
    nothing of the surroundings. `derived`: the snapshots of its home, which may save a part of the way.

    Raises:
        ThreadNotFound, NotARollout, RolloutUnreadable, RolloutReplaced: it can't be read.
    """
    with Lineage.resolve(path, home) as lineage:
        return build_resume_state(lineage, deep=deep, safety=safety, derived=derived)


def build_resume_state(
    lineage: Lineage,
    *,
    deep: bool = False,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    derived: DerivedSnapshots | None = None,
) -> ResumeState:
    """The state of a thread whose files are known; see `read_resume_state`."""
    return state_of_look(lineage, look_back(lineage, deep=deep, safety=safety, derived=derived))


class LookedBack(NamedTuple):
    """What a state is made of. The fold is that of all whole lines."""

    context: ModelContext
    folded: FoldedThread


def look_back(
    lineage: Lineage,
    *,
    deep: bool = False,
    safety: ToolSafety = DEFAULT_TOOL_SAFETY,
    derived: DerivedSnapshots | None = None,
) -> LookedBack:
    """Read as far back as need be. Blocks."""
    context = build_model_context(lineage, deep=deep)
    start = None if derived is None or deep else derived.find(lineage, safety=safety)
    folded = fold_lineage(
        lineage,
        context.memories,
        start=start,
        examined_from=context.examined_from,
        deep=deep,
        safety=safety,
    )
    return LookedBack(context, folded)


def state_of_look(lineage: Lineage, looked: LookedBack) -> ResumeState:
    """The state, once it was looked back. The fold goes on over an unfinished last line."""
    folded = looked.folded
    _take_tail(lineage, folded)
    with lineage.open(lineage.end.segment) as file:
        meta = file.meta
    state = _assemble(lineage, meta, looked.context, folded)
    before = None if folded.whole or folded.examined_from <= lineage.start else folded.examined_from.offset
    return state.with_refusals(
        bytes_refusals(
            thread_id=state.thread_id,
            path=state.path,
            calls=state.open_calls,
            checks=state.checks,
            damage=state.damage,
            memory=state.memory,
            unexamined_before=before,
        )
    )


def _take_tail(lineage: Lineage, folded: FoldedThread) -> None:
    """What stands behind the last newline."""
    own = lineage.own
    if own.end < own.size:
        with lineage.open(lineage.end.segment) as file:
            for record in file.forward(own.end, own.size):
                take_record(folded.fold, record)


def _assemble(
    lineage: Lineage, meta: SessionMeta, context: ModelContext, folded: FoldedThread
) -> ResumeState:
    fold, facts = folded.fold, folded.fold.facts
    settings = context.settings if context.turn_context is not None else _value(facts.turn_context)
    return ResumeState(
        thread_id=_text(lineage.own.thread_id),
        path=lineage.own.path,
        rollout_ids=tuple(_text(each.rollout_id) for each in lineage.segments),
        history_mode=meta.history_mode,
        cwd=meta.cwd,
        git=meta.git,
        task=meta.x_task,
        items=context.items,
        checkpoint=context.base,
        passed_over=tuple(each.place for each in context.passed_over),
        dropped=context.dropped,
        settings=settings,
        thread_settings=_value(facts.thread_settings),
        base_instructions=_plain(context.base_instructions),
        dynamic_tools=context.dynamic_tools,
        usage=facts.usage,
        turn_id=fold.calls.turn_id,
        epoch=fold.calls.epoch,
        calls=fold.calls.calls(),
        approvals=fold.approvals.approvals,
        checks=fold.checks.checks,
        damage=fold.damage.ranges,
        memory=fold.memory,
        files=facts.files,
        agents=facts.agents,
        examined_from=folded.examined_from,
        whole=folded.whole,
        base_problem=context.base_problem,
    )


def _text(thread_id: str | None) -> str | None:
    """An id as the plain text that JSON gives back."""
    return None if thread_id is None else str(thread_id)


def _value(setting: Setting | None) -> Any:
    return None if setting is None else setting.value


def _plain(value: Any) -> Any:
    """Instructions are plain values, or a struct with a text and where it came from."""
    return value if value is None or isinstance(value, Mapping) else msgspec.to_builtins(value)
