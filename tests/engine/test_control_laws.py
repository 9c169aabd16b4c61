"""The law of operating a run, on random graphs with compensations, with random controls at random moments (rulings C1 to C10, G8).

Whatever operators do, and whenever: a run has one end, leaves nothing open behind, is what its history says, and is decided again as it was. What its
steps did is undone once at most, by whichever run it has come to.
"""

from hypothesis import given
from hypothesis import strategies as st

from ductord.model.manifest import Manifest
from tests.engine.operating import operated
from tests.engine.sagas import sagas
from tests.engine.searching import search


@search(150)
@given(manifest=sagas(), seed=st.integers(0, 2**32))
def test_any_controls_at_any_moments_leave_one_end_and_nothing_behind(manifest: Manifest, seed: int) -> None:
    operated(manifest, seed)
