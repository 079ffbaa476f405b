"""The system calls of a fork, scripted to fail: the file sink's, and the kernel's copying ones too."""

from __future__ import annotations

from typing import Any

from tests.rollout.faulty import FaultyCalls
from thread_store.forks.fork_copy import ForkCalls


class ScriptedCalls(FaultyCalls, ForkCalls):
    """Give it the faults; `arm` knows the file sink's calls only."""

    def perform(self, name: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(ForkCalls, name)(self, *arguments)

    def copy_file_range(self, *arguments: Any) -> int:
        return int(self._made("copy_file_range", arguments))

    def send_file(self, *arguments: Any) -> int:
        return int(self._made("send_file", arguments))

    def rename(self, *arguments: Any) -> None:
        self._made("rename", arguments)
