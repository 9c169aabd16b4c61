"""`gather`: the results of a scatter's children in the order of the items, whatever the order in which they ended (ruling F2).

It has no work of its own and ends where it would begin. What failed children are to it says its `stream_error`; that none may fail under `raise` is the
scatter's affair, which has failed by then.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ductord.engine import exits, faults, routing, waiting
from ductord.engine.errors import EngineError
from ductord.engine.routing import Arrival
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.fan import Fan, Gathered, GatheredChild
from ductord.model.fan_events import ChildFailed, ChildrenSucceeded
from ductord.model.fanout import GatherSpec, ScatterMode, StreamError
from ductord.model.fault import Fault
from ductord.model.needs import GatheredNeed

_NOT_ENDED: Final = {"code": "child_cancelled", "message": "the child did not come to an end of its own"}


def start(tick: Tick, index: int, prepared: None) -> None:
    """A gather is never begun: it ends at once."""
    waiting.never(tick, index)


def arrival(tick: Tick, index: int) -> Arrival:
    """As the join tells, but not before the scatter has ended: its children were counted when it began, and all of them have ended by then (F2, SG-02)."""
    told = routing.arrival(tick.manifest, tick.manifest.steps[index], tick.work.edges)
    source = tick.graph.index[_spec(tick, index).scatter_ref]
    ended = tick.work.nodes[source].status.terminal
    return Arrival.WAIT if told is Arrival.RUN and not ended else told


def decide(tick: Tick, index: int) -> bool:
    """Gather what there is. Raises `PayloadInvalid` for more than may be gathered: a coded failure with the size, never retried (L7). Nothing is called off."""
    spec = _spec(tick, index)
    source = tick.graph.index[spec.scatter_ref]
    fan = tick.work.nodes[source].fan
    if fan is None:
        message = f"scatter {spec.scatter_ref} has no children: it was not reached, or failed before it had any"
        exits.fail(tick, index, Fault(code=faults.NOTHING_TO_GATHER, message=message))
        return False
    gathered = _gathered(tick, source, fan)
    if gathered is not None:
        waiting.succeed_at_once(tick, index, collapsed(gathered, fan.expected, spec.stream_error))
    return False


def collapsed(gathered: Gathered, expected: int, stream_error: StreamError) -> dict[str, Any]:
    """The output of a gather over `expected` children."""
    successes = [child for child in gathered.children if child.fault is None]
    errors = {
        str(child.item_index): {"code": child.fault.code, "message": child.fault.message}
        for child in gathered.children
        if child.fault is not None
    }
    if stream_error is StreamError.INCLUDE:
        outputs = {child.item_index: child.output for child in successes}
        places = [
            outputs[number] if number in outputs else errors.get(str(number), _NOT_ENDED) for number in range(expected)
        ]
        return {"result": places, "error": errors}
    return {
        "result": [child.output for child in successes],
        "error": {} if stream_error is StreamError.DROP else errors,
        "result_indexes": [child.item_index for child in successes],
    }


def _gathered(tick: Tick, source: int, fan: Fan) -> Gathered | None:
    """What the children came to; None, and noted as missing, where it was not given."""
    step, limit = tick.manifest.steps[source], tick.limits.aggregate_max_bytes
    if not fan.next:
        return Gathered(size=0)
    runs = step.scatter is not None and step.scatter.mode is ScatterMode.CHILD_WORKFLOW
    gathered = tick.given(GatheredNeed(step.ref, fan.next, runs, limit))
    if gathered is msgspec.UNSET:
        return None
    assert isinstance(gathered, Gathered)
    if gathered.size > limit:
        raise jsonvalue.too_large(gathered.size, limit, "result")
    return replace(gathered, children=_as_judged(tick, step.ref, gathered.children))


def _as_judged(tick: Tick, ref: str, children: tuple[GatheredChild, ...]) -> tuple[GatheredChild, ...]:
    """The children as this very tick has judged them, whose verdicts are not in their rows yet: the last one of a scatter mostly ends in the tick that
    gathers."""
    succeeded: set[int] = set()
    failed: dict[int, Fault] = {}
    for event in tick.events:
        match event:
            case ChildrenSucceeded(step_ref=named) if named == ref:
                succeeded.update(number for number, _ in event.children)
            case ChildFailed(step_ref=named) if named == ref:
                failed[event.item_index] = event.fault
    judged = [child for child in children if child.item_index not in failed]
    told = [child for child in judged if not child.open or child.item_index in succeeded]
    told += [GatheredChild(item_index=number, fault=fault) for number, fault in failed.items()]
    return tuple(sorted(told, key=lambda child: child.item_index))


def _spec(tick: Tick, index: int) -> GatherSpec:
    step = tick.manifest.steps[index]
    if step.gather is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} gathers nothing")
    return step.gather


KIND = replace(PARKED, start=start, drop=waiting.never, reset=waiting.nothing, arrival=arrival, at_once=decide)
