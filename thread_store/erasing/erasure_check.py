"""What was cut short of an erasure, as findings.

Invariant: nothing is changed and no lock is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from protocol.errors import NotARollout
from rollout.check import Finding, Severity
from rollout.erase_journal import EraseCalls, find_journals, read_journal

__all__ = ["check_erasures"]


def check_erasures(path: str | os.PathLike[str]) -> Iterator[Finding]:
    """Look whether something in this rollout waits to be erased: `erase_unfinished`, `erase_damaged`.

    Raises:
        RolloutUnreadable: the system refuses.
    """
    name = os.path.basename(os.fspath(path)).removesuffix(".zst")
    for found in find_journals(path):
        try:
            journal = read_journal(found, calls=EraseCalls())
        except NotARollout as error:
            yield Finding(code="erase_damaged", severity=Severity.ERROR, message=str(error))
            continue
        for file in journal.files if journal is not None else ():
            if os.path.basename(file.path).removesuffix(".zst") == name and file.patches:
                yield Finding(
                    code="erase_unfinished",
                    severity=Severity.ERROR,
                    message=f"{len(file.patches)} records wait to be erased: {found}",
                    offset_bytes=file.patches[0].offset,
                    fix="rollout erase --finish",
                )
