"""The commit: a batch of decisions as a handful of statements, all hanging on the versioned update of the runs.

Order is the lock order: runs by id first, then history, attempts, timers. A run that is not in the update's RETURNING lost the race; nothing of it is
written. Payloads go in as text that was checked at the door.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import orjson

from ductord.coordinator.load import SQL, Loaded
from ductord.model import events as history
from ductord.model import stored
from ductord.model.decision import Decision
from ductord.model.effects import (
    ClearTimers,
    CloseAttempt,
    Effect,
    QueueTask,
    RecordCheckpoint,
    RecordResult,
    RequestCancel,
    SetTimer,
)
from ductord.model.enums import AttemptStatus
from ductord.model.manifest import FORMAT_VERSION, Manifest
from ductord.model.run import Run


class Decided(msgspec.Struct, kw_only=True):
    """A loaded run with its decision. `traceparent`: the trace context that its tasks carry."""

    loaded: Loaded
    decision: Decision
    traceparent: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(tenant id, run id)."""
        return self.loaded.known.start.tenant_id, self.loaded.known.start.run_id

    @property
    def tasks(self) -> int:
        """How many tasks it queues."""
        return sum(1 for effect in self.decision.effects if isinstance(effect, QueueTask))

    @property
    def ended(self) -> bool:
        """True when the run reaches its end in this tick."""
        return self.decision.run is not None and self.decision.run.status.terminal


async def commit(connection: asyncpg.Connection, decided: list[Decided], now: datetime) -> set[str]:
    """Write the decisions inside the caller's transaction; the run ids that lost the race and of which nothing was written."""
    decided = sorted(decided, key=lambda d: d.key)
    changed = [d for d in decided if d.decision.events]
    won = await _write_runs(connection, changed, now)
    lost = {d.key[1] for d in changed} - won
    kept = [d for d in decided if d.key[1] not in lost]
    if not kept:
        return lost
    written = [d for d in kept if d.decision.events]
    if written:
        await connection.execute(
            SQL["insert_transitions"],
            [d.key[0] for d in written],
            [d.key[1] for d in written],
            [d.decision.run.seq for d in written if d.decision.run],
            [history.encode(d.decision.events) for d in written],
            now,
        )
    await _write_effects(connection, kept, now)
    calm = [d for d in kept if d.loaded.quarantined]
    if calm:
        await connection.execute(SQL["clear_quarantine"], [d.key[0] for d in calm], [d.key[1] for d in calm])
    return lost


async def _write_runs(connection: asyncpg.Connection, changed: list[Decided], now: datetime) -> set[str]:
    won: set[str] = set()
    old = [d for d in changed if d.loaded.known.run is not None]
    new = [d for d in changed if d.loaded.known.run is None]
    if old:
        columns = _run_columns(old)
        won |= {row[0] for row in await connection.fetch(SQL["update_runs"], *columns[:13], now, columns[13])}
    if new:
        columns = _run_columns(new)
        starts = [d.loaded.known.start for d in new]
        rows = await connection.fetch(
            SQL["insert_runs"],
            *columns[:13],
            now,
            columns[13],
            [start.version_id for start in starts],
            [FORMAT_VERSION] * len(new),
            [d.loaded.compiled.manifest.engine_level for d in new if d.loaded.compiled],
        )
        won |= {row[0] for row in rows}
    return won


def _run_columns(decided: list[Decided]) -> list[list[Any]]:
    """The columns of `update_runs` and `insert_runs`, in the order of their parameters."""
    rows = []
    for d in decided:
        run, compiled = d.decision.run, d.loaded.compiled
        assert run is not None
        assert compiled is not None
        result, result_refs = None, None
        for effect in d.decision.effects:
            if isinstance(effect, RecordResult):
                if effect.refs is None:
                    result = effect.output_json
                else:
                    result_refs = orjson.dumps(effect.refs).decode()
        before = d.loaded.known.run
        rows.append(
            (
                *d.key,
                before.seq if before else -1,
                run.status,
                stored.encode_nodes(compiled.manifest, run),
                run.edges,
                stored.encode_state(run),
                _current_step(compiled.manifest, run),
                run.has_errors,
                run.fault.code if run.fault else "",
                run.fault.message if run.fault else "",
                result,
                result_refs,
                run.end_time,
            )
        )
    return [list(column) for column in zip(*rows, strict=True)]


def _current_step(manifest: Manifest, run: Run) -> str:
    """The step begun last that is still open, for people who glance at a run; of several that began in one tick the last in graph order."""
    begun = [
        (node.first_time, index) for index, node in enumerate(run.nodes) if node.first_time and not node.status.terminal
    ]
    return manifest.steps[max(begun)[1]].ref if begun else ""


async def _write_effects(connection: asyncpg.Connection, kept: list[Decided], now: datetime) -> None:
    of: dict[type[Effect], list[tuple[Decided, Any]]] = {}
    for d in kept:
        for effect in d.decision.effects:
            of.setdefault(type(effect), []).append((d, effect))
    closes = of.get(CloseAttempt, []) + [pair for d in kept for pair in _ignored(d)]
    closes.sort(key=_place)
    if closes:
        await connection.execute(SQL["close_attempts"], *_keys(closes), [e.status for _, e in closes], now)
    if cancels := sorted(of.get(RequestCancel, ()), key=_place):
        await connection.execute(SQL["request_cancels"], *_keys(cancels), now)
    tasks = of.get(QueueTask, [])
    await _queue(
        connection,
        [(d, e) for d, e in tasks if e.retry_of is None],
        [(d, e) for d, e in tasks if e.retry_of is not None],
        now,
    )
    # Clearing first: a step may lose its old timers and get a new one in the same tick.
    if clears := of.get(ClearTimers):
        await connection.execute(
            SQL["clear_timers"], *_ids(clears), [e.step_ref for _, e in clears], [e.kind or "" for _, e in clears]
        )
    if timers := of.get(SetTimer):
        await connection.execute(
            SQL["set_timers"],
            *_ids(timers),
            [e.kind for _, e in timers],
            [e.step_ref for _, e in timers],
            [e.item_index for _, e in timers],
            [e.due_time for _, e in timers],
        )
    checkpoints = of.get(RecordCheckpoint, [])
    if checkpoints:
        await connection.execute(
            SQL["insert_checkpoints"],
            *_ids(checkpoints),
            [e.name for _, e in checkpoints],
            [e.status for _, e in checkpoints],
            [orjson.dumps(e.refs).decode() for _, e in checkpoints],
            now,
        )
    channels = []
    if tasks:  # also those that a back-off holds: dispatch then knows when to look again
        channels.append("ductor_task")
    if checkpoints or any(d.ended for d in kept):
        channels.append("ductor_run")
    if channels:
        await connection.execute(SQL["notify"], channels)


async def _queue(
    connection: asyncpg.Connection,
    first: list[tuple[Decided, QueueTask]],
    retries: list[tuple[Decided, QueueTask]],
    now: datetime,
) -> None:
    if first:
        await connection.execute(
            SQL["insert_attempts"],
            *_keys(first),
            [d.loaded.known.start.tier for d, _ in first],
            [e.queue for _, e in first],
            [e.action for _, e in first],
            [e.input_json for _, e in first],
            [e.idempotency_key for _, e in first],
            [e.due_time for _, e in first],
            [_queue_deadline(e) for _, e in first],
            [e.timeout_ms for _, e in first],
            [e.heartbeat_timeout_ms for _, e in first],
            [d.traceparent for d, _ in first],
            now,
        )
    if retries:
        await connection.execute(
            SQL["insert_retries"],
            *_keys(retries),
            [e.retry_of for _, e in retries],
            [e.queue for _, e in retries],
            [e.action for _, e in retries],
            [e.idempotency_key for _, e in retries],
            [e.due_time for _, e in retries],
            [_queue_deadline(e) for _, e in retries],
            [e.timeout_ms for _, e in retries],
            [e.heartbeat_timeout_ms for _, e in retries],
            [d.traceparent for d, _ in retries],
            now,
        )


def _ignored(d: Decided) -> Iterable[tuple[Decided, CloseAttempt]]:
    """Reports that the decision passed over: facts that came too late. They are closed, so that no inbox row stays unapplied (G8)."""
    reports = d.loaded.inbox.reports
    if reports:
        judged = {
            (e.step_ref, e.item_index, e.kind, e.attempt) for e in d.decision.effects if isinstance(e, CloseAttempt)
        }
        for r in reports:
            if (r.step_ref, r.item_index, r.kind, r.attempt) not in judged:
                status = AttemptStatus.CANCELLED
                yield (
                    d,
                    CloseAttempt(
                        step_ref=r.step_ref, item_index=r.item_index, kind=r.kind, attempt=r.attempt, status=status
                    ),
                )


def _queue_deadline(task: QueueTask) -> datetime | None:
    return None if task.queue_timeout_ms is None else task.due_time + timedelta(milliseconds=task.queue_timeout_ms)


def _ids(pairs: Iterable[tuple[Decided, Any]]) -> tuple[list[str], list[str]]:
    keys = [d.key for d, _ in pairs]
    return [tenant for tenant, _ in keys], [run for _, run in keys]


def _place(pair: tuple[Decided, Any]) -> tuple[Any, ...]:
    """Where an attempt stands in the order in which everybody locks them: that of their key."""
    d, e = pair
    return *d.key, e.step_ref, e.item_index, e.kind, e.attempt


def _keys(pairs: list[tuple[Decided, Any]]) -> tuple[list[Any], ...]:
    """(tenant, run, step_ref, item_index, kind, attempt) columns of effects that name an attempt."""
    return (
        *_ids(pairs),
        [e.step_ref for _, e in pairs],
        [e.item_index for _, e in pairs],
        [e.kind for _, e in pairs],
        [e.attempt for _, e in pairs],
    )
