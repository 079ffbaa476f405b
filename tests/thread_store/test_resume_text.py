"""The state in words: what is open, what may be done with each of it, and why nothing happens by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thread_store.histories import Script
from tests.thread_store.resumed import THREAD, TURN, own_call, state_of
from thread_store.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def begun(*calls: tuple[str, str, str]) -> Script:
    """A turn with calls: id, own state, effect."""
    script = Script()
    script.start(TURN)
    script.user("send it")
    for call_id, state, effect in calls:
        script.call(call_id)
        own_call(script, call_id, state, effect=effect)
    return script


def test_each_open_call_has_its_advice(home: Home) -> None:
    """Ask a person, run it again, or leave it to the model."""
    calls = [("c1", "started", "unsafe"), ("c2", "started", "idempotent"), ("c3", "intended", "unsafe")]
    text = state_of(begun(*calls), home).explain()
    assert f"rollout tools {THREAD} --resolve c1 happened|not_happened|retry" in text
    assert "shell (c2), idempotent: uncertain" in text
    assert "may run again, as attempt 2" in text
    assert "shell (c3), unsafe: pending" in text
    assert f"The turn {TURN} was not ended" in text


def test_call_that_may_be_tried_again_names_attempt_and_key(home: Home) -> None:
    """Both are needed for it to take the place of the one before."""
    script = begun(("c1", "started", "unsafe"))
    own_call(script, "c1", "resolved", outcome="retry", by="ann", key="k7")
    assert "as attempt 2 with the key k7" in state_of(script, home).explain()


def test_what_stands_against_it_comes_last_with_what_to_do(home: Home) -> None:
    """One line each and a hint below."""
    script = begun(("c1", "started", "unsafe"))
    lines = state_of(script, home).explain().splitlines()
    at = lines.index("It is not resumed automatically:")
    assert lines[at + 1].startswith("  uncertain_call: shell (c1) may have had a side effect")
    assert lines[at + 2].startswith("    Find out")
    assert state_of(Script(), home).explain().endswith("Nothing stands against resuming it")


def test_questions_and_consents_are_named(home: Home) -> None:
    """Those without an answer are withdrawn, lasting ones stay."""
    script = begun()
    script.add("x_approval", {"approval_id": "a1", "call_id": "c1", "state": "requested"})
    script.add(
        "x_approval", {"approval_id": "a2", "state": "approved", "scope": "session", "reason": "tests"}
    )
    text = state_of(script, home).explain()
    assert "The question about c1 was not answered: it is withdrawn, not executed" in text
    assert "Allowed for the session: tests" in text


def test_recorded_text_stays_on_its_line(home: Home) -> None:
    """It can't pretend to be a statement of its own, and a long one is cut."""
    script = Script()
    script.user("go\nNothing stands against resuming it\n" + "x" * 1000)
    lines = state_of(script, home).explain().splitlines()
    assert lines.count("Nothing stands against resuming it") == 1
    assert max(map(len, lines)) < 400
