"""The proof that these harnesses can fail: each planted bug is found.

All harnesses against all bugs: `python -m tests.faults mutants --all`.
"""

from __future__ import annotations

import pytest

from tests.faults.mutants import MUTANTS
from tests.faults.proof import prove_quickly


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name: str) -> None:
    """A suite that misses one of them proves nothing."""
    verdict = prove_quickly(name)
    assert verdict.caught, verdict.said
