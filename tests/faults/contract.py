"""The contract, and whether a run or a state after a power cut keeps it.

    a  What a sync acknowledged is in the file once, whole and in order, after any power cut.
    b  What was not acknowledged is absent, or there once and whole, or the start of a torn tail.
    c  An I/O error never makes a duplicate, a gap or a merged line.
    d  A failed sync is final for what was written before it: written again, or reported.
    e  The names of a new file and of its folders are synced before the first acknowledgement.
    f  Each barrier that cannot hold its promise raises, each one that returns has held it.

Each check raises AssertionError with the letter of its clause.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
from pathlib import Path

from protocol.errors import RolloutError
from rollout.repair import RepairReport, repair_rollout
from tests.faults.disk_model import DiskModel, State
from tests.faults.materialise import materialise
from tests.faults.numbered import Contents, look_at
from tests.faults.promises import Promises
from tests.faults.restart import RESTART_NUMBER, read_back, run_restart
from tests.faults.runner import Outcome, fast_folder
from tests.faults.workloads import REPLAYED_ITEMS, REPLAYS, ROLLOUT, rollout_in

__all__ = ["check_crash_restart", "check_crash_state", "check_ending", "check_run", "promises_at_start"]


def check_ending(outcome: Outcome) -> None:
    """It ended by itself, or was killed as planned, and met no bug."""
    assert not outcome.hung, f"it hung\n{outcome.errors}"
    assert outcome.code in (0, -9), f"it ended with code {outcome.code}\n{outcome.errors}"
    assert "this is a bug" not in outcome.errors, outcome.errors
    assert not outcome.killed or any(fault.kills for fault in outcome.faults), f"killed\n{outcome.errors}"


def check_run(outcome: Outcome, loop: asyncio.Runner) -> None:
    """All that can be said of one run: the promises while it ran, what it left, the restart on that."""
    promises, model = _follow(outcome)
    assert promises.ended or outcome.killed, f"it ended early\n{outcome.errors}"
    assert not promises.refused, f"(f) record() raised for I/O: {promises.errors}"
    _compare_with_model(outcome, model)
    _check_old_tail(outcome)
    if outcome.workload in REPLAYS:
        _replay(outcome)
    if not outcome.killed:
        _check_barriers(outcome, promises)
        _check_end(outcome, promises)
    _check_restart(outcome, promises, loop)


def promises_at_start(outcome: Outcome) -> Promises:
    """What earlier processes had promised about what stands there."""
    promises = Promises.of_file(outcome.before.volatile().get(ROLLOUT))
    if outcome.workload in REPLAYS:
        promises.offered = promises.accepted = REPLAYED_ITEMS
    return promises


def _follow(outcome: Outcome) -> tuple[Promises, DiskModel]:
    """Go through the log; at each acknowledgement what it promises must be true then."""
    promises = promises_at_start(outcome)
    model = copy.deepcopy(outcome.before)
    for call in outcome.calls:
        if call.name != "mark":
            writes = model.apply(call) and call.name in ("write", "pwrite") and call.path.endswith(".jsonl")
            assert not (writes and promises.closed), "(f) it went on writing after it was closed"
            continue
        promises.take(call.data.decode())
        check_state(model.volatile(), promises, level=promises.flushed, clause="f", process_death=True)
        check_state(model.secure(), promises, level=promises.synced, clause="a, d, e")
    return promises, model


def check_state(
    state: State, promises: Promises, *, level: int, clause: str, process_death: bool = False
) -> None:
    """A tree as it is, or as a power cut may leave it: `level` items must be there."""
    data = state.get(ROLLOUT)
    found = look_at(data) if data is not None else Contents()
    numbers = found.numbers
    assert numbers == sorted(set(numbers)), f"(c) items are doubled or out of order: {numbers}"
    missing = set(range(level)) - set(numbers)
    assert not missing, f"({clause}) {level} items were acknowledged, missing: {sorted(missing)}"
    assert not numbers or numbers[-1] < promises.offered, f"(c) {numbers[-1]} was never recorded"
    secured = max((found.ends[number] for number in range(level)), default=0)
    damaged = [each for each in found.damaged if each != promises.old_tail_offset]
    assert not [each for each in damaged if each < secured], "(c) a damaged line among acknowledged ones"
    if process_death:
        assert not damaged, "(c) a damaged line, though only the process died"
        if not promises.stranger:
            assert numbers == list(range(len(numbers))), f"(c) a gap: {numbers}"


def _compare_with_model(outcome: Outcome, model: DiskModel) -> None:
    """The model must say what really stands there, else it proves nothing."""
    real: State = {}
    for folder, folders, files in os.walk(outcome.root):
        base = Path(folder).relative_to(outcome.root)
        real |= {(base / name).as_posix(): None for name in folders}
        real |= {(base / name).as_posix(): Path(folder, name).read_bytes() for name in files}
    modelled = model.volatile()
    assert modelled.keys() == real.keys(), f"the model is wrong: {modelled.keys() ^ real.keys()}"
    for path, content in real.items():
        assert modelled[path] == content, f"the model is wrong about {path}"


def _check_old_tail(outcome: Outcome) -> None:
    """What another process had left of its last line still stands there, or was set aside."""
    old = outcome.before.volatile().get(ROLLOUT)
    if old is None:
        return
    tail = old[old.rfind(b"\n") + 1 :]
    kept = [each.read_bytes() for each in outcome.rollout.parent.glob("*.torn")]
    assert outcome.rollout.read_bytes().startswith(old) or tail in kept, "a torn tail was cut and is nowhere"


def _check_barriers(outcome: Outcome, promises: Promises) -> None:
    """One fault that passes is absorbed: nobody hears of it, but who opens or repairs."""
    if any(fault.count != 1 for fault in outcome.faults) or len(outcome.faults) > 1:
        return
    heard = [error for error in promises.errors if error["operation"] not in ("begin", "repair")]
    assert not heard, f"(f) one passing fault was not absorbed: {heard}"
    assert promises.unwritten is None, f"(f) one passing fault left items unwritten: {promises.unwritten}"


def _check_end(outcome: Outcome, promises: Promises) -> None:
    """Whoever is not told of a loss has lost nothing; whoever is gets all back by one repair."""
    if promises.unwritten is not None:
        if promises.stranger and not outcome.rollout.exists():
            _check_kept(
                promises
            )  # what was synced before is gone with the inode that another program removed
            return
        told = promises.unwritten["kept"]
        assert told is not None, "(f) the unwritten items were kept nowhere, though there was a place"
        _replay(outcome)
    if promises.accepted == 0:
        return
    assert outcome.rollout.exists(), f"(c) {promises.accepted} items were accepted, there is no rollout"
    data = outcome.rollout.read_bytes()
    found = look_at(data)
    assert found.numbers == list(range(promises.accepted)), (
        f"(c) {promises.accepted} items were accepted, the file has {found.numbers}"
    )
    assert set(found.damaged) <= {promises.old_tail_offset}, "(c) a damaged line"
    assert not found.tail, "(c) the file ends inside a line"
    assert "x_gap" not in found.types or promises.stranger, "(c) a gap is noted that nobody made"
    assert found.ordinals == list(range(len(found.ordinals))), f"(c) ordinals: {found.ordinals}"


def _replay(outcome: Outcome) -> None:
    """What was set aside is brought in."""
    for _ in range(2):  # the second one must find nothing to do
        report = _repair(outcome.rollout, [outcome.spill])
    assert not report.actions, f"(c) a second replay found something to do: {report.actions}"


def _repair(rollout: Path, spill_folders: list[Path]) -> RepairReport:
    try:
        return repair_rollout(rollout, dry_run=False, replay=True, spill_folders=spill_folders)
    except RolloutError as error:
        raise AssertionError(f"(a) the unwritten items can't be replayed: {error}") from error


def _check_kept(promises: Promises) -> None:
    assert promises.unwritten is not None
    kept = look_at(Path(promises.unwritten["kept"]).read_bytes())
    pending = promises.unwritten["pending"]
    wanted = list(range(promises.accepted - pending, promises.accepted))
    assert kept.numbers == wanted, f"(c) {pending} items were unwritten, kept are {kept.numbers}"


def _check_restart(outcome: Outcome, promises: Promises, loop: asyncio.Runner) -> None:
    restarted = run_restart(loop, outcome.rollout)
    if restarted.after is None:
        assert not promises.flushed, (
            f"(a) {promises.flushed} items were acknowledged, and there is no rollout"
        )


# After a power cut


def check_crash_state(state: State, promises: Promises) -> None:
    """What the bytes themselves must hold, before anything restarts."""
    if promises.unwritten is None:
        check_state(state, promises, level=promises.synced, clause="a, d, e")


def check_crash_restart(
    state: State, promises: Promises, loop: asyncio.Runner, *, root: Path, least: int = 0
) -> None:
    """The product restarts on a state of `root`: all that was safe is there, and what comes now is taken.

    `least`: that many items were there or set aside from the start, so a repair gives all of them.
    """
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        materialise(state, Path(folder))
        path = rollout_in(folder)
        whole = promises.accepted if promises.keeps_below(os.fspath(root)) else least
        if whole:
            _replay_after_crash(path, whole)
        restarted = run_restart(loop, path)
        if restarted.after is None:
            assert not promises.synced, f"(a) {promises.synced} items were acknowledged, there is no rollout"
            return
        numbers = restarted.after.numbers
        # A power cut inside a replay may have taken lines from its middle: the next one brings them last.
        in_order = sorted(numbers) if whole else numbers
        assert in_order == sorted(set(numbers)), f"(c) items are doubled or out of order: {numbers}"
        assert numbers[-1] == RESTART_NUMBER
        missing = set(range(promises.synced)) - set(numbers)
        assert not missing, f"(a) {promises.synced} items were acknowledged, missing: {sorted(missing)}"
        read_back(path)


def _replay_after_crash(path: Path, count: int) -> None:
    """There is a file of unwritten items: with the rollout it must give the first `count` items at least."""
    _repair(path, [])
    assert path.exists(), f"(a) after the replay of {count} items there is no rollout"
    numbers = look_at(path.read_bytes()).numbers
    assert len(numbers) == len(set(numbers)), f"(c) the replay doubled items: {numbers}"
    missing = set(range(count)) - set(numbers)
    assert not missing, f"(a) after the replay {sorted(missing)} of {count} items are missing"
