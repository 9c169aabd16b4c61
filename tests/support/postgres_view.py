"""What a story sees of a run in Postgres: its rows as a `Snapshot`."""

from collections.abc import Mapping
from typing import Any

import asyncpg
import orjson

from ductord.model.effects import Subscription
from ductord.model.enums import CheckpointStatus, RunStatus, SignalVerb, TaskKind, TimerKind
from ductord.model.fanout import ClosePolicy
from ductord.model.inbox import Signal
from ductord.model.run import Run
from tests.support.naming import in_story_order, task_name
from tests.support.world import Born, Child, Listening, OpenTask, Snapshot, Timer


async def snapshot(owner: asyncpg.Connection, run_id: str, run: Run | None, refs: tuple[str, ...]) -> Snapshot:
    """Everything that there is of a run. `run`: its state, None if no tick has taken it up; `refs`: its steps."""
    row = await owner.fetchrow("select result::text, result_refs::text from eec_workflow_run where run_id = $1", run_id)
    leaves = orjson.loads(row["result_refs"]) if row and row["result_refs"] else None
    result = (
        await _outputs(owner, run_id, leaves)
        if leaves is not None
        else (orjson.loads(row["result"]) if row and row["result"] else None)
    )
    return Snapshot(
        run=run,
        refs=refs,
        tasks=await _open_tasks(owner, run_id),
        timers=await _timers(owner, run_id),
        checkpoints=await _checkpoints(owner, run_id),
        has_result=row is not None and (row["result"] is not None or leaves is not None),
        result=result,
        born=await born_of(owner, run_id),
        listening=await _listening(owner, run_id),
        kept=await _kept(owner, run_id),
        receipts=await _receipts(owner, run_id),
        children=tuple(await children_of(owner, run_id)),
    )


async def children_of(owner: asyncpg.Connection, run_id: str) -> list[Child]:
    """The children of a run, once each, as those of the latest attempt whose they are; by step, attempt and index."""
    rows = await owner.fetch(
        "select distinct on (c.step_ref, c.child_run_id) c.step_ref, c.item_index, c.attempt, c.child_run_id::text as run_id, c.checkpoint,"
        " c.sync and (c.end_time is not null or c.detached or exists ("  # a row of an open child says nothing of its parent's end
        " select from eec_workflow_run p where p.run_id = c.parent_run_id and p.end_time is null)) as sync,"
        " c.close_policy, c.detached, c.end_time is not null as told, c.applied_time is not null as applied, coalesce(r.status, 'pending') as status"
        " from eec_workflow_child c left join eec_workflow_run r on r.tenant_id = c.tenant_id and r.run_id = c.child_run_id"
        " where c.parent_run_id = $1 order by c.step_ref, c.child_run_id, c.attempt desc",
        run_id,
    )
    children = [
        Child(
            step_ref=row["step_ref"],
            item_index=row["item_index"],
            attempt=row["attempt"],
            run_id=row["run_id"],
            status=RunStatus(row["status"]),
            sync=row["sync"],
            checkpoint=row["checkpoint"],
            close_policy=ClosePolicy(row["close_policy"]),
            detached=row["detached"],
            told=row["told"],
            applied=row["applied"],
        )
        for row in rows
    ]
    return sorted(children, key=lambda child: (child.step_ref, child.attempt, child.item_index))


async def born_of(owner: asyncpg.Connection, run_id: str) -> tuple[Born, ...]:
    """Runs that a run gave birth to, in order."""
    rows = await owner.fetch(
        "select run_id::text, context::text, reset_from_seq from eec_workflow_run_start"
        " where continued_from_run_id = $1 or reset_from_run_id = $1 order by create_time, ctid",
        run_id,
    )
    return tuple(
        Born(
            run_id=row["run_id"],
            context={} if row["reset_from_seq"] else orjson.loads(row["context"]),
            reset_from_seq=row["reset_from_seq"],
        )
        for row in rows
    )


async def _listening(owner: asyncpg.Connection, run_id: str) -> tuple[Listening, ...]:
    rows = await owner.fetch(
        "select step_ref, attempt, requirement, event_name, correlation_key, any_key, filter from eec_workflow_wait"
        " where run_id = $1 and close_time is null order by step_ref, attempt, requirement",
        run_id,
    )
    fields = Subscription.__struct_fields__
    return tuple(
        Listening(
            step_ref=row["step_ref"],
            attempt=row["attempt"],
            pattern=Subscription(**{name: row[name] for name in fields}),
        )
        for row in rows
    )


async def _kept(owner: asyncpg.Connection, run_id: str) -> tuple[Signal, ...]:
    rows = await owner.fetch(
        "select request_id, verb, step_ref, create_time from eec_workflow_signal where run_id = $1 and status = 'kept' order by number",
        run_id,
    )
    return tuple(
        Signal(
            request_id=row["request_id"],
            verb=SignalVerb(row["verb"]),
            step_ref=row["step_ref"],
            create_time=row["create_time"],
        )
        for row in rows
    )


async def _receipts(owner: asyncpg.Connection, run_id: str) -> dict[str, int]:
    rows = await owner.fetch(
        "select step_ref, count(*)::int as receipts from eec_workflow_receipt where run_id = $1 and applied_time is null"
        " group by step_ref order by step_ref",
        run_id,
    )
    return {row["step_ref"]: row["receipts"] for row in rows}


async def _open_tasks(owner: asyncpg.Connection, run_id: str) -> tuple[OpenTask, ...]:
    rows = await owner.fetch(
        "select step_ref, item_index, kind, attempt, coalesce(held_due_time, due_time) as due_time, cancel_requested_time is not null as asked,"
        " case when report_time is not null then 'reported' when lease_secret is not null then 'leased'"
        " when held_due_time is not null then 'on hold' when due_time <= eec_now() then 'queued' else 'held' end as state"
        " from eec_workflow_step_attempt where run_id = $1 and status = 'open'",
        run_id,
    )
    tasks = [
        OpenTask(
            step_ref=task_name(row["step_ref"], TaskKind(row["kind"]), row["item_index"]),
            attempt=row["attempt"],
            state=row["state"],
            due_time=row["due_time"],
            asked=row["asked"],
        )
        for row in rows
    ]
    return tuple(sorted(tasks, key=lambda task: (in_story_order(task.step_ref), task.attempt)))


async def _timers(owner: asyncpg.Connection, run_id: str) -> tuple[Timer, ...]:
    rows = await owner.fetch(
        "select kind, step_ref, due_time from eec_workflow_timer where run_id = $1 order by due_time, kind, step_ref",
        run_id,
    )
    return tuple(Timer(kind=TimerKind(row["kind"]), step_ref=row["step_ref"], due_time=row["due_time"]) for row in rows)


async def _checkpoints(owner: asyncpg.Connection, run_id: str) -> dict[str, tuple[CheckpointStatus, Mapping[str, Any]]]:
    rows = await owner.fetch(
        "select name, status, refs::text from eec_workflow_checkpoint where run_id = $1 order by name", run_id
    )
    return {
        row["name"]: (CheckpointStatus(row["status"]), await _outputs(owner, run_id, orjson.loads(row["refs"])))
        for row in rows
    }


async def _outputs(owner: asyncpg.Connection, run_id: str, refs: Mapping[str, int]) -> dict[str, Any]:
    rows = await owner.fetch(
        "select step_ref, attempt, output::text from eec_workflow_step_attempt where run_id = $1 and kind = 'step'"
        " and output is not null",
        run_id,
    )
    outputs = {(row["step_ref"], row["attempt"]): orjson.loads(row["output"]) for row in rows}
    return {ref: outputs[ref, attempt] for ref, attempt in refs.items()}
