"""Runs with fan-outs as the coordinator leaves their rows, for what reads show of them: counters in the node, items and child runs as rows."""

import json
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from ductord.db.ids import new_id
from ductord.model import events as history
from ductord.model.enums import StepType
from ductord.model.events import Event
from ductord.model.fan import Fan
from ductord.model.fanout import ScatterMode, ScatterSpec, WorkflowRef
from ductord.model.manifest import Manifest
from ductord.model.run import Node
from ductord.model.specs import ActionSpec, Expression
from tests.support.books import TENANT, chain


def fanning(*, runs: bool = False) -> Manifest:
    """s0, which fans out into items or child runs, then s1."""
    manifest = chain(2)
    items = Expression(source="[1]")
    spec = (
        ScatterSpec(items=items, mode=ScatterMode.CHILD_WORKFLOW, workflow=WorkflowRef(family_slug="child"))
        if runs
        else ScatterSpec(items=items, action=ActionSpec(action="noop:noop"))
    )
    first = msgspec.structs.replace(manifest.steps[0], type=StepType.SCATTER, action=None, scatter=spec)
    return msgspec.structs.replace(manifest, steps=(first, *manifest.steps[1:]))


class Rows:
    """Writes the rows of one run."""

    def __init__(self, owner: asyncpg.Connection, run_id: str) -> None:
        self.owner = owner
        self.run_id = run_id

    async def stands(self, status: str = "running", *, error: str = "", **nodes: Node) -> None:
        """The run's row: these nodes, no transition yet."""
        await self.owner.execute(
            "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time,"
            " end_time, node_states, error_code)"
            " select tenant_id, run_id, $2, 1, version_id, 1, 4, now(), now(), case when $2 not in ('running', 'paused') then now() end, $3, $4"
            " from eec_workflow_run_start where run_id = $1",
            self.run_id, status, _nodes(nodes), error,
        )  # fmt: skip

    async def moves(self, *events: Event, **nodes: Node) -> None:
        """One more transition, after which these nodes stand so."""
        await self.owner.execute(
            "with moved as (update eec_workflow_run set record_version = record_version + 1, node_states = node_states::jsonb || $2::jsonb, update_time = now()"
            " where run_id = $1 returning *)"
            " insert into eec_workflow_transition (tenant_id, run_id, seq, at, events) select tenant_id, run_id, record_version, now(), $3 from moved",
            self.run_id, _nodes(nodes), history.encode(events),
        )  # fmt: skip

    async def item(
        self, index: int, attempt: int, status: str, *, output: Any = None, error: str | None = None, due: str = "now()"
    ) -> None:
        """An attempt of an inline child."""
        text = None if output is None else json.dumps(output)
        await self.owner.execute(
            "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key,"
            " due_time, create_time, status, start_time, report_time, output, output_size, error_code, error_message)"
            f" values ($1, $2, 's0', $3, 'item', $4, 'standard', 'default', 'noop:noop', $5, $6, {due}, now(), $7, now() - interval '1 s',"
            " case when $7 <> 'open' then now() end, $8, $9, $10, $10)",
            TENANT, self.run_id, index, attempt, json.dumps({"index": index}), f"{index}-{attempt}", status, text,
            None if text is None else len(text), error,
        )  # fmt: skip

    async def child(
        self,
        index: int,
        version_id: str,
        *,
        attempt: int = 1,
        status: str | None = None,
        result: Any = None,
        step_ref: str = "s0",
        fan: Fan | None = None,
    ) -> str:
        """A child run, which has ended so where `status` is given and runs else; its id. `fan`: that its own s0 has."""
        run_id = new_id()
        await self.owner.execute(
            "insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, input, root_run_id,"
            " parent_run_id, nesting_depth, journey_id)"
            " select tenant_id, $2, $3, $3, 1, 'child', $3, $4, root_run_id, run_id, nesting_depth + 1, journey_id from eec_workflow_run_start"
            " where run_id = $1",
            self.run_id, run_id, version_id, json.dumps({"index": index}),
        )  # fmt: skip
        nodes = {} if fan is None else {"s0": Node(attempt=1, fan=fan)}
        await Rows(self.owner, run_id).stands(
            status or "running", error="BROKEN" if status == "failed" else "", **nodes
        )
        if result is not None:
            await self.owner.execute(
                "update eec_workflow_run set result = $2 where run_id = $1", run_id, json.dumps(result)
            )
        await self.owner.execute(
            "insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, close_policy,"
            " create_time, end_time, applied_time, status, error_code) values ($1, $2, $3, $4, $5, $6, $6, true, 'request_cancel', now(),"
            " case when $7::text is not null then now() end, case when $7::text is not null then now() end, $7,"
            " case when $7 = 'failed' then 'BROKEN' else '' end)",
            TENANT, self.run_id, step_ref, index, attempt, run_id, status,
        )  # fmt: skip
        return run_id


def _nodes(nodes: dict[str, Node]) -> str:
    return msgspec.json.encode(nodes).decode()


def indexes(states: Sequence[Any]) -> list[int]:
    """The indexes of children."""
    return [state.item_index for state in states]
