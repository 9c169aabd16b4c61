"""The commit: a batch of decisions as a handful of statements, all hanging on the versioned update of the runs.

Order is the lock order: keys of events and of digests, attempts and waits that others may be writing, runs by id, history, attempts, waits, digests, timers,
children, records, fires of schedules. A run that is not in the update's RETURNING lost the race; nothing of it is written. Payloads go in as text that was
checked at the door.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from ductord.coordinator import digests, waits
from ductord.coordinator.attempts import contested, write_attempts
from ductord.coordinator.births import adopt, start_runs
from ductord.coordinator.children import write_children
from ductord.coordinator.decided import Decided, Effects, by_class, ids, sparse
from ductord.coordinator.records import write_records
from ductord.coordinator.starts import SQL
from ductord.model import events as history
from ductord.model import stored
from ductord.model.effects import (
    ClearCheckpoint,
    ClearTimers,
    ForwardControl,
    QueueTask,
    RecordCheckpoint,
    RecordResult,
    ReleaseTasks,
    SetTimer,
    SettleControl,
)
from ductord.model.enums import CompensationStatus, RunStatus
from ductord.model.manifest import FORMAT_VERSION, Manifest
from ductord.model.run import Run


async def commit(
    connection: asyncpg.Connection, decided: list[Decided], now: datetime, channels: list[str]
) -> set[str]:
    """Write the decisions inside the caller's transaction; the run ids that lost the race and of which nothing was written. `channels` is told who is to be
    hinted at what was written; the caller sends that with its COMMIT."""
    decided = sorted(decided, key=lambda d: d.key)
    of = by_class(decided)
    await waits.lock_keys(connection, of)
    await digests.lock_keys(connection, of)
    lost = await contested(connection, decided, of)
    lost |= await waits.contested(connection, of, lost)
    lost |= await digests.contested(connection, of, lost)
    changed = [d for d in decided if d.decision.events and d.key[1] not in lost]
    won = await _write_runs(connection, changed, now)
    lost |= {d.key[1] for d in changed} - won
    kept = [d for d in decided if d.key[1] not in lost]
    if not kept:
        return lost
    channels += await _write_effects(connection, kept, by_class(kept) if lost else of, now)
    if again := [d for d in kept if d.reopened]:
        await connection.execute(SQL["reopen_fires"], [d.key[0] for d in again], [d.key[1] for d in again])
    calm = [d for d in kept if d.loaded.quarantined]
    if calm:
        await connection.execute(SQL["clear_quarantine"], [d.key[0] for d in calm], [d.key[1] for d in calm])
    return lost


async def _write_runs(connection: asyncpg.Connection, changed: list[Decided], now: datetime) -> set[str]:
    """Write the states and the transitions that led to them; the ids of the runs that did not lose the race."""
    won: set[str] = set()
    if old := [d for d in changed if d.loaded.known.run is not None and not d.was.terminal]:
        columns = _run_columns(old)
        won |= {row[0] for row in await connection.fetch(SQL["update_runs"], *columns[:13], now, *columns[13:])}
    if ended := [d for d in changed if d.was.terminal]:
        columns = _run_columns(ended)
        keeps = [not d.reopened and _result(d) is None for d in ended]
        rows = await connection.fetch(SQL["update_ended_runs"], *columns[:13], now, columns[13], keeps, columns[14])
        won |= {row[0] for row in rows}
    if new := [d for d in changed if d.loaded.known.run is None]:
        columns = _run_columns(new)
        rows = await connection.fetch(
            SQL["insert_runs"],
            *columns[:13],
            now,
            columns[13],
            [d.loaded.known.start.version_id for d in new],
            [FORMAT_VERSION] * len(new),
            [d.loaded.compiled.manifest.engine_level for d in new if d.loaded.compiled],
            [d.decision.run.start_time for d in new if d.decision.run],
            columns[14],
            [d.loaded.known.start.create_time for d in new],
        )
        won |= {row[0] for row in rows}
    if marked := [(*d.key, *marks) for d in changed if d.key[1] in won and (marks := _marks(d)) is not None]:
        await connection.execute(SQL["mark_runs"], *(list(column) for column in zip(*marked, strict=True)))
    return won


def _marks(d: Decided) -> tuple[Any, ...] | None:
    """The columns of `mark_runs`, if this decision changes any."""
    before, after = d.loaded.known.run, d.decision.run
    assert after is not None
    marks = _marks_of(after)
    return None if marks == (_UNMARKED if before is None else _marks_of(before)) else marks


def _marks_of(run: Run) -> tuple[Any, ...]:
    return run.saga.status, run.close_reason, run.continued_to_run_id or None, run.held, run.merged_into_run_id or None


_UNMARKED = (CompensationStatus.NONE, "", None, False, None)


def _run_columns(decided: list[Decided]) -> list[list[Any]]:
    """The columns that `update_runs` and `insert_runs` have in common, in the order of their parameters, without the time. Null where it is as in most."""
    rows = []
    for d in decided:
        run, compiled = d.decision.run, d.loaded.compiled
        assert run is not None
        assert compiled is not None
        result = _result(d)
        refs = result.refs if result is not None else None
        rows.append(
            (
                *d.key,
                run.seq - 1,
                run.status,
                stored.encode_nodes(compiled.manifest, run),
                run.edges,
                stored.encode_state(run),
                _current_step(compiled.manifest, run),
                run.has_errors,
                run.fault.code if run.fault else "",
                run.fault.message if run.fault else "",
                result.output_json if result is not None and refs is None else None,
                orjson.dumps(refs).decode() if refs is not None else None,
                run.end_time,
                history.encode(d.decision.events),
            )
        )
    return [sparse(list(column), usual) for column, usual in zip(zip(*rows, strict=True), _USUAL, strict=True)]


_USUAL = (*[None] * 3, RunStatus.RUNNING, *[None] * 4, False, "", "", *[None] * 4)


def _result(d: Decided) -> RecordResult | None:
    return next((e for e in reversed(d.decision.effects) if isinstance(e, RecordResult)), None)


def _current_step(manifest: Manifest, run: Run) -> str:
    """The step begun last that is still open, for people who glance at a run; of several that began in one tick the last in graph order."""
    begun = [
        (node.first_time, index) for index, node in enumerate(run.nodes) if node.first_time and not node.status.terminal
    ]
    return manifest.steps[max(begun)[1]].ref if begun else ""


async def _write_effects(connection: asyncpg.Connection, kept: list[Decided], of: Effects, now: datetime) -> list[str]:
    """Write what the decisions bring about; the channels to hint on."""
    await adopt(connection, of, now)
    await write_attempts(connection, kept, of, now)
    await waits.write_waits(connection, of, now)
    await digests.write_digests(connection, of, now)
    await _write_timers(connection, of)
    await _write_checkpoints(connection, of, now)
    born = await start_runs(connection, of, now)
    born = await write_children(connection, of, now) or born
    await write_records(connection, of, now)
    channels = [channel for channel, told in _CHANNELS.items() if told(of, kept)]
    if born or ForwardControl in of:
        channels.append("ductor_wakeup")
    return channels


_CHANNELS: dict[str, Callable[[Effects, list[Decided]], bool]] = {
    # Also for tasks that a back-off holds: dispatch then knows when to look again.
    "ductor_task": lambda of, kept: QueueTask in of or ReleaseTasks in of,
    "ductor_run": lambda of, kept: RecordCheckpoint in of or any(d.ended or d.reopened for d in kept),
    "ductor_operation": lambda of, kept: SettleControl in of or ForwardControl in of,
}


async def _write_timers(connection: asyncpg.Connection, of: Effects) -> None:
    # Clearing first: a step may lose its old timers and get a new one in the same tick.
    if clears := of.get(ClearTimers):
        await connection.execute(
            SQL["clear_timers"], *ids(clears), [e.step_ref for _, e in clears], [e.kind or "" for _, e in clears]
        )
    if timers := of.get(SetTimer):
        last = {(d.key, e.kind, e.step_ref, e.item_index): (d, e) for d, e in timers}
        timers = list(last.values())
        await connection.execute(
            SQL["set_timers"],
            *ids(timers),
            [e.kind for _, e in timers],
            [e.step_ref for _, e in timers],
            [e.item_index for _, e in timers],
            [e.due_time for _, e in timers],
        )


async def _write_checkpoints(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    if clears := of.get(ClearCheckpoint):
        await connection.execute(SQL["clear_checkpoints"], *ids(clears), [e.name for _, e in clears])
    if checkpoints := of.get(RecordCheckpoint):
        await connection.execute(
            SQL["insert_checkpoints"],
            *ids(checkpoints),
            [e.name for _, e in checkpoints],
            [e.status for _, e in checkpoints],
            [orjson.dumps(e.refs).decode() for _, e in checkpoints],
            now,
        )
