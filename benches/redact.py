"""What redaction and bounded storage cost, as ratios to encoding alone.

The rules look at each item once as a whole; only where they may find something its texts are gone
through one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from benches.measure import Case, per_item, run_rounds
from benches.report import Row, bound_row, note_row, speed_rows
from benches.workload import STAMP, TEXTS, build_text
from protocol import ItemNotEncodable, ResponseItem, RolloutItem, StorageBounds, encode_item
from protocol.bounding import bound_item
from protocol.errors import RedactionUnavailable
from protocol.redact import redact_item
from rollout.secret_rules import SecretRules

__all__ = ["redact_rows"]

_LONG_CHARS = 100_000
_HUGE_CHARS = 1_000_000

_ENCODE, _RULES, _HOOK = "encode a message", "rules + encode a message", "a hook that does nothing + encode"
_CALL, _RULES_CALL = "encode a call", "rules + encode a call"
_LONG, _RULES_LONG = "encode 100,000 characters", "rules + encode 100,000 characters"
_HUGE, _BOUND_HUGE = "encode 1,000,000 characters", "bound + encode 1,000,000 characters"


def _encode(item: RolloutItem) -> None:
    encode_item(item, timestamp=STAMP, ordinal=7)


def _case(name: str, item: RolloutItem, items: int, prepare: Callable[[RolloutItem], RolloutItem]) -> Case:
    def work() -> None:
        for _ in range(items):
            _encode(prepare(item))

    async def run() -> float:
        return per_item(work, items)

    return Case(name, run)


def _same(item: RolloutItem) -> RolloutItem:
    return item


async def redact_rows(*, rounds: int, items: int) -> list[Row]:
    """The costs, and their ratios to encoding alone."""
    try:
        rules = SecretRules()
    except RedactionUnavailable as error:
        return [note_row(str(error))]

    def by_rules(item: RolloutItem) -> RolloutItem:
        return redact_item(item, rules)

    def by_hook(item: RolloutItem) -> RolloutItem:
        return redact_item(item, lambda text: text)

    def bound(item: RolloutItem) -> RolloutItem:
        changed, blobs = bound_item(item, StorageBounds())
        if not blobs:
            raise ItemNotEncodable("nothing was taken out of it")
        return changed

    message = ResponseItem.message("assistant", TEXTS[7])
    call = ResponseItem.function_call(
        name="shell", arguments={"cmd": "make test", "cwd": "/srv/demo"}, call_id="c"
    )
    long, huge = (
        ResponseItem.function_call_output(call_id="c", output=build_text(3, size))
        for size in (_LONG_CHARS, _HUGE_CHARS)
    )
    few, fewer = max(1, items // 100), max(1, items // 1000)
    samples = await run_rounds(
        [
            _case(_ENCODE, message, items, _same),
            _case(_HOOK, message, items, by_hook),
            _case(_RULES, message, items, by_rules),
            _case(_CALL, call, items, _same),
            _case(_RULES_CALL, call, items, by_rules),
            _case(_LONG, long, few, _same),
            _case(_RULES_LONG, long, few, by_rules),
            _case(_HUGE, huge, fewer, _same),
            _case(_BOUND_HUGE, huge, fewer, bound),
        ],
        rounds,
    )
    pairs = [
        (_RULES, _ENCODE),
        (_HOOK, _ENCODE),
        (_RULES_CALL, _CALL),
        (_RULES_LONG, _LONG),
        (_BOUND_HUGE, _HUGE),
    ]
    ratios: list[Row] = [
        {"cost": f"{over} / {under}", "ratio": round(samples.ratio([over], [under]), 2)}
        for over, under in pairs
    ]
    rules_seconds = samples.seconds(_RULES) - samples.seconds(_ENCODE)
    figure = "what the rules take for a message"
    return [
        *speed_rows(samples, list(samples.rounds[0])),
        *ratios,
        bound_row(figure, rules_seconds * 1e6, "microseconds", at_most=20),
    ]
