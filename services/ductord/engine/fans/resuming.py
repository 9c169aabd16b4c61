"""Taking up children again: what a redrive or a reset makes of the child runs that a node has (rulings F3, F4, C4, C5).

Those that have completed count as they are. One that is open, or can be redriven, becomes a child of the node's new attempt; the others are born anew. Of two
ways to begin a child again none makes a difference to the node: they differ in what the commit does.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from ductord.engine.fans import expanding
from ductord.engine.fans.inputs import Bearing, bearing_of
from ductord.engine.tick import Tick
from ductord.model.enums import RunStatus
from ductord.model.fan import Fan, Kin
from ductord.model.manifest import Step
from ductord.model.needs import KinNeed
from ductord.model.run import Node, Waiting


class Again(msgspec.Struct, frozen=True):
    """The children that begin anew, as ranges (first, count)."""

    ranges: tuple[tuple[int, int], ...]


class Kindred(msgspec.Struct, frozen=True, kw_only=True):
    """The children that can be taken up, by index. `from_run_id`: another run's, which this one began from (C5); empty: its own."""

    kin: dict[int, Kin]
    from_run_id: str = ""


def prepare(tick: Tick, index: int) -> Again | None:
    """Which children of a pending node that has some begin again: those that have not completed. Of a step that waits for a checkpoint all do, since an end
    does not say whether it was reached. None where that is still to be loaded."""
    fan, bearing = expanding.fan_of(tick, index), bearing_of(tick.manifest.steps[index])
    found = _own(tick, index)
    if found is None:
        return None
    done = {k.item_index for k in found if _done(k, bearing)}
    return Again(ranges(number for number in range(fan.next) if number not in done))


def start(tick: Tick, index: int, again: Again, waiting: Waiting) -> None:
    """Let the node go on with the children that it has."""
    expanding.resume(tick, index, again.ranges, waiting)


def kindred(tick: Tick, index: int) -> Kindred | None:
    """The children that the node takes up instead of having others born; none where it began in its present attempt. None where that is still to be loaded."""
    fan, start = expanding.fan_of(tick, index), tick.inbox.start
    if not fan.again:
        return Kindred(kin={})
    own = _own(tick, index)
    if own is None:
        return None
    if own or not start.reset_from_run_id or tick.manifest.steps[index].subworkflow is None:
        return Kindred(kin={k.item_index: k for k in own if _usable(k)})
    there = origin(tick, tick.manifest.steps[index], fan)
    if there is None:
        return None
    return Kindred(kin={k.item_index: k for k in there}, from_run_id=start.reset_from_run_id)


def origin(tick: Tick, step: Step, fan: Fan) -> tuple[Kin, ...] | None:
    """The child of the source of a reset that a subworkflow step of this run can take for its own (RR-01). None where that is still to be loaded."""
    need = KinNeed(step_ref=step.ref, since=fan.pages, run_id=tick.inbox.start.reset_from_run_id)
    found: Any = tick.given(need)
    if found is msgspec.UNSET:
        return None
    return tuple(k for k in found if attachable(k, fan))


def attachable(kin: Kin, fan: Fan) -> bool:
    """Whether a run that begins where another was takes this child over: it is the one that was waited for there, and it is open or has completed (C5)."""
    same = fan.child_run_id in (kin.run_id, kin.first_run_id)
    return same and (kin.status is RunStatus.COMPLETED or not kin.status.terminal)


def awaited(step: Step, node: Node) -> bool:
    """Whether the node is a subworkflow that waits for its child."""
    return step.subworkflow is not None and node.fan is not None and node.fan.open > 0 and not node.status.terminal


def ranges(indexes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as ranges (first, count)."""
    made: list[tuple[int, int]] = []
    for number in indexes:
        if made and number == sum(made[-1]):
            made[-1] = (made[-1][0], made[-1][1] + 1)
        else:
            made.append((number, 1))
    return tuple(made)


def _own(tick: Tick, index: int) -> tuple[Kin, ...] | None:
    fan = expanding.fan_of(tick, index)
    found = tick.given(KinNeed(step_ref=tick.manifest.steps[index].ref, since=fan.pages))
    return None if found is msgspec.UNSET else found


def _done(kin: Kin, bearing: Bearing) -> bool:
    """Whether the child counts as a success as it is."""
    return kin.status is RunStatus.COMPLETED and kin.told and not bearing.checkpoint


def _usable(kin: Kin) -> bool:
    return kin.redrivable or not kin.status.terminal or kin.status is RunStatus.COMPLETED
