"""What of a definition starts runs by itself: the timetables and event triggers of its newest version (D3, T2, T3).

A publish and an archiving write these rows in their own transaction, behind the family's lock, so that whatever fires reads one version and never a mix. It
never fires anything, and never touches a pause.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.queries import Queries
from ductord.definition import store
from ductord.engine.moments import next_tick
from ductord.model.starting import ScheduleSpec, TriggerSpec, schedule_id

_SQL: Final = Queries("ductord.definition", "live.sql")


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands. `next_time` None: retired, paused, or broken."""

    cron_expression: str
    timezone: str
    next_time: datetime | None
    paused: bool


class _Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the new version wants it."""

    schedule_id: str
    trigger_id: str
    spec: ScheduleSpec


async def follow(
    db: asyncpg.Connection,
    tenant_id: str,
    definition_id: str,
    family_slug: str,
    version_id: str,
    version: int,
    triggers: Sequence[TriggerSpec],
) -> None:
    """Let the version that was just numbered, and no other of its family, start runs. The family is locked.

    A schedule keeps its pause, and its next time while cron and time zone are the same; another cron begins after now.
    """
    wanted = [
        _Timetable(schedule_id=schedule_id(definition_id, trigger.id), trigger_id=trigger.id, spec=trigger.schedule)
        for trigger in triggers
        if trigger.schedule is not None
    ]
    if wanted:
        known = await _lock(db, tenant_id, definition_id)
        now = await store.now(db)
        times = await asyncio.to_thread(_next_times, wanted, known, now)
        await db.execute(
            _SQL["put_schedules"],
            tenant_id,
            definition_id,
            family_slug,
            version_id,
            version,
            [one.schedule_id for one in wanted],
            [one.trigger_id for one in wanted],
            [one.spec.cron_expression for one in wanted],
            [one.spec.timezone for one in wanted],
            [one.spec.catchup_window_ms for one in wanted],
            [one.spec.overlap_policy for one in wanted],
            times,
        )
    patterns = [(pattern, trigger) for trigger in triggers for pattern in dict.fromkeys(trigger.patterns)]
    if patterns:
        await db.execute(
            _SQL["put_event_triggers"],
            tenant_id,
            definition_id,
            family_slug,
            version_id,
            version,
            [pattern for pattern, _ in patterns],
            [trigger.id for _, trigger in patterns],
            [trigger.filter.source if trigger.filter else "" for _, trigger in patterns],
        )
    await db.execute(_SQL["retire_others"], tenant_id, definition_id, version_id)


async def retire(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> None:
    """Nothing of the definition starts runs by itself any more: its newest version is archived. The family is locked."""
    await db.execute(_SQL["retire_others"], tenant_id, definition_id, None)


async def _lock(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> dict[str, _Known]:
    rows = await db.fetch(_SQL["lock_schedules"], tenant_id, definition_id)
    return {
        row["schedule_id"]: _Known(
            cron_expression=row["cron_expression"],
            timezone=row["timezone"],
            next_time=row["next_time"],
            paused=row["paused"],
        )
        for row in rows
    }


def _next_times(wanted: Sequence[_Timetable], known: Mapping[str, _Known], now: datetime) -> list[datetime | None]:
    """When each comes next. Ticks may be years away and many triggers may have one cron: each is looked for once."""
    ticks: dict[tuple[str, str], datetime] = {}
    times: list[datetime | None] = []
    for one in wanted:
        clock = (one.spec.cron_expression, one.spec.timezone)
        before = known.get(one.schedule_id)
        if before is not None and before.paused:
            times.append(None)
        elif before is not None and before.next_time and (before.cron_expression, before.timezone) == clock:
            times.append(before.next_time)
        else:
            if clock not in ticks:
                ticks[clock] = next_tick(*clock, now)
            times.append(ticks[clock])
    return times
