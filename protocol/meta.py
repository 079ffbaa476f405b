"""`session_meta`: the first record of a rollout, who and where the thread is.

Invariant: what is written always has the five keys without which Codex reads nothing (id,
timestamp, cwd, originator, cli_version). What is read keeps every key that can be read: a key
of a wrong type counts as absent, and absent keys mean what they mean to Codex (no
`history_mode` is "legacy", no `source` is "vscode").
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct, structs

from protocol.decoding import convert_plain, payload_decoder
from protocol.errors import InvalidLine, ItemNotEncodable
from protocol.items import RolloutItem, written
from protocol.line import RolloutLine
from protocol.validity import parse_object
from protocol.version import ORIGINATOR, VERSION

__all__ = [
    "DECODERS",
    "HISTORY_MODES",
    "BaseInstructions",
    "GitInfo",
    "HistoryBase",
    "SessionMeta",
    "decode_meta",
    "meta_of",
]

HISTORY_MODES = ("paginated", "legacy")


class GitInfo(Struct, omit_defaults=True):
    """The repository that the agent works in."""

    commit_hash: str | None = None
    branch: str | None = None
    repository_url: str | None = None


class HistoryBase(Struct, omit_defaults=True):
    """Where a forked or reverted rollout takes its history from (FORMAT.md, Forks).

    `thread_id` is a rollout id: the last uuid in the base file's name. The base's first
    `end_byte_offset` bytes count, whose ordinals are below `end_ordinal_exclusive`.
    """

    thread_id: str
    end_ordinal_exclusive: int
    end_byte_offset: int
    x_base_sha256: str | None = None
    """SHA-256 of the last line that counts, as hex."""


class BaseInstructions(Struct, omit_defaults=True):
    """The instructions that the model began with."""

    text: str
    provenance: dict[str, Any] | None = None


class SessionMeta(RolloutItem, kw_only=True):
    """Who and where a thread is. `SessionMeta(cwd=…)` is enough: the recorder fills in the rest.

    `model_provider` must name a provider of the user's own configuration, else Codex refuses to
    resume the thread; leave it out if you don't know one.
    """

    record_type: ClassVar[str] = "session_meta"

    session_id: str | None = None
    id: str | None = None
    """The thread id. None: the recorder makes one."""
    forked_from_id: str | None = None
    forked_from_ordinal_exclusive: int | None = None
    parent_thread_id: str | None = None
    timestamp: str | None = None
    """When the thread began (UTC, RFC 3339). None: now."""
    cwd: str
    originator: str = written(ORIGINATOR)
    cli_version: str = written(VERSION)
    source: Any = written("cli")
    """How it was started: cli, vscode, exec, mcp, or {"custom": …}, {"subagent": …}."""
    thread_source: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    agent_path: str | None = None
    model_provider: str | None = None
    base_instructions: BaseInstructions | None = None
    dynamic_tools: list[Any] | None = None
    memory_mode: str | None = None
    history_mode: str = written("paginated")
    history_base: HistoryBase | None = None
    subagent_history_start_ordinal: int | None = None
    multi_agent_version: str | None = None
    context_window: dict[str, Any] | None = None
    runtime_workspace_roots: list[str] | None = None
    selected_capability_roots: list[Any] | None = None
    account_scoped: bool | None = None
    instructions: str | None = None
    """Only read: old rollouts have their instructions here."""
    git: GitInfo | None = None
    x_task: Any = None
    """The contract that the agent was given: prompt, limits, base commit."""
    x_takeover: Any = None
    """Why the thread goes on in this rollout: its lock was taken by force. Who held it, and when that was."""
    x_pad: str | None = None
    """Padding, so that copied records keep their place in a block."""

    def filled(self, *, thread_id: str, timestamp: str) -> SessionMeta:
        """This meta with `id` and `timestamp` filled in where they are unset, fit to be written.

        Raises:
            ItemNotEncodable: a required key holds no text, or `history_mode` is unknown to Codex
                (which couldn't read the file).
        """
        meta = structs.replace(self, id=self.id or thread_id, timestamp=self.timestamp or timestamp)
        for name in ("id", "timestamp", "cwd", "originator", "cli_version"):
            if not isinstance(getattr(meta, name), str):
                raise ItemNotEncodable(f"{name} must be a text", item_type=self.record_type)
        if meta.history_mode not in HISTORY_MODES:
            raise ItemNotEncodable(
                f"history_mode must be one of {', '.join(HISTORY_MODES)}, not {meta.history_mode!r}",
                item_type=self.record_type,
            )
        return meta


class _ReadGit(GitInfo):
    commit: str | None = None


class _ReadMeta(SessionMeta, kw_only=True):
    """The same keys, with what their absence means."""

    cwd: str = ""
    originator: str = ""
    cli_version: str = ""
    source: Any = "vscode"
    history_mode: str = "legacy"
    git: _ReadGit | None = None


_decode_fast = payload_decoder(_ReadMeta)
_FIELDS = {each.encode_name: each for each in structs.fields(_ReadMeta)}


def decode_meta(payload: Raw | bytes) -> SessionMeta:
    """The meta of a payload, keeping every key that can be read. `id` is text, a UUID or not.

    Raises:
        InvalidLine: the payload is no JSON object.
    """
    try:
        read: _ReadMeta = _decode_fast(payload)
    except msgspec.ValidationError:
        read = _decode_by_key(parse_object(bytes(payload)))
    values = {name: getattr(read, name) for name in SessionMeta.__struct_fields__}
    if read.git is not None:
        git = read.git
        values["git"] = GitInfo(git.commit_hash or git.commit, git.branch, git.repository_url)
    return SessionMeta(**values)


def meta_of(line: RolloutLine) -> SessionMeta:
    """The meta of a meta line, whatever it holds: a payload that is no object says nothing."""
    try:
        return decode_meta(line.payload)
    except InvalidLine:
        return decode_meta(b"{}")


def _decode_by_key(value: dict[str, Any]) -> _ReadMeta:
    if isinstance(value.get("base_instructions"), str):
        value = {**value, "base_instructions": {"text": value["base_instructions"]}}
    if isinstance(value.get("git"), dict):
        value = {**value, "git": {key: each for key, each in value["git"].items() if isinstance(each, str)}}
    known = {}
    for name, given in value.items():
        if name in _FIELDS:
            try:
                known[name] = convert_plain(given, _FIELDS[name].type)
            except msgspec.ValidationError:
                continue
    return _ReadMeta(**known)


DECODERS = {"session_meta": decode_meta}
