"""The contract of a store: what `contract` says of one rollout, said of all threads of a home.

Besides: a fork that was returned is on stable storage with all that its source held; what was archived,
deleted or erased stays so; a thread is listed once; an operation that the system refuses leaves each thread
whole; and a fault that passes is absorbed, or told once: the next try succeeds.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections import Counter
from pathlib import Path

from protocol.errors import RolloutError
from rollout.repair import repair_rollout
from tests.faults.disk_model import DiskModel, State
from tests.faults.materialise import materialise
from tests.faults.restart import RESTART_NUMBER
from tests.faults.runner import Outcome
from tests.faults.store_eye import check_home, holders_of_secret, is_judged, places_of
from tests.faults.store_ledger import StoreLedger, Told
from tests.faults.store_restart import RestartedThread, restart_home
from tests.faults.store_workloads import home_in, ledger_at_start

__all__ = ["StoreContract", "check_thread", "check_unknown", "tree_of"]

_BARRIERS = frozenset({"record", "flush", "sync", "call", "turn", "close"})


class StoreContract:
    """Of the workloads of a store."""

    def at_start(self, outcome: Outcome) -> StoreLedger:
        return ledger_at_start(outcome.workload)

    def check_run(self, outcome: Outcome) -> None:
        """All that can be said of one run: the promises while it ran, what it left, the restart on that."""
        ledger, model = self._follow(outcome)
        assert ledger.ended or outcome.killed, "it ended early"
        assert not ledger.refused, f"(f) record() raised for I/O: {ledger.errors}"
        assert not ledger.listed, f"a list missed threads, or showed too many: {ledger.listed}"
        _compare_with_model(outcome, model)
        if not outcome.killed:
            if _is_passing(outcome):
                _check_passing(ledger)
            _replay(outcome, ledger)
        passing = not outcome.killed and _is_passing(outcome)
        _check_restarted(home_in(outcome.root), ledger, whole=not outcome.killed, passing=passing)

    def _follow(self, outcome: Outcome) -> tuple[StoreLedger, DiskModel]:
        ledger, model = self.at_start(outcome), copy.deepcopy(outcome.before)
        for call in outcome.calls:
            if call.name != "mark":
                model.apply(call)
                continue
            ledger.take(call.data.decode())
            check_home(model.volatile(), ledger, synced=False, process_death=True)
            check_home(model.secure(), ledger, synced=True)
        return ledger, model

    def check_state(self, state: State, ledger: StoreLedger) -> None:
        """What the bytes must hold after a power cut, before anything restarts."""
        check_home(state, ledger, synced=True)

    def check_restart(self, state: State, ledger: StoreLedger, outcome: Outcome) -> None:
        """The product restarts on a state: all that was safe is there, and what comes now is taken."""
        # At its own place: journals name files by their paths.
        shutil.rmtree(outcome.root)
        outcome.root.mkdir()
        materialise(state, outcome.root)
        _check_restarted(home_in(outcome.root), ledger, passing=False)

    def take(self, ledger: StoreLedger, note: str) -> None:
        ledger.take(note)

    def copied(self, ledger: StoreLedger) -> StoreLedger:
        return ledger.copied()

    def fingerprint(self, ledger: StoreLedger) -> str:
        return ledger.fingerprint


def _compare_with_model(outcome: Outcome, model: DiskModel) -> None:
    """The model must say what really stands there, else it proves nothing."""
    real = tree_of(outcome.root)
    modelled = {path: content for path, content in model.volatile().items() if is_judged(path)}
    assert modelled.keys() == real.keys(), f"the model is wrong: {modelled.keys() ^ real.keys()}"
    for path, content in real.items():
        assert modelled[path] == content, f"the model is wrong about {path}"


def tree_of(root: Path) -> State:
    """What stands below a folder, but for what is not judged."""
    found: State = {}
    for folder, folders, files in os.walk(root):
        base = Path(folder).relative_to(root)
        found |= {(base / name).as_posix(): None for name in folders}
        found |= {(base / name).as_posix(): Path(folder, name).read_bytes() for name in files}
    return {path: content for path, content in found.items() if is_judged(path)}


def _is_passing(outcome: Outcome) -> bool:
    return len(outcome.faults) <= 1 and all(fault.count == 1 for fault in outcome.faults)


def _check_passing(ledger: StoreLedger) -> None:
    """One fault that passes is absorbed by what waits for the disk, and told at most once by the rest."""
    heard = [each for each in ledger.errors if each["operation"] in _BARRIERS]
    assert not heard, f"(f) one passing fault was not absorbed: {heard}"
    told = Counter(each["operation"] for each in ledger.errors)
    assert not told or max(told.values()) == 1, f"(f) one passing fault was told twice: {ledger.errors}"
    left = {told.key: told.unwritten for told in ledger.threads.values() if told.unwritten is not None}
    assert not left, f"(f) one passing fault left items unwritten: {left}"


def _replay(outcome: Outcome, ledger: StoreLedger) -> None:
    """What was set aside is brought in, all of it, and once."""
    for told in ledger.threads.values():
        if told.unwritten is None or told.deleted is not False:
            continue
        assert told.unwritten["kept"] is not None, "(f) items were kept nowhere, though there was a place"
        path = told.unwritten["path"]
        for _ in range(2):
            try:
                report = repair_rollout(path, dry_run=False, replay=True, spill_folders=[outcome.spill])
            except RolloutError as error:
                raise AssertionError(f"(a) the unwritten items can't be replayed: {error}") from error
        assert not report.actions, f"(c) a second replay found something to do: {report.actions}"


def _check_restarted(home: Path, ledger: StoreLedger, *, passing: bool, whole: bool = False) -> None:
    """`whole`: nobody died, so all that was accepted is there, or was said to be set aside and replayed.
    `passing`: and what failed was tried again at once, so nothing half made is left.
    """
    before = holders_of_secret(tree_of(home.parent))
    found = restart_home(home) if home.exists() else {}
    known = {told.thread_id for told in ledger.threads.values()}
    for told in ledger.threads.values():
        check_thread(told, found.get(told.thread_id), whole=whole)
    unknown = found.keys() - known
    assert not unknown or not passing, f"nothing was made, it said, and there is {unknown}"
    for thread_id in unknown:
        check_unknown(thread_id, found[thread_id], ledger)
    after = holders_of_secret(tree_of(home.parent))
    if ledger.secret == "erased":
        assert not after, f"it was erased, and stands in {after}"
    elif ledger.secret == "erasing" and not ledger.errors:  # else it may be that a file could not be read
        assert not after or _plain(after) == _plain(before), (
            f"it was erased in part: it stood in {before}, now in {after}"
        )


def _plain(paths: list[str]) -> set[str]:
    """A restart expands what was compressed."""
    return {path.removesuffix(".zst") for path in paths}


def check_thread(told: Told, found: RestartedThread | None, *, whole: bool = False) -> None:
    """A thread as the product reads it at a restart."""
    if told.deleted is True:
        assert found is None, f"thread {told.key} was deleted, and is there"
        return
    if found is None or found.after is None:
        assert told.deleted is None or not told.surely, f"(a) thread {told.key} is gone: {told}"
        return
    possible = places_of([*told.base, *told.own(told.offered)])
    missing = set(told.surely) - set(found.numbers)
    assert not missing, f"(a) thread {told.key}: missing after the restart: {sorted(missing)}"
    wrong = [number for number in found.numbers if number not in possible]
    assert not wrong, f"(c) thread {told.key} has what was never recorded: {wrong}"
    places = [possible[number] for number in found.numbers]
    assert places == sorted(places), f"(c) thread {told.key}: out of order: {found.numbers}"
    if whole:
        assert found.numbers == [*told.base, *told.own(told.accepted)], (
            f"(c) thread {told.key}: {told.accepted} items were accepted, there are {found.numbers}"
        )
    if told.archived is not None:
        assert found.archived == told.archived, f"thread {told.key} was moved: {found.archived}"


def check_unknown(thread_id: str, found: RestartedThread, ledger: StoreLedger) -> None:
    """Nobody was told of it: a thread that was being made, with nothing in it that is not another's."""
    numbers = [number for number in found.numbers if number != RESTART_NUMBER]
    fits = any(
        numbers == [*told.base, *told.own(told.offered)][: len(numbers)] for told in ledger.threads.values()
    )
    assert not numbers or fits, f"{thread_id} is nobody's, and has {numbers}"
