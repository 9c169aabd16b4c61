"""A `World` of rows: real Postgres, the real coordinator's ticks and sweeps, the real dispatch's leases and reports, the real signals' publishing, each
under its own login.

Only the clock is the story's: the database's one clock function reads a row that `advance` moves.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg
import orjson
from msgspec.structs import replace

from ductord.coordinator.cache import Cache
from ductord.coordinator.sweep import watch
from ductord.coordinator.tick import tick, tick_alone
from ductord.db.pool import open_pool
from ductord.engine.compile import compile_definition
from ductord.engine.limits import LIMITS
from ductord.model import control as controls
from ductord.model import events, jsonvalue
from ductord.model.control import Control
from ductord.model.enums import OperationStatus, SignalStatus
from ductord.model.inbox import Signal
from ductord.model.manifest import Manifest
from ductord.model.recording import Recording
from ductord.rpc.payloads import Payload
from ductord.signals.asked import Event
from ductord.signals.publishing import Publication
from tests.conftest import Database
from tests.support.books import TENANT, Books
from tests.support.emptying import EMPTY, SIZE
from tests.support.exported import exported
from tests.support.postgres_view import born_of, children_of, snapshot
from tests.support.postgres_workers import PostgresWorkers
from tests.support.world import (
    RUN_ID,
    START,
    Cascaded,
    Child,
    Settled,
    SettledSignal,
    Snapshot,
    Transition,
    run_id_of,
)

_CLOCK = """
create table story_clock (at timestamptz not null);
grant select on story_clock to public;
create or replace function eec_now() returns timestamptz language sql stable parallel safe as $$ select at from story_clock $$;
"""
_LARGE_BYTES = 8 << 20
"""From here on dead rows are worth a truncation, which takes fifty times as long as deleting what a story leaves."""


class Logins(NamedTuple):
    """Who a world goes to the database as: plans and catalogues that a connection has read serve one story after the other."""

    owner: asyncpg.Connection
    coordinator: asyncpg.Connection
    dispatch: asyncpg.Pool
    signals: asyncpg.Pool


class PostgresWorld(PostgresWorkers):
    """Definitions, their runs and those that they give birth to, in a database of its own (`opened`).

    Ticks are for the run that the story is about, when a wake-up is due for it; its children wait until the story turns to them.
    """

    def __init__(
        self,
        owner: asyncpg.Connection,
        coordinator: asyncpg.Connection,
        dispatch: asyncpg.Pool,
        signals: asyncpg.Pool,
    ) -> None:
        super().__init__(owner, dispatch)
        self._coordinator = coordinator
        self._signals = signals
        self._books = Books(owner)
        self._cache = Cache()
        self._limits = LIMITS
        self._newest: dict[str, str] = {}
        self._triggered = 0
        self._seen: dict[str, int] = {}
        self._controls = 0
        self._told: set[tuple[str, str]] = set()
        self._heard: set[tuple[str, str]] = set()

    @property
    def run_id(self) -> str:
        return self._run_id or RUN_ID

    async def limits(self, **changed: int) -> None:
        self._limits = replace(self._limits, **changed)

    async def recordings(self) -> list[Recording]:
        """All runs that have begun, as ExportRun gives them."""
        return await exported(self._owner, TENANT, self._limits)

    async def control(self, control: Control) -> None:
        # The story's clock stands still: microseconds keep the order of what is asked, and none of it is younger than the clock.
        self._controls += 1
        added = await self._owner.execute(
            "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, step_ref, body, body_hash, reason, actor, create_time)"
            " values ($1, $2, $3, $4, $5, $6, '', $7, $8, $9) on conflict do nothing",
            TENANT, self._run_id, control.request_id, control.verb, control.step_ref, controls.encode(control.body), control.reason, control.actor,
            control.create_time + timedelta(microseconds=self._controls, milliseconds=-1),
        )  # fmt: skip
        if added == "INSERT 0 1":
            await self._books.wake(self._run_id)

    async def settled(self) -> list[Settled]:
        rows = await self._owner.fetch(
            "select request_id, status, outcome_code, outcome_message, result::text from eec_workflow_intent"
            " where run_id = $1 and status <> 'pending' order by create_time, request_id",
            self._run_id,
        )
        new = [row for row in rows if (self._run_id, row["request_id"]) not in self._told]
        self._told.update((self._run_id, row["request_id"]) for row in new)
        return [
            Settled(
                request_id=row["request_id"],
                status=OperationStatus(row["status"]),
                code=row["outcome_code"],
                message=row["outcome_message"],
                result=orjson.loads(row["result"]),
            )
            for row in new
        ]

    async def signal(self, signal: Signal, payload: Any) -> str:
        known = "select exists (select from eec_workflow_signal where run_id = $1 and request_id = $2)"
        over = "select exists (select from eec_workflow_run where run_id = $1 and end_time is not null)"
        if not await self._owner.fetchval(known, self._run_id, signal.request_id) and await self._owner.fetchval(
            over, self._run_id
        ):
            return "RUN_TERMINAL"
        await self._books.signal(self._run_id, signal, payload)
        return "ok"

    async def settled_signals(self) -> list[SettledSignal]:
        rows = await self._owner.fetch(
            "select request_id, status, outcome_message from eec_workflow_signal where run_id = $1 and status <> 'kept' order by number",
            self._run_id,
        )
        new = [row for row in rows if (self._run_id, row["request_id"]) not in self._heard]
        self._heard.update((self._run_id, row["request_id"]) for row in new)
        return [
            SettledSignal(
                request_id=row["request_id"], status=SignalStatus(row["status"]), message=row["outcome_message"]
            )
            for row in new
        ]

    async def publish(self, name: str, key: str, event_id: str, payload: Any, ttl_ms: int) -> tuple[int, bool]:
        event = Event(
            event_name=name,
            correlation_key=key,
            event_id=event_id,
            payload=Payload(value=payload, text=jsonvalue.dumps(payload)),
            keep=timedelta(milliseconds=ttl_ms),
        )
        published = await Publication(self._signals, TENANT, event).publish()
        return published.matched, published.duplicate

    async def follow(self) -> None:
        self._run_id = (await born_of(self._owner, self._run_id))[-1].run_id

    async def open(self) -> None:
        """Empty the database of what a story before has left, and put the story's clock in place."""
        if await self._owner.fetchval("select to_regclass('story_clock')") is None:
            await self._owner.execute(_CLOCK)
        if await self._owner.fetchval(SIZE) > _LARGE_BYTES:
            tables = await self._owner.fetchval(
                "select string_agg(quote_ident(relname), ', ') from pg_class where relkind = 'r' and relname like 'eec\\_workflow\\_%'"
            )
            await self._owner.execute(f"truncate {tables}")
        await self._owner.execute(EMPTY)
        await self._owner.execute("insert into story_clock values ($1)", START)

    async def define(self, definition: dict[str, Any]) -> None:
        manifest = compile_definition(definition).manifest
        assert manifest is not None
        self._newest[manifest.family_slug] = await self._books.release(manifest)

    async def archive(self, family_slug: str, version: int) -> None:
        await self._books.archive(family_slug, version)

    async def trigger(
        self, payload: Any, subject_type: str, subject_id: str, actor: str, family_slug: str = ""
    ) -> None:
        self._triggered += 1
        self._run_id = await self._books.start(
            self._newest[family_slug or next(iter(self._newest))],
            run_id=run_id_of(self._triggered),
            input_="{}" if payload is None else jsonvalue.dumps(payload),
            subject=(subject_type, subject_id),
            actor=actor,
        )

    async def turn(self, run_id: str) -> None:
        self._run_id = run_id

    async def definition(self) -> Manifest:
        return await self._books.compiled(self._run_id)

    async def parent(self) -> str:
        parent = "select parent_run_id::text from eec_workflow_run_start where run_id = $1"
        return await self._owner.fetchval(parent, self._run_id) or ""

    async def children(self) -> list[Child]:
        return await children_of(self._owner, self._run_id)

    async def cascaded(self) -> list[Cascaded]:
        rows = await self._owner.fetch(
            "select request_id, verb, actor from eec_workflow_intent where run_id = $1 and actor like 'run:%' order by create_time, request_id",
            self._run_id,
        )
        return [
            Cascaded(request_id=r["request_id"], verb=r["verb"], parent_run_id=r["actor"].removeprefix("run:"))
            for r in rows
        ]

    async def tick(self) -> list[Transition]:
        while True:
            await watch(self._coordinator)
            due = "select exists (select from eec_workflow_wakeup where run_id = $1 and due_time <= eec_now())"
            if not await self._owner.fetchval(due, self._run_id):
                break
            ticked = await tick(self._coordinator, self._cache, self._limits, 1, [(TENANT, self._run_id)])
            assert (ticked.claimed, ticked.quarantined, ticked.conflicts) == (1, 0, 0)
            for run, way in ticked.alone:
                alone = await tick_alone(self._coordinator, self._cache, self._limits, run, way)
                assert (alone.claimed, alone.quarantined, alone.conflicts, alone.alone) == (1, 0, 0, [])
        if (seen := self._seen.get(self._run_id)) is None:
            # What a reset run begins with is its source's.
            adopted = "select reset_from_seq from eec_workflow_run_start where run_id = $1"
            seen = await self._owner.fetchval(adopted, self._run_id)
        rows = await self._owner.fetch(
            "select seq, at, events::text from eec_workflow_transition where run_id = $1 and seq > $2 order by seq",
            self._run_id,
            seen,
        )
        self._seen[self._run_id] = seen + len(rows)
        if rows:
            await self._books.settled(self._run_id)
        return [Transition(seq=row["seq"], at=row["at"], events=events.decode(row["events"])) for row in rows]

    async def show(self) -> Snapshot:
        has_row = await self._books.status(self._run_id) != "pending"
        run = await self._books.settled(self._run_id) if has_row else None
        return await snapshot(
            self._owner, self._run_id, run, tuple(step.ref for step in (await self.definition()).steps)
        )


@asynccontextmanager
async def logged_in(database: Database) -> AsyncIterator[Logins]:
    """Everybody's connections to a database of stories."""
    owner = await asyncpg.connect(database.owner)
    coordinator = await asyncpg.connect(database.dsn("coordinator"))
    dispatch = await open_pool(database.dsn("dispatch"), "dispatch", max_size=1)
    signals = await open_pool(database.dsn("signals"), "signals", max_size=1)
    yield Logins(owner, coordinator, dispatch, signals)
    await dispatch.close()
    await signals.close()
    await coordinator.close()
    await owner.close()


async def opened(logins: Logins) -> PostgresWorld:
    """An empty world in their database. What other stories left there is gone."""
    world = PostgresWorld(*logins)
    await world.open()
    return world
