"""The zygote: a process with everything imported and the shim preloaded, which forks for each run.

Invariant: it has one thread and opens nothing below a watched folder, so that each child begins
like a fresh process, minus the imports. A child that takes too long is killed and said to hang.

It reads one job a line from stdin (JSON) and answers each with one line on stdout.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

from tests.faults import mutants
from tests.faults.shim import Shim
from tests.faults.store_workloads import STORE_WORKLOADS, run_store_workload
from tests.faults.workloads import run_workload

HANG_SECONDS = 20.0


def _be_child(shim: Shim, job: dict[str, Any]) -> None:
    """Never returns. Exit code 0: the workload came to its end; 70: it met a bug."""
    errors = os.open(job["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    faulthandler.enable()
    code = 70
    try:
        shim.arm(job["root"], job["log"], job["plan"])
        tempfile.tempdir = job["spill"]
        _run(shim, job)
        code = 0
    except BaseException:  # noqa: BLE001  # a child of fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(shim: Shim, job: dict[str, Any]) -> None:
    if job["workload"] in STORE_WORKLOADS:
        run_store_workload(
            job["workload"],
            job["root"],
            mark=shim.mark,
            patient=job["patient"],
            linger=job["linger"],
        )
    else:
        run_workload(
            job["workload"],
            job["root"],
            job["spill"],
            mark=shim.mark,
            lift=shim.lift,
            quiet=shim.quiet,
            patient=job["patient"],
            linger=job["linger"],
        )


def _wait(pid: int) -> tuple[int, bool]:
    """Exit code (negative: the signal), and whether it hung."""
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], HANG_SECONDS)
    finally:
        os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGABRT)  # it says where its threads are
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), not ended


def main() -> None:
    mutants.plant_from_environment()
    shim = Shim()
    for line in sys.stdin:
        job = json.loads(line)
        begin = time.monotonic()
        pid = os.fork()
        if not pid:
            _be_child(shim, job)
        code, hung = _wait(pid)
        print(json.dumps({"code": code, "hung": hung, "seconds": time.monotonic() - begin}), flush=True)


if __name__ == "__main__":
    main()
