"""Edges and joins as tables: every end of a step against every type of edge (G1, G3; field case GJ-03), every mix of arrivals against both joins (G2)."""

import itertools
from pathlib import Path

import pytest

from ductord.engine.routing import Arrival, arrival, skip_reason
from ductord.model.enums import EdgeType, Join, NodeStatus, SkipReason, StepType
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Edge, Manifest, Step
from tests.support.memory_world import MemoryWorld
from tests.support.story import play, read

_PLAIN = ("step u", "step x", "u -success-> x")
_FAILING = ("step u", "step x on_error=fail", "u -success-> x")

_ENDS: dict[str, tuple[tuple[str, ...], str, NodeStatus, SkipReason | None, str]] = {
    # how x ends: definition, commands, then its status, why it was skipped, and what became of its done, success and error edges
    "succeeds": (_PLAIN, "ok u, tick, ok x, tick", NodeStatus.SUCCEEDED, None, "TTS"),
    "fails, handled": (_PLAIN, "ok u, tick, fail x, tick", NodeStatus.COMPLETED_WITH_ERROR, None, "TST"),
    "fails, unhandled": (
        ("step u", "step x on_error=continue", "u -success-> x"),
        "ok u, tick, fail x, tick",
        NodeStatus.COMPLETED_WITH_ERROR,
        None,
        "TF",
    ),
    "fails the run": (_FAILING, "ok u, tick, fail x, tick", NodeStatus.FAILED, None, "TF"),
    "its run_if is false": (
        ("step u", 'step x run_if="false"', "u -success-> x"),
        "ok u, tick",
        NodeStatus.SKIPPED,
        SkipReason.CONDITION,
        "TSS",
    ),
    "skipped from upstream": (
        ('step u run_if="false"', "step x", "u -success-> x"),
        "",
        NodeStatus.SKIPPED,
        SkipReason.UPSTREAM_SKIPPED,
        "SSS",
    ),
    "failed upstream": (
        ("step u on_error=continue", "step x", "u -success-> x"),
        "fail u, tick",
        NodeStatus.SKIPPED,
        SkipReason.UPSTREAM_FAILED,
        "FFF",
    ),
    "a choice went another way": (
        (
            "step u",
            "step x",
            "step y",
            'u -success-> x choice_group=g condition="false"',
            "u -success-> y choice_group=g default=true",
        ),
        "ok u, tick",
        NodeStatus.SKIPPED,
        SkipReason.CHOICE,
        "SSS",
    ),
    "the run ended before": (_FAILING, "fail u, tick", NodeStatus.SKIPPED, SkipReason.RUN_ENDED, "SS"),
    "cancelled by the stop": (
        ("step bad", "step x on_error=fail"),
        "lease, fail bad, tick, fail x, tick",
        NodeStatus.CANCELLED,
        None,
        "FF",
    ),
}


@pytest.mark.parametrize("end", _ENDS)
async def test_gj_03_g1_what_every_end_of_a_step_does_to_its_edges(end: str, tmp_path: Path) -> None:
    """GJ-03: years of argument whether «all done» includes skipped; here it is one table."""
    definition, commands, status, reason, states = _ENDS[end]
    kinds = ("done", "success", "error")[: len(states)]
    sinks = tuple(line for kind in kinds for line in (f"step after_{kind}", f"x -{kind}-> after_{kind}"))
    file = tmp_path / "table.txt"
    script = "\n".join(["trigger {}", "tick", *(c.strip() for c in commands.split(",") if c)])
    file.write_text("\n  ".join(["define", *definition, *sinks]) + f"\n{script}\n\n----\n")
    world = MemoryWorld()
    await play(read(file), world)
    run = (await world.show()).run
    assert run is not None
    index = next(i for i, step in enumerate(world.manifest.steps) if step.ref == "x")
    assert (run.nodes[index].status, run.nodes[index].skip_reason) == (status, reason)
    by_type = {world.manifest.edges[e].type: run.edges[e] for e in world.manifest.steps[index].outgoing}
    assert "".join(by_type[EdgeType(kind)] for kind in kinds) == states


def _expected(join: Join, states: tuple[str, ...]) -> Arrival:
    """Ruling G2 in its own words."""
    if join is Join.ANY and "T" in states:
        return Arrival.RUN
    if "?" in states:
        return Arrival.WAIT
    if "F" in states:
        return Arrival.SKIP_FAILURE
    return Arrival.RUN if "T" in states else Arrival.SKIP


@pytest.mark.parametrize("join", Join)
def test_g2_every_mix_of_arrivals(join: Join) -> None:
    for states in itertools.product("?TSF", repeat=3):
        manifest = _joining(join, sources=(0, 1, 2))
        step = manifest.steps[3]
        assert arrival(manifest, step, bytearray("".join(states), "ascii")) is _expected(join, states), states


@pytest.mark.parametrize("join", Join)
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("TF", Arrival.RUN),
        ("FT", Arrival.RUN),
        ("SF", Arrival.SKIP_FAILURE),
        ("FF", Arrival.SKIP_FAILURE),
        ("SS", Arrival.SKIP),
    ],
)
def test_g2_two_edges_from_one_source_are_one_arrival(join: Join, states: str, expected: Arrival) -> None:
    manifest = _joining(join, sources=(0, 0))
    assert arrival(manifest, manifest.steps[3], bytearray(states, "ascii")) is expected


def test_g1_choice_is_the_reason_only_where_a_sibling_was_taken() -> None:
    manifest = _joining(Join.ALL, sources=(0, 1), group="g", extra=True)
    step = manifest.steps[3]
    assert skip_reason(manifest, step, bytearray(b"SST")) is SkipReason.CHOICE
    assert skip_reason(manifest, step, bytearray(b"SSS")) is SkipReason.UPSTREAM_SKIPPED


def _joining(join: Join, sources: tuple[int, ...], group: str | None = None, *, extra: bool = False) -> Manifest:
    """Steps 0 to 2 and step 3 that joins edges from `sources`; `extra`: one more edge of the group from step 0 to step 2."""
    edges = [Edge(source=source, target=3, type=EdgeType.SUCCESS, choice_group=group) for source in sources]
    if extra:
        edges.append(Edge(source=0, target=2, type=EdgeType.SUCCESS, choice_group=group))
    return Manifest(
        format_version=FORMAT_VERSION,
        engine_level=ENGINE_LEVEL,
        family_slug="f",
        steps=tuple(
            Step(
                ref=f"s{i}",
                type=StepType.ACTION,
                join=join,
                incoming=tuple(e for e, edge in enumerate(edges) if edge.target == i),
                outgoing=tuple(e for e, edge in enumerate(edges) if edge.source == i),
            )
            for i in range(4)
        ),
        edges=tuple(edges),
    )
