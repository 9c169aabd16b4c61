"""The laws of trees of runs: whatever becomes of whom, in whatever order replicas tick, everybody ends and nobody waits for nothing (F3 to F5, C2 to C6)."""

from hypothesis import given
from hypothesis import strategies as st

from ductord.engine.replay import replay
from ductord.model.enums import RunStatus, Verb
from ductord.model.fanout import ClosePolicy
from ductord.model.manifest import Manifest
from ductord.model.recording import decode, encode
from tests.engine.searching import search
from tests.engine.trees import Tree, trees
from tests.support.recording import recording_of


@search(120)
@given(manifests=trees(), seed=st.integers(0, 2**32), chunk=st.sampled_from([1, 2, 100]))
def test_any_controls_at_any_moments_leave_a_tree_at_rest(
    manifests: tuple[Manifest, ...], seed: int, chunk: int
) -> None:
    """Work, failures, time and controls, of any run at any moment; then nobody holds anything any more."""
    tree = Tree(manifests, seed, children_per_tick=chunk)
    tree.live(tree.random.randint(5, 200))
    tree.finish()
    tree.check_rest()
    for rows in tree.runs:
        recording = recording_of(rows)
        assert decode(encode(recording)) == recording
        difference = replay(recording)
        assert difference is None, f"a recorded run is decided again as it was: {difference}"


@search(80)
@given(manifests=trees(), seed=st.integers(0, 2**32))
def test_a_cancel_of_the_root_stops_the_whole_tree(manifests: tuple[Manifest, ...], seed: int) -> None:
    """SW-01, SW-02: without anybody's working on, whatever is asked to stop stops; what was let go or abandoned is left to itself."""
    tree = Tree(manifests, seed)
    tree.live(tree.random.randint(5, 60))
    tree.ask(tree.root, Verb.CANCEL)
    tree.finish(work=False)
    assert tree.root.run is not None
    ended = tree.root.run
    assert ended.status.terminal or ended.continued_to_run_id
    for row in tree.root.kinship.rows:
        parent, child = tree.root.family[row.parent_run_id].run, tree.root.family[row.run_id].run
        assert parent is not None
        assert child is not None
        if parent.status.terminal and not row.detached and row.close_policy is not ClosePolicy.ABANDON:
            spared = parent.status is RunStatus.TIMED_OUT and row.close_policy is ClosePolicy.REQUEST_CANCEL
            assert child.status.terminal or spared, "a child outlives a parent that has ended"
