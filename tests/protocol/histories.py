"""Random histories for the folds: records of a few calls in any order, sensible or not."""

from __future__ import annotations

import random
from collections.abc import Callable

from protocol import RolloutLine
from tests.protocol.folding import begin, event, item, line, output, own, request, response, writer

Maker = Callable[[random.Random, str, str], RolloutLine]

STATES = ["intended", "started", "completed", "failed", "declined", "aborted", "unknown", "superseded", "odd"]

CALLS: list[Maker] = [
    lambda rng, call_id, turn: request(call_id),
    lambda rng, call_id, turn: output(call_id, rng.choice(["done", "aborted", "outcome unknown"])),
    lambda rng, call_id, turn: own(rng.choice(STATES), call_id, attempt=rng.randint(1, 3)),
    lambda rng, call_id, turn: own(rng.choice(STATES), call_id, attempt=rng.randint(1, 3), turn_id=turn),
    lambda rng, call_id, turn: own(rng.choice(STATES[:3]), call_id, key="k", attempt=rng.randint(1, 3)),
    lambda rng, call_id, turn: begin(turn),
    lambda rng, call_id, turn: event(rng.choice(["task_complete", "turn_aborted"]), turn_id=turn),
    lambda rng, call_id, turn: writer(
        rng.choice(["opened", "closed", "recovered", "repaired"]),
        epoch=rng.randint(1, 4),
        cut_bytes=rng.choice([0, 0, 7]),
    ),
    lambda rng, call_id, turn: item(
        "DynamicToolCall",
        call_id,
        turn_id=turn,
        tool="send_mail",
        arguments={},
        status=rng.choice(["in_progress", "completed", "failed"]),
    ),
    lambda rng, call_id, turn: event("thread_rolled_back", num_turns=rng.randint(1, 2)),
    lambda rng, call_id, turn: line("compacted", {"message": "m"}),
    lambda rng, call_id, turn: line(
        "x_approval",
        {
            "approval_id": rng.choice(["a", "b"]),
            "call_id": call_id,
            "state": rng.choice(["requested", "approved", "declined"]),
            "scope": rng.choice(["once", "session"]),
        },
    ),
]

DECISIONS: list[Maker] = [
    lambda rng, call_id, turn: own(
        "resolved", call_id, outcome=rng.choice(["happened", "not_happened", "retry"]), by="ann"
    )
]

ASIDE: list[Maker] = [
    lambda rng, call_id, turn: response(
        "message", role=rng.choice(["user", "assistant"]), content=[{"type": "input_text", "text": call_id}]
    ),
    lambda rng, call_id, turn: event("user_message", message=rng.choice(["go", "stop", "\ud800"])),
    lambda rng, call_id, turn: item(
        "UserMessage", "i", content=[{"type": "text", "text": rng.choice(["go", "stop"])}]
    ),
    lambda rng, call_id, turn: event("agent_message", message="hm"),
    lambda rng, call_id, turn: event(
        "plan_update", plan=[{"step": step, "status": rng.choice(["pending", "completed"])} for step in "ab"]
    ),
    lambda rng, call_id, turn: event("task_complete", turn_id=turn, last_agent_message=f"did {call_id}"),
    lambda rng, call_id, turn: event("task_complete", turn_id=turn, error={"message": "no model"}),
    lambda rng, call_id, turn: event("warning", message=f"w{rng.randint(0, 99)}"),
    lambda rng, call_id, turn: line(
        "x_state", {"from": "a", "to": rng.choice(["b", "failed"]), "reason": "r"}
    ),
    lambda rng, call_id, turn: line(
        "x_check",
        {"check_id": call_id, "state": rng.choice(["started", "passed", "failed"]), "call_ids": [call_id]},
    ),
    lambda rng, call_id, turn: line("turn_context", {"turn_id": turn, "cwd": "/", "model": rng.choice("mn")}),
    lambda rng, call_id, turn: line("session_meta", {"id": turn, "base_instructions": {"text": call_id}}),
    lambda rng, call_id, turn: line("x_files", {"path": call_id, "size": rng.randint(1, 9)}),
    lambda rng, call_id, turn: line("x_gap", {"bytes": 7}),
    lambda rng, call_id, turn: line("x_erased", {"ordinal": rng.randint(0, 9), "bytes": 7}),
    lambda rng, call_id, turn: line(
        "token_usage_record", {"response_id": call_id, "usage": {"total_tokens": rng.randint(1, 9)}}
    ),
    lambda rng, call_id, turn: event(
        "token_count", info={"total_token_usage": {"total_tokens": rng.randint(1, 99)}}
    ),
    lambda rng, call_id, turn: event(
        "sub_agent_activity", event_id="e", agent_thread_id=call_id, agent_path="/", kind="started"
    ),
    lambda rng, call_id, turn: event("exec_approval_request", call_id=call_id, command=["rm"]),
]


def random_history(
    rng: random.Random, *, decisions: bool = True, aside: bool = False, lines_max: int = 25
) -> list[RolloutLine]:
    """Lines of calls, with decisions about them and other records if that is asked for."""
    makers = [*CALLS, *(DECISIONS if decisions else ()), *(ASIDE if aside else ())]
    return [
        rng.choice(makers)(rng, rng.choice(["c1", "c2", "c3"]), rng.choice(["t1", "t2"]))
        for _ in range(rng.randint(1, lines_max))
    ]
