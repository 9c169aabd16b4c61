"""Fires: what becomes of the times of a schedule, whoever comes to them: its timetable, a backfill, a person (ruling T2, TC-08).

A time starts one run, because its row has a key and its run an id that is derived from it. Everything happens in the transaction of the caller, who holds the
schedule's row and moves its `next_time`; nothing here looks further back than the runs that may still be active.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Self

import asyncpg
import msgspec
import orjson

from ductord.db.queries import Queries
from ductord.engine.starting import resolved, schedule_input
from ductord.model.fault import Fault
from ductord.model.starting import Origin, asked_run_id, fired_run_id
from ductord.starting.births import BORN_BYTES, Start, bear
from ductord.starting.inputs import input_of
from ductord.starting.versions import Version, Versions

FIRES: Final = (
    "ductor_schedule_fires",
    "Times of schedules, by what became of them and why they fired.",
    ("outcome", "source"),
)
"""The counter that everybody who fires counts in, after the commit: name, text, labels."""

_q: Final = Queries("ductord.starting", "fires.sql")
_PROBED: Final = 100
"""Runs of a schedule that one statement looks at: those that have ended are not looked at again."""
_NO_VERSION: Final = Fault(code="VERSION_UNREADABLE", message="there is no such version")
_MICROSECOND: Final = timedelta(microseconds=1)
_BREATH_S: Final = 0.02
"""Processor time after which inputs let the other work of the process go on: one may take seconds, and a backfill has a thousand."""

Source = Literal["timetable", "backfill", "manual"]
Outcome = Literal["started", "skipped", "failed", "already"]


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as its locked row says."""

    tenant_id: str
    schedule_id: str
    definition_id: str
    family_slug: str
    trigger_id: str
    version_id: str
    version: int
    overlap_policy: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Of any record that has these columns, ids as text."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule is to fire: `times`, oldest first. `overlap_policy` empty: the schedule's own. `request_id`: of a fire by hand, whose one time is now."""

    schedule: Scheduled
    times: tuple[datetime, ...]
    source: Source
    overlap_policy: str = ""
    request_id: str = ""

    @property
    def skips(self) -> bool:
        """Whether no run of the schedule may be active when another begins."""
        return (self.overlap_policy or self.schedule.overlap_policy) == "skip"


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a time. `already`: it had been dealt with before, with `run_id` where it had started a run; nothing was done now. `code` and `message`:
    why no run could be started."""

    nominal_time: datetime
    outcome: Outcome
    run_id: str = ""
    code: str = ""
    message: str = ""


class Unfireable(Exception):
    """A schedule whose version says nothing that could be started; what is wrong concerns all of its times."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Fires:
    """How a process fires. It keeps nothing but the versions that it has met."""

    def __init__(self, versions: Versions, *, environment: str, payload_max_bytes: int) -> None:
        self._versions = versions
        self._environment = environment
        self._max_bytes = payload_max_bytes

    async def fire(
        self, db: asyncpg.Connection, asked: Sequence[Asked], *, traceparent: str = "", inputs_s: float = math.inf
    ) -> list[list[Fired]]:
        """Fire times of schedules of one tenant, whose rows the caller has locked in this transaction, each schedule once; the answers in the same order. Runs,
        fires and counters are written; `next_time`, `last_time` and gaps are the caller's.

        `inputs_s`: processor time for inputs; when it is over, and something was done, the rest is left, and the answers are shorter than what was asked.
        Raises `Unfireable`.
        """
        if not asked:
            return []
        tenant_id = asked[0].schedule.tenant_id
        versions = await self._read(db, asked)
        asked = [await _timed(db, one) if one.source == "manual" else one for one in asked]
        before = await _before(db, asked)
        active = await _active(db, tenant_id, [one.schedule.schedule_id for one in asked if one.skips])
        overrides = await self._overrides(db, tenant_id, asked)
        fired: list[list[Fired]] = []
        starts: list[Start] = []
        held = 0
        spent_s = breath_s = 0.0
        for one, version, known in zip(asked, versions, before, strict=True):
            judged = _Judged(one, version, overrides.get(one.schedule.definition_id, "{}"), self._max_bytes)
            fired.append([])
            for moment in one.times:
                if spent_s > inputs_s and any(fired):
                    break
                if (was := known.get(moment)) is not None:
                    fired[-1].append(was)
                    continue
                busy = one.skips and one.schedule.schedule_id in active
                began = time.thread_time()
                became = Fired(nominal_time=moment, outcome="skipped") if busy else judged.judge(moment, starts)
                spent_s += time.thread_time() - began
                if spent_s - breath_s > _BREATH_S:
                    breath_s = spent_s
                    await asyncio.sleep(0)
                fired[-1].append(became)
                if became.outcome == "started":
                    held += len(starts[-1].input_json)
                    active.add(one.schedule.schedule_id)
                if held > BORN_BYTES:  # who is born need not be held any longer
                    await self._bear(db, tenant_id, starts, traceparent)
                    starts, held = [], 0
        await self._bear(db, tenant_id, starts, traceparent)
        await _write(db, tenant_id, list(zip(asked, fired, strict=True)))
        return fired

    async def _bear(self, db: asyncpg.Connection, tenant_id: str, starts: Sequence[Start], traceparent: str) -> None:
        await bear(db, tenant_id, starts, environment=self._environment, traceparent=traceparent, actor="")

    async def _read(self, db: asyncpg.Connection, asked: Sequence[Asked]) -> list[Version]:
        schedules = [one.schedule for one in asked]
        found = await self._versions.versions(db, schedules[0].tenant_id, {one.version_id for one in schedules})
        versions = []
        for schedule in schedules:
            version = found.get(schedule.version_id, _NO_VERSION)
            if isinstance(version, Version) and schedule.trigger_id not in version.triggers:
                version = Fault(code="VERSION_UNREADABLE", message="the version has no such trigger")
            if isinstance(version, Fault):
                raise Unfireable(version)
            versions.append(version)
        return versions

    async def _overrides(self, db: asyncpg.Connection, tenant_id: str, asked: Sequence[Asked]) -> dict[str, str]:
        definitions = list({one.schedule.definition_id for one in asked})
        rows = await db.fetch(_q["overrides"], tenant_id, definitions, self._environment)
        return {row["definition_id"]: row["variables"] for row in rows}


async def asked_before(db: asyncpg.Connection, tenant_id: str, schedule_id: str, request_id: str) -> Fired | None:
    """What became of a fire by hand that was asked for before; to be looked up while the schedule's row is locked."""
    row = await db.fetchrow(_q["asked_before"], tenant_id, schedule_id, request_id)
    return None if row is None else _stored(row["nominal_time"], row["outcome"], row)


class _Judged:
    """One schedule's times, each of which starts a run or says why it cannot."""

    def __init__(self, asked: Asked, version: Version, overlay: str, max_bytes: int) -> None:
        self._asked, self._version, self._overlay, self._max_bytes = asked, version, overlay, max_bytes
        self._trigger = version.triggers[asked.schedule.trigger_id]
        self._variables = resolved(version.variables, orjson.loads(overlay))

    def judge(self, moment: datetime, starts: list[Start]) -> Fired:
        """What becomes of a time; a run that it starts goes to `starts`."""
        schedule = self._asked.schedule
        given = input_of(
            self._version,
            lambda: schedule_input(self._trigger, self._variables, moment),
            max_bytes=self._max_bytes,
        )
        if isinstance(given, Fault):
            return Fired(nominal_time=moment, outcome="failed", code=given.code, message=given.message)
        by_hand = self._asked.source == "manual"
        run_id = (
            asked_run_id(schedule.schedule_id, self._asked.request_id)
            if by_hand
            else fired_run_id(schedule.schedule_id, moment)
        )
        starts.append(
            Start(
                run_id=run_id,
                definition_id=schedule.definition_id,
                version_id=schedule.version_id,
                version=schedule.version,
                family_slug=schedule.family_slug,
                input_json=given,
                tier=self._trigger.tier or self._version.tier,
                origin=Origin(trigger_id=schedule.trigger_id, schedule_id=schedule.schedule_id, nominal_time=moment),
                variables_json=self._overlay,
                actor=f"schedule:{schedule.trigger_id}",
            )
        )
        return Fired(nominal_time=moment, outcome="started", run_id=run_id)


async def _timed(db: asyncpg.Connection, asked: Asked) -> Asked:
    """A fire by hand takes no time of the timetable, which would then not fire, and none that another one has."""
    (moment,) = asked.times
    while (moment.second, moment.microsecond) == (0, 0) or any(await _before(db, [asked])):
        moment += _MICROSECOND
        asked = msgspec.structs.replace(asked, times=(moment,))
    return asked


async def _before(db: asyncpg.Connection, asked: Sequence[Asked]) -> list[dict[datetime, Fired]]:
    """Of each schedule the times that are dealt with. A backfill comes again to those that came to nothing."""
    places = [(number, moment) for number, one in enumerate(asked) for moment in one.times]
    before: list[dict[datetime, Fired]] = [{} for _ in asked]
    rows = await db.fetch(
        _q["fired"],
        asked[0].schedule.tenant_id,
        [asked[number].schedule.schedule_id for number, _ in places],
        [moment for _, moment in places],
    )
    for row in rows:
        number, moment = places[row["place"] - 1]
        if row["outcome"] == "started" or asked[number].source != "backfill":
            before[number][moment] = _stored(moment, "already", row)
    return before


def _stored(moment: datetime, outcome: Outcome, row: asyncpg.Record) -> Fired:
    return Fired(
        nominal_time=moment,
        outcome=outcome,
        run_id=row["run_id"] or "",
        code=row["error_code"],
        message=row["error_message"],
    )


async def _active(db: asyncpg.Connection, tenant_id: str, schedules: list[str]) -> set[str]:
    """Those that have an active run. Newest runs first: of a schedule that has one, one look finds it, and what has ended is seen once."""
    active: set[str] = set()
    while schedules:
        rows = await db.fetch(_q["active"], tenant_id, schedules, _PROBED)
        active.update(row["schedule_id"] for row in rows if row["active"])
        schedules = [row["schedule_id"] for row in rows if not row["active"] and row["seen"] == _PROBED]
    return active


async def _write(db: asyncpg.Connection, tenant_id: str, done: Sequence[tuple[Asked, list[Fired]]]) -> None:
    new = [(one, [f for f in fired if f.outcome != "already"]) for one, fired in done]
    new = [(one, fired) for one, fired in new if fired]
    if not new:
        return
    rows = [(one, f) for one, fired in new for f in fired]
    await db.execute(
        _q["write_fires"],
        tenant_id,
        [one.schedule.schedule_id for one, _ in rows],
        [f.nominal_time for _, f in rows],
        [f.outcome for _, f in rows],
        [one.source for one, _ in rows],
        [one.request_id if one.source == "manual" else "" for one, _ in rows],
        [f.run_id for _, f in rows],
        [f.code for _, f in rows],
        [f.message for _, f in rows],
    )
    tried = [next((f for f in reversed(fired) if f.outcome != "skipped"), fired[-1]) for _, fired in new]
    await db.execute(
        _q["count_fires"],
        tenant_id,
        [one.schedule.schedule_id for one, _ in new],
        *(
            [sum(f.outcome == outcome for f in fired) for _, fired in new]
            for outcome in ("started", "skipped", "failed")
        ),
        [next((f.run_id for f in reversed(fired) if f.run_id), "") for _, fired in new],
        [f.code for f in tried],
        [f.message for f in tried],
    )
