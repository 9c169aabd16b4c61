"""Edges and joins as pure functions: which edges an ending step takes, and what a step's incoming edges tell it (rulings G1 to G3, G6, L9).

Knows edge states and manifests, no events and no outputs: conditions are judged by a function that the caller passes.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from ductord.engine.evolve import DEAD_FAILURE, OPEN, TAKEN
from ductord.engine.expressions import ExpressionError
from ductord.engine.faults import CHOICE_NO_MATCH, of_expression
from ductord.model.enums import EdgeType, Join, SkipReason
from ductord.model.fault import Fault
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.specs import Expression

SUCCESS = frozenset({EdgeType.SUCCESS, EdgeType.DONE})
SUCCESS_TRUE = SUCCESS | {EdgeType.TRUE}
SUCCESS_FALSE = SUCCESS | {EdgeType.FALSE}
FAILURE = frozenset({EdgeType.ERROR, EdgeType.DONE})
REJECTION = FAILURE | {EdgeType.REJECTED}
REACHED = frozenset({EdgeType.DONE})
"""What fires after a success (and by its result_expr, L9), a failure, an approval that was rejected (E2), and what only passes by: a run_if that was false
(G3), a wait that its time-out skips (E2)."""

APPROVED = frozenset({EdgeType.APPROVED})
"""What an approval that succeeds fires beside (E2)."""

HANDLING = frozenset({EdgeType.ERROR, EdgeType.REJECTED})
"""A taken edge of these types handles a failure (G1); `done` handles nothing."""


def take(
    manifest: Manifest, step: Step, fires: frozenset[EdgeType], test: Callable[[Expression], bool]
) -> tuple[list[int], Fault | None]:
    """The outgoing edges that are taken when edges of the types `fires` may, and the first fault met on the way.

    `test` judges a condition and may raise `ExpressionError`; such an edge is not taken. Choice groups (G6) are evaluated once, in `order`, over
    their members of a firing type; a group that has such members and no match and no default is a CHOICE_NO_MATCH.
    """
    taken: list[int] = []
    groups: dict[str, list[int]] = {}
    fault: Fault | None = None
    for e in step.outgoing:
        edge = manifest.edges[e]
        if edge.type not in fires:
            continue
        if edge.choice_group is not None:
            groups.setdefault(edge.choice_group, []).append(e)
            continue
        try:
            if edge.condition is None or test(edge.condition):
                taken.append(e)
        except ExpressionError as error:
            fault = fault or of_expression(error)
    for name, members in groups.items():
        try:
            chosen = _choose(manifest, members, test)
        except ExpressionError as error:
            fault = fault or of_expression(error)
            continue
        if chosen is None:
            message = f"no edge of choice group {name} matched and it has no default"
            fault = fault or Fault(code=CHOICE_NO_MATCH, message=message)
        else:
            taken.append(chosen)
    return taken, fault


def _choose(manifest: Manifest, members: list[int], test: Callable[[Expression], bool]) -> int | None:
    edges = manifest.edges
    ordered = sorted(members, key=lambda e: (edges[e].order, e))
    for e in ordered:
        edge: Edge = edges[e]
        if not edge.default and (edge.condition is None or test(edge.condition)):
            return e
    return next((e for e in ordered if edges[e].default), None)


_ANY: Final = Join.ANY


class Arrival(Enum):
    """What a step's incoming edges tell it (G2)."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"
    SKIP_FAILURE = "skip_failure"


def arrival(manifest: Manifest, step: Step, edges: bytearray) -> Arrival:
    """The join (G2). Several edges from one source are one arrival: taken if one of them is."""
    any_taken = any_failure = any_open = False
    join_any = step.join is _ANY
    for e in step.incoming:
        state = edges[e]
        if state == OPEN:
            if not join_any:
                return Arrival.WAIT
            any_open = True
        elif state == TAKEN:
            if join_any:
                return Arrival.RUN
            any_taken = True
        elif state == DEAD_FAILURE:
            any_failure = True
    if any_open:
        return Arrival.WAIT
    if not any_failure:
        return Arrival.RUN if any_taken or not step.incoming else Arrival.SKIP
    if not any_taken:
        return Arrival.SKIP_FAILURE
    arrived = {manifest.edges[e].source for e in step.incoming if edges[e] == TAKEN}
    failed = any(edges[e] == DEAD_FAILURE and manifest.edges[e].source not in arrived for e in step.incoming)
    return Arrival.SKIP_FAILURE if failed else Arrival.RUN


def skip_reason(manifest: Manifest, step: Step, edges: bytearray) -> SkipReason:
    """Why a step with only dead edges, none of them by failure, is skipped: `choice` if a choice went another way, else its upstream was skipped."""
    for e in step.incoming:
        edge = manifest.edges[e]
        if edge.choice_group is None:
            continue
        siblings = manifest.steps[edge.source].outgoing
        if any(edges[s] == TAKEN and manifest.edges[s].choice_group == edge.choice_group for s in siblings):
            return SkipReason.CHOICE
    return SkipReason.UPSTREAM_SKIPPED
