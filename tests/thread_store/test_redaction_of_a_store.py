"""Redaction over a whole home: the secret is in no file of it, whatever is done with its threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import RedactionFailed, ResponseItem, SessionMeta
from protocol.meta import GitInfo
from rollout import RecorderConfig, RolloutRecorder
from tests.rollout.secrets_made import github_token
from thread_store import Compaction, EventStreams, ForkPoint, LocalThreadStore, MemoryThreadStore

TOKEN = github_token(7)


def censor(text: str) -> str:
    return text.replace(TOKEN, "[redacted:canary]")


CONFIG = RecorderConfig(redact=censor)


def files_with_the_token(folder: Path) -> Iterator[str]:
    for each in folder.rglob("*"):
        if each.is_file() and TOKEN.encode() in each.read_bytes():
            yield str(each)


@pytest.mark.case("B102")
@pytest.mark.asyncio
async def test_secret_is_in_no_file_of_the_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Turns, calls, decisions, states, compactions, sub-agents, forks, memory and snapshots; nor in a log."""
    caplog.set_level("DEBUG")
    git = GitInfo(repository_url=f"https://x:{TOKEN}@host/repo.git")
    meta = SessionMeta(cwd=f"/srv/{TOKEN}", git=git, x_task={"prompt": TOKEN})
    async with LocalThreadStore(tmp_path, config=CONFIG) as store:
        thread = await store.create_thread(meta)
        async with thread.turn() as turn:
            turn.user_message(f"deploy with {TOKEN}")
            turn.agent_message(f"I use {TOKEN}")
            async with turn.tool_call("shell", {"cmd": f"curl -u {TOKEN}"}, effect="none") as call:
                call.completed(f"out: {TOKEN}")
        await thread.compact(lambda view: _summary())
        await thread.set_state("paused", reason=f"waits for {TOKEN}")
        child = await store.create_subagent(thread, nickname="ann")
        await child.record(ResponseItem.message("user", TOKEN))
        with pytest.raises(ValueError, match="left"):
            async with thread.turn() as turn, turn.tool_call("shell", {"cmd": TOKEN}) as call:
                raise ValueError(f"left {TOKEN}")
        thread_id = thread.thread_id
        await thread.aclose()
        fork = await store.fork_thread(thread_id, at=ForkPoint.end())
        await fork.record(ResponseItem.message("user", TOKEN))
        await fork.aclose()
        assert not [*files_with_the_token(tmp_path)]
    assert not [*files_with_the_token(tmp_path)]
    assert len([*tmp_path.rglob("rollout-*.jsonl")]) == 3
    assert TOKEN not in caplog.text


async def _summary() -> Compaction:
    return Compaction(f"so far: {TOKEN}", [ResponseItem.message("user", TOKEN)])


@pytest.mark.case("B102")
@pytest.mark.asyncio
async def test_decision_is_redacted_as_the_store_says(tmp_path: Path) -> None:
    """A note on a call goes through the redactor too, though nobody has opened the thread."""
    async with LocalThreadStore(tmp_path, config=CONFIG) as store:
        thread = await store.create_thread(SessionMeta(cwd="/"))
        await thread.record(ResponseItem.function_call(name="n", arguments="{}", call_id="c"))
        await thread.aclose()
        await store.resolve_call(thread.thread_id, "c", "happened", by="me", note=f"saw {TOKEN}")
    assert not [*files_with_the_token(tmp_path)]
    assert b"saw [redacted:canary]" in next(tmp_path.rglob("rollout-*.jsonl")).read_bytes()


@pytest.mark.asyncio
async def test_one_thread_may_redact_and_another_not(tmp_path: Path) -> None:
    """The settings of a thread go before those of the store."""
    async with LocalThreadStore(tmp_path) as store:
        clear = await store.create_thread(SessionMeta(cwd="/"))
        closed = await store.create_thread(SessionMeta(cwd="/"), config=CONFIG)
        for each in (clear, closed):
            await each.record(ResponseItem.message("user", TOKEN))
        await clear.flush()
        await closed.flush()
        assert closed.health.redactions == {"canary": 1}
        assert [*files_with_the_token(tmp_path)] == [clear.path]


@pytest.mark.asyncio
async def test_store_in_memory_redacts_alike() -> None:
    """What it gives back holds no secret either."""
    async with MemoryThreadStore(config=CONFIG) as store:
        thread = await store.create_thread(SessionMeta(cwd="/"))
        await thread.record(ResponseItem.message("user", TOKEN))
        await thread.sync()
        history = await store.read_thread(thread.thread_id)
        lines = [each.line for each in history.records]
        assert not [each for each in lines if each is not None and TOKEN.encode() in (each.source or b"")]


@pytest.mark.case("B102")
@pytest.mark.parametrize("redacts", ["transcript", "trace"])
@pytest.mark.asyncio
async def test_what_one_stream_may_not_store_the_other_does_not(tmp_path: Path, redacts: str) -> None:
    """A trace without a redactor would hold what the transcript left out."""
    configs = {name: CONFIG if name == redacts else RecorderConfig() for name in ("transcript", "trace")}
    streams = EventStreams(
        **{
            name: await RolloutRecorder.create(tmp_path / f"{name}.jsonl", config=config)
            for name, config in configs.items()
        }
    )
    async with streams:
        streams.record_nowait(ResponseItem.message("user", TOKEN))
    assert not [*files_with_the_token(tmp_path)]
    for name in configs:
        assert b"[redacted:canary]" in (tmp_path / f"{name}.jsonl").read_bytes()


@pytest.mark.asyncio
async def test_failing_hook_keeps_an_item_from_both_streams(tmp_path: Path) -> None:
    """Neither is told what the hook could not judge."""

    def broken(text: str) -> str:
        raise ValueError(text)

    def redact(text: str) -> str:
        return broken(text) if TOKEN in text else text

    config = RecorderConfig(redact=redact)
    transcript = await RolloutRecorder.create(tmp_path / "a.jsonl", config=config)
    async with EventStreams(transcript, await RolloutRecorder.create(tmp_path / "b.jsonl")) as streams:
        with pytest.raises(RedactionFailed):
            streams.record_nowait(ResponseItem.message("user", TOKEN))
    assert not [*files_with_the_token(tmp_path)]


@pytest.mark.case("B102")
def test_secret_of_the_command_line_is_in_no_lock_file(tmp_path: Path) -> None:
    """A lock file tells whose it is, with the command; a redactor sees that too."""
    (tmp_path / "told.py").write_text(
        "import sys; from rollout import RecorderConfig\n"
        "from thread_store import Home, LocalThreads\n"
        "config = RecorderConfig(redact=lambda text: text.replace(sys.argv[1], '[gone]'))\n"
        "threads = LocalThreads(Home(sys.argv[2]), config=config).start()\n"
        "threads.create()\n"
        "print(*(each.writer.command for each in threads.locks.holders()))\n"
        "print(*(open(each).read() for each in __import__('glob').glob(sys.argv[2] + '/*/*.lock')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import told", TOKEN, tmp_path / "home"],  # short: only so much is told
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.fspath(tmp_path), os.getcwd()])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[gone]" in done.stdout
    assert TOKEN not in done.stdout


# The command line


def record(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    content = [{"type": "input_text", "text": TOKEN}]
    payload = {"type": "message", "role": "user", "content": content}
    line = json.dumps({"type": "response_item", "payload": payload})
    return subprocess.run(
        [sys.executable, "-m", "thread_store", "--home", str(home), "record", *arguments],
        input=line + "\n",
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )


@pytest.mark.case("B102")
@pytest.mark.parametrize(
    ("arguments", "variable"), [(("--redact", "on"), "off"), ((), "on"), ((), "github-pat")]
)
def test_record_redacts_when_told_to(tmp_path: Path, arguments: tuple[str, ...], variable: str) -> None:
    """By its option, else by the variable; and says what it has replaced."""
    done = record(tmp_path, *arguments, ROLLOUT_REDACT=variable)
    assert done.returncode == 0, done.stderr
    assert "redacted 1 (github-pat 1)" in done.stderr
    assert not [*files_with_the_token(tmp_path)]


@pytest.mark.parametrize(("arguments", "variable"), [((), ""), ((), "off"), (("--redact", "off"), "on")])
def test_record_does_not_redact_unless_told_to(
    tmp_path: Path, arguments: tuple[str, ...], variable: str
) -> None:
    """It is off by default."""
    done = record(tmp_path, *arguments, ROLLOUT_REDACT=variable)
    assert done.returncode == 0, done.stderr
    assert [*files_with_the_token(tmp_path / "sessions")]


def test_unknown_rule_is_a_usage_error(tmp_path: Path) -> None:
    """A slip of the pen must not mean that nothing is redacted."""
    done = record(tmp_path, "--redact", "onn")
    assert done.returncode == 2
    assert "'onn'" in done.stderr
    assert not [*tmp_path.rglob("*.jsonl")]
