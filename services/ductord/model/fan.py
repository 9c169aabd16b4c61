"""Where the fan-out of a node stands, as counters: children are rows of their own, and neither the run nor its history grows with them by more than they
tell (rulings F1 to F5)."""

from datetime import datetime

from ductord.model.enums import RunStatus
from ductord.model.fault import Fault, Value


class Fan(Value, frozen=True, kw_only=True):
    """The children of one node: tasks of the run (items) or runs of their own. A subworkflow has one child, index 0.

    `expected`: how many, frozen when the node begins. `next`: the index of the child to begin next; all below have begun. `again`: ranges (first, count)
    of children that a redrive begins anew, before that. `open`: begun and not ended. `width`: the limit on inline children that was in force. `pages`: the
    number of the node's attempt under which the items are stored. `due_time`: of the child begun last, where an interval staggers them.
    `definition_id`, `version_id`, `version`, `tier`: what the child runs run, frozen. `child_run_id`: of a node that has one child at a time, the last that
    began.
    `fault`: enough have failed, the others are being cancelled. `first_failed`: the first that failed, or -1, with `first_fault`.
    """

    expected: int
    next: int = 0
    again: tuple[tuple[int, int], ...] = ()
    open: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    width: int = 0
    pages: int = 0
    due_time: datetime | None = None
    definition_id: str = ""
    version_id: str = ""
    version: int = 0
    tier: str = ""
    child_run_id: str = ""
    fault: Fault | None = None
    first_failed: int = -1
    first_fault: Fault | None = None

    @property
    def ended(self) -> int:
        """How many have ended, one way or another."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def begun(self) -> bool:
        """Whether there is none left to begin."""
        return self.next >= self.expected and not self.again

    @property
    def done(self) -> bool:
        """Whether every child has ended: expected is frozen before the first begins, so this is never true of a fan that is only half made (SG-02)."""
        return self.begun and not self.open


class Item(Value, frozen=True, kw_only=True):
    """What an inline child has behind it when an attempt of it is made; stands in that attempt's row, and comes back with its report. The counters mean what
    they mean on a node. `logical`: the number of the attempt with which the logical attempt began (A6). `unknown`: logical attempts that may have acted
    (C7)."""

    logical: int
    failures: int = 0
    losses: int = 0
    returned: int = 0
    unknown: tuple[int, ...] = ()


class ItemRow(Value, frozen=True, kw_only=True):
    """The latest attempt of an inline child that has not succeeded. `open`: it has not been judged. `started`: a worker has taken it."""

    item_index: int
    attempt: int
    item: Item
    open: bool = False
    started: bool = False


class Workflow(Value, frozen=True, kw_only=True):
    """A published version that children may run, or why none can: `problem` is `unknown_family`, `unknown_version` or `archived`. `input_schema`: what
    their input must be, as JSON Schema."""

    definition_id: str = ""
    version_id: str = ""
    version: int = 0
    tier: str = "standard"
    input_schema: dict[str, object] | None = None
    problem: str = ""


class Kin(Value, frozen=True, kw_only=True):
    """A child run as it stands: what a redrive or a reset of its parent goes by. `redrivable`: it could be redriven as it is (C4). `first_run_id`: as it
    was born. `told`: of one that has completed, whether its parent has been told so; not where it was redriven by itself, after its parent had ended."""

    item_index: int
    run_id: str
    status: RunStatus
    redrivable: bool = False
    first_run_id: str = ""
    told: bool = True


class Gathered(Value, frozen=True, kw_only=True):
    """What the children of a fan came to, in the order of their indexes; of a child that never began or was cancelled there is none. `size`: of their outputs
    in bytes, and with more than was asked for nothing else is told."""

    size: int
    children: tuple["GatheredChild", ...] = ()


class GatheredChild(Value, frozen=True, kw_only=True):
    """One child. `fault` None: it succeeded, with `output`. `run_id`, `status`: of a child run. `open`: a task that was reported a success and was not judged
    when it was looked at: the decision that asks may be the one that judges it."""

    item_index: int
    output: object = None
    fault: Fault | None = None
    run_id: str = ""
    status: str = ""
    open: bool = False
