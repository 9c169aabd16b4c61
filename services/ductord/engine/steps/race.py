"""`race`: over as soon as one of its predecessors has succeeded (ruling G7).

It has no work of its own, so it ends where other steps begin: in the tick in which it is won. Those that led to nothing but the race are called off by
`stopping`; what becomes of them is no failure of the run.
"""

from typing import Final

from ductord.engine import exits, waiting
from ductord.engine.evolve import OPEN, TAKEN
from ductord.engine.routing import Arrival
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Tick
from ductord.model.enums import EdgeState, NodeStatus, RaceLosers
from ductord.model.events import EdgesResolved
from ductord.model.jsonvalue import storable_text
from ductord.model.run import Fault

NO_WINNER: Final = "race_no_winner"


def arrival(tick: Tick, index: int) -> Arrival:
    """Won by the first predecessor that succeeds. Nobody can any more: it runs, to fail by itself, if one of them failed; else it is skipped."""
    states = [_state(tick, e) for e in tick.manifest.steps[index].incoming]
    if EdgeState.TAKEN in states:
        return Arrival.RUN
    if EdgeState.OPEN in states:
        return Arrival.WAIT
    return Arrival.RUN if EdgeState.DEAD_FAILURE in states else Arrival.SKIP


def start(tick: Tick, index: int, prepared: None) -> None:
    """A race is never begun: it ends at once."""
    waiting.never(tick, index)


def decide(tick: Tick, index: int) -> bool:
    """End the race: with the winner's output, or failed with the list of those that failed. True if its losers are to be called off."""
    winner = _winner(tick, index)
    if winner is None:
        exits.fail(tick, index, _no_winner(tick, index))
        return False
    ref = tick.manifest.steps[winner].ref
    if tick.lacks((ref,)):
        return False
    waiting.succeed_at_once(tick, index, {"winner": ref, "output": tick.outputs.get(ref)})
    race = tick.manifest.steps[index].race
    return race is not None and race.losers is RaceLosers.CANCEL


def _winner(tick: Tick, index: int) -> int | None:
    """The first that succeeded, by the order of transitions and, in this tick, of events."""
    steps, nodes = tick.manifest.steps, tick.work.nodes
    edges = (e for e in steps[index].incoming if _state(tick, e) is EdgeState.TAKEN)
    sources = {steps[tick.manifest.edges[e].source].ref: tick.manifest.edges[e].source for e in edges}
    now = [sources.pop(e.step_ref) for e in tick.events if isinstance(e, EdgesResolved) and e.step_ref in sources]
    before = min(sources.values(), key=lambda source: (nodes[source].end_time or tick.now, source), default=None)
    return before if before is not None else next(iter(now), None)


def _state(tick: Tick, edge: int) -> EdgeState:
    """The edge as the race sees it: only what succeeded can win."""
    state = tick.work.edges[edge]
    if state == OPEN:
        return EdgeState.OPEN
    if state == TAKEN:
        source = tick.work.nodes[tick.manifest.edges[edge].source]
        return EdgeState.TAKEN if source.status is NodeStatus.SUCCEEDED else EdgeState.DEAD_FAILURE
    return EdgeState(chr(state))


def _no_winner(tick: Tick, index: int) -> Fault:
    steps, nodes = tick.manifest.steps, tick.work.nodes
    sources = dict.fromkeys(tick.manifest.edges[e].source for e in steps[index].incoming)
    failed = [f"{steps[s].ref}: {fault.code}" for s in sources if (fault := nodes[s].fault) is not None]
    message = f"no predecessor succeeded ({', '.join(failed) or 'none of them ran'})"
    return Fault(code=NO_WINNER, message=storable_text(message))


KIND = StepKind(
    prepare=waiting.nothing,
    start=start,
    again=waiting.again,
    may_report=waiting.may_report,
    ask=waiting.ask,
    drop=waiting.never,
    hold=waiting.hold,
    release=waiting.release,
    retime=waiting.retime,
    reset=waiting.nothing,
    arrival=arrival,
    at_once=decide,
)
