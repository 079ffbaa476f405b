"""The table of docs/reliability.md: made from what the harnesses said, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.faults import LONG, QUICK
from benches.reliability import BEGIN, END, Told, read_results, render, write_results

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def told(runs: int) -> Told:
    return {
        "command": "python -m tests.faults kill",
        "unit": "processes killed",
        "runs": runs,
        "failures": [],
        "seconds": 1234,
        "date": "2026-11-30",
        "machine": "2 × x86_64",
        "figures": {"items": 5000},
        "table": [["call", "error"], ["open", "7"]],
    }


def test_run_replaces_its_row_and_what_is_written_by_hand_stays(tmp_path: Path) -> None:
    """Whatever was there before; and it reads back."""
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_results({"kill": told(1)}, document)
    write_results({"kill": told(1000)}, document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert (
        "| `python -m tests.faults kill` | 1,000 processes killed | 0 | 1,234 | 2026-11-30 | 2 × x86_64 |"
        in text
    )
    assert "| open | 7 |" in text
    assert "old" not in text
    assert read_results(document.with_suffix(".json")) == {"kill": told(1000)}


def test_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    """Nothing is written by guess."""
    document = tmp_path / "reliability.md"
    document.write_text("by hand", encoding="utf-8")
    with pytest.raises(ValueError, match="generated"):
        write_results({"kill": told(1)}, document)
    assert document.read_text(encoding="utf-8") == "by hand"


def test_published_table_is_the_one_of_its_figures() -> None:
    """Nobody has written a figure into it by hand."""
    text = DOCUMENT.read_text(encoding="utf-8")
    generated = text.partition(BEGIN)[2].partition(END)[0]
    results = read_results(DOCUMENT.with_suffix(".json"))
    assert generated.strip() == (render(results).strip() if results else "")


def test_every_long_run_has_a_quick_one() -> None:
    """So that CI shows that it runs."""
    assert LONG.keys() == QUICK.keys()
