"""Real file systems that fill up, break down and get well again. Needs to mount a tmpfs; see mounts.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mounts import has_loop_devices
from tests.faults.real_disks import EXT4_SCENARIOS, SCENARIOS

PROJECT = Path(__file__).resolve().parents[2]


def run(name: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.faults.real_disks", name]
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    figures: dict[str, int] = json.loads(result.stdout)
    return figures


@pytest.mark.case("B139")
@pytest.mark.case("B14")
@pytest.mark.parametrize("name", ["tmpfs_gets_space", "tmpfs_grows"])
def test_full_disk_that_gets_space_loses_nothing(name: str) -> None:
    """400 of 400 items, `record()` never raised, barriers did, and no half line stood there meanwhile."""
    figures = run(name)
    assert figures["items"] == 400
    assert figures["refused"] > 0


@pytest.mark.case("B15")
def test_file_size_limit_that_is_lifted_loses_nothing() -> None:
    """EFBIG after a short write: an error, a file that ends on a record border, and all items in the end."""
    assert run("file_size_limit")["items"] == 400


def test_disk_without_inodes_takes_everything_when_it_has_some() -> None:
    """The file can't even be made: barriers raise, nothing is lost."""
    assert run("no_inode_left")["items"] == 100


@pytest.mark.guarantee("G1")
def test_disk_that_stays_full_gives_all_back_by_one_replay() -> None:
    """`aclose` raises UnwrittenItems and names the file; `rollout repair --replay` brings each in once."""
    figures = run("stays_full")
    assert figures["items"] == 400
    assert figures["kept"] > 0


def test_disk_that_stays_full_with_no_other_place_is_carried_by_the_error() -> None:
    """Not even the folder for temporary files has room: the exception holds the lines."""
    assert run("full_everywhere")["carried"] > 0


def test_every_scenario_has_a_test() -> None:
    """None is forgotten when one is added."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{name}"' in text for name in SCENARIOS | EXT4_SCENARIOS)


if has_loop_devices():  # elsewhere `python -m tests.faults disk` says that these were not run

    def test_full_ext4_that_gets_space_loses_nothing() -> None:
        """The same where blocks are allocated late, so that the error comes without a short write."""
        assert run("ext4_gets_space")["refused"] > 0

    @pytest.mark.guarantee("G2")
    def test_ext4_that_breaks_down_keeps_what_was_synced() -> None:
        """Shut down without its journal and mounted anew: synced items are there, the others were kept."""
        figures = run("ext4_breaks_down")
        assert figures["survived"] >= figures["synced"]

    def test_torn_tail_that_may_not_be_cut_is_ended() -> None:
        """chattr +a: a newline ends the torn tail, and what follows is whole."""
        assert run("append_only")["items"] == 20
