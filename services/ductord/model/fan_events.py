"""The events of fan-outs. Those about children tell many at once: what a transition says of them grows by a few bytes per child."""

from datetime import datetime

from ductord.model.enums import RunStatus
from ductord.model.fault import Fault
from ductord.model.run import Waiting
from ductord.model.tagged import Tagged


class FanExpanded(Tagged, frozen=True, kw_only=True):
    """The node has begun and has `expected` children, none of which has begun (F1). `waiting`: they are runs, and the node is parked; else it runs. `attempt`
    numbers the expansion, as it would number an attempt. The rest as in `Fan`."""

    step_ref: str
    attempt: int
    expected: int
    width: int = 0
    definition_id: str = ""
    version_id: str = ""
    version: int = 0
    tier: str = ""
    waiting: Waiting | None = None


class FanResumed(Tagged, frozen=True, kw_only=True):
    """A redrive takes the node up where it was: those of `again`, ranges (first, count), begin anew, and whatever had not begun (F4). Those in neither
    have succeeded."""

    step_ref: str
    attempt: int
    again: tuple[tuple[int, int], ...] = ()
    waiting: Waiting | None = None


class ChildrenBegun(Tagged, frozen=True, kw_only=True):
    """Children `first` to `first + count - 1` have begun. `attempt`: of items, the number of their first attempt. `run_id`: of a node that has one child at a
    time. `due_time`: of the last, where an interval staggers them."""

    step_ref: str
    first: int
    count: int
    attempt: int = 0
    run_id: str = ""
    due_time: datetime | None = None


class ChildrenSucceeded(Tagged, frozen=True, kw_only=True):
    """Pairs of index and attempt that holds the output (0: a child run)."""

    step_ref: str
    children: tuple[tuple[int, int], ...]


class ChildrenCancelled(Tagged, frozen=True, kw_only=True):
    """Pairs of index and last attempt (0: a child run) of children that were asked to stop and did, or that nobody had taken."""

    step_ref: str
    children: tuple[tuple[int, int], ...]


class ChildFailed(Tagged, frozen=True, kw_only=True):
    """A child has failed for good. `attempt`: its last one; of a child run `run_id` and its `status`."""

    step_ref: str
    item_index: int
    fault: Fault
    attempt: int = 0
    run_id: str = ""
    status: RunStatus | None = None


class ChildrenDropped(Tagged, frozen=True, kw_only=True):
    """Whatever of the node's children is open is given up: items are revoked, runs are not waited for any more. What had not begun never will."""

    step_ref: str


class FanStopped(Tagged, frozen=True, kw_only=True):
    """More children have failed than may: no further one begins, and those that are open are cancelled; the node then fails with this fault (F2)."""

    step_ref: str
    fault: Fault


FanEvent = (
    FanExpanded
    | FanResumed
    | ChildrenBegun
    | ChildrenSucceeded
    | ChildrenCancelled
    | ChildFailed
    | ChildrenDropped
    | FanStopped
)
