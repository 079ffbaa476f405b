"""Many threads: stores of them, how they fork, where they are kept and found, and the command line over them.

The names below are loaded when they are first asked for, so that a program pays only for what
it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.session_memory import SessionMemory
    from protocol.tool_verdicts import ToolVerdict
    from thread_store.blobs.inlined import InlinedLine, inline_blobs
    from thread_store.blobs.unreferenced import (
        UnreferencedBlob,
        UnreferencedBlobs,
        find_unreferenced_blobs,
        remove_blob,
    )
    from thread_store.chain.fork_point import ForkPoint
    from thread_store.chain.history import ThreadHistory
    from thread_store.chain.thread_tree import ThreadTree, build_tree
    from thread_store.context.request_body import MessageForm, RequestBody, request_body
    from thread_store.erasing.erase import Erasure, ErasureReport
    from thread_store.erasing.erase_address import NamedRecord
    from thread_store.erasing.erase_plan import ErasePlan
    from thread_store.erasing.errors import EraseRefused
    from thread_store.erasing.needle import Needle
    from thread_store.errors import (
        AmbiguousThread,
        InvalidCursor,
        NotCurrentRollout,
        NotInHome,
        SearchInvalid,
        StoreClosed,
        ThreadsUnwritten,
    )
    from thread_store.home import Home, StoredRollout
    from thread_store.in_memory.store import MemoryThreadStore
    from thread_store.listing.index_guard import remove_index
    from thread_store.listing.thread_entry import ThreadEntry, ThreadPage
    from thread_store.listing.thread_list import list_threads
    from thread_store.listing.thread_query import ThreadQuery
    from thread_store.local_store import LocalThreadStore
    from thread_store.local_threads import LocalThreads
    from thread_store.locks.errors import LocksBusy
    from thread_store.resume.call_table import CallTable, list_calls
    from thread_store.resume.resumable import Resumable
    from thread_store.resume.resume_host import ResumeHost
    from thread_store.resume.resume_refusals import Refusal, RefusalReason
    from thread_store.resume.resume_state import ResumeState
    from thread_store.search.search_hit import Passage, SearchHit, SearchReport, SkippedPlace
    from thread_store.search.search_query import SearchOptions
    from thread_store.search.search_stream import SearchStream
    from thread_store.search.thread_search import ThreadSearch
    from thread_store.store import ThreadStore
    from thread_store.streams import EventStreams
    from thread_store.thread import Thread
    from thread_store.titles.prompt_history import PromptHistory
    from thread_store.titles.session_index import SessionIndex
    from thread_store.titles.thread_labels import ThreadLabels
    from thread_store.transcript import Transcript, TranscriptEntry
    from thread_store.turns.auto_compaction import Compaction
    from thread_store.turns.turn import Turn

__all__ = [
    "AmbiguousThread",
    "CallTable",
    "Compaction",
    "ErasePlan",
    "EraseRefused",
    "Erasure",
    "ErasureReport",
    "EventStreams",
    "ForkPoint",
    "Home",
    "InlinedLine",
    "InvalidCursor",
    "LocalThreadStore",
    "LocalThreads",
    "LocksBusy",
    "MemoryThreadStore",
    "MessageForm",
    "NamedRecord",
    "Needle",
    "NotCurrentRollout",
    "NotInHome",
    "Passage",
    "PromptHistory",
    "Refusal",
    "RefusalReason",
    "RequestBody",
    "Resumable",
    "ResumeHost",
    "ResumeState",
    "SearchHit",
    "SearchInvalid",
    "SearchOptions",
    "SearchReport",
    "SearchStream",
    "SessionIndex",
    "SessionMemory",
    "SkippedPlace",
    "StoreClosed",
    "StoredRollout",
    "Thread",
    "ThreadEntry",
    "ThreadHistory",
    "ThreadLabels",
    "ThreadPage",
    "ThreadQuery",
    "ThreadSearch",
    "ThreadStore",
    "ThreadTree",
    "ThreadsUnwritten",
    "ToolVerdict",
    "Transcript",
    "TranscriptEntry",
    "Turn",
    "UnreferencedBlob",
    "UnreferencedBlobs",
    "build_tree",
    "find_unreferenced_blobs",
    "inline_blobs",
    "list_calls",
    "list_threads",
    "remove_blob",
    "remove_index",
    "request_body",
]

_HOMES = {
    "AmbiguousThread": "thread_store.errors",
    "CallTable": "thread_store.resume.call_table",
    "Compaction": "thread_store.turns.auto_compaction",
    "ErasePlan": "thread_store.erasing.erase_plan",
    "EraseRefused": "thread_store.erasing.errors",
    "Erasure": "thread_store.erasing.erase",
    "ErasureReport": "thread_store.erasing.erase",
    "EventStreams": "thread_store.streams",
    "ForkPoint": "thread_store.chain.fork_point",
    "Home": "thread_store.home",
    "InlinedLine": "thread_store.blobs.inlined",
    "InvalidCursor": "thread_store.errors",
    "LocalThreadStore": "thread_store.local_store",
    "LocalThreads": "thread_store.local_threads",
    "LocksBusy": "thread_store.locks.errors",
    "MemoryThreadStore": "thread_store.in_memory.store",
    "MessageForm": "thread_store.context.request_body",
    "NamedRecord": "thread_store.erasing.erase_address",
    "Needle": "thread_store.erasing.needle",
    "NotCurrentRollout": "thread_store.errors",
    "NotInHome": "thread_store.errors",
    "Passage": "thread_store.search.search_hit",
    "PromptHistory": "thread_store.titles.prompt_history",
    "Refusal": "thread_store.resume.resume_refusals",
    "RefusalReason": "thread_store.resume.resume_refusals",
    "RequestBody": "thread_store.context.request_body",
    "Resumable": "thread_store.resume.resumable",
    "ResumeHost": "thread_store.resume.resume_host",
    "ResumeState": "thread_store.resume.resume_state",
    "SearchHit": "thread_store.search.search_hit",
    "SearchInvalid": "thread_store.errors",
    "SearchOptions": "thread_store.search.search_query",
    "SearchReport": "thread_store.search.search_hit",
    "SearchStream": "thread_store.search.search_stream",
    "SessionIndex": "thread_store.titles.session_index",
    "SessionMemory": "protocol.session_memory",
    "SkippedPlace": "thread_store.search.search_hit",
    "StoreClosed": "thread_store.errors",
    "StoredRollout": "thread_store.home",
    "Thread": "thread_store.thread",
    "ThreadEntry": "thread_store.listing.thread_entry",
    "ThreadHistory": "thread_store.chain.history",
    "ThreadSearch": "thread_store.search.thread_search",
    "ThreadLabels": "thread_store.titles.thread_labels",
    "ThreadPage": "thread_store.listing.thread_entry",
    "ThreadQuery": "thread_store.listing.thread_query",
    "ThreadStore": "thread_store.store",
    "ThreadTree": "thread_store.chain.thread_tree",
    "ThreadsUnwritten": "thread_store.errors",
    "ToolVerdict": "protocol.tool_verdicts",
    "Transcript": "thread_store.transcript",
    "TranscriptEntry": "thread_store.transcript",
    "Turn": "thread_store.turns.turn",
    "UnreferencedBlob": "thread_store.blobs.unreferenced",
    "UnreferencedBlobs": "thread_store.blobs.unreferenced",
    "build_tree": "thread_store.chain.thread_tree",
    "find_unreferenced_blobs": "thread_store.blobs.unreferenced",
    "inline_blobs": "thread_store.blobs.inlined",
    "list_calls": "thread_store.resume.call_table",
    "remove_blob": "thread_store.blobs.unreferenced",
    "list_threads": "thread_store.listing.thread_list",
    "remove_index": "thread_store.listing.index_guard",
    "request_body": "thread_store.context.request_body",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
