"""A schedule in memory: the rules of T2 in their plainest form, over the pure timetable. What it says is what the books must say."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ductord.engine import timetable
from ductord.engine.timetable import Gap
from ductord.model.starting import ScheduleSpec, asked_run_id, fired_run_id
from tests.schedules.playing import Fire, State

_MICROSECOND = timedelta(microseconds=1)
_ID = "schedule"


class MemorySchedule:
    """Implements `World`."""

    def __init__(self) -> None:
        self._now = datetime(1970, 1, 1, tzinfo=UTC)
        self._spec: ScheduleSpec | None = None
        self._next: datetime | None = None
        self._paused: datetime | None = None
        self._last: datetime | None = None
        self._fires: dict[tuple[datetime, str], Fire] = {}
        self._asked: set[str] = set()
        self._active: set[str] = set()
        self._counts = {"started": 0, "skipped": 0, "missed": 0, "dropped": 0}

    async def at(self, moment: datetime) -> None:
        self._now = moment

    async def publish(self, spec: ScheduleSpec) -> None:
        before, self._spec = self._spec, spec
        same = before is not None and (before.cron_expression, before.timezone) == (spec.cron_expression, spec.timezone)
        if self._paused is None and not (same and self._next is not None):
            self._next = self._first_after_now()

    async def watch(self) -> None:
        while self._next is not None and self._next <= self._now:
            due = timetable.due(self._known(), self._next, self._now)
            self._pass_over(due.missed, "missed")
            self._fire(due.fires, "timetable", self._known().overlap_policy)
            self._next = due.next_time

    async def end(self) -> None:
        self._active.clear()

    async def pause(self) -> None:
        if self._next is not None and self._next <= self._now:
            self._pass_over(self._gap(self._next - _MICROSECOND), "dropped")
        self._paused, self._next = self._now, None

    async def resume(self) -> None:
        assert self._paused is not None
        self._pass_over(self._gap(max(self._paused, self._last or self._paused)), "dropped")
        self._paused, self._next = None, self._first_after_now()

    async def now(self, request_id: str) -> None:
        if request_id in self._asked:
            return
        self._asked.add(request_id)
        moment = self._now
        while moment.replace(second=0, microsecond=0) == moment or (moment, "fire") in self._fires:
            moment += _MICROSECOND
        self._fire((moment,), "manual", self._known().overlap_policy, request_id)

    async def backfill(self, begin: datetime, end: datetime, overlap_policy: str) -> tuple[int, int, int]:
        spec = self._known()
        times = timetable.times(spec.cron_expression, spec.timezone, begin, end, 1_000)
        new = [moment for moment in times if not self._started(moment)]
        was = dict(self._counts)
        self._fire(new, "backfill", overlap_policy)
        started, skipped = (self._counts[name] - was[name] for name in ("started", "skipped"))
        return started, len(times) - len(new), skipped

    async def fires(self) -> list[Fire]:
        return [self._fires[key] for key in sorted(self._fires)]

    async def state(self) -> State:
        return State(next_time=self._next, paused=self._paused is not None, **self._counts)

    def _fire(self, times: Iterable[datetime], source: str, overlap_policy: str, request_id: str = "") -> None:
        for moment in times:
            if source == "timetable":
                self._last = moment
                if (moment, "fire") in self._fires:
                    continue
            busy = overlap_policy == "skip" and bool(self._active)
            run_id = ""
            if not busy:
                run_id = asked_run_id(_ID, request_id) if request_id else fired_run_id(_ID, moment)
                self._active.add(run_id)
            outcome = "skipped" if busy else "started"
            self._counts[outcome] += 1
            self._fires[moment, "fire"] = Fire(
                nominal_time=moment, kind="fire", outcome=outcome, source=source, run_id=run_id
            )

    def _pass_over(self, gap: Gap | None, outcome: str) -> None:
        if gap is None:
            return
        self._last = gap.last
        count = gap.count
        if outcome == "missed":  # not what a backfill has started meanwhile
            count -= sum(gap.first <= moment <= gap.last and self._started(moment) for moment, _ in self._fires)
        if count == 0:
            return
        self._counts[outcome] += count
        self._fires[gap.first, "gap"] = Fire(
            nominal_time=gap.first,
            kind="gap",
            outcome=outcome,
            source="timetable",
            count=count,
            until_time=gap.last,
        )

    def _started(self, moment: datetime) -> bool:
        fire = self._fires.get((moment, "fire"))
        return fire is not None and fire.outcome == "started"

    def _gap(self, after: datetime) -> Gap | None:
        spec = self._known()
        return timetable.gap(spec.cron_expression, spec.timezone, after, self._now)

    def _first_after_now(self) -> datetime:
        spec = self._known()
        return timetable.first_after(spec.cron_expression, spec.timezone, self._now)

    def _known(self) -> ScheduleSpec:
        assert self._spec is not None, "nothing was published"
        return self._spec
