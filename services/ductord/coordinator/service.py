"""The coordinator as a deployable: tick loops, ticks that one run has to itself, a watch over limits and timers, schedules, and the net under lost wake-ups.

N replicas may run; a try-lock per run at the claim and the versioned update keep one run with one tick. Every loop completes everything by polling
alone: NOTIFY only shortens the rest.
"""

import logging
import time
from datetime import datetime

import asyncpg

from ductord.coordinator.cache import Cache
from ductord.coordinator.schedules import Watch
from ductord.coordinator.standing import Standing
from ductord.coordinator.sweep import PLACES, SILENCES, Net, Swept, rest, watch
from ductord.coordinator.tick import FEW, Ticked, Way, tick, tick_alone
from ductord.db.listen import Listener
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import REPLAN_S, open_pool
from ductord.engine.limits import Limits
from ductord.rpc.host import Scope, Service
from ductord.rpc.loops import Loop
from ductord.starting.fires import Fires
from ductord.starting.versions import Versions

log = logging.getLogger("ductor.coordinator")

PLANS = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
"""Statements are index probes driven by arrays; a plan made while a table was empty, or seemed to be between two ticks, must not scan it or a whole tenant's
part of it. Measured: plans by size beat generic ones by a third in large batches, and cost nothing once cached in small ones."""

_WATCH_MS = 500
"""How often overdue attempts and timers are looked for: how late a time-out may fire, or a timer that was set since the last look."""
_WATCH_LEAST_S = 0.02
"""Between two looks where the next timer is due at once, or another coordinator is at it: moments that are close together fire together."""


_RESULTS = ("transitions", "ended", "conflicts", "quarantined", "foreign")
_MANY = 100
"""Runs of a tick beside which another one is begun: the database then works for one while the other is decided."""


class Coordinator:
    """The loops' turns over one pool. `scope` gives metrics and settings."""

    def __init__(self, scope: Scope, pool: asyncpg.Pool) -> None:
        settings, metrics = scope.settings, scope.metrics
        self._pool = pool
        self._cache = Cache()
        self._limits = Limits(**settings.engine_limits)
        self._batch_size = settings.coordinator_batch_size
        self._net = Net(settings.sweep_ms)
        self._standing = Standing(metrics)
        fires = Fires(Versions(), environment=settings.environment, payload_max_bytes=settings.payload_max_bytes)
        self._schedules = Watch(metrics, fires)
        self._since: datetime | None = None
        self._few = True
        self.tick_loop: Loop | None = None
        self.alone_loop: Loop | None = None
        self.beside_loop: Loop | None = None
        self._many = False
        self._alone: dict[tuple[str, str], Way] = {}
        self._seconds = metrics.histogram("ductor_tick_seconds", "Time of a group tick that claimed runs.")
        self._runs = metrics.counter("ductor_ticked_runs", "Runs claimed by ticks, by what came of it.", ("result",))
        self._alone_seconds = metrics.histogram(
            "ductor_tick_alone_seconds",
            "Time of a tick that one run had to itself, because it evaluates or closes much.",
        )
        self._tasks = metrics.counter("ductor_queued_tasks", "Tasks queued for dispatch.")
        self._children = metrics.counter("ductor_child_runs", "Runs that were born as children.")
        self._expired = metrics.counter(
            "ductor_expired_attempts", "Attempts that a limit ended, by outcome.", ("outcome",)
        )
        self._controls = metrics.counter(
            "ductor_settled_controls", "Controls that ticks settled, by verb and outcome.", ("verb", "outcome")
        )
        self._inverses = metrics.counter(
            "ductor_compensations", "Entries of compensation ledgers that were settled, by status.", ("status",)
        )
        self._repaired = metrics.counter(
            "ductor_lost_wakeups", "Wake-ups found missing by the sweep; should stay 0.", ("place",)
        )
        # Of what should stay 0 there is a 0 from the start: Prometheus sees no rise in a series that begins with its first case.
        for counter, values in (
            (self._repaired, PLACES),
            (self._expired, SILENCES),
            (self._runs, _RESULTS),
            (self._inverses, ("manual_repair",)),
        ):
            for value in values:
                counter.labels(value)

    async def tick(self) -> float | None:
        """One group tick; goes on at once while there is work, and looks again when the next is due."""
        async with self._pool.acquire() as connection:
            claimed = await self._tick(connection, few=self._few)
            self._few = claimed <= FEW
            if claimed == self._batch_size:
                return 0
            due, next_s = await rest(connection)
        if due and claimed:  # else what is due is another coordinator's
            return 0
        return None if next_s is None else max(next_s, _WATCH_LEAST_S)

    async def beside(self) -> float | None:
        """A group tick beside one of many runs that has decided and is being written: one decides while the database works for the other. It is begun by that
        one alone, so that nobody looks twice where there is little to do."""
        if not self._many:
            return None
        self._many = False
        async with self._pool.acquire() as connection:
            claimed = await self._tick(connection)
        if claimed and self.tick_loop is not None:
            self.tick_loop.wake()  # for what came meanwhile to the runs that this one held
        return None

    async def _tick(self, connection: asyncpg.Connection, *, few: bool = False) -> int:
        begin = time.perf_counter()
        ticked = await tick(
            connection, self._cache, self._limits, self._batch_size, few=few, decided=self._begin_beside
        )
        if ticked.claimed:
            self._seconds.observe(time.perf_counter() - begin)
            self._count(ticked)
            self._put_off(ticked)
        return ticked.claimed

    def _begin_beside(self, runs: int) -> None:
        if runs >= _MANY and self.beside_loop is not None:
            self._many = True
            self.beside_loop.wake()

    async def alone(self) -> float | None:
        """The tick of one run that has it to itself. Whatever keeps it from being made, the run's wake-up brings it up again."""
        if not self._alone:
            return None
        run, way = next(iter(self._alone.items()))
        del self._alone[run]
        begin = time.perf_counter()
        async with self._pool.acquire() as connection:
            ticked = await tick_alone(connection, self._cache, self._limits, run, way)
        if ticked.claimed:
            self._alone_seconds.observe(time.perf_counter() - begin)
            self._count(ticked)
            self._put_off(ticked)
            if self.tick_loop is not None:
                self.tick_loop.wake()
        return 0

    def _put_off(self, ticked: Ticked) -> None:
        for run, way in ticked.alone:
            self._alone[run] = way
        if ticked.alone and self.alone_loop is not None:
            self.alone_loop.wake()

    async def watch(self) -> float | None:
        """Report what is overdue, fire what is due; look again when the next timer is due, if that is soon."""
        async with self._pool.acquire() as connection:
            swept = await watch(connection, self._since)
        self._since = swept.since
        self._swept(swept)
        return None if swept.next_s is None else max(swept.next_s, _WATCH_LEAST_S)

    async def schedules(self) -> float | None:
        """Fire the schedules that are due; look again when the next one is, if that is soon."""
        async with self._pool.acquire() as connection:
            rest_s = await self._schedules.turn(connection)
        return rest_s if not rest_s else max(rest_s, _WATCH_LEAST_S)

    async def net(self) -> float | None:
        """One round of the net, and a look at everything that is due, however long it has been."""
        async with self._pool.acquire() as connection:
            self._swept(await self._net.round(connection))
            self._swept(await watch(connection))
            await self._schedules.net(connection)
            await self._standing.look(connection)
        return None

    def _swept(self, swept: Swept) -> None:
        for outcome, count in swept.expired.items():
            self._expired.labels(outcome).inc(count)
        for place, count in swept.repaired.items():
            if count:
                log.warning("the sweep woke %d runs whose wake-up was missing (%s)", count, place)
                self._repaired.labels(place).inc(count)
        if swept.woke and self.tick_loop is not None:
            self.tick_loop.wake()

    def _count(self, ticked: Ticked) -> None:
        self._tasks.inc(ticked.tasks)
        self._children.inc(ticked.children)
        for result in _RESULTS:
            count = getattr(ticked, result)
            if count:
                self._runs.labels(result).inc(count)
        for (verb, outcome), count in ticked.told.controls.items():
            self._controls.labels(verb, outcome).inc(count)
        for status, count in ticked.told.inverses.items():
            self._inverses.labels(status).inc(count)


async def start(scope: Scope) -> None:
    """Open the pool and register the loops."""
    settings = scope.settings
    scope.translate(refusal_of)
    pool = await patient(
        lambda: open_pool(**settings.pool("coordinator"), settings=PLANS, replan_s=REPLAN_S),
        settings.database_start_wait_ms,
    )
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    if not settings.workflow_runtime_enabled:
        log.warning("DUCTOR_WORKFLOW_RUNTIME_ENABLED is off: no run is started or advanced")
        return
    coordinator = Coordinator(scope, pool)
    coordinator.tick_loop = scope.loop("tick", coordinator.tick, interval_ms=settings.poll_ms)
    coordinator.beside_loop = scope.loop("beside", coordinator.beside, interval_ms=settings.poll_ms)
    coordinator.alone_loop = scope.loop("alone", coordinator.alone, interval_ms=settings.poll_ms)
    scope.loop("watch", coordinator.watch, interval_ms=min(_WATCH_MS, settings.sweep_ms))
    schedules = scope.loop("schedules", coordinator.schedules, interval_ms=settings.poll_ms)
    scope.loop("net", coordinator.net, interval_ms=settings.sweep_ms)
    if settings.notify:
        hints = {"ductor_wakeup": coordinator.tick_loop.wake, "ductor_schedule": schedules.wake}
        listener = Listener(settings.database("coordinator")[0], hints)
        scope.at_stop(listener.stop)
        listener.start()


SERVICE = Service(name="coordinator", start=start)
