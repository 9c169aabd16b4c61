"""The release before this one, from the repository's own history."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

OLDER = "9afc53964f81"
"""The newest commit before migration 0006 and engine level 5: everything but schedules, event triggers, values per environment, and keys."""
_ROOT = Path(__file__).resolve().parents[2]


@cache
def older_tree() -> Path:
    """`services` and `gen` of the older release. Skips the test where the history does not reach so far back."""
    found = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", OLDER, "services", "gen"], check=False, capture_output=True
    )
    if found.returncode != 0:
        pytest.skip(f"the history of this checkout has no {OLDER}, so there is no older release to run beside this one")
    folder = Path(tempfile.mkdtemp(prefix="ductor-older-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o711)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=found.stdout, check=True)
    return folder
