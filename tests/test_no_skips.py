"""The rule of `conftest.py`: where skips are forbidden, a skipped test is a failed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
SUITE = {
    "test_run.py": "import pytest\n\n\ndef test_it():\n    pytest.skip('not today')\n",
    "test_expected.py": "import pytest\n\n\n@pytest.mark.xfail\ndef test_it():\n    assert not 'fixed'\n",
    "test_import.py": "import pytest\n\npytest.importorskip('no_such_module')\n",
}


def run_suite(folder: Path, *, no_skips: str) -> subprocess.CompletedProcess[str]:
    for name, text in {**SUITE, "conftest.py": CONFTEST.read_text(encoding="utf-8")}.items():
        (folder / name).write_text(text, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--continue-on-collection-errors"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={**os.environ, "ROLLOUT_NO_SKIPS": no_skips, "PYTHONPATH": str(CONFTEST.parent.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_skip_where_skips_are_forbidden_fails(tmp_path: Path) -> None:
    """A skip at run time, at import, and an expected failure: each fails the run, and names its reason."""
    done = run_suite(tmp_path, no_skips="1")
    assert done.returncode == 1
    assert "not today" in done.stdout
    assert "no_such_module" in done.stdout
    assert "2 failed, 1 error" in done.stdout


def test_skip_elsewhere_stays_a_skip(tmp_path: Path) -> None:
    """On a developer's machine pytest counts skips as it always does."""
    done = run_suite(tmp_path, no_skips="")
    assert done.returncode == 0
    assert "2 skipped, 1 xfailed" in done.stdout
