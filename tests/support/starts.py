"""The start of a run, of which a test says what matters to it."""

from typing import Any

from ductord.model.run import RunStart
from tests.support.world import START


def start_of(**fields: Any) -> RunStart:
    """A start with these fields, and for the rest one like any other."""
    usual = {
        "tenant_id": "t",
        "run_id": "r",
        "definition_id": "d",
        "version_id": "v",
        "version": 1,
        "family_slug": "f",
        "create_time": START,
    }
    return RunStart(**{**usual, **fields})
