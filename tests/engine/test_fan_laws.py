"""The laws of fan-outs, on random scatters and gathers among actions and races, with random words of workers and random controls (F1, F2, F4, C1 to C10).

Beside what holds of every run: counters add up, every child begins once and ends once, no more are open than may be, what succeeded never runs again, and a
gather shows what its scatter's children came to (`tests.engine.fans`).
"""

from hypothesis import given
from hypothesis import strategies as st

from ductord.model.manifest import Manifest
from tests.engine.fans import fanned
from tests.engine.operating import operated
from tests.engine.searching import search


@search(150)
@given(manifest=fanned(), seed=st.integers(0, 2**32), chunk=st.sampled_from([1, 2, 3, 100]))
def test_any_controls_at_any_moments_leave_every_child_with_one_end(manifest: Manifest, seed: int, chunk: int) -> None:
    """SG-01, SG-02, SG-03, SG-05, at any width, concurrency and outcome."""
    operated(manifest, seed, children_per_tick=chunk)
