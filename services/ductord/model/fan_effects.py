"""The effects about fan-outs and about runs that are born of runs as their children."""

from datetime import datetime

import msgspec

from ductord.model.enums import AttemptStatus, CheckpointStatus, RunStatus, Verb
from ductord.model.fanout import ClosePolicy
from ductord.model.fault import Fault


class _Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class RecordItems(_Effect, frozen=True, kw_only=True):
    """Store a frozen collection: JSON arrays of `PAGE` items each, the last one shorter. Items are read back by page, in any later tick."""

    step_ref: str
    attempt: int
    pages: tuple[str, ...]


class CancelItems(_Effect, frozen=True, kw_only=True):
    """Have all open inline children of the step asked to stop: those that a worker has are told at their next heartbeat, the others are reported `revoked` at
    once, and the run is woken to judge them."""

    step_ref: str


class CloseItems(_Effect, frozen=True, kw_only=True):
    """Write this verdict over all open inline children of the step. One that has been reported on since the load makes the whole decision void."""

    step_ref: str
    status: AttemptStatus = AttemptStatus.CANCELLED


class RecordItemFault(_Effect, frozen=True, kw_only=True):
    """Why an inline child failed for good, where its last attempt's report does not say so itself."""

    step_ref: str
    item_index: int
    attempt: int
    fault: Fault


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """One child run. `due_time`: when it is to begin, where an interval staggers them."""

    item_index: int
    run_id: str
    input_json: str
    due_time: datetime | None = None


class StartChildren(_Effect, frozen=True, kw_only=True):
    """Give birth to runs as children of this node, once, since their ids are derived (F5). They inherit subject, labels, root, journey, actor and trace, and
    are one deeper. `attempt`: of the node. `checkpoint`: what of them is waited for; empty: their end. `sync`: the parent waits. `family_slug`…: what they
    run."""

    step_ref: str
    attempt: int
    family_slug: str
    definition_id: str
    version_id: str
    version: int
    tier: str
    births: tuple[Birth, ...]
    sync: bool = True
    checkpoint: str = ""
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL


class AttachChildren(_Effect, frozen=True, kw_only=True):
    """Child runs that there are become children of this node's present attempt: pairs of index and run id. Of one that has ended in the meantime the node is
    told in its next tick. `redrive`: have them redriven, by a control under a derived id; one that refuses tells of its end again (C4). `due_times`: when
    each is to be redriven, where their beginnings are staggered (F1); empty: at once. `from_run_id`: a reset run takes them over from its source (C5); empty:
    they are this run's."""

    step_ref: str
    attempt: int
    children: tuple[tuple[int, str], ...]
    redrive: bool = False
    request_id: str = ""
    due_times: tuple[datetime, ...] = ()
    from_run_id: str = ""
    checkpoint: str = ""
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL


class TakeChildren(_Effect, frozen=True, kw_only=True):
    """What became of these children was applied; it is not shown again."""

    run_ids: tuple[str, ...]


class ControlChildren(_Effect, frozen=True, kw_only=True):
    """Send a control (cancel or terminate) to the open child runs of a node, under ids derived from `key`, so that a repetition is none. A child that has been
    continued passes it on (SW-03)."""

    step_ref: str
    verb: Verb
    key: str
    reason: str = ""


class DetachChildren(_Effect, frozen=True, kw_only=True):
    """The open children of a node are let go: their ends are not told any more, and the parent's end does nothing to them (F5)."""

    step_ref: str


class CloseChildren(_Effect, frozen=True, kw_only=True):
    """The run has ended with `status`: every open child gets what its close policy says, a cancel or a terminate under an id derived from run and transition. A
    run time-out cancels nobody (F5). With `continued_to_run_id` children that nobody waits for become the successor's, untouched."""

    status: RunStatus
    continued_to_run_id: str = ""


class TellParent(_Effect, frozen=True, kw_only=True):
    """The run is a child: tell whoever waits for its end, in this commit. Told again, it changes nothing that was told."""

    status: RunStatus
    fault: Fault | None = None


class TellCheckpoint(_Effect, frozen=True, kw_only=True):
    """The run is a child: tell whoever waits for this checkpoint of it."""

    name: str
    status: CheckpointStatus


class PassChildOn(_Effect, frozen=True, kw_only=True):
    """The run is a child and goes on as another: whoever waits for it waits for that one from now on (F5)."""

    run_id: str


class TickAgain(_Effect, frozen=True, kw_only=True):
    """There is more to begin than one tick may: the run is woken again, behind those that wait."""


FanEffect = (
    RecordItems
    | CancelItems
    | CloseItems
    | RecordItemFault
    | StartChildren
    | AttachChildren
    | TakeChildren
    | ControlChildren
    | DetachChildren
    | CloseChildren
    | TellParent
    | TellCheckpoint
    | PassChildOn
    | TickAgain
)
