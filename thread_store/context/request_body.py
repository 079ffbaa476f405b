"""The history of a thread in the shape in which a model's API takes it.

Invariant: made from the valid view alone, so each call has its result; what is left out is counted. The
form `messages` keeps the payloads byte for byte, for they are what the OpenAI Responses API takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.codec import encode_value
from thread_store.context.anthropic_messages import anthropic_messages
from thread_store.context.conversation import Conversation, read_conversation
from thread_store.context.model_item import ModelItem
from thread_store.context.openai_messages import openai_messages

if TYPE_CHECKING:
    from thread_store.resume.resume_state import ResumeState

__all__ = ["MessageForm", "RequestBody", "request_body"]


class MessageForm(StrEnum):
    """Whose API it is for."""

    MESSAGES = "messages"
    """As it was recorded: `instructions` and `input` of the OpenAI Responses API."""
    OPENAI = "openai"
    """`messages` of the OpenAI Chat Completions API, which many others take too."""
    ANTHROPIC = "anthropic"
    """`system` and `messages` of the Anthropic Messages API."""


class RequestBody(NamedTuple):
    """The part of a request that is the history, as one JSON object. `left_out`: by kind, how many items have
    no counterpart there."""

    json: bytes
    left_out: dict[str, int]


def request_body(state: ResumeState, form: MessageForm, *, with_memory: bool = False) -> RequestBody:
    """The history that a resume goes on from, behind its base instructions.

    `with_memory`: the session memory goes between the instructions and the history.
    """
    instructions, memory = _instructions(state), state.memory.render() if with_memory else ""
    items = state.view().items
    if form is MessageForm.MESSAGES:
        return RequestBody(_recorded(items, instructions, memory), {})
    conversation = read_conversation(items)
    system = [text for text in (instructions, memory) if text]
    return RequestBody(encode_value(_BODIES[form](conversation, system)), conversation.left_out)


def _instructions(state: ResumeState) -> str:
    value = state.base_instructions
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _recorded(items: Iterable[ModelItem], instructions: str, memory: str) -> bytes:
    payloads = [bytes(each.payload) for each in items]
    if memory:
        content = [{"type": "input_text", "text": memory}]
        payloads.insert(0, encode_value({"type": "message", "role": "developer", "content": content}))
    begin = b'"instructions":' + encode_value(instructions) + b"," if instructions else b""
    return b"{" + begin + b'"input":[' + b",".join(payloads) + b"]}"


def _openai(conversation: Conversation, system: list[str]) -> dict[str, Any]:
    return {"messages": openai_messages(conversation, system=system)}


def _anthropic(conversation: Conversation, system: list[str]) -> dict[str, Any]:
    prompt, messages = anthropic_messages(conversation, system=system)
    return {"system": prompt, "messages": messages} if prompt else {"messages": messages}


_BODIES: dict[MessageForm, Callable[[Conversation, list[str]], dict[str, Any]]] = {
    MessageForm.OPENAI: _openai,
    MessageForm.ANTHROPIC: _anthropic,
}
