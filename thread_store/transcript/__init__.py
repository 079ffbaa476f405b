"""A rollout as a person reads it: each fact once, though both tracks tell it."""

from __future__ import annotations

from thread_store.transcript.fact import Fact, FactKind, Form, ToolResult
from thread_store.transcript.fold import Transcript, TranscriptEntry

__all__ = ["Fact", "FactKind", "Form", "ToolResult", "Transcript", "TranscriptEntry"]
