"""The table control × status → outcome: what the service answers is what the tick does, and the documentation says so."""

from pathlib import Path

import pytest

from tests.engine import control_table

_DOCUMENT = Path(__file__).parents[2] / "docs" / "controls.md"


async def test_the_table_of_controls_is_current(request: pytest.FixtureRequest) -> None:
    """Rulings C1 to C10: every control in every state, tried; the refusal that the service answers at once is the tick's."""
    document = await control_table.document()
    if request.config.getoption("--rewrite"):
        _DOCUMENT.write_text(document)
    assert _DOCUMENT.read_text() == document
