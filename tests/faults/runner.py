"""Runs: one workload under one plan of faults, in a process of its own, and what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.faults.disk_model import DiskModel
from tests.faults.shim import FOREVER, Action, Call, Fault, build_shim, decode_log, encode_plan
from tests.faults.store_workloads import STORE_WORKLOADS, prepare_home
from tests.faults.workloads import NAMES_FOLLOW, PREPARE, rollout_in

__all__ = ["Outcome", "Runner", "fast_folder"]

_PROJECT = Path(__file__).resolve().parents[2]


def fast_folder() -> Path:
    """A folder in memory where there is one: what counts here is the order of calls, not the medium."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Outcome:
    """A run that is over, and the folder as it was left."""

    workload: str
    faults: tuple[Fault, ...]
    folder: Path
    code: int
    """Exit code of the process, negative for a signal."""
    hung: bool
    before: DiskModel
    """The folder before the run, all of it on stable storage."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def rollout(self) -> Path:
        return rollout_in(self.root)

    @property
    def spill(self) -> Path:
        return self.folder / "spill"

    @cached_property
    def calls(self) -> list[Call]:
        log = self.folder / "log"
        return list(decode_log(log.read_bytes())) if log.exists() else []

    @property
    def reached(self) -> bool:
        """At least one of the faults happened."""
        return any(call.injected for call in self.calls)

    @property
    def killed(self) -> bool:
        return self.code == -9 and not self.hung

    @property
    def errors(self) -> str:
        path = self.folder / "errors"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def command(self) -> str:
        """What repeats this run."""
        return f"python -m tests.faults sweep --workload {self.workload} --plan '{encode_plan(self.faults)}'"

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class Runner:
    """Owns a zygote; close it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rollout-faults-", dir=fast_folder()))
        environment = {**os.environ, "LD_PRELOAD": str(build_shim()), "PYTHONPATH": str(_PROJECT)}
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=_PROJECT,
        )

    def run(self, workload: str, faults: Sequence[Fault] = ()) -> Outcome:
        """Run a workload; its folder stays until `Outcome.remove` or `close`."""
        folder = self._folder / uuid.uuid4().hex[:12]
        for name in ("root", "spill"):
            (folder / name).mkdir(parents=True)
        if workload in PREPARE:
            PREPARE[workload](folder / "root")
        elif workload in STORE_WORKLOADS:
            prepare_home(workload, folder / "root")
        before = DiskModel.of_folder(folder / "root")
        before.names_follow = workload in NAMES_FOLLOW
        answer = self._ask(
            {
                "workload": workload,
                "plan": encode_plan(faults),
                "linger": any(fault.action is Action.DELAY for fault in faults),
                "patient": all(fault.count != FOREVER for fault in faults),
                **{name: str(folder / name) for name in ("root", "spill", "log", "errors")},
            }
        )
        return Outcome(workload, tuple(faults), folder, answer["code"], answer["hung"], before)

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(json.dumps(job), file=self._zygote.stdin, flush=True)
        answer = self._zygote.stdout.readline()
        if not answer:
            raise RuntimeError(f"the zygote ended with code {self._zygote.wait()}")
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def close(self) -> None:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(30)
        self._zygote.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
