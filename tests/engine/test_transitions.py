"""The transition tables: what they refuse, and the diagrams printed from them."""

from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from ductord.engine import diagrams
from ductord.engine.errors import EngineError
from ductord.engine.evolve import FOLDS, bare_run, evolve, fold
from ductord.engine.transitions import NODE, RUN
from ductord.model.enums import CheckpointStatus, EdgeState, EdgeType, NodeStatus, Outcome, RunStatus, StepType
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CheckpointReached,
    EdgesResolved,
    Event,
    NodeEnded,
    NodePaused,
    NodeReset,
    RunEnded,
    RunPaused,
    RunRedriven,
    RunResumed,
    RunStarted,
)
from ductord.model.manifest import Checkpoint, Edge, Manifest, Step
from ductord.model.specs import ActionSpec
from tests.support.world import START

_DOCUMENT = Path(__file__).parents[2] / "docs" / "state-machines.md"

_ACTION = ActionSpec(action="noop:noop")
_MANIFEST = Manifest(
    format_version=1,
    engine_level=1,
    family_slug="two",
    steps=(
        Step(ref="a", type=StepType.ACTION, outgoing=(0,), action=_ACTION),
        Step(ref="b", type=StepType.ACTION, incoming=(0,), action=_ACTION),
    ),
    edges=(Edge(source=0, target=1, type=EdgeType.SUCCESS),),
    entrypoints=(0,),
    checkpoints=(Checkpoint(name="c", steps=(0,)),),
)
_STARTED = RunStarted(nodes=2, edges=1, checkpoints=1)
_CREATED = AttemptCreated(step_ref="a", attempt=1, logical=1)
_ENDED = AttemptEnded(step_ref="a", attempt=1, outcome=Outcome.SUCCEEDED)
_SUCCEEDED = NodeEnded(step_ref="a", status=NodeStatus.SUCCEEDED)
_RESOLVED = EdgesResolved(step_ref="a", edges=((0, EdgeState.TAKEN),))


def _evolved(*events: Event) -> None:
    evolve(_MANIFEST, None, "r", events, START)


def test_every_event_is_folded() -> None:
    assert FOLDS.keys() == set(get_args(Event))


def test_a_life_in_order_folds() -> None:
    history = [
        (START, (_STARTED, _CREATED)),
        (START + timedelta(seconds=1), (_ENDED, _SUCCEEDED, _RESOLVED, CheckpointReached(name="c"))),
    ]
    run = fold(_MANIFEST, "r", history)
    assert (run.status, run.seq, run.edges, run.open_nodes) == (RunStatus.RUNNING, 2, "T", 1)
    assert run.nodes[0].end_time == START + timedelta(seconds=1)
    assert run.checkpoints[0].status is CheckpointStatus.REACHED
    assert fold(_MANIFEST, "r", []) == bare_run("r")


@pytest.mark.parametrize(
    ("code", "events"),
    [
        ("RUN_NOT_OPEN", [_CREATED]),
        ("ILLEGAL_TRANSITION", [_STARTED, _STARTED]),
        ("ILLEGAL_TRANSITION", [_STARTED, _ENDED]),
        ("ILLEGAL_TRANSITION", [_STARTED, NodeEnded(step_ref="a", status=NodeStatus.CANCELLED)]),
        ("ILLEGAL_TRANSITION", [_STARTED, _CREATED, _ENDED, _SUCCEEDED, NodePaused(step_ref="a", request_id="p")]),
        ("ILLEGAL_TRANSITION", [_STARTED, RunPaused(request_id="p"), RunPaused(request_id="q")]),
        ("ILLEGAL_TRANSITION", [_STARTED, RunPaused(request_id="p"), RunEnded(status=RunStatus.FAILED)]),
        ("ILLEGAL_TRANSITION", [_STARTED, RunResumed(request_id="r")]),
        ("ILLEGAL_TRANSITION", [_STARTED, RunRedriven(request_id="r", steps=())]),
        ("ILLEGAL_TRANSITION", [_STARTED, _CREATED, _ENDED, _SUCCEEDED, _SUCCEEDED]),
        ("ILLEGAL_TRANSITION", [_STARTED, NodeEnded(step_ref="a", status=NodeStatus.WAITING)]),
        ("ILLEGAL_TRANSITION", [RunEnded(status=RunStatus.COMPLETED)]),
        ("ATTEMPT_OUT_OF_ORDER", [_STARTED, AttemptCreated(step_ref="a", attempt=2, logical=1)]),
        ("ATTEMPT_OUT_OF_ORDER", [_STARTED, AttemptCreated(step_ref="a", attempt=1, logical=2)]),
        ("ATTEMPT_OUT_OF_ORDER", [_STARTED, _CREATED, _CREATED]),
        ("ATTEMPT_OUT_OF_ORDER", [_STARTED, _CREATED, AttemptEnded(step_ref="a", attempt=2, outcome=Outcome.LOST)]),
        ("EDGE_RESOLVED_TWICE", [_STARTED, _CREATED, _ENDED, _SUCCEEDED, _RESOLVED, _RESOLVED]),
        ("FOREIGN_EDGE", [_STARTED, EdgesResolved(step_ref="b", edges=((0, EdgeState.TAKEN),))]),
        ("FOREIGN_EDGE", [_STARTED, EdgesResolved(step_ref="b", edges=((7, EdgeState.TAKEN),))]),
        ("UNKNOWN_STEP", [_STARTED, AttemptCreated(step_ref="x", attempt=1, logical=1)]),
        ("UNKNOWN_CHECKPOINT", [_STARTED, CheckpointReached(name="x")]),
        ("CHECKPOINT_DECIDED_TWICE", [_STARTED, CheckpointReached(name="c"), CheckpointReached(name="c")]),
        ("NODES_STILL_OPEN", [_STARTED, RunEnded(status=RunStatus.COMPLETED)]),
    ],
)
def test_evolve_refuses_what_the_tables_do_not_list(code: str, events: list[Event]) -> None:
    with pytest.raises(EngineError) as error:
        _evolved(*events)
    assert error.value.code == code


def test_g8_a_terminal_run_is_left_by_a_redrive_only() -> None:
    """Invariant 2: and every status that can be reached and is not terminal has a way out."""
    for status, row in RUN.items():
        assert not status.terminal or set(row) == {RunRedriven}
    assert {status for status in RUN if status.terminal} == {RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT}
    reached = {after for row in RUN.values() for targets in row.values() for after in targets}
    assert all(status.terminal or status in RUN for status in reached)


def test_c10_a_terminal_node_is_left_by_a_reset_only() -> None:
    for status, row in NODE.items():
        assert not status.terminal or set(row) == {NodeReset}
    reached = {after for row in NODE.values() for targets in row.values() for after in targets}
    assert all(status.terminal or status in NODE for status in reached)


def test_the_diagrams_are_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        _DOCUMENT.write_text(diagrams.document())
    assert _DOCUMENT.read_text() == diagrams.document()
