"""What the commit made of a run that joined a digest meets the run: its place in a window, and the end of a run whose event another carries on (ruling E5).

Facts about digests come before everything else of a tick: what they tell was committed before the tick was made. A held node is told nothing until it is let
go (C2). What a place means for the step is asked of its kind; that a merged run ends as a whole is decided here.
"""

from msgspec.structs import replace

from ductord.engine import checkpoints, ending, stopping
from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.effects import TakeDigest
from ductord.model.enums import DigestPlace, NodeStatus, RunStatus
from ductord.model.inbox import DigestFact
from ductord.model.run import Stop


def tell(tick: Tick) -> None:
    """Apply the facts that were not applied in this tick and that nothing holds."""
    for fact in tick.inbox.digests:
        taken = TakeDigest(step_ref=fact.step_ref, attempt=fact.attempt, place=fact.place)
        if taken in tick.effects:
            continue
        index = tick.graph.index.get(fact.step_ref)
        if index is None or not tick.open or not _waits(tick, index, fact.attempt):
            tick.do(taken)  # Its wait is over: it is put away, and changes nothing.
        elif not tick.holds(fact.step_ref):
            tick.do(taken)
            if fact.place is DigestPlace.MERGED:
                _merge(tick, fact)
            elif (hook := kind_of(tick, index).on_digest) is not None:
                hook(tick, index, fact)


def _waits(tick: Tick, index: int, attempt: int) -> bool:
    node = tick.work.nodes[index]
    return node.status is NodeStatus.WAITING and node.attempt == attempt


def _merge(tick: Tick, fact: DigestFact) -> None:
    """The run ends here and now, so that nothing that comes with this tick is too early for it. A failure that stopped it before stays its cause (G8)."""
    stop = tick.work.run.stop or Stop(cause=RunStatus.MERGED)
    stopping.at_once(tick, replace(stop, merged_into_run_id=fact.leader_run_id))
    checkpoints.judge(tick)
    ending.close(tick)
