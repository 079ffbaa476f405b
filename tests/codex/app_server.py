"""A driver for `codex app-server`: JSON messages, one a line, over its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["AppServer", "CodexError", "find_codex", "make_home", "running"]

_LINE_BYTES_MAX = 64 << 20
_PATIENCE_SECONDS = 60
"""Only ends a test that has failed."""

_CONFIG = """
model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.mock]
name = "mock"
base_url = "{url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
"""


def find_codex() -> Path | None:
    """The native binary: `ROLLOUT_CODEX`, else what `codex` on the path is, or starts."""
    named = os.environ.get("ROLLOUT_CODEX") or shutil.which("codex")
    if not named or not os.path.exists(named):
        return None
    found = Path(named).resolve()
    if found.read_bytes()[:2] != b"#!":
        return found
    # The launcher of the npm package; the binary lies in a package of its own for the platform.
    return next(found.parents[2].rglob("codex-*/vendor/*/bin/codex"), None)


def make_home(folder: Path, *, model_url: str) -> Path:
    """A home whose only model is the one at this URL."""
    folder.mkdir()
    (folder / "config.toml").write_text(_CONFIG.format(url=model_url))
    return folder


class CodexError(Exception):
    """What the server answered instead of a result."""


class AppServer:
    """One running server. Made by `running`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._number = 0
        self._notes: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    async def call(self, method: str, **params: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            CodexError: it refuses.
        """
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (message := await self._receive()).get("id") != number or "method" in message:
                continue
        if "error" in message:
            raise CodexError(message["error"]["message"])
        return message["result"]

    async def turn(self, thread_id: str, text: str) -> dict[str, Any]:
        """Say something, and wait for the end of the turn."""
        self._notes.clear()
        await self.call("turn/start", threadId=thread_id, input=[{"type": "text", "text": text}])
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not (ended := [each for each in self._notes if _ends_turn(each, thread_id)]):
                await self._receive()
        turn: dict[str, Any] = ended[0]["params"]["turn"]
        return turn

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise CodexError("the server has ended")
        message: dict[str, Any] = json.loads(line)
        if "method" in message and "id" in message:
            self._send({"id": message["id"], "error": {"code": -32601, "message": "not offered here"}})
        elif "method" in message:
            self._notes.append(message)
        return message

    async def start(self) -> None:
        await self.call(
            "initialize",
            clientInfo={"name": "rollout_tests", "title": "tests", "version": "1"},
            capabilities={"experimentalApi": True},
        )
        self._send({"method": "initialized"})

    def stop(self) -> None:
        """Stop it where it is; returns when all of it stands."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Let it end by itself, as a client does that goes away."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self.process.wait()


def _ends_turn(note: dict[str, Any], thread_id: str) -> bool:
    return note["method"] == "turn/completed" and note["params"]["threadId"] == thread_id


@asynccontextmanager
async def running(codex: Path, home: Path) -> AsyncIterator[AppServer]:
    """A server on this home, which is gone when the block ends."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("CODEX_", "OPENAI_"))
    }
    process = await asyncio.create_subprocess_exec(
        codex,
        "app-server",
        cwd=home.parent,
        env={**environment, "CODEX_HOME": str(home), "HOME": str(home.parent)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES_MAX,
    )
    server = AppServer(process)
    try:
        await server.start()
        yield server
        await server.end()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
