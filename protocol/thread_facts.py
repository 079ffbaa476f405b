"""Thread facts: settings, usage, files read and sub-agents, each as it was told last.

Invariant: bounded, and the newest stays. What a compaction takes out of the model's sight is still
known here: it is what a resume needs and the history no longer says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from protocol.call_facts import text_of
from protocol.decoding import convert_plain
from protocol.line import RolloutLine
from protocol.memory_entries import Place
from protocol.plain_values import plain_value

__all__ = ["AGENTS_MAX", "FACT_NAMES", "FILES_MAX", "SETTING_BYTES_MAX", "Setting", "ThreadFacts", "Usage"]

SETTING_BYTES_MAX = 256 << 10
"""A larger record of settings is known by its place only."""
FILES_MAX = 256
AGENTS_MAX = 128

_FILE_KEYS = ("size", "mtime_ns", "sha256", "read_at")
_COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)


class Setting(Struct, frozen=True, omit_defaults=True):
    """A record of settings as it stands. `value` is None if it is larger than `SETTING_BYTES_MAX`."""

    value: Any = None
    place: Place = Place()


class Usage(Struct, omit_defaults=True):
    """Tokens, by Codex's keys."""

    total: dict[str, int] | None = None
    """Of the thread so far."""
    last: dict[str, int] | None = None
    """Of the last response."""
    model_context_window: int | None = None
    response_id: str | None = None
    """Of the last `token_usage_record`."""
    is_counted: bool = False
    """Whether a `token_count` gave the total: then single responses are in it already."""


class _State(Struct, omit_defaults=True):
    turn_context: Setting | None = None
    thread_settings: Setting | None = None
    usage: Usage | None = None
    files: dict[str, dict[str, Any]] = {}
    agents: dict[str, dict[str, Any]] = {}


FACT_NAMES = _State.__struct_fields__
"""The fields of `x_memory` that hold facts."""


class ThreadFacts:
    """The facts of a thread, record by record."""

    def __init__(self) -> None:
        self._state = _State()

    @property
    def turn_context(self) -> Setting | None:
        """The newest `turn_context`."""
        return self._state.turn_context

    @property
    def thread_settings(self) -> Setting | None:
        """The newest `thread_settings_applied`."""
        return self._state.thread_settings

    @property
    def usage(self) -> Usage | None:
        """Tokens used."""
        return self._state.usage

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """The files that were read, by path: what `x_files` says of each."""
        return dict(self._state.files)

    @property
    def agents(self) -> dict[str, dict[str, Any]]:
        """The sub-agents, by thread id: `kind` (what each did last) and `agent_path`."""
        return dict(self._state.agents)

    def take(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        """Take the next line, its payload decoded."""
        variant = text_of(payload.get("type")) if line.type == "event_msg" else None
        take = _TAKERS.get((line.type or "", variant))
        if take is not None:
            take(self, line, payload, place)

    def _turn_context(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        self._state.turn_context = _setting(line, payload, place)

    def _settings(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        self._state.thread_settings = _setting(line, payload.get("thread_settings"), place)

    def _token_count(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        """Cumulative: it replaces, so that one that comes again changes nothing."""
        del line, place
        info = payload.get("info")
        total = _counts(info.get("total_token_usage")) if isinstance(info, Mapping) else None
        if not isinstance(info, Mapping) or total is None:
            return
        usage = self._usage()
        usage.total, usage.is_counted = total, True
        usage.last = _counts(info.get("last_token_usage")) or usage.last
        usage.model_context_window = _number(info.get("model_context_window")) or usage.model_context_window

    def _usage_record(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        """One a response: its total of the thread replaces; without one it is added, once."""
        del line, place
        usage, last = self._usage(), _counts(payload.get("usage"))
        response_id = text_of(payload.get("response_id"))
        total = _counts(payload.get("thread_token_usage"))
        is_new = response_id is None or response_id != usage.response_id
        if total is not None:
            usage.total = total
        elif last is not None and is_new and not usage.is_counted:
            usage.total = _sum(usage.total or {}, last)
        usage.last, usage.response_id = last or usage.last, response_id

    def _usage(self) -> Usage:
        if self._state.usage is None:
            self._state.usage = Usage()
        return self._state.usage

    def _file(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        del line, place
        path = text_of(payload.get("path"))
        if path is not None:
            told = {
                name: payload[name] for name in ("size", "mtime_ns", "sha256", "read_at") if name in payload
            }
            _renew(self._state.files, path, plain_value(told, 1 + 1), FILES_MAX)

    def _agent(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        del line, place
        thread_id = text_of(payload.get("agent_thread_id"))
        if thread_id is not None:
            told = {name: text_of(payload.get(name)) for name in ("kind", "agent_path")}
            _renew(self._state.agents, thread_id, told, AGENTS_MAX)

    def _item(self, line: RolloutLine, payload: Mapping[str, Any], place: Place) -> None:
        item = payload.get("item")
        if isinstance(item, Mapping) and item.get("type") == "SubAgentActivity":
            self._agent(line, item, place)

    def to_plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON."""
        plain: dict[str, Any] = to_builtins(self._state)
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> ThreadFacts:
        """From what `to_plain` gave. Raises `msgspec.ValidationError` if it doesn't fit."""
        facts = cls()
        facts._state = convert_plain(plain, _State)
        return facts


_Taker = Callable[[ThreadFacts, RolloutLine, Mapping[str, Any], Place], None]

_TAKERS: dict[tuple[str, str | None], _Taker] = {
    ("turn_context", None): ThreadFacts._turn_context,
    ("token_usage_record", None): ThreadFacts._usage_record,
    ("x_files", None): ThreadFacts._file,
    ("event_msg", "token_count"): ThreadFacts._token_count,
    ("event_msg", "thread_settings_applied"): ThreadFacts._settings,
    ("event_msg", "sub_agent_activity"): ThreadFacts._agent,
    ("event_msg", "item_completed"): ThreadFacts._item,
}


def _setting(line: RolloutLine, value: Any, place: Place) -> Setting:
    if len(bytes(line.payload)) > SETTING_BYTES_MAX:
        return Setting(None, place)
    return Setting(plain_value(value), place)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, Mapping):
        return None
    return {name: count for name in _COUNTS if (count := _number(value.get(name))) is not None}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in _COUNTS if name in one or name in other}


def _renew(known: dict[str, dict[str, Any]], key: str, told: dict[str, Any], known_max: int) -> None:
    """What was told last stands last; the oldest of too many goes."""
    known.pop(key, None)
    known[key] = told
    if len(known) > known_max:
        del known[next(iter(known))]
