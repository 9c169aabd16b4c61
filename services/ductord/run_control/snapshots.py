"""GetRunSnapshot: a run as the engine sees it, with everything that it waits for, in one look."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import asyncpg

from ductor.workflow.v1 import control_pb2, run_pb2
from ductord.db.queries import Queries
from ductord.engine.policy import retry_of, timeouts_of
from ductord.model.enums import EdgeState, NodeStatus
from ductord.model.fanout import ScatterMode
from ductord.model.manifest import Manifest, Step
from ductord.model.run import CheckpointState, Node, Run
from ductord.model.specs import RetryPolicy, Timeouts
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.fans import fan_state
from ductord.rpc.runs import (
    Row,
    attempt,
    checkpoint,
    compensation_entry,
    fault_message,
    quarantine,
    run_not_found,
    summary,
)
from ductord.rpc.waits import wait_state, windows_of
from ductord.rpc.words import EDGE_STATE, NODE_STATUS, RUN_STATUS, SKIP_REASON
from ductord.run_control.fitted import Fitted
from ductord.run_control.operations import operation
from ductord.run_control.runs import Versions, expect_readable, found

MAX_ATTEMPTS: Final = 1_000
MAX_OPERATIONS: Final = 100
MAX_ENTRIES: Final = 1_000

_PENDING: Final = Node()
_q: Final = Queries("ductord.run_control")


async def get_snapshot(
    db: asyncpg.Connection, versions: Versions, tenant_id: str, run_id: str, payload_format: int, max_bytes: int
) -> tuple[control_pb2.RunSnapshot, datetime]:
    """The run, and the database's time. Raises RUN_NOT_FOUND."""
    row = await db.fetchrow(_q["load_snapshot"], tenant_id, run_id)
    if row is None:
        raise run_not_found()
    look = await found(db, versions, tenant_id, run_id, row)
    expect_readable(look)
    manifest, run = look.manifest, look.run
    shown = Fitted(
        control_pb2.RunSnapshot(
            summary=summary({**row, "status": row["status"] or "pending"}),
            transition_count=run.seq if run is not None else 0,
            history_length=run.moves if run is not None else 0,
            stop=_stop(run),
            quarantine=quarantine(row),
        ),
        max_bytes,
    )
    nodes = run.nodes if run is not None else (_PENDING,) * len(manifest.steps)
    leaders = await _leaders(db, tenant_id, nodes)
    shown.add_nodes([_node(s, n, look.now, leaders) for s, n in zip(manifest.steps, nodes, strict=True)])
    rows = await db.fetch(_q["pending_operations"], tenant_id, run_id, MAX_OPERATIONS + 1)
    shown.add("pending_operations", [operation(row) for row in rows], MAX_OPERATIONS)
    rows = await db.fetch(_q["ledger"], tenant_id, run_id, MAX_ENTRIES + 1)
    shown.add("compensation", [compensation_entry(row) for row in rows], MAX_ENTRIES)
    rows = await db.fetch(_q["open_attempts"], tenant_id, run_id, MAX_ATTEMPTS + 1)
    shown.add("open_attempts", [attempt(row) for row in rows], MAX_ATTEMPTS)
    shown.add("checkpoints", _checkpoints(manifest, run))
    shown.add("timers", [_timer(row) for row in await db.fetch(_q["list_timers"], tenant_id, run_id)])
    shown.add("edges", _edges(manifest, run))
    return shown.with_context(row["context"], payload_format), look.now


async def _leaders(db: asyncpg.Connection, tenant_id: str, nodes: Iterable[Node]) -> dict[str, str]:
    windows = windows_of(nodes)
    if not windows:
        return {}
    return {row["window_id"]: row["leader_run_id"] for row in await db.fetch(_q["leaders_of"], tenant_id, windows)}


def _node(step: Step, node: Node, now: datetime, leaders: Mapping[str, str]) -> control_pb2.NodeSnapshot:
    held_back = node.status is NodeStatus.RUNNING and node.due_time is not None and node.due_time > now
    return control_pb2.NodeSnapshot(
        step_ref=step.ref,
        status=NODE_STATUS[node.status],
        skip_reason=SKIP_REASON[node.skip_reason],
        attempt=node.attempt,
        failures=node.failures,
        losses=node.losses,
        paused=node.paused,
        cancelling=node.cancelling,
        outcome_unknown=bool(node.unknown),
        retry_time=timestamp_or_none(node.due_time if held_back else None),
        end_time=timestamp_or_none(node.end_time),
        output_attempt=node.output.attempt if node.output is not None else 0,
        output_size=node.output.size if node.output is not None else 0,
        error=fault_message(node.fault),
        retry_policy=_retry(retry_of(step, node)),
        timeouts=_timeouts(timeouts_of(step, node)),
        retry_policy_changed=node.retry is not None,
        timeouts_changed=node.timeouts is not None,
        waiting=wait_state(node.waiting, leaders, _condition(step)),
        fan=fan_state(node.fan, runs=step.scatter is None or step.scatter.mode is ScatterMode.CHILD_WORKFLOW),
    )


def _condition(step: Step) -> str:
    return step.wait.until.source if step.wait is not None and step.wait.until is not None else ""


def _retry(policy: RetryPolicy) -> control_pb2.NodeRetryPolicy:
    return control_pb2.NodeRetryPolicy(
        retry_max_attempts=policy.max_attempts,
        retry_backoff_ms=policy.backoff_ms,
        retry_backoff_coefficient=policy.coefficient,
        retry_max_backoff_ms=policy.max_backoff_ms,
        retry_jitter=policy.jitter,
        retry_on=policy.retry_on,
        non_retryable=policy.non_retryable,
    )


def _timeouts(timeouts: Timeouts) -> control_pb2.NodeTimeouts:
    return control_pb2.NodeTimeouts(
        timeout_ms=timeouts.timeout_ms,
        total_timeout_ms=timeouts.total_timeout_ms,
        queue_timeout_ms=timeouts.queue_timeout_ms,
        heartbeat_timeout_ms=timeouts.heartbeat_timeout_ms,
    )


def _stop(run: Run | None) -> control_pb2.StopSnapshot | None:
    if run is None or run.stop is None:
        return None
    stop = run.stop
    return control_pb2.StopSnapshot(
        cause=RUN_STATUS[stop.cause],
        error=fault_message(stop.fault),
        step_ref=stop.step_ref or "",
        deadline=timestamp_or_none(stop.deadline),
        request_id=stop.request_id,
        continued_to_run_id=stop.continuation.new_run_id if stop.continuation is not None else "",
    )


def _checkpoints(manifest: Manifest, run: Run | None) -> list[run_pb2.CheckpointState]:
    known: dict[int, CheckpointState] = dict(enumerate(run.checkpoints)) if run is not None else {}
    return [
        checkpoint(named.name, known.get(number), [manifest.steps[step].ref for step in named.steps])
        for number, named in enumerate(manifest.checkpoints)
    ]


def _edges(manifest: Manifest, run: Run | None) -> list[control_pb2.EdgeSnapshot]:
    states = run.edges if run is not None else EdgeState.OPEN * len(manifest.edges)
    return [
        control_pb2.EdgeSnapshot(
            source_ref=manifest.steps[edge.source].ref,
            target_ref=manifest.steps[edge.target].ref,
            type=edge.type,
            state=EDGE_STATE[state],
        )
        for edge, state in zip(manifest.edges, states, strict=True)
    ]


def _timer(row: Row) -> control_pb2.TimerSnapshot:
    return control_pb2.TimerSnapshot(kind=row["kind"], step_ref=row["step_ref"], due_time=timestamp(row["due_time"]))
