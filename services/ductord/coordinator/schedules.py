"""Schedules come due: each time of a timetable is dealt with once, by whichever coordinator gets the schedule's row (ruling T2; TC-06, TC-08).

A turn takes what is due, fires it and moves `next_time`, in one transaction: a coordinator that dies leaves everything or nothing. What a schedule cannot do
concerns that schedule alone: it is set aside with the reason, the others go on. Nothing here computes a time or judges an overlap.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final

import asyncpg
import msgspec

from ductord.db.outage import passes
from ductord.db.pool import transaction
from ductord.db.queries import Queries
from ductord.engine.moments import MomentInvalid
from ductord.engine.timetable import MAX_FIRES, Due, due
from ductord.model.jsonvalue import storable_text
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION
from ductord.model.starting import ScheduleSpec
from ductord.rpc.metrics import Metrics
from ductord.starting.fires import FIRES, Asked, Fired, Fires, Scheduled, Unfireable

SQL: Final = Queries("ductord.coordinator", "schedules.sql")

SCHEDULES: Final = 100
"""Schedules that one turn locks."""
_STARTS: Final = 1_000
"""Times that one turn fires, of however many schedules."""
_INPUTS_S: Final = 0.5
"""Processor time for the inputs of one turn's runs."""
_LATE_COMMIT: Final = timedelta(seconds=10)
"""How much older than a look a time may be that the look before could not see yet; what takes longer is found by the net."""
_PAGE: Final = 1_000
_UNFORESEEN: Final = "INTERNAL"
_FIRST: Final = ("", "00000000-0000-0000-0000-000000000000", datetime(1, 1, 2, tzinfo=UTC))
_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)

_log = logging.getLogger("ductor.schedules")


class Turned(msgspec.Struct, kw_only=True):
    """What one turn did. `left`: something is due that it did not come to. `next_s`: seconds until the next schedule is due. `since`: what the next look need
    not look behind. `broken`: schedules that were set aside, each with why."""

    fired: list[tuple[Scheduled, Fired]] = []
    late_s: list[float] = []
    missed: list[tuple[Scheduled, int]] = []
    broken: list[tuple[Scheduled, Exception]] = []
    left: bool = False
    next_s: float | None = None
    since: datetime | None = None


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and what its timetable asks for now."""

    schedule: Scheduled
    due: Due

    @property
    def tenant_id(self) -> str:
        return self.schedule.tenant_id


async def turn(connection: asyncpg.Connection, fires: Fires, since: datetime | None = None) -> Turned:
    """Deal with what is due, at most `SCHEDULES` schedules. `since`: of the look before; what was due earlier is left to a look without it, which the net
    makes once per period (PG-05)."""
    turned = Turned()
    claimed: list[asyncpg.Record] = []
    look = await connection.fetchrow(SQL["look"], since)
    now = look["now"]
    if not look["due"]:
        return Turned(next_s=look["next_s"], since=now - _LATE_COMMIT)
    try:
        async with transaction(connection):
            claimed = await connection.fetch(SQL["claim"], SCHEDULES, since, FORMAT_VERSION, ENGINE_LEVEL, now)
            await _deal(connection, fires, claimed, now, turned)
    except Exception as error:
        if passes(error) or not claimed:
            raise
        turned = Turned()
        await _one_by_one(connection, fires, claimed, now, turned)
    turned.left = turned.left or len(claimed) == SCHEDULES
    turned.next_s = await connection.fetchval(SQL["next_due"], now)
    turned.since = since if turned.left else now - _LATE_COMMIT
    return turned


async def _one_by_one(
    connection: asyncpg.Connection, fires: Fires, claimed: Sequence[asyncpg.Record], now: datetime, turned: Turned
) -> None:
    """Each schedule in a transaction of its own, since one of them cannot be dealt with. That one is set aside."""
    for row in claimed:
        alone = Turned()
        try:
            async with transaction(connection):
                still = await connection.fetch(SQL["claim_given"], row["tenant_id"], row["schedule_id"], now)
                await _deal(connection, fires, still, now, alone)
        except Exception as error:
            if passes(error):
                raise
            code, message = _why(error)
            await connection.execute(
                SQL["break"], row["tenant_id"], row["schedule_id"], code, message, row["next_time"]
            )
            alone = Turned(broken=[(Scheduled.of(row), error)])
        for name in ("fired", "late_s", "missed", "broken"):
            getattr(turned, name).extend(getattr(alone, name))
        turned.left = turned.left or alone.left


def _why(error: Exception) -> tuple[str, str]:
    if isinstance(error, MomentInvalid):
        return "TIMETABLE_INVALID", f"a part of its timetable {error}"
    if isinstance(error, Unfireable):
        return error.fault.code, error.fault.message
    return _UNFORESEEN, storable_text(f"{type(error).__name__}: {error}", max_chars=1_000)


async def _deal(
    connection: asyncpg.Connection, fires: Fires, claimed: Sequence[asyncpg.Record], now: datetime, turned: Turned
) -> None:
    plans = _planned(claimed, now)
    gaps = [plan for plan in plans if plan.due.missed is not None]
    counts = dict(zip((p.schedule.schedule_id for p in gaps), await _write_gaps(connection, gaps), strict=True))
    done = await _fire(connection, fires, plans)
    if not done:
        return
    stands = [_stands(plan, fired) for plan, fired in done]
    await connection.execute(
        SQL["move"],
        [plan.tenant_id for plan, _ in done],
        [plan.schedule.schedule_id for plan, _ in done],
        [next_time for next_time, _ in stands],
        [last_time for _, last_time in stands],
        [counts.get(plan.schedule.schedule_id, 0) for plan, _ in done],
    )
    new = [(plan, one) for plan, fired in done for one in fired if one.outcome != "already"]
    turned.fired = [(plan.schedule, one) for plan, one in new]
    turned.late_s = [(now - one.nominal_time).total_seconds() for _, one in new]
    turned.missed = [(p.schedule, counts[p.schedule.schedule_id]) for p in gaps if counts[p.schedule.schedule_id]]
    turned.left = any(next_time <= now for next_time, _ in stands)


async def _fire(
    connection: asyncpg.Connection, fires: Fires, plans: Sequence[_Plan]
) -> list[tuple[_Plan, list[Fired]]]:
    """Tenant by tenant, each with its share of the time for inputs: what there is no more for is answered by nothing, and left to the next turn."""
    done: list[tuple[_Plan, list[Fired]]] = []
    by_tenant = [list(of) for _, of in groupby(sorted(plans, key=attrgetter("tenant_id")), key=attrgetter("tenant_id"))]
    for of_tenant in by_tenant:
        asked = [Asked(schedule=p.schedule, times=p.due.fires, source="timetable") for p in of_tenant]
        answers = await fires.fire(connection, asked, inputs_s=_INPUTS_S / len(by_tenant))
        done += zip(of_tenant, answers, strict=True)
    return done


def _planned(claimed: Sequence[asyncpg.Record], now: datetime) -> list[_Plan]:
    """What is due of each. The times are shared out, so that no schedule waits for what another one has missed."""
    plans: list[_Plan] = []
    share = max(_STARTS // max(len(claimed), 1), 1)
    for row in claimed:
        spec = ScheduleSpec(
            cron_expression=row["cron_expression"],
            timezone=row["timezone"],
            catchup_window_ms=row["catchup_window_ms"],
            overlap_policy=row["overlap_policy"],
        )
        plan = due(spec, row["next_time"], now, min(share, MAX_FIRES))
        plans.append(_Plan(schedule=Scheduled.of(row), due=plan))
    return plans


def _stands(plan: _Plan, fired: Sequence[Fired]) -> tuple[datetime, datetime | None]:
    """The first time that has not been dealt with, and the last that has."""
    last = plan.due.missed.last if plan.due.missed is not None else None
    if fired:
        last = fired[-1].nominal_time
    left = plan.due.fires[len(fired) :]
    return (left[0] if left else plan.due.next_time), last


async def _write_gaps(connection: asyncpg.Connection, plans: Sequence[_Plan]) -> list[int]:
    """Write down what was missed; how many times of each schedule that were, without those that a backfill had started."""
    gaps = [plan.due.missed for plan in plans if plan.due.missed is not None]
    if not gaps:
        return []
    tenants, schedules = [p.tenant_id for p in plans], [p.schedule.schedule_id for p in plans]
    spans = [gap.first for gap in gaps], [gap.last for gap in gaps]
    rows = await connection.fetch(SQL["started_within"], tenants, schedules, *spans)
    started = {row["place"] - 1: row["started"] for row in rows}
    counts = [max(gap.count - started.get(number, 0), 0) for number, gap in enumerate(gaps)]
    real = [number for number, count in enumerate(counts) if count]
    await connection.execute(
        SQL["write_gaps"],
        *([column[number] for number in real] for column in (tenants, schedules, *spans, counts)),
    )
    return counts


class Watch:
    """The loop's turns, what they remember between each other, and what they tell."""

    def __init__(self, metrics: Metrics, fires: Fires) -> None:
        self._fires = fires
        self._since: datetime | None = None
        self._page = _FIRST
        self._counted = metrics.counter(*FIRES)
        for outcome in ("failed", "missed"):  # the first case is a rise too
            self._counted.labels(outcome, "timetable")
        self._late = metrics.histogram(
            "ductor_schedule_lateness_seconds",
            "How long after its time a schedule was fired, catching up included.",
            buckets=_SECONDS,
        )
        self._broken = metrics.gauge("ductor_schedules_broken", "Schedules whose next time cannot be dealt with.")

    async def turn(self, connection: asyncpg.Connection) -> float | None:
        """One turn; goes on at once while something is due, and looks again when the next one is."""
        turned = await turn(connection, self._fires, self._since)
        # A clock that was set back is before the mark, and nothing behind it would be looked at.
        behind = self._since is not None and turned.since is not None and turned.since < self._since
        self._since = None if behind else turned.since
        self._tell(turned)
        return 0 if turned.left else turned.next_s

    async def net(self, connection: asyncpg.Connection) -> None:
        """A look at everything that is due, however long it has been; how many are broken; a page of runs that may have ended."""
        self._tell(await turn(connection, self._fires))
        self._broken.set(await connection.fetchval(SQL["broken"], _PAGE))
        page = await connection.fetchrow(SQL["end_fires"], *self._page, _PAGE)
        full = page is not None and page["seen"] == _PAGE
        self._page = (page["tenant_id"], page["schedule_id"], page["nominal_time"]) if full else _FIRST

    def _tell(self, turned: Turned) -> None:
        self._late.observe_all(turned.late_s)
        for schedule, fired in turned.fired:
            self._counted.labels(fired.outcome, "timetable").inc()
            if fired.outcome == "failed":
                at = {"nominal_time": fired.nominal_time.isoformat(), "code": fired.code}
                _log.warning("a time of a schedule could start no run", extra=_ids(schedule) | at)
            elif fired.outcome == "skipped":
                at = {"nominal_time": fired.nominal_time.isoformat()}
                _log.info("a time of a schedule is skipped, a run of it is active", extra=_ids(schedule) | at)
        for schedule, count in turned.missed:
            self._counted.labels("missed", "timetable").inc(count)
            _log.warning("%d times of a schedule were past its catch-up window", count, extra=_ids(schedule))
        for schedule, error in turned.broken:
            code, _ = _why(error)
            cause = error if code == _UNFORESEEN else None
            _log.error("a schedule is broken and fires no more", extra=_ids(schedule) | {"code": code}, exc_info=cause)


def _ids(schedule: Scheduled) -> dict[str, str]:
    return {
        "tenant_id": schedule.tenant_id,
        "schedule_id": schedule.schedule_id,
        "definition_id": schedule.definition_id,
        "trigger_id": schedule.trigger_id,
    }
