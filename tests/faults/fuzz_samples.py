"""Samples: whole inputs of each kind, made in code, from which the fuzzer's inputs come by mutation.

Invariant: an input is a tuple of byte strings, one for each file that it consists of; a sample depends on
nothing but this code. Device and inode of a derived snapshot are put in by its target, because they are
another one's in each run (`DEVICE`, `INODE`).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path

import zstandard

from protocol.codec import encode_item
from protocol.errors import NotARollout
from rollout.unwritten import UnwrittenHeader
from tests.faults.call_histories import THREAD, make_history
from tests.faults.numbered import numbered_item
from tests.thread_store.histories import STAMP, Script, dump, line, meta, place_of, turns, uuid
from thread_store.chain.fork_point import ForkPoint
from thread_store.chain.lineage import Lineage
from thread_store.folding.derived_snapshot import DerivedSnapshots
from thread_store.folding.thread_folding import fold_lineage
from thread_store.forks.fork import make_fork
from thread_store.home import Home
from thread_store.resume.resume_state import read_resume_state

__all__ = ["BASE", "DEVICE", "INODE", "OWN", "Parts", "samples_of"]

Parts = tuple[bytes, ...]

BASE, OWN = uuid(0xA), uuid(0xB)
DEVICE, INODE = b'"device":1111', b'"inode":2222'

_HISTORIES = 24
_LINES_MAX = 40


@cache
def samples_of(kind: str) -> list[Parts]:
    """All samples of a kind: `rollout`, `packed`, `lock`, `chain`, `snapshot`, `memory`, `state`, `kept`."""
    return {
        "rollout": _rollouts,
        "packed": _packed,
        "lock": _locks,
        "chain": _chains,
        "snapshot": _snapshots,
        "kept": _kept,
        "memory": _memories,
        "state": _states,
    }[kind]()


def _rollouts() -> list[Parts]:
    histories = [b"".join(make_history(seed).lines[:_LINES_MAX]) for seed in range(1, _HISTORIES)]
    hand = [
        meta(BASE) + turns(2),
        meta(BASE, None) + turns(2, ordinal=None),
        meta(BASE) + _compacted(),
        meta(BASE) + turns(1) + turns(1, ordinal=1)[:-40],
        b"\xef\xbb\xbf" + meta(BASE) + turns(1),
        (meta(BASE) + turns(1)).replace(b"\n", b"\r\n"),
        meta(BASE) + turns(1) + bytes(300),
        meta(BASE) + turns(1) + bytes(100) + b"\n" + turns(1, first=2, ordinal=30),
        turns(1) + meta(BASE) + meta(OWN),
        _texts(),
        _old_lines(),
        _document(),
        _index(),
        b"",
        b"\n\n \t\r\n",
    ]
    return [(each,) for each in (*histories, *hand)]


def _compacted() -> bytes:
    """A checkpoint with a history, a rollback, settings, tokens, and own types behind them."""
    script = Script()
    script.turn(1, calls=["a", "b"])
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old"}]}
    script.add("compacted", {"message": "sum", "replacement_history": [said, {**said, "role": "assistant"}]})
    script.add("turn_context", {"cwd": "/srv", "model": "m", "approval_policy": "never", "turn_id": "t2"})
    script.turn(2)
    script.event("thread_rolled_back", num_turns=1)
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    script.event("token_count", info={"last_token_usage": usage, "total_token_usage": usage})
    script.event("agent_reasoning", text="hm")
    script.add("x_task", {"prompt": "do it", "limits": {"usd": 1.5}})
    script.add("x_gap", {"bytes": 70, "cause": "truncated"})
    script.add("x_writer", {"event": "opened", "epoch": 2, "pid": 1, "cut_bytes": 9})
    script.add("x_approval", {"approval_id": "q", "state": "requested", "call_id": "z"})
    script.add("x_check", {"check_id": "k", "state": "started"})
    script.add("x_state", {"from": "a", "to": "b", "reason": "r"})
    script.add("x_files", {"path": "/a", "size": 3, "mtime_ms": 5, "sha256": "0" * 64})
    script.add("sub_agent_activity", {"agent_thread_id": OWN, "kind": "started"})
    script.add("world_state", {"full": True, "state": {}})
    return script.bytes


def _texts() -> bytes:
    """Strange texts: every kind of escape, line ends that are none, numbers at their limits."""
    texts = ["\u2028\u0085\x0b\x0c", "\ud800", "\udc00\ud800", "\0\x1f", "é漢🜁", 'a"\\/b', "x" * 5000]
    lines = [line("event_msg", {"type": "agent_message", "message": "m"}, 1)]
    for number, text in enumerate(texts, 2):
        payload = {"type": "agent_message", "message": text}
        value = {"timestamp": STAMP, "ordinal": number, "type": "event_msg", "payload": payload}
        lines.append(json.dumps(value, separators=(",", ":")).encode() + b"\n")
    for number in (2**63, -(2**63), 10**40, 1.5e300, float("nan"), float("inf"), -0.0):
        value = {"timestamp": STAMP, "type": "x_note", "payload": {"number": number}}
        lines.append(json.dumps(value).encode() + b"\n")
    deep = b"[" * 126 + b"]" * 126
    lines.append(b'{"timestamp":"' + STAMP.encode() + b'","type":"x_note","payload":' + deep + b"}\n")
    return meta(BASE) + b"".join(lines)


def _old_lines() -> bytes:
    return b"".join(
        dump(value) + b"\n"
        for value in (
            {"id": BASE, "timestamp": STAMP, "instructions": None, "git": {"commit_hash": "a"}},
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [], "id": "r"},
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
            {"record_type": "state"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
        )
    )


def _document() -> bytes:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    session = {"id": BASE, "timestamp": STAMP, "instructions": ""}
    return json.dumps({"session": session, "items": [said, said, said]}, indent=2).encode()


def _index() -> bytes:
    """As a session_index.jsonl: lines of another grammar."""
    names = [{"id": uuid(number), "thread_name": f"n{number}", "updated_at": STAMP} for number in range(8)]
    return b"".join(dump(each) + b"\n" for each in names)


def _packed() -> list[Parts]:
    plain = [parts[0] for parts in _rollouts()[::3]]
    whole = [zstandard.compress(each) for each in plain]
    frames = [
        b"".join(zstandard.compress(each[at : at + 700]) for at in range(0, len(each), 700))
        for each in plain[:4]
    ]
    sized = [zstandard.ZstdCompressor(write_checksum=True).compress(each) for each in plain[:4]]
    streamed = [zstandard.ZstdCompressor(write_content_size=False).compress(each) for each in plain[:2]]
    skippable = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello" + whole[0]
    bomb = zstandard.compress(meta(BASE) + b"x" * (32 << 20) + b"\n" + turns(1))
    return [(each,) for each in (*whole, *frames, *sized, *streamed, skippable, bomb)]


def _locks() -> list[Parts]:
    holder = {
        "pid": 4242,
        "started": 99,
        "boot_id": "b5c0",
        "pid_ns": "pid:[1]",
        "host": "h",
        "token": "0123456789abcdef" * 2,
        "since": STAMP,
        "command": "python -m agent",
        "lease": False,
        "fence": 3,
    }
    short = {key: holder[key] for key in ("pid", "host", "token", "since", "fence")}
    values = (holder, {**holder, "lease": True}, short, {**short, "pid": 1}, {**holder, "x": [1]})
    return [(b"",), (b"4242\n",), *((dump(value) + b"\n",) for value in values)]


def _chains() -> list[Parts]:
    found: list[Parts] = []
    for seed in range(1, 13):
        body = make_history(seed).lines[1:_LINES_MAX] if seed % 3 else [turns(3)]
        with tempfile.TemporaryDirectory() as folder:
            home = Home(folder)
            base, own = place_of(home, BASE), place_of(home, OWN)
            base.write_bytes(meta(BASE) + b"".join(body))
            point = ForkPoint.turn(1) if seed % 2 and not seed % 3 else ForkPoint.end()
            make_fork(base, own, thread_id=OWN, home=home, mode="reference", point=point)
            with own.open("ab") as file:
                file.write(turns(1, first=7, ordinal=own.read_bytes().count(b'"ordinal"') + 60))
            found.append((base.read_bytes(), own.read_bytes()))
    return found


def _snapshots() -> list[Parts]:
    found: list[Parts] = []
    for (data,) in _rollouts():
        with tempfile.TemporaryDirectory() as folder:
            home = Home(folder)
            path = place_of(home, BASE)
            path.write_bytes(data.replace(THREAD.encode(), BASE.encode()))
            content = _snapshot(path, home)
            if content is not None:
                found.append((path.read_bytes(), content))
    return found


def _snapshot(path: Path, home: Home) -> bytes | None:
    if not path.read_bytes().startswith(b'{"timestamp"'):
        return None
    with Lineage.resolve(path, home) as lineage:
        if not DerivedSnapshots(home).write(fold_lineage(lineage), lineage):
            return None
    status = path.stat()
    content = (home.path / f"thread-store/derived/{BASE}.snapshot").read_bytes()[65:]
    device, inode = b'"device":%d' % status.st_dev, b'"inode":%d' % status.st_ino
    return content.replace(device, DEVICE, 1).replace(inode, INODE, 1)


def _memories() -> list[Parts]:
    """Rollouts that are short but for a snapshot that holds much."""
    found: list[Parts] = []
    for (data,) in _rollouts():
        lines = [each for each in data.split(b"\n") if b'"x_memory"' in each]
        found += [(meta(BASE) + each + b"\n" + turns(1, ordinal=90),) for each in lines]
    for data, content in _snapshots():
        memory = content.partition(b"\n")[2]
        found.append((data[: data.find(b"\n") + 1] + memory,))
    return found


def _states() -> list[Parts]:
    """Resume states as JSON, half of them written by the slow way."""
    found: list[Parts] = []
    for (data,) in _rollouts():
        with tempfile.TemporaryDirectory() as folder:
            home = Home(folder)
            path = place_of(home, BASE)
            path.write_bytes(data)
            try:
                written = read_resume_state(path, home).to_json()
            except NotARollout:
                continue
            found.append((written,))
            found.append((written.replace(b'"cwd":"/srv', b'"cwd":"\\ud800'),))
    return found


def _kept() -> list[Parts]:
    """A rollout, and a file of unwritten items beside it, of which some stand there already."""
    found: list[Parts] = []
    lines = [encode_item(numbered_item(n, 60), timestamp=STAMP, ordinal=n + 1) for n in range(8)]
    for there, waiting, torn in (
        (4, range(2, 8), 0),
        (8, range(4, 8), 0),
        (3, range(3, 8), 30),
        (0, range(8), 0),
    ):
        body = meta(BASE) + b"".join(lines[:there])
        content = b"".join(lines[number] for number in waiting)
        offset = len(meta(BASE)) + sum(map(len, lines[: waiting[0]]))
        header = UnwrittenHeader(
            rollout="/gone/rollout.jsonl",
            thread_id=BASE,
            offset_bytes=offset,
            items=len(waiting),
            content_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            at_ms=1_795_000_000_000,
        )
        found.append((body + (lines[there][:torn] if torn else b""), header.encode() + content))
    return found
