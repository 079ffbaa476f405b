"""Claude Code's sessions: `<config>/projects/<folder>/<session>.jsonl`, and its sub-agents' files beside.

Invariant: rows are taken in the order of the file, each once (one that stands there again says nothing new).
The tree of `parentUuid` is only asked where a prompt goes on from: an earlier turn than the last one means
that the turns in between were taken back. A parent that isn't there is a gap, which is bridged.

One reply stands on several rows, one block each; parallel calls and their answers hang on different rows of
the tree, but their ids say which belong together. A row with `isSidechain` is a sub-agent's, unless the whole
file is one's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.items import RolloutItem
from protocol.meta import GitInfo
from thread_store.importing.content import as_output, images_of, joined_text
from thread_store.importing.conversation import Conversation
from thread_store.importing.json_lines import JsonLine, read_json_lines
from thread_store.importing.source import MAIN, SourceDamage, SourceThread, Step
from thread_store.importing.values import as_moment, as_text

__all__ = ["FORMAT", "ClaudeCodeReader", "looks_like"]

FORMAT = "claude-code"

_TREE = frozenset({"user", "assistant", "system", "attachment", "progress"})
_HEAD_LINES = 400
_INJECTED = re.compile(
    r"\s*(?:<(?:command-name|command-message|command-args|local-command-stdout|local-command-stderr"
    r"|local-command-caveat|system-reminder|task-notification|environment_context|bash-input|bash-stdout"
    r"|bash-stderr|user-memory-input|ide_opened_file|ide_selection)>"
    r"|Caveat: The messages below were generated)"
)
"""What the program puts into the place of a prompt."""
_INTERRUPTED = "[Request interrupted"
_ENDS = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal"})


def looks_like(values: list[dict[str, Any]]) -> bool:
    """Whether these first records are Claude Code's."""
    return any(
        ("sessionId" in each and as_text(each.get("type")) in _TREE and "payload" not in each)
        or each.get("type") in ("file-history-snapshot", "queue-operation")
        or (each.get("type") == "summary" and "leafUuid" in each)
        for each in values
    )


class ClaudeCodeReader:
    """One file. `parent`: the session that a sub-agent's file lies beside."""

    def __init__(self, path: str, parent: str | None = None) -> None:
        self.path = path
        self.damaged: list[SourceDamage] = []
        self._parent = parent
        self._is_subagent = parent is not None or os.path.basename(path).startswith("agent-")
        self._main = self._find_main()

    def _find_main(self) -> SourceThread:
        session, cwd, branch, version, first_ms = None, None, None, "", None
        for line, _ in zip(read_json_lines(self.path, []), range(_HEAD_LINES), strict=False):
            row = line.value
            session = session or as_text(row.get("sessionId"))
            cwd, branch = cwd or as_text(row.get("cwd")), branch or as_text(row.get("gitBranch"))
            version = version or as_text(row.get("version")) or ""
            at_ms = as_moment(row.get("timestamp"))
            first_ms = at_ms if first_ms is None else first_ms
            if session and cwd and first_ms is not None:
                break
        name = os.path.basename(self.path).removesuffix(".jsonl")
        return SourceThread(
            format=FORMAT,
            id=name if self._is_subagent or session is None else session,
            path=self.path,
            created_ms=first_ms or 0,
            cwd=cwd or "/",
            git=GitInfo(branch=branch) if branch else None,
            originator="claude-code",
            version=version,
            parent=self._parent,
            branches=True,
        )

    def threads(self) -> list[SourceThread]:
        return [self._main]

    def sub_thread(self, sub: str) -> SourceThread:
        main = self._main
        return SourceThread(
            format=FORMAT,
            id=f"{main.id}/{sub}",
            path=self.path,
            created_ms=main.created_ms,
            sub=sub,
            cwd=main.cwd,
            git=main.git,
            originator=main.originator,
            version=main.version,
            parent=main.id,
            branches=True,
        )

    def steps(self) -> Iterator[Step]:
        self.damaged.clear()
        rows = _Rows(self)
        for line in read_json_lines(self.path, self.damaged):
            yield from rows.take(line)

    def conversation(self, sub: str) -> Conversation:
        """The one that a sub-agent's rows, or the main ones, go into."""
        return Conversation(self._main if sub == MAIN else self.sub_thread(sub))

    @property
    def is_subagent(self) -> bool:
        """Whether the whole file is a sub-agent's."""
        return self._is_subagent


class _Rows:
    """The rows in turn, and what must be known of those before."""

    def __init__(self, reader: ClaudeCodeReader) -> None:
        self._reader = reader
        self._turn_of: dict[str, tuple[str, int]] = {}
        """Of each row of the tree: whose it is, and how many turns there were with it."""
        self._conversations: dict[str, Conversation] = {}
        self._at_ms = reader.threads()[0].created_ms

    def take(self, line: JsonLine) -> Iterator[Step]:
        row = line.value
        kind = as_text(row.get("type"))
        self._at_ms = at_ms = as_moment(row.get("timestamp")) or self._at_ms
        if kind in ("custom-title", "ai-title", "summary"):
            yield self._title(row, str(kind), line)
            return
        uuid = as_text(row.get("uuid"))
        if kind not in _TREE or (uuid is not None and uuid in self._turn_of):
            yield self._kept(row, str(kind), line)
            return
        sub = self._whose(row)
        talk = self._talk(sub)
        items, has_counterpart = self._items(row, str(kind), talk, at_ms)
        if uuid is not None:
            self._turn_of[uuid] = (sub, talk.turns)
        if has_counterpart:
            yield Step(at_ms, items, sub)
        else:
            yield Step(at_ms, [*items, *talk.kept(row, offset=line.offset)], sub, kept=_kind_of(row))

    def _title(self, row: Mapping[str, Any], kind: str, line: JsonLine) -> Step:
        text = as_text(row.get({"custom-title": "customTitle", "ai-title": "aiTitle"}.get(kind, "")))
        kept = self._talk(MAIN).kept(dict(row), offset=line.offset)
        # A summary names a row of whatever session it was made in: that is not this one's title.
        return Step(self._at_ms, kept, kept=kind, title=text)

    def _kept(self, row: Mapping[str, Any], kind: str, line: JsonLine) -> Step:
        return Step(self._at_ms, self._talk(MAIN).kept(dict(row), offset=line.offset), kept=kind)

    def _whose(self, row: Mapping[str, Any]) -> str:
        if row.get("isSidechain") is not True or self._reader.is_subagent:
            return MAIN
        agent = as_text(row.get("agentId"))
        if agent is not None:
            return agent
        parent = self._turn_of.get(as_text(row.get("parentUuid")) or "")
        if parent is not None and parent[0] != MAIN:
            return parent[0]
        return as_text(row.get("uuid")) or "sidechain"

    def _talk(self, sub: str) -> Conversation:
        if sub not in self._conversations:
            self._conversations[sub] = self._reader.conversation(sub)
        return self._conversations[sub]

    def _items(
        self, row: dict[str, Any], kind: str, talk: Conversation, at_ms: int
    ) -> tuple[list[RolloutItem], bool]:
        """And whether all that the row says is in them."""
        message = row.get("message")
        if kind not in ("user", "assistant") or not isinstance(message, Mapping):
            return [], False
        content = message.get("content")
        if kind == "assistant":
            return self._reply(message, content, talk, at_ms)
        if row.get("isCompactSummary") is True:
            return talk.compaction(joined_text(content), [], at_ms), True
        return self._said(row, content, talk, at_ms)

    def _reply(
        self, message: Mapping[str, Any], content: Any, talk: Conversation, at_ms: int
    ) -> tuple[list[RolloutItem], bool]:
        talk.use_model(as_text(message.get("model")))
        items: list[RolloutItem] = []
        whole, last = True, None
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            made, last_text = _reply_block(block, talk, at_ms)
            whole = whole and made is not None
            items += made or []
            last = last_text or last
        if as_text(message.get("stop_reason")) in _ENDS and not talk.open_calls:
            items += talk.end_turn(at_ms, last=last)
        return items, whole

    def _said(
        self, row: Mapping[str, Any], content: Any, talk: Conversation, at_ms: int
    ) -> tuple[list[RolloutItem], bool]:
        items: list[RolloutItem] = []
        whole, rest = True, content
        if isinstance(content, list):
            results = [each for each in content if _type(each) == "tool_result"]
            rest = [each for each in content if _type(each) != "tool_result"]
            for block in results:
                made = talk.result(
                    as_text(block.get("tool_use_id")),
                    as_output(block.get("content")),
                    at_ms,
                    failed=block.get("is_error") is True,
                )
                whole = whole and made is not None
                items += made or []
            if results and not rest:
                return items, whole
            whole = whole and all(_type(each) in ("text", "image") for each in rest)
        text, images = joined_text(rest), images_of(rest)
        if not text and not images:
            return items, whole and not content
        if text.startswith(_INTERRUPTED):
            return [*items, *talk.abort_turn(at_ms)], whole
        if row.get("isMeta") is True or _INJECTED.match(text):
            return [*items, *talk.context(text, at_ms)], whole
        return [*items, *self._back_to(row, talk), *talk.user(text, at_ms, images=images)], whole

    def _back_to(self, row: Mapping[str, Any], talk: Conversation) -> list[RolloutItem]:
        """A prompt that goes on from an earlier turn takes back those behind it."""
        parent = self._turn_of.get(as_text(row.get("parentUuid")) or "")
        return [] if parent is None else talk.roll_back(talk.turns - parent[1])


def _reply_block(block: Any, talk: Conversation, at_ms: int) -> tuple[list[RolloutItem] | None, str | None]:
    """The items of one block, None if it has no counterpart; and the text that was said."""
    match _type(block):
        case "text":
            text = joined_text(block)
            return (talk.assistant(text, at_ms) if text else []), text
        case "thinking":
            made = talk.thinking(
                as_text(block.get("thinking")) or "", at_ms, encrypted=as_text(block.get("signature"))
            )
            return made, None
        case "redacted_thinking":
            return talk.thinking("", at_ms, encrypted=as_text(block.get("data"))), None
        case "tool_use":
            name = as_text(block.get("name")) or "tool"
            return talk.call(as_text(block.get("id")), name, block.get("input", {}), at_ms), None
    return None, None


def _type(block: Any) -> str | None:
    return block.get("type") if isinstance(block, Mapping) else None


def _kind_of(row: Mapping[str, Any]) -> str:
    kind, sub = row.get("type"), row.get("subtype")
    if kind == "attachment" and isinstance(row.get("attachment"), Mapping):
        sub = row["attachment"].get("type")
    return f"{kind}/{sub}" if isinstance(sub, str) else str(kind)
