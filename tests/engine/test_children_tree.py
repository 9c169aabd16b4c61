"""Deep trees: a definition that calls itself, stopped from above while it grows (field case SW-02, ruling F5)."""

import pytest

from ductord.engine.compile import compile_definition
from ductord.model.enums import RunStatus, Verb
from ductord.model.fanout import MAX_DEPTH
from ductord.model.manifest import Manifest
from tests.engine.trees import Tree
from tests.support.story import parse_definition

LOOP = ('step again type=subworkflow subworkflow={"workflow": {"family_slug": "loop"}}',)
WIDE = (
    'step again type=scatter scatter={"items_expr": "[1, 2]", "mode": "child_workflow", "workflow": {"family_slug": "wide"}}',
)


def _manifest(lines: tuple[str, ...], slug: str) -> Manifest:
    compiled = compile_definition(parse_definition(lines, slug))
    assert compiled.manifest is not None, compiled.violations
    return compiled.manifest


def _grown(tree: Tree, depth: int) -> None:
    """Let the tree grow until some run is nested so deep."""
    while not any(rows.start.nesting_depth >= depth for rows in tree.runs):
        for rows in tree.runs:
            tree.tick(rows)


@pytest.mark.parametrize("deepest_first", [True, False])
def test_a_definition_that_calls_itself_can_be_stopped(deepest_first: bool) -> None:
    """Cancelled at depth 30, whoever is ticked first: the tree may grow to the limit while the cancel comes down, and no further."""
    tree = Tree((_manifest(LOOP, "loop"),), 0)
    _grown(tree, 30)
    tree.ask(tree.root, Verb.CANCEL)
    moved = True
    while moved:
        moved = False
        for rows in sorted(tree.runs, key=lambda r: r.start.nesting_depth, reverse=deepest_first):
            moved = tree.tick(rows) or moved
    tree.check_rest()
    statuses = [rows.run.status for rows in tree.runs if rows.run is not None]
    assert len(statuses) <= MAX_DEPTH + 1
    assert statuses[0] is RunStatus.CANCELLED
    assert set(statuses) <= {RunStatus.CANCELLED, RunStatus.FAILED}


def test_a_definition_that_calls_itself_ends_at_the_limit() -> None:
    """SW-02: the failure comes up, level by level, and its text stays bounded."""
    tree = Tree((_manifest(LOOP, "loop"),), 0)
    tree.finish()
    tree.check_rest()
    faults = [rows.run.fault for rows in tree.runs if rows.run is not None]
    assert len(faults) == MAX_DEPTH + 1
    assert faults[-1] is not None
    assert faults[-1].code == "depth_limit_exceeded"
    assert all(fault is not None and fault.code == "child_failed" for fault in faults[:-1])
    assert max(len(fault.message) for fault in faults if fault is not None) < 10_000


def test_a_tree_that_doubles_at_every_level_is_stopped_while_it_grows() -> None:
    """SW-01, SW-02: after the cancel has come down nobody is born any more, and nobody is left."""
    tree = Tree((_manifest(WIDE, "wide"),), 0)
    _grown(tree, 6)
    tree.ask(tree.root, Verb.CANCEL)
    tree.finish(work=False)
    tree.check_rest()
    assert {rows.run.status for rows in tree.runs if rows.run is not None} == {RunStatus.CANCELLED}
