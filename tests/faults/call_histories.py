"""Random histories of a thread, and what really happened: which side effects had begun at which byte.

Invariant: the truth is kept by whoever plays the agent, never read back from the records. An effect
begins behind the record that announces it (ours: `x_call` `started`; Codex: the request), an end is
known once the record that tells it is whole. Histories hold what a home sees in years: several writers
of both kinds, crashes, torn and fused lines, recoveries, decisions, retries, ids used again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from protocol.thread_fold import ThreadFold
from rollout.lines import judge_line
from thread_store.folding.fold_range import take_record
from thread_store.folding.thread_folding import line_hash

__all__ = ["History", "Intent", "Step", "make_history"]

_DAMAGED_SHARE = 0.01
"""Of the records that speak of calls."""

STAMP = "2026-03-04T05:06:07.000Z"
THREAD = "01960000-0000-7000-8000-0000000000aa"


@dataclass(slots=True)
class Intent:
    """One thing that the agent wants to do, with all its attempts. Numbers count records of the history."""

    name: str
    unsafe: bool
    places: set[tuple[str, str]] = field(default_factory=set)
    """Turn and call id of each attempt."""
    begun: list[int] = field(default_factory=list)
    """Behind which record each attempt's effect may have begun."""
    ended: list[int] = field(default_factory=list)
    """Which records tell the end of the newest attempt of that time."""
    decided: list[tuple[int, str]] = field(default_factory=list)

    def is_open_at(self, record: int, damaged: set[int]) -> bool:
        """Whether an effect may have begun by then, and no readable record tells what became of it."""
        begun = max((each for each in self.begun if each <= record), default=None)
        if begun is None:
            return False
        told = [*self.ended, *(each for each, _ in self.decided)]
        return not any(begun < each <= record and each not in damaged for each in told)

    def may_run_again_at(self, record: int) -> bool:
        """Whether none has begun by then, or somebody decided on a retry since."""
        begun = max((each for each in self.begun if each <= record), default=None)
        decided = max((each for each in self.decided if each[0] <= record), default=None)
        return begun is None or (decided is not None and decided[0] > begun and decided[1] == "retry")


@dataclass(slots=True)
class History:
    """The lines of a rollout, each with its newline, and the truth about them."""

    lines: list[bytes]
    intents: list[Intent]
    damaged: set[int]
    memories: list[int]
    """Which records are an `x_memory`."""


Step = tuple[str, dict[str, Any], Callable[[int], None] | None]
"""A record, and what to note of its number."""

_TOOLS: list[tuple[str, str | None, str, bool]] = [
    # name, namespace, kind, unsafe
    ("send_mail", None, "custom", True),
    ("exec_command", None, "shell", True),
    ("apply_patch", None, "patch", True),
    ("read", "mcp__mail", "mcp", True),
    ("read_file", None, "custom", False),
    ("update_plan", None, "custom", False),
]


class _World:
    """Plays the agents and their writers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[bytes] = []
        self.intents: list[Intent] = []
        self.damaged: set[int] = set()
        self.memories: list[int] = []
        self.ordinal = 0
        self.epoch = 0
        self.turns = 0
        self.calls = 0
        self.turn: str | None = None
        self.ours = True
        self.retries: list[tuple[Intent, str, str, str | None, int]] = []
        self.uncertain: list[tuple[Intent, str, str, str | None, int]] = []
        """Intent, turn, call id, key, attempt: what a crash has left open."""
        meta = {"id": THREAD, "timestamp": STAMP, "cwd": "/srv", "originator": "hand", "cli_version": "1"}
        self.put("session_meta", {**meta, "source": "cli", "history_mode": "paginated"})

    # Bytes

    def put(self, record_type: str, payload: dict[str, Any]) -> int:
        """Write a record; returns its number."""
        self.lines.append(self.encode(record_type, payload) + b"\n")
        return len(self.lines) - 1

    def encode(self, record_type: str, payload: dict[str, Any]) -> bytes:
        numbered = not record_type.startswith("x_")
        number = {"ordinal": self.ordinal} if numbered else {}
        self.ordinal += numbered
        value = {"timestamp": STAMP, **number, "type": record_type, "payload": payload}
        return json.dumps(value, separators=(",", ":")).encode()

    def put_memory(self) -> None:
        """As the keeper makes one: of an earlier point of the file, a few records back."""
        upto = len(self.lines) - self.rng.choice([0, 0, 1, 3])
        if upto < 2:
            return
        fold, offset = ThreadFold(), 0
        for number, line in enumerate(self.lines[:upto]):
            record = judge_line(line[:-1], None, offset)
            if record is not None and number:
                take_record(fold, record)
            elif record is not None and record.line is not None:
                fold.pass_over(record.line.ordinal)
            offset += len(line)
        item = fold.snapshot(offset)
        item.last_line = line_hash(self.lines[upto - 1][:-1])
        self.memories.append(self.put("x_memory", msgspec.to_builtins(item)))

    # What an agent does

    def play(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.ours = self.rng.random() < 0.6
            self.open_writer()
            crashed = self.work()
            if crashed:
                self.crash()
            elif self.ours:
                self.put("x_writer", {"event": "closed", "epoch": self.epoch})

    def open_writer(self) -> None:
        if not self.ours:
            return
        self.epoch += 1
        self.put("x_writer", {"event": "opened", "epoch": self.epoch, "pid": 1})
        if self.uncertain and self.rng.random() < 0.7:
            self.recover()

    def recover(self) -> None:
        """What a resume writes, and what somebody decides then."""
        self.put("x_writer", {"event": "recovered", "epoch": self.epoch})
        still = []
        for intent, turn, call_id, key, attempt in self.uncertain:
            self.put("x_call", self.own("unknown", turn, call_id, key=key, attempt=attempt))
            if self.rng.random() < 0.7:
                self.put("response_item", _output(call_id, "outcome unknown: the process ended"))
            outcome = self.rng.choice(["happened", "not_happened", "retry", "retry", "retry", None])
            if outcome is None:
                still.append((intent, turn, call_id, key, attempt))
                continue
            told = self.own("resolved", turn, call_id, key=key, attempt=attempt, outcome=outcome, by="ann")
            intent.decided.append((self.put("x_call", told), outcome))
            if outcome == "retry":
                self.retries.append((intent, turn, call_id, key, attempt))
        self.uncertain = still
        if self.turn is not None:
            self.put("event_msg", {"type": "turn_aborted", "turn_id": self.turn, "reason": "interrupted"})
            self.turn = None

    def crash(self) -> None:
        """The writer dies; sometimes inside a line, which the next one cuts, ends or goes on behind."""
        if self.rng.random() < 0.5:
            return
        self.ordinal, torn = self.ordinal, self.encode("event_msg", {"type": "agent_message", "message": "m"})
        self.ordinal -= 1
        cut = torn[: self.rng.randint(1, len(torn) - 1)]
        how = self.rng.choice(["cut", "ended", "fused"])
        if how == "cut":
            self.ours, self.epoch = True, self.epoch + 1
            self.put("x_writer", {"event": "opened", "epoch": self.epoch, "pid": 1, "cut_bytes": len(cut)})
        elif how == "ended":
            self.damaged.add(len(self.lines))
            self.lines.append(cut + b"\n")
        else:
            self.damaged.add(len(self.lines))
            self.lines.append(
                cut + self.encode("event_msg", {"type": "agent_message", "message": "n"}) + b"\n"
            )

    def work(self) -> bool:
        """A few turns; True if the process died on the way."""
        bare = self.turn is None and self.rng.random() < 0.2
        for _ in range(1 if bare else self.rng.randint(1, 3)):
            self.turns += 1
            turn = "" if bare else f"t{self.turns}"
            if not bare:
                self.put("event_msg", {"type": "task_started", "turn_id": turn})
                self.turn = turn
            jobs: list[_Job] = []
            for _ in range(self.rng.randint(0, 4)):
                jobs.append(self.start_job(turn, {each.call_id for each in jobs}))
            dies_after = self.rng.randint(0, 25) if self.rng.random() < 0.4 else None
            while jobs or self.rng.random() < 0.5:
                if dies_after == 0:
                    return True
                dies_after = None if dies_after is None else dies_after - 1
                if jobs and self.rng.random() < 0.75:
                    job = self.rng.choice(jobs)
                    step = next(job.steps, None)
                    if step is None:
                        jobs.remove(job)
                        continue
                    job.take(self, step)
                else:
                    self.put_aside(turn)
            if dies_after is None and self.rng.random() < 0.9 and not bare:
                self.put(
                    "event_msg", {"type": "task_complete", "turn_id": turn, "last_agent_message": "done"}
                )
                self.turn = None
        return False

    def start_job(self, turn: str, running: set[str]) -> _Job:
        rng = self.rng
        if self.retries and self.ours and self.retries[-1][2] not in running and rng.random() < 0.9:
            return self.start_retry(turn)
        name, namespace, kind, unsafe = rng.choice(_TOOLS)
        intent = Intent(name, unsafe)
        self.intents.append(intent)
        self.calls += 1
        taken = {
            call_id for each in self.intents for place_turn, call_id in each.places if place_turn == turn
        }
        call_id = rng.choice(["call_0", "call_1", f"c{self.calls}"])
        if call_id in taken | running:  # two at once of one id nobody could tell apart
            call_id = f"c{self.calls}"
        key = rng.choice([None, None, f"k{self.calls}"])
        return _Job(self, intent, turn, call_id, key, 1, _Tool(name, namespace, kind))

    def start_retry(self, turn: str) -> _Job:
        """The further attempt: of the same call, of its id in a new turn, or of another id with its key."""
        intent, old_turn, call_id, key, attempt = self.retries.pop()
        name, namespace, kind, _ = next(each for each in _TOOLS if each[0] == intent.name)
        how = self.rng.choice(["same", "turn", "key"])
        if how == "turn" and (turn, call_id) not in {each for one in self.intents for each in one.places}:
            old_turn = turn
        elif how == "key" and key is not None:
            self.calls += 1
            old_turn, call_id = turn, f"c{self.calls}"
        return _Job(self, intent, old_turn, call_id, key, attempt + 1, _Tool(name, namespace, kind))

    def own(self, state: str, turn: str | None, call_id: str, **keys: Any) -> dict[str, Any]:
        told = {"call_id": call_id, **_named(turn), "state": state, **keys}
        return {key: value for key, value in told.items() if value is not None}

    def put_aside(self, turn: str) -> None:
        """Everything that is no call."""
        rng = self.rng
        kind = rng.randrange(14)
        if kind == 0:
            self.put_memory()
        elif kind == 1:
            self.put("compacted", {"message": "m", "replacement_history": []})
            if rng.random() < 0.7:
                self.put_memory()
        elif kind == 2:
            self.put("event_msg", {"type": "thread_rolled_back", "num_turns": rng.randint(1, 3)})
        elif kind == 3:
            self.put("x_check", {"check_id": rng.choice("kl"), "state": rng.choice(["started", "passed"])})
        elif kind == 4:
            plan = [{"step": "a", "status": rng.choice(["pending", "completed"])}]
            self.put("event_msg", {"type": "plan_update", "plan": plan})
        elif kind == 5:
            state = rng.choice(["requested", "approved"])
            self.put("x_approval", {"approval_id": rng.choice("ab"), "state": state, "scope": "session"})
        elif kind == 6:
            self.put("turn_context", {"cwd": "/srv", "model": rng.choice("mn")} | _named(turn))
        elif kind == 7:
            self.put("x_state", {"to": rng.choice(["busy", "failed"]), "reason": "r"})
        elif kind == 8:
            self.put("x_files", {"path": rng.choice("ab"), "size": 3})
        elif kind == 9 and rng.random() < 0.3:
            self.damaged.add(len(self.lines))
            self.lines.append(rng.choice([b"\0" * 9, b'{"type":', b"\xff\xfe"]) + b"\n")
        elif kind == 10:
            self.put("event_msg", {"type": "user_message", "message": rng.choice(["go", "stop"])})
        else:
            said = [{"type": "output_text", "text": "hm"}]
            self.put("response_item", {"type": "message", "role": "assistant", "content": said})


@dataclass(slots=True)
class _Tool:
    name: str
    namespace: str | None
    kind: str


def _named(turn: str | None) -> dict[str, Any]:
    """A writer that records no turns names none."""
    return {"turn_id": turn} if turn else {}


def _output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


class _Job:
    """One attempt under way: the records that it still writes."""

    def __init__(
        self,
        world: _World,
        intent: Intent,
        turn: str,
        call_id: str,
        key: str | None,
        attempt: int,
        tool: _Tool,
    ) -> None:
        self.world, self.intent, self.turn, self.call_id = world, intent, turn, call_id
        self.key, self.attempt, self.tool = key, attempt, tool
        intent.places |= {(turn, call_id), (turn or world.turn or "", call_id)}
        rng = world.rng
        by_us = world.ours and (attempt > 1 or rng.random() < 0.7)
        self.steps: Iterator[Step] = iter(self.ours() if by_us else self.codex())

    def take(self, world: _World, step: Step) -> None:
        record_type, payload, note = step
        number = world.put(record_type, payload)
        if world.rng.random() < _DAMAGED_SHARE:
            world.damaged.add(number)
            world.lines[number] = b"\0" * (len(world.lines[number]) - 1) + b"\n"
        if note is not None:
            note(number)

    def _begin(self, number: int) -> None:
        self.intent.begun.append(number)
        mine = (self.intent, self.turn, self.call_id, self.key, self.attempt)
        self.world.uncertain.append(mine)

    def _end(self, number: int) -> None:
        self.intent.ended.append(number)
        mine = (self.intent, self.turn, self.call_id, self.key, self.attempt)
        if mine in self.world.uncertain:
            self.world.uncertain.remove(mine)

    def _state(self, state: str, **keys: Any) -> dict[str, Any]:
        effect = "unsafe" if self.intent.unsafe else self.world.rng.choice(["none", "idempotent"])
        return self.world.own(
            state, self.turn, self.call_id, key=self.key, attempt=self.attempt, effect=effect,
            kind=self.tool.kind, name=self.tool.name, **keys,
        )  # fmt: skip

    def _request(self) -> dict[str, Any]:
        asked = {"type": "function_call", "name": self.tool.name, "arguments": "{}", "call_id": self.call_id}
        return asked if self.tool.namespace is None else {**asked, "namespace": self.tool.namespace}

    def _shown(self, status: str, **keys: Any) -> dict[str, Any]:
        item = {"type": "DynamicToolCall", "id": self.call_id, "tool": self.tool.name, "arguments": {},
                "status": status, "namespace": self.tool.namespace, **keys}  # fmt: skip
        return {"type": "item_completed", "thread_id": THREAD, **_named(self.turn), "item": item}

    def ours(self) -> Iterator[Step]:
        rng = self.world.rng
        before: list[Step] = []
        asks = rng.random() < 0.3
        if self.attempt == 1 or (self.turn, self.call_id) not in self.intent.places:
            before.append(("response_item", self._request(), None))
            if rng.random() < 0.5:
                before.append(("event_msg", self._shown("in_progress"), None))
        if asks or rng.random() < 0.3:
            before.insert(rng.randint(0, len(before)), ("x_call", self._state("intended"), None))
        yield from before
        if asks:
            question = {"approval_id": f"a{self.call_id}", "call_id": self.call_id, **_named(self.turn)}
            yield "x_approval", {**question, "state": "requested"}, None
            answer = rng.choice(["approved", "approved", "declined"])
            yield "x_approval", {**question, "state": answer, "scope": "once"}, None
            if answer == "declined":
                yield "response_item", _output(self.call_id, "declined by user"), None
                yield "x_call", self._state("declined"), None
                return
        yield "x_call", self._state("started"), self._begin
        how = rng.choice(["completed", "completed", "failed", "aborted"])
        if how == "aborted":
            text = "outcome unknown: the call was interrupted"
            parts = [{"type": "inputText", "text": text}]
            yield "event_msg", self._shown("failed", success=False, content_items=parts), None
            yield "response_item", _output(self.call_id, text), None
            yield "x_call", self._state("aborted"), None
            return
        end: list[Step] = [
            ("event_msg", self._shown(how, success=how == "completed"), self._end),
            ("response_item", _output(self.call_id, "ok"), self._end),
            ("x_call", self._state(how), self._end),
        ]
        if rng.random() < 0.3:
            rng.shuffle(end)
        yield from end

    def codex(self) -> Iterator[Step]:
        rng = self.world.rng
        yield "response_item", self._request(), self._begin
        if rng.random() < 0.3:
            begin = {"type": "exec_command_begin", "call_id": self.call_id, **_named(self.turn)}
            yield "event_msg", begin, None
        how = rng.choice(["completed", "completed", "failed", "aborted"])
        if how == "aborted":
            yield (
                "response_item",
                _output(self.call_id, rng.choice(["aborted", "aborted by user after 1s"])),
                None,
            )
            return
        end: list[Step] = [("response_item", _output(self.call_id, "ok"), self._end)]
        if rng.random() < 0.6:
            shown: Step = ("event_msg", self._shown(how, success=how == "completed"), self._end)
            end.insert(rng.randint(0, 1), shown)
        yield from end


def make_history(seed: int) -> History:
    """The history of a seed."""
    world = _World(random.Random(seed))
    world.play()
    return History(world.lines, world.intents, world.damaged, world.memories)
