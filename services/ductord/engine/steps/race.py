"""`race`: over as soon as one of its predecessors has succeeded (ruling G7).

It has no work of its own, so it ends where other steps begin: in the tick in which it is won. Those that led to nothing but the race are called off by
`stopping`; what becomes of them is no failure of the run. Who has won is `engine.races`' to say.
"""

from typing import Final

from msgspec.structs import replace

from ductord.engine import exits, races, waiting
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.fault import Fault
from ductord.model.jsonvalue import storable_text
from ductord.model.run import Node

NO_WINNER: Final = "race_no_winner"


def start(tick: Tick, index: int, prepared: None) -> None:
    """A race is never begun: it ends at once."""
    waiting.never(tick, index)


def decide(tick: Tick, index: int) -> bool:
    """End the race: with the winner's output, or failed with the list of those that did not win. True if its losers are to be called off."""
    winner = races.winner(tick, index)
    if winner is None:
        exits.fail(tick, index, _no_winner(tick, index))
        return False
    ref = tick.manifest.steps[winner].ref
    if tick.lacks((ref,)):
        return False
    waiting.succeed_at_once(tick, index, {"winner": ref, "output": tick.outputs.get(ref)})
    return races.calls_off(tick, index)


def _no_winner(tick: Tick, index: int) -> Fault:
    steps, nodes = tick.manifest.steps, tick.work.nodes
    sources = dict.fromkeys(tick.manifest.edges[e].source for e in steps[index].incoming)
    how = ", ".join(f"{steps[s].ref}: {_how(nodes[s])}" for s in sources)
    return Fault(code=NO_WINNER, message=storable_text(f"no predecessor succeeded ({how})"))


def _how(node: Node) -> str:
    """What kept a predecessor from winning. One that succeeded took another way."""
    if node.fault is not None:
        return node.fault.code
    return str(node.skip_reason or node.status).replace("_", " ")


KIND = replace(PARKED, start=start, drop=waiting.never, reset=waiting.nothing, arrival=races.arrival, at_once=decide)
