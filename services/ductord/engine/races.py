"""Who has won a race, and who has lost it, as the state of a run tells (ruling G7).

Only looks: a race that is over ends in `steps.race`, its losers are called off by `stopping`, and a loser's own end is `exits`'s.
"""

from ductord.engine.evolve import TAKEN
from ductord.engine.graph import graph_of
from ductord.engine.routing import Arrival
from ductord.engine.tick import Tick
from ductord.model.enums import EdgeState, NodeStatus, RaceLosers, SkipReason
from ductord.model.manifest import Manifest
from ductord.model.run import Run

_OVER = (NodeStatus.SUCCEEDED, NodeStatus.COMPLETED_WITH_ERROR, NodeStatus.FAILED)


def arrival(tick: Tick, race: int) -> Arrival:
    """Won by the first predecessor that succeeds. Nobody can any more: it runs, to fail by itself, if one of them failed; else it is skipped."""
    states = [_state(tick, e) for e in tick.manifest.steps[race].incoming]
    if EdgeState.TAKEN in states:
        return Arrival.RUN
    if EdgeState.OPEN in states:
        return Arrival.WAIT
    return Arrival.RUN if EdgeState.DEAD_FAILURE in states else Arrival.SKIP


def winner(tick: Tick, race: int) -> int | None:
    """The step that succeeded first of those that the race is for, by the order in which nodes end, be it in one tick or in many."""
    steps, edges = tick.manifest.steps, tick.manifest.edges
    sources = [edges[e].source for e in steps[race].incoming if _state(tick, e) is EdgeState.TAKEN]
    return min(sources, key=lambda source: tick.work.nodes[source].rank, default=None)


def calls_off(tick: Tick, race: int) -> bool:
    """Whether the definition has the losers of this race called off."""
    return _calls_off(tick.manifest, race)


def lost(tick: Tick, index: int) -> bool:
    """Whether what becomes of the step concerns nobody any more: it has lost a race, or one that it alone leads to has been won, in this very tick or while a
    pause kept it from ending. A race that may still be skipped by its own condition is not won before it has ended."""
    if tick.work.nodes[index].lost:
        return True
    return any(
        index in only
        and tick.work.nodes[race].status is NodeStatus.PENDING
        and tick.manifest.steps[race].run_if is None
        and calls_off(tick, race)
        and winner(tick, race) is not None
        for race, only in tick.graph.only_for.items()
    )


def over(tick: Tick) -> list[int]:
    """The races that were won, and whose losers are called off."""
    nodes = tick.work.nodes
    return [
        race
        for race in tick.graph.only_for
        if nodes[race].status in _OVER and calls_off(tick, race) and winner(tick, race) is not None
    ]


def in_again(manifest: Manifest, run: Run, restarted: set[int]) -> set[int]:
    """The losers of races that are undecided again, because the race and its winner have to start anew: they are in it again, unless they lost a race within it
    that stays won."""
    losers, stay = set[int](), set[int]()
    for race, only in graph_of(manifest).only_for.items():
        if any(_won_by(manifest, run, e, restarted) for e in manifest.steps[race].incoming):
            stay.update(only if _calls_off(manifest, race) else ())
        elif race in restarted or run.nodes[race].status is NodeStatus.PENDING:
            nodes = ((index, run.nodes[index]) for index in only)
            losers.update(index for index, node in nodes if node.lost or node.skip_reason is SkipReason.RACE_LOST)
    return losers - stay


def _calls_off(manifest: Manifest, race: int) -> bool:
    spec = manifest.steps[race].race
    return spec is not None and spec.losers is RaceLosers.CANCEL


def _won_by(manifest: Manifest, run: Run, edge: int, restarted: set[int]) -> bool:
    """Whether the race at the end of this edge has a winner there that is kept."""
    source = manifest.edges[edge].source
    succeeded = run.nodes[source].status is NodeStatus.SUCCEEDED and run.edges[edge] == EdgeState.TAKEN
    return succeeded and source not in restarted


def _state(tick: Tick, edge: int) -> EdgeState:
    """The edge as the race sees it: only what succeeded can win, and what passed by has not failed."""
    state = tick.work.edges[edge]
    if state != TAKEN:
        return EdgeState(chr(state))
    match tick.work.nodes[tick.manifest.edges[edge].source].status:
        case NodeStatus.SUCCEEDED:
            return EdgeState.TAKEN
        case NodeStatus.SKIPPED:
            return EdgeState.DEAD_SKIP
        case _:
            return EdgeState.DEAD_FAILURE
