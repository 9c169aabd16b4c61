"""`make demo` tells the truth: it ends by itself with 0, says that nothing was lost, and leaves nothing behind."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.xdist_group("tour"), pytest.mark.timeout(900)]


def test_the_demo_ends_well_and_leaves_nothing() -> None:
    """Acceptance 1: killed with -9 in mid-run, every run finishes where it left off. A box that stands still may miss the middle: then it is told again."""
    for _ in range(3):
        told = _told()
        if re.search(r"kill -9 \d+, with [1-9]\d* of 54 runs in the middle", told) and re.search(
            r"[1-9]\d* lost", told
        ):
            return
    raise AssertionError(told)


def _told() -> str:
    """What the demo says when it ends well."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-demo-test-"))
    folder.chmod(0o711)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "examples.demo"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.rstrip().endswith("Nothing was lost, nothing was done twice.")
        assert list(folder.iterdir()) == []
        return done.stdout
    finally:
        folder.rmdir()
