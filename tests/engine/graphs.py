"""Random runs: strategies for manifests, and for what workers and time do to a run of one."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from ductord.model.enums import EdgeType, FailPolicy, Join, OnError, Outcome, StepType
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Checkpoint, Edge, Manifest, Step
from ductord.model.specs import ActionSpec, Expression, RetryPolicy, Template

_PLAIN = (EdgeType.SUCCESS, EdgeType.DONE)
_MAX_STEPS = 8

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one attempt. `output`: of a success. `code`: of a failure."""

    outcome: Outcome
    output: Any = None
    code: str = ""
    non_retryable: bool = False
    retry_after_ms: int | None = None


_success = st.integers(0, 9).map(lambda x: Fate(outcome=Outcome.SUCCEEDED, output={"x": x}))

reported = st.one_of(
    _success,
    st.builds(
        Fate,
        outcome=st.just(Outcome.FAILED),
        code=st.sampled_from(["UNAVAILABLE", "INVALID_ARGUMENT", "HTTP_503", "CARD_DECLINED"]),
        non_retryable=st.booleans(),
        retry_after_ms=st.none() | st.just(2_000),
    ),
)
"""What a worker says."""

silent = st.sampled_from(
    [
        Outcome.LOST,
        Outcome.RELEASED,
        Outcome.TIMED_OUT,
        Outcome.HEARTBEAT_TIMED_OUT,
        Outcome.QUEUE_TIMED_OUT,
        Outcome.REVOKED,
    ]
).map(lambda outcome: Fate(outcome=outcome))
"""What is said on behalf of a silent one."""

fates = st.one_of(_success, _success, reported, silent)


@st.composite
def manifests(
    draw: Draw, policies: tuple[FailPolicy, ...] = tuple(FailPolicy), *, joins: tuple[Join, ...] = tuple(Join)
) -> Manifest:
    """A manifest such as `compile` would publish: acyclic, in an order that edges respect, error edges only under on_error `continue`."""
    count = draw(st.integers(1, _MAX_STEPS))
    edges: list[Edge] = []
    on_error = [draw(st.sampled_from(OnError)) for _ in range(count)]
    results = [draw(st.booleans()) for _ in range(count)]
    for target in range(1, count):
        for source in draw(st.sets(st.integers(0, target - 1), max_size=3)):
            types: tuple[EdgeType, ...] = _PLAIN
            if on_error[source] is OnError.CONTINUE:
                types += (EdgeType.ERROR,)
            if results[source]:
                types += (EdgeType.TRUE, EdgeType.FALSE)
            for kind in sorted(draw(st.sets(st.sampled_from(types), min_size=1, max_size=2))):
                edges.append(_edge(draw, edges, source, target, kind))
    steps = tuple(_step(draw, i, edges, on_error[i], results[i], joins) for i in range(count))
    named = st.sets(st.integers(0, count - 1), min_size=1)
    return Manifest(
        format_version=FORMAT_VERSION,
        engine_level=ENGINE_LEVEL,
        family_slug="law",
        steps=steps,
        edges=tuple(edges),
        entrypoints=tuple(i for i in range(count) if not steps[i].incoming),
        checkpoints=(Checkpoint(name="c", steps=tuple(sorted(draw(named)))),) if draw(st.booleans()) else (),
        output=_output(draw, count),
        fail_policy=draw(st.sampled_from(policies)),
        run_timeout_ms=draw(st.sampled_from([None, None, 20_000])),
    )


def _edge(draw: Draw, edges: list[Edge], source: int, target: int, kind: EdgeType) -> Edge:
    group = draw(st.sampled_from([None, None, None, "g"])) if kind is EdgeType.SUCCESS else None
    default = group is not None and draw(st.booleans())
    condition = None if default else draw(st.none() | _conditions({source} | _ancestors(source, edges)))
    return Edge(
        source=source, target=target, type=kind, condition=condition, choice_group=group, order=target, default=default
    )


def _conditions(steps: set[int]) -> st.SearchStrategy[Expression]:
    """Conditions over steps that have ended; some do not evaluate when the step was skipped (L4)."""
    return st.sampled_from(sorted(steps)).flatmap(
        lambda i: st.sampled_from(
            [
                Expression(source=f'STEPS["s{i}"].output.x > 4', names=("STEPS",), steps=(f"s{i}",)),
                Expression(source=f'STEPS["s{i}"].status == "succeeded"', names=("STEPS",), steps=(f"s{i}",)),
            ]
        )
    )


def _step(draw: Draw, index: int, edges: list[Edge], on_error: OnError, result: bool, joins: tuple[Join, ...]) -> Step:
    incoming = tuple(e for e, edge in enumerate(edges) if edge.target == index)
    run_if = draw(_conditions(_ancestors(index, edges))) if incoming and draw(st.booleans()) else None
    return Step(
        ref=f"s{index}",
        type=StepType.ACTION,
        join=draw(st.sampled_from(joins)),
        on_error=on_error,
        run_if=run_if,
        result_expr=Expression(source="OUTPUT.x > 4", names=("OUTPUT",)) if result else None,
        retry=RetryPolicy(
            max_attempts=draw(st.integers(1, 3)),
            backoff_ms=draw(st.sampled_from([0, 0, 3_000])),
            coefficient=draw(st.sampled_from([1.0, 2.0])),
            jitter=draw(st.booleans()),
        ),
        total_timeout_ms=draw(st.sampled_from([None, None, None, 9_000])),
        max_lost=draw(st.integers(0, 2)),
        incoming=incoming,
        outgoing=tuple(e for e, edge in enumerate(edges) if edge.source == index),
        action=ActionSpec(action="core:echo"),
    )


def _ancestors(index: int, edges: list[Edge]) -> set[int]:
    found: set[int] = set()
    todo = [index]
    while todo:
        at = todo.pop()
        for edge in edges:
            if edge.target == at and edge.source not in found:
                found.add(edge.source)
                todo.append(edge.source)
    return found


def _output(draw: Draw, count: int) -> Template | None:
    if draw(st.booleans()):
        return None
    ref = f"s{draw(st.integers(0, count - 1))}"
    tree = {"x": f'${{{{ STEPS["{ref}"].output.x }}}}'}
    return Template(tree=tree, static=False, names=("STEPS",), steps=(ref,))
