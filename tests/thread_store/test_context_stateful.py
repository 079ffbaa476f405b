"""The context after any sequence of turns, compactions, rollbacks, forks and reverts is what reading
everything forward gives."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.thread_store.histories import Script, meta, place_of, uuid
from tests.thread_store.naive_context import naive_context, user_message
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.chain.turn_starts import find_turns
from thread_store.context import checkpoint_scan
from thread_store.context.model_context import build_model_context
from thread_store.forks.fork import make_fork
from thread_store.forks.revert import make_revert
from thread_store.home import Home


class Contexts(RuleBasedStateMachine):
    """One thread that goes on in new files; `script` writes the lines that come next."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Home(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(checkpoint_scan, "MEMORY_REACH_RECORDS", 3)
        self.path = Path()
        self.script = Script()
        self.number = 0

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.home.path)

    @initialize(paginated=st.booleans())
    def create(self, paginated: bool) -> None:
        ordinal = 0 if paginated else None
        self.paginated = paginated
        self.path = place_of(self.home, uuid(1))
        self.path.write_bytes(meta(uuid(1), ordinal))
        self.script = Script(1 if paginated else None)

    def write(self) -> None:
        """The script's lines go into the current file."""
        with self.path.open("ab") as file:
            file.write(self.script.bytes)
        self.script.lines.clear()

    def next_number(self) -> int:
        self.number += 1
        return self.number

    @rule(
        calls=st.integers(0, 2),
        steered=st.booleans(),
        ended=st.booleans(),
        injected=st.sampled_from(["", "user", "developer"]),
        answered=st.booleans(),
    )
    def turn(self, calls: int, steered: bool, ended: bool, injected: str, answered: bool) -> None:
        number, script = self.next_number(), self.script
        script.start(f"t{number}")
        if injected:
            script.response(injected, f"<surroundings>{number}</surroundings>")
        script.add("turn_context", {"turn_id": f"t{number}", "model": f"m{number}"})
        script.user(f"question {number}")
        for call in range(calls):
            script.call(f"c{number}.{call}")
            script.output(f"c{number}.{call}")
        if steered:
            script.user(f"and {number}")
        if answered:
            script.response("assistant", f"answer {number}")
        if ended:
            script.complete(f"t{number}")
        self.write()

    @rule(
        kind=st.sampled_from(["ghost_snapshot", "of_the_future"]),
        role=st.sampled_from(["developer", "assistant"]),
    )
    def stray(self, kind: str, role: str) -> None:
        self.script.add("response_item", {"type": kind, "x": self.next_number()})
        self.script.response(role, f"stray {self.number}")
        self.write()

    @precondition(lambda self: self.number > 0)
    @rule(kept=st.integers(0, 2), with_memory=st.booleans(), started=st.booleans())
    def compact(self, kept: int, with_memory: bool, started: bool) -> None:
        number = self.next_number()
        if started:
            self.script.start(f"t{number}")
        items = [user_message(f"kept {number}.{each}") for each in range(kept)]
        summary = f"summary {number}"
        self.script.add(
            "compacted", {"message": summary, "replacement_history": [*items, user_message(summary)]}
        )
        if with_memory:
            self.script.add("x_memory", {"version": 1, "upto_offset": 0})
        self.write()

    @precondition(lambda self: self.number > 0)
    @rule()
    def compact_to_a_message(self) -> None:
        self.script.add("compacted", {"message": f"summary {self.next_number()}"})
        self.write()

    @rule(count=st.integers(1, 4))
    def roll_back(self, count: int) -> None:
        self.script.event("thread_rolled_back", num_turns=count)
        self.write()

    @rule(mode=st.sampled_from(["copy", "reference"]), data=st.data())
    def fork(self, mode: Any, data: st.DataObject) -> None:
        if mode == "reference" and not self.paginated:
            return
        child = uuid(0x100 + self.next_number())
        path = place_of(self.home, child)
        make_fork(self.path, path, thread_id=child, home=self.home, mode=mode, point=self.point(data))
        self.go_on(path)

    @precondition(lambda self: self.paginated)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        made = make_revert(self.path, home=self.home, point=self.point(data))
        self.go_on(Path(made.path))

    def point(self, data: st.DataObject) -> ForkPoint:
        with Lineage.resolve(self.path, self.home) as lineage:
            count = len(find_turns(lineage))
        return data.draw(st.one_of(st.just(ForkPoint.end()), st.integers(0, count).map(ForkPoint.turn)))

    def go_on(self, path: Path) -> None:
        self.path = path
        with Lineage.resolve(path, self.home) as lineage, lineage.open(lineage.end.segment) as file:
            assert lineage.problem is None
            self.script = Script(file.next_ordinal(file.end) if self.paginated else None)

    @invariant()
    def context_is_the_naive_one(self) -> None:
        if not self.path.name:
            return
        expected = naive_context(self.path, self.home)
        with Lineage.resolve(self.path, self.home) as lineage:
            for deep in (False, True):
                context = build_model_context(lineage, deep=deep)
                assert [bytes(each.payload) for each in context.items] == expected
                assert context.problems == ()


Contexts.TestCase.settings = settings(max_examples=40, stateful_step_count=12)
TestContexts = pytest.mark.guarantee("G9")(pytest.mark.case("B48")(Contexts.TestCase))
