"""Counting: whether more children have failed than may, whether all have ended, and what that makes of their node (rulings F1, F2, F3, G5).

State is counters: a child that ends moves one of them, whatever the width. Nobody here looks at a child.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ductord.engine import exits, faults, reports, waiting
from ductord.engine.fans.expanding import fan_of
from ductord.engine.tick import Tick
from ductord.model.errors import PayloadInvalid
from ductord.model.fan import Fan
from ductord.model.fanout import OnItemError
from ductord.model.fault import Fault
from ductord.model.jsonvalue import storable_text
from ductord.model.manifest import Step


def tolerated(step: Step, expected: int) -> int:
    """How many of `expected` children may fail. Of a share the whole children in it; where a count and a share are given, the lower."""
    if step.for_each is not None:
        return 0 if step.for_each.on_item_error is OnItemError.STOP else expected
    spec = step.scatter
    if spec is None or spec.raises:
        return 0
    allowed = [expected]
    if spec.tolerated is not None:
        allowed.append(spec.tolerated)
    if spec.tolerated_percent is not None:
        allowed.append(int(Fraction(str(spec.tolerated_percent)) * expected / 100))
    return min(allowed)


def too_many(tick: Tick, index: int) -> Fault | None:
    """Why the node fails: more of its children have failed than may. It names the first."""
    fan = fan_of(tick, index)
    allowed = tolerated(tick.manifest.steps[index], fan.expected)
    if fan.failed <= allowed or fan.first_fault is None:
        return None
    first = fan.first_fault
    detail = f" ({first.message})" if first.message else ""
    message = f"{fan.failed:,} of {fan.expected:,} children failed, {allowed:,} may; child {fan.first_failed} was the first: {first.code}{detail}"
    return Fault(code=faults.CHILDREN_FAILED, message=storable_text(message))


def over(tick: Tick, index: int) -> bool:
    """Whether nothing is to come of the node any more: no child is open, and none is left to begin, or none of those that are left shall."""
    node = tick.work.nodes[index]
    if not node.status.begun or node.fan is None or node.fan.open:
        return False
    if node.fan.begun or node.fan.fault is not None or node.cancelling or too_many(tick, index) is not None:
        return True
    return not reports.goes_on(tick, index)


def finish(tick: Tick, index: int, output: Callable[[], Any]) -> None:
    """End a node of which nothing is to come: it succeeds with this output if all its children have ended and no more failed than may, else it fails by its
    children, or was cut off. One that was asked to stop and whose children have all ended by themselves has done its work."""
    node, fan = tick.work.nodes[index], fan_of(tick, index)
    fault = fan.fault or too_many(tick, index)
    if fan.fault is not None or (fault is not None and not node.cancelling):
        exits.fail(tick, index, fan.fault or fault or Fault(code=faults.CHILDREN_FAILED))
    elif fan.done and fault is None and not fan.cancelled:
        try:
            reference = waiting.make(tick, index, output())
        except PayloadInvalid as error:
            exits.fail(tick, index, faults.of_payload(error))
        else:
            exits.succeed(tick, index, reference)
    else:
        exits.cancel(tick, index, fault)


def counts(fan: Fan) -> dict[str, int]:
    """The output of a scatter."""
    return {"count": fan.expected, "succeeded": fan.succeeded, "failed": fan.failed}


def progress(fan: Fan) -> str:
    """Where the children stand, for the text of a fault."""
    return f"{fan.ended:,} of {fan.expected:,} children had ended"
