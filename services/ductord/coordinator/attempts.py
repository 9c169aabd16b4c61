"""The commit's part about attempts: tasks are queued, held and released, workers are asked to stop, verdicts are written.

Other processes write these rows too. What a tick ends without a report is looked at once more, under lock, before anything is written (`contested`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import asyncpg
import msgspec
import orjson

from ductord.coordinator.decided import Decided, Effects, attempt_key, ids, sparse
from ductord.coordinator.items import close_items, record_items
from ductord.db.queries import Queries
from ductord.model.effects import (
    CloseAttempt,
    CloseLate,
    HoldTasks,
    QueueTask,
    RecordOutput,
    ReleaseTasks,
    RequestCancel,
)
from ductord.model.enums import AttemptStatus, TaskKind
from ductord.model.fan_effects import CancelItems, CloseItems
from ductord.model.inbox import AttemptReport
from ductord.model.needs import ItemsNeed

SQL = Queries("ductord.coordinator", "attempts.sql")

_CONTENDING = (RequestCancel, HoldTasks, ReleaseTasks, CloseLate, CancelItems, CloseItems)
_OF_MANY = (CancelItems, CloseItems, HoldTasks, ReleaseTasks)
_TOUCHING = (CloseAttempt, *_CONTENDING)
_encoder = msgspec.json.Encoder()


async def contested(connection: asyncpg.Connection, decided: list[Decided], of: Effects) -> set[str]:
    """Lock what this commit ends, asks to stop or holds although nobody has reported on it. Answers the runs of which a worker took or ended such an attempt
    since the load, so that their decision does not hold any more.

    The locks are taken in one statement, in the order of the attempts' keys, and include what the batch closes besides, and the late successes
    that it judges: a commit that locked in two goes could meet a batch of dispatch half-way.
    """
    unheard = [(d, effect) for d in decided for effect in d.unheard]
    if not unheard and not any(kind in of for kind in _CONTENDING):
        return set()
    touching = {d.key: d for kind in _TOUCHING for d, _ in of.get(kind, ())}
    lock = SQL["lock_attempts_and_lates" if CloseLate in of else "lock_attempts"]
    rows = await connection.fetch(
        lock,
        [tenant for tenant, _ in touching],
        [run for _, run in touching],
        [_about_items(d) for d in touching.values()],
    )
    columns = ("run_id", "step_ref", "item_index", "kind", "attempt")
    now = {tuple(row[column] for column in columns): row for row in rows if row["open"]}
    lost = set()
    for d, effect in unheard:
        row = now.get((d.key[1], *attempt_key(effect)))
        if row is None:
            continue  # closed before
        taken_since = row["taken"] and effect.kind is TaskKind.STEP and effect.step_ref not in d.loaded.inbox.started
        if row["reported"] or taken_since:
            lost.add(d.key[1])
    if closes := of.get(CloseItems):
        lost |= _overtaken(closes, now)
    return lost


async def lock_all(connection: asyncpg.Connection, runs: Sequence[asyncpg.Record]) -> None:
    """Lock all open attempts of these runs (rows of tenant_id, run_id): from here on nobody reports on them, or takes one."""
    await connection.execute(
        SQL["lock_attempts"], [row["tenant_id"] for row in runs], [row["run_id"] for row in runs], [True for _ in runs]
    )


def _about_items(d: Decided) -> bool:
    """Whether a decision is about inline children that nobody has reported on."""
    named: tuple[CloseAttempt | RequestCancel, ...] = (
        *d.unheard,
        *(e for e in d.decision.effects if isinstance(e, RequestCancel)),
    )
    return any(e.kind is TaskKind.ITEM for e in named) or any(isinstance(e, _OF_MANY) for e in d.decision.effects)


def _overtaken(closes: list[tuple[Decided, CloseItems]], now: Mapping[tuple[Any, ...], asyncpg.Record]) -> set[str]:
    """The runs that close inline children of which one was reported on since the load, or taken although the decision went by nobody having taken it (C7)."""
    about = {(d.key[1], e.step_ref): d for d, e in closes}
    shown = {(d.key[1], *attempt_key(report)) for d in about.values() for report in d.loaded.inbox.reports}
    idle = {
        (run_id, need.step_ref, row.item_index, row.attempt)
        for (run_id, _), d in about.items()
        for need, rows in d.loaded.inbox.given.items()
        if isinstance(need, ItemsNeed)
        for row in rows
        if not row.started
    }
    lost = set()
    for key, row in now.items():
        run_id, step_ref, item_index, kind, attempt = key
        if kind != TaskKind.ITEM or (run_id, step_ref) not in about:
            continue
        if (row["reported"] and key not in shown) or (row["taken"] and (run_id, step_ref, item_index, attempt) in idle):
            lost.add(run_id)
    return lost


async def write_attempts(connection: asyncpg.Connection, kept: list[Decided], of: Effects, now: datetime) -> None:
    """All effects about attempts, in this order: verdicts, requests to stop, releases, holds, outputs that nobody worked for, new tasks, frozen
    collections and why children failed."""
    # Reports that a decision passed over came too late. They are closed, so that no inbox row stays unapplied (G8).
    closes = of.get(CloseAttempt, []) + [(d, _closed(report)) for d in kept for report in d.ignored]
    closes.sort(key=_place)
    if closes:
        status = sparse([e.status for _, e in closes], AttemptStatus.SUCCEEDED)
        await connection.execute(SQL["close_attempts"], *_keys(closes), status, now)
    if unheard := [(d, effect) for d in kept for effect in d.unheard]:
        await connection.execute(SQL["wake_lates"], *_keys(unheard))
    await close_items(connection, of, now)
    if lates := sorted(of.get(CloseLate, ()), key=_place):
        await connection.execute(SQL["close_lates"], *_keys(lates), now)
    if cancels := sorted(of.get(RequestCancel, ()), key=_place):
        await connection.execute(SQL["request_cancels"], *_keys(cancels), now)
    if releases := of.get(ReleaseTasks):
        still_held = [orjson.dumps(e.still_held).decode() for _, e in releases]
        await connection.execute(
            SQL["release_tasks"], *ids(releases), [e.step_ref for _, e in releases], still_held, now
        )
    if holds := of.get(HoldTasks):
        await connection.execute(SQL["hold_tasks"], *ids(holds), [e.step_ref for _, e in holds])
    if outputs := of.get(RecordOutput):
        await _insert_outputs(connection, outputs, now)
    tasks = of.get(QueueTask, [])
    if first := [(d, e) for d, e in tasks if e.retry_of is None]:
        await _insert_first(connection, first, now)
    if retries := [(d, e) for d, e in tasks if e.retry_of is not None]:
        await _insert_retries(connection, retries, now)
    if held := [(d, e) for d, e in tasks if e.held]:
        await connection.execute(SQL["hold_attempts"], *_keys(held))
    await record_items(connection, of, now)


async def _insert_first(connection: asyncpg.Connection, tasks: list[tuple[Decided, QueueTask]], now: datetime) -> None:
    await connection.execute(
        SQL["insert_attempts"],
        *_keys(tasks),
        sparse([d.loaded.known.start.tier for d, _ in tasks], "standard"),
        [e.queue for _, e in tasks],
        [e.action for _, e in tasks],
        [e.input_json for _, e in tasks],
        [e.idempotency_key for _, e in tasks],
        sparse([None if e.due_time == now else e.due_time for _, e in tasks]),
        sparse([_queue_deadline(e) for _, e in tasks]),
        sparse([e.timeout_ms for _, e in tasks]),
        sparse([e.heartbeat_timeout_ms for _, e in tasks]),
        sparse([d.traceparent for d, _ in tasks], ""),
        now,
        sparse([_item(e) for _, e in tasks]),
    )


async def _insert_retries(
    connection: asyncpg.Connection, tasks: list[tuple[Decided, QueueTask]], now: datetime
) -> None:
    await connection.execute(
        SQL["insert_retries"],
        *_keys(tasks),
        [e.retry_of for _, e in tasks],
        [e.queue for _, e in tasks],
        [e.action for _, e in tasks],
        [e.idempotency_key for _, e in tasks],
        [e.due_time for _, e in tasks],
        [_queue_deadline(e) for _, e in tasks],
        [e.timeout_ms for _, e in tasks],
        [e.heartbeat_timeout_ms for _, e in tasks],
        [d.traceparent for d, _ in tasks],
        now,
        [_item(e) for _, e in tasks],
    )


async def _insert_outputs(
    connection: asyncpg.Connection, outputs: list[tuple[Decided, RecordOutput]], now: datetime
) -> None:
    texts = [e.output_json.encode() for _, e in outputs]
    await connection.execute(
        SQL["insert_outputs"],
        *ids(outputs),
        [e.step_ref for _, e in outputs],
        [e.attempt for _, e in outputs],
        [d.loaded.known.start.tier for d, _ in outputs],
        [e.action for _, e in outputs],
        [e.begin_time for _, e in outputs],
        [d.traceparent for d, _ in outputs],
        [e.output_json for _, e in outputs],
        [len(text) for text in texts],
        [sha256(text).hexdigest()[:16] for text in texts],
        now,
    )


def _item(task: QueueTask) -> str | None:
    return None if task.item is None else _encoder.encode(task.item).decode()


def _closed(report: AttemptReport) -> CloseAttempt:
    return CloseAttempt(
        step_ref=report.step_ref,
        item_index=report.item_index,
        kind=report.kind,
        attempt=report.attempt,
        status=AttemptStatus.CANCELLED,
    )


def _queue_deadline(task: QueueTask) -> datetime | None:
    return None if task.queue_timeout_ms is None else task.due_time + timedelta(milliseconds=task.queue_timeout_ms)


def _place(pair: tuple[Decided, Any]) -> tuple[Any, ...]:
    """Where an attempt stands in the order in which everybody locks them: that of their key."""
    d, e = pair
    return *d.key, *attempt_key(e)


def _keys(pairs: list[tuple[Decided, Any]]) -> tuple[list[Any], ...]:
    """(tenant, run, step_ref, item_index, kind, attempt) columns of effects that name an attempt: null for the index and the kind of a step's own."""
    return (
        *ids(pairs),
        [e.step_ref for _, e in pairs],
        sparse([e.item_index for _, e in pairs], -1),
        sparse([e.kind for _, e in pairs], TaskKind.STEP),
        [e.attempt for _, e in pairs],
    )
