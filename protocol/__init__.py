"""Pure data: ids, items, the line and its rules. No I/O, no waiting.

The names below are loaded when they are first asked for, so that a program pays only for what
it uses. Rarer kinds of items are in `protocol.response_variants` and `protocol.event_variants`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol import tracks
    from protocol.approvals import Approval, ApprovalFold
    from protocol.blobs import Blob, BlobProblem
    from protocol.bounding import StorageBounds
    from protocol.call_state import Decision, ToolCall
    from protocol.checks import Check, CheckFold
    from protocol.codec import encode_item
    from protocol.content import EncryptedContent, InputAudio, InputImage, InputText, OutputText
    from protocol.context import (
        Compacted,
        InterAgentCommunication,
        TokenUsageRecord,
        TurnContext,
        WorldState,
    )
    from protocol.damage import Damage, DamageFold
    from protocol.document import place_document, upcast_document
    from protocol.errors import (
        ActiveWriter,
        ApprovalAnswered,
        CallNotResolvable,
        CallRefused,
        CompactionRefused,
        ForkPointInvalid,
        ForkRefused,
        InvalidLine,
        InvalidThreadId,
        ItemNotEncodable,
        NotARollout,
        PendingQueueFull,
        RecorderClosed,
        RecordTooLarge,
        RedactionFailed,
        RedactionUnavailable,
        ResumeRefused,
        RolloutError,
        RolloutExists,
        RolloutMoved,
        RolloutReplaced,
        RolloutUnreadable,
        RolloutWriteError,
        ThreadNotFound,
        ThreadReferenced,
        UnwrittenItems,
        WriterFenced,
        WriterHolder,
    )
    from protocol.events import (
        AgentMessageEvent,
        AgentReasoningEvent,
        ContextCompacted,
        EventMsg,
        ItemCompleted,
        McpToolCallEnd,
        MessageCompleted,
        PatchApplyEnd,
        PlanStep,
        PlanUpdate,
        TaskComplete,
        TaskStarted,
        ThreadRolledBack,
        TokenCount,
        TokenUsage,
        TokenUsageInfo,
        TurnAborted,
        UserMessageEvent,
        WebSearchEnd,
    )
    from protocol.fold_filter import item_matters, matters
    from protocol.ids import ThreadId
    from protocol.items import CODEX_TYPES, RawItem, RolloutItem, bind, decode_item
    from protocol.line import RolloutLine, decode_line, encode_line
    from protocol.memory_entries import Entry
    from protocol.meta import BaseInstructions, GitInfo, HistoryBase, SessionMeta
    from protocol.own import (
        ApprovalItem,
        CallItem,
        CheckItem,
        ErasedItem,
        FilesItem,
        GapItem,
        MemoryItem,
        SourceItem,
        StateItem,
        WriterItem,
    )
    from protocol.plans import Plan, Todo
    from protocol.redact import redact_item, redact_item_by, redact_text
    from protocol.response_items import (
        CustomToolCall,
        CustomToolCallOutput,
        FunctionCall,
        FunctionCallOutput,
        LocalShellCall,
        Message,
        Reasoning,
        ResponseItem,
        WebSearchCall,
    )
    from protocol.session_memory import SessionMemory
    from protocol.thread_facts import Setting, ThreadFacts, Usage
    from protocol.thread_fold import ThreadFold
    from protocol.timestamps import format_timestamp, now_ms, parse_timestamp
    from protocol.tool_calls import CallChange, ToolCallFold
    from protocol.tool_safety import DEFAULT_TOOL_SAFETY, Effect, ToolSafety
    from protocol.tool_verdicts import ToolVerdict
    from protocol.turn_items import (
        AgentMessageItem,
        CommandExecutionItem,
        ContextCompactionItem,
        DynamicToolCallItem,
        FileChangeItem,
        McpToolCallItem,
        PlanItem,
        ReasoningItem,
        TimeSpan,
        TurnItem,
        UserMessageItem,
        WebSearchItem,
        new_item_id,
    )
    from protocol.version import VERSION

__all__ = [
    "CODEX_TYPES",
    "DEFAULT_TOOL_SAFETY",
    "VERSION",
    "ActiveWriter",
    "AgentMessageEvent",
    "AgentMessageItem",
    "AgentReasoningEvent",
    "Approval",
    "ApprovalAnswered",
    "ApprovalFold",
    "ApprovalItem",
    "BaseInstructions",
    "Blob",
    "BlobProblem",
    "CallChange",
    "CallItem",
    "CallNotResolvable",
    "CallRefused",
    "Check",
    "CheckFold",
    "CheckItem",
    "CommandExecutionItem",
    "Compacted",
    "CompactionRefused",
    "ContextCompacted",
    "ContextCompactionItem",
    "CustomToolCall",
    "CustomToolCallOutput",
    "Damage",
    "DamageFold",
    "Decision",
    "DynamicToolCallItem",
    "Effect",
    "EncryptedContent",
    "Entry",
    "ErasedItem",
    "EventMsg",
    "FileChangeItem",
    "FilesItem",
    "ForkPointInvalid",
    "ForkRefused",
    "FunctionCall",
    "FunctionCallOutput",
    "GapItem",
    "GitInfo",
    "HistoryBase",
    "InputAudio",
    "InputImage",
    "InputText",
    "InterAgentCommunication",
    "InvalidLine",
    "InvalidThreadId",
    "ItemCompleted",
    "ItemNotEncodable",
    "LocalShellCall",
    "McpToolCallEnd",
    "McpToolCallItem",
    "MemoryItem",
    "Message",
    "MessageCompleted",
    "NotARollout",
    "OutputText",
    "PatchApplyEnd",
    "PendingQueueFull",
    "Plan",
    "PlanItem",
    "PlanStep",
    "PlanUpdate",
    "RawItem",
    "Reasoning",
    "ReasoningItem",
    "RecordTooLarge",
    "RecorderClosed",
    "RedactionFailed",
    "RedactionUnavailable",
    "ResponseItem",
    "ResumeRefused",
    "RolloutError",
    "RolloutExists",
    "RolloutItem",
    "RolloutLine",
    "RolloutMoved",
    "RolloutReplaced",
    "RolloutUnreadable",
    "RolloutWriteError",
    "SessionMemory",
    "SessionMeta",
    "Setting",
    "SourceItem",
    "StateItem",
    "StorageBounds",
    "TaskComplete",
    "TaskStarted",
    "ThreadFacts",
    "ThreadFold",
    "ThreadId",
    "ThreadNotFound",
    "ThreadReferenced",
    "ThreadRolledBack",
    "TimeSpan",
    "Todo",
    "TokenCount",
    "TokenUsage",
    "TokenUsageInfo",
    "TokenUsageRecord",
    "ToolCall",
    "ToolCallFold",
    "ToolSafety",
    "ToolVerdict",
    "TurnAborted",
    "TurnContext",
    "TurnItem",
    "UnwrittenItems",
    "Usage",
    "UserMessageEvent",
    "UserMessageItem",
    "WebSearchCall",
    "WebSearchEnd",
    "WebSearchItem",
    "WorldState",
    "WriterFenced",
    "WriterHolder",
    "WriterItem",
    "bind",
    "decode_item",
    "decode_line",
    "encode_item",
    "encode_line",
    "format_timestamp",
    "item_matters",
    "matters",
    "new_item_id",
    "now_ms",
    "parse_timestamp",
    "place_document",
    "redact_item",
    "redact_item_by",
    "redact_text",
    "tracks",
    "upcast_document",
]

_NAMES = {
    "blobs": "Blob BlobProblem",
    "bounding": "StorageBounds",
    "codec": "encode_item",
    "content": "EncryptedContent InputAudio InputImage InputText OutputText",
    "context": "Compacted InterAgentCommunication TokenUsageRecord TurnContext WorldState",
    "document": "place_document upcast_document",
    "errors": (
        "ActiveWriter ApprovalAnswered CallNotResolvable CallRefused CompactionRefused ForkPointInvalid "
        "ForkRefused InvalidLine InvalidThreadId ItemNotEncodable NotARollout "
        "PendingQueueFull RecordTooLarge RecorderClosed RedactionFailed RedactionUnavailable ResumeRefused "
        "RolloutError RolloutExists "
        "RolloutMoved RolloutReplaced RolloutUnreadable RolloutWriteError ThreadNotFound "
        "ThreadReferenced UnwrittenItems WriterFenced WriterHolder"
    ),
    "events": (
        "AgentMessageEvent AgentReasoningEvent ContextCompacted EventMsg ItemCompleted McpToolCallEnd "
        "MessageCompleted PatchApplyEnd PlanStep PlanUpdate TaskComplete TaskStarted ThreadRolledBack "
        "TokenCount TokenUsage TokenUsageInfo TurnAborted UserMessageEvent WebSearchEnd"
    ),
    "ids": "ThreadId",
    "items": "CODEX_TYPES RawItem RolloutItem bind decode_item",
    "line": "RolloutLine decode_line encode_line",
    "meta": "BaseInstructions GitInfo HistoryBase SessionMeta",
    "own": (
        "ApprovalItem CallItem CheckItem ErasedItem FilesItem GapItem MemoryItem SourceItem StateItem "
        "WriterItem"
    ),
    "redact": "redact_item redact_item_by redact_text",
    "response_items": (
        "CustomToolCall CustomToolCallOutput FunctionCall FunctionCallOutput LocalShellCall Message "
        "Reasoning ResponseItem WebSearchCall"
    ),
    "timestamps": "format_timestamp now_ms parse_timestamp",
    "turn_items": (
        "AgentMessageItem CommandExecutionItem ContextCompactionItem DynamicToolCallItem "
        "FileChangeItem McpToolCallItem PlanItem ReasoningItem TimeSpan TurnItem UserMessageItem "
        "WebSearchItem new_item_id"
    ),
    "version": "VERSION",
    "approvals": "Approval ApprovalFold",
    "call_state": "Decision ToolCall",
    "checks": "Check CheckFold",
    "damage": "Damage DamageFold",
    "fold_filter": "item_matters matters",
    "memory_entries": "Entry",
    "plans": "Plan Todo",
    "session_memory": "SessionMemory",
    "thread_facts": "Setting ThreadFacts Usage",
    "thread_fold": "ThreadFold",
    "tool_calls": "CallChange ToolCallFold",
    "tool_safety": "DEFAULT_TOOL_SAFETY Effect ToolSafety",
    "tool_verdicts": "ToolVerdict",
}
_HOMES = {name: f"protocol.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "tracks":
        return import_module("protocol.tracks")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
