"""Runs whose steps wait, put there by hand: the rows that a coordinator would have written, without one."""

from datetime import UTC, datetime
from typing import Any

import asyncpg
from msgspec.structs import replace

from ductord.engine.evolve import fold
from ductord.model.enums import NodeStatus, RunStatus, SkipReason, StepType, WaitingType
from ductord.model.events import RunStarted
from ductord.model.fault import Fault
from ductord.model.manifest import Manifest, Step
from ductord.model.run import Node, Waiting
from ductord.model.specs import (
    ActionSpec,
    ApprovalSpec,
    EventPattern,
    EventSetSpec,
    Expression,
    HumanLoopSpec,
    Requirement,
    Template,
    WaitSpec,
)
from tests.run_control.standing import Stands
from tests.support.books import TENANT, Books, chain

AT = datetime(2026, 1, 1, tzinfo=UTC)
SUCCESSOR = "00000000-0000-5000-8000-000000000001"


def _name(text: str) -> Template:
    return Template(tree=text, static=True, steps=())


_STEPS = (
    Step(ref="ap", type=StepType.APPROVAL, approval=ApprovalSpec()),
    Step(ref="vip", type=StepType.APPROVAL, approval=ApprovalSpec(groups=("board",))),
    Step(ref="other", type=StepType.APPROVAL, approval=ApprovalSpec(allow_self=False)),
    Step(ref="case", type=StepType.HUMAN_LOOP, human_loop=HumanLoopSpec(case_type="kyc")),
    Step(ref="sig", type=StepType.WAIT, wait=WaitSpec(signal="go")),
    Step(ref="ev", type=StepType.WAIT, wait=WaitSpec(event=EventPattern(event_name=_name("paid")))),
    Step(
        ref="set",
        type=StepType.EVENT_SET,
        event_set=EventSetSpec(
            correlation_key=Expression(source="'k'", steps=()),
            requirements=(Requirement(name="money", event_name=_name("paid")),),
        ),
    ),
    Step(ref="act", type=StepType.ACTION, action=ActionSpec(action="noop:noop")),
)
MANIFEST: Manifest = replace(chain(1), steps=_STEPS, entrypoints=tuple(range(len(_STEPS))))
PARKED = Node(status=NodeStatus.WAITING, attempt=1, waiting=Waiting(type=WaitingType.APPROVAL, since=AT))
DECIDED = Node(status=NodeStatus.SUCCEEDED, attempt=1, end_time=AT)
FAILED = Node(status=NodeStatus.FAILED, attempt=1, end_time=AT, fault=Fault(code="approval_timeout", message="late"))
CANCELLED = Node(status=NodeStatus.CANCELLED, attempt=1, end_time=AT)
CUT = Node(status=NodeStatus.SKIPPED, skip_reason=SkipReason.RUN_ENDED, end_time=AT)
TIMED_OUT = Node(status=NodeStatus.SKIPPED, skip_reason=SkipReason.TIMEOUT, end_time=AT)
CONTINUED = {"close_reason": "continued_as_new", "continued_to_run_id": SUCCESSOR}


class Desk:
    """Makes runs and waits, and looks at what came of what they were told."""

    def __init__(self, owner: asyncpg.Connection, books: Books) -> None:
        self.owner = owner
        self.books = books
        self._stands = Stands(owner, books)
        self._versions: dict[str, str] = {}

    async def run(
        self, node: Node = PARKED, status: RunStatus = RunStatus.RUNNING, *, tenant: str = TENANT, **fields: Any
    ) -> str:
        """A run all of whose nodes stand so; `status` pending: no tick has taken it up. No wake-up is left of its making."""
        if tenant not in self._versions:
            self._versions[tenant] = await self.books.publish(MANIFEST, tenant=tenant)
        run_id = await self.books.start(self._versions[tenant], tenant=tenant, wake=False)
        if status is RunStatus.PENDING:
            return run_id
        events = (RunStarted(nodes=len(MANIFEST.steps), edges=0, checkpoints=0),)
        run = fold(MANIFEST, run_id, [(AT, events)])
        ended = {"end_time": AT, "open_nodes": 0} if status.terminal else {}
        nodes = (node,) * len(MANIFEST.steps)
        await self._stands.write(
            MANIFEST, replace(run, status=status, nodes=nodes, **{**ended, **fields}), tenant=tenant
        )
        return run_id

    async def open(
        self,
        run_id: str | None = None,
        step_ref: str = "ev",
        *,
        name: str = "paid",
        key: str | None = "k",
        filter_: str = "",
        requirement: str = "",
        attempt: int = 1,
        tenant: str = TENANT,
    ) -> str:
        """An open wait (of a run of its own); `key` None: for any. The run's id."""
        run_id = run_id or await self.run(tenant=tenant)
        await self.owner.execute(
            "insert into eec_workflow_wait (tenant_id, run_id, step_ref, attempt, requirement, event_name, correlation_key, any_key, filter, event_set,"
            " open_time) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now())",
            tenant, run_id, step_ref, attempt, requirement, name, key or "", key is None, filter_, step_ref == "set",
        )  # fmt: skip
        return run_id

    async def close(self, run_id: str, step_ref: str = "ev") -> None:
        """It listens no longer."""
        await self.owner.execute(
            "update eec_workflow_wait set close_time = now() where run_id = $1 and step_ref = $2", run_id, step_ref
        )

    async def signals(self, run_id: str) -> list[dict[str, Any]]:
        """What the steps of a run were told, in order."""
        rows = await self.owner.fetch(
            "select request_id, verb, step_ref, payload::text, case_status, actor, approver_id, groups, comment, status, call_id"
            " from eec_workflow_signal where run_id = $1 order by number",
            run_id,
        )
        return [dict(row) for row in rows]

    async def receipts(self, run_id: str | None = None) -> list[tuple[Any, ...]]:
        """(step, attempt, requirement, event id) of receipts."""
        rows = await self.owner.fetch(
            "select step_ref, attempt, requirement, event_id from eec_workflow_receipt where $1::uuid is null or run_id = $1"
            " order by receive_time, event_id, requirement",
            run_id,
        )
        return [tuple(row) for row in rows]

    async def events(self) -> list[tuple[Any, ...]]:
        """(id, matched, whether it is kept) of stored events."""
        rows = await self.owner.fetch(
            "select event_id, matched, keep_until is not null from eec_workflow_event order by publish_time"
        )
        return [tuple(row) for row in rows]

    async def wakeups(self, run_id: str) -> int:
        """How many wake-ups a run has."""
        return await self._stands.wakeups(run_id)

    async def age(self, hours: int) -> None:
        """Let stored events be so much older."""
        await self.owner.execute(
            "update eec_workflow_event set publish_time = publish_time - $1::int * interval '1 hour',"
            " dedupe_until = dedupe_until - $1::int * interval '1 hour'",
            hours,
        )
