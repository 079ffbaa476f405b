"""What the tests with the real Codex share: the binary, homes, the model's stand-in, a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from protocol.meta import SessionMeta
from protocol.response_items import Message
from tests.codex.app_server import AppServer, find_codex, make_home, running
from tests.codex.model_service import ModelService
from thread_store.chain.history import ThreadHistory
from thread_store.local_store import LocalThreadStore
from thread_store.thread import Thread

Start = Callable[[], AbstractAsyncContextManager[AppServer]]
"""Starts a Codex on the home of the test."""


@pytest.fixture(scope="session")
def codex() -> Path:
    """The binary. Where it is missing the tests fail: who asks for them wants to know."""
    found = find_codex()
    assert found is not None, "no codex on the path; install it, or name it in ROLLOUT_CODEX"
    return found


@pytest.fixture
def model() -> Iterator[ModelService]:
    with ModelService() as service:
        yield service


@pytest.fixture
def home(tmp_path: Path, model: ModelService) -> Path:
    """A home of Codex, and of ours."""
    return make_home(tmp_path / "codex", model_url=model.url)


@pytest.fixture
def start(codex: Path, home: Path) -> Start:
    return partial(running, codex, home)


@pytest_asyncio.fixture
async def store(home: Path) -> AsyncIterator[LocalThreadStore]:
    async with LocalThreadStore(home, collect_git=False) as store:
        yield store


def meta_in(home: Path) -> SessionMeta:
    """Of a thread that Codex can go on with: with the model that its configuration names."""
    return SessionMeta(cwd=str(home.parent), model_provider="mock")


async def say(thread: Thread, *numbers: int) -> None:
    """A turn a number."""
    for number in numbers:
        async with thread.turn() as turn:
            turn.user_message(f"question {number}")
            turn.agent_message(f"answer {number}")


def texts_in(history: ThreadHistory) -> list[str]:
    """The messages on the model's track, but for those that Codex begins a turn with."""
    messages = [item for item in history.items() if isinstance(item, Message)]
    texts = [part.text for item in messages if item.role in ("user", "assistant") for part in item.content]
    return [text for text in texts if not text.startswith("<")]


def said(*numbers: int) -> list[str]:
    """The texts of these turns."""
    return [text for number in numbers for text in (f"question {number}", f"answer {number}")]
