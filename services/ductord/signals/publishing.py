"""An external event becomes receipts of the waits that it matches, and runs of the triggers that it matches: one transaction that finds both, holds the waits
open until it ends, and wakes whom it concerns (E3, T3).

A tick that closes a wait looks for receipts under the same row's lock, so what is counted here is applied. A trigger is what its row says in this transaction's
look: a publish or an archiving is seen whole or not at all. What waits and triggers say is judged outside: a transaction that meets what has not been judged is
given up, and begun again with the verdict. So no lock is held while an expression is evaluated.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.runs import Row
from ductord.model.inbox import External
from ductord.model.starting import patterns_of
from ductord.rpc.errors import refused
from ductord.signals.asked import Event
from ductord.signals.filters import Verdicts
from ductord.signals.starting import Refused, Rules, Starting, Trigger, run_ids
from ductord.starting.versions import Versions

_ROUNDS: Final = 20
"""How often waits and triggers that nobody has met may turn up while an event is being published."""
_q: Final = Queries("ductord.signals")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What an event did. `started`: the runs that were born, in the order of their ids. `now` is the database's time of it."""

    matched: int
    duplicate: bool
    now: datetime
    started: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()


class _Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be judged first: filters of waits, and triggers."""

    filters: frozenset[str]
    triggers: tuple[Trigger, ...]


class Publication:
    """One call that publishes one event, however often its transaction is tried. Its time is that of the first try: a commit whose outcome was unknown is
    known again by it, and what it did is remembered."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        tenant_id: str,
        event: Event,
        on_retry: OnRetry | None = None,
        *,
        versions: Versions | None = None,
        rules: Rules | None = None,
        traceparent: str = "",
    ) -> None:
        rules = rules or Rules()
        self._pool = pool
        self._tenant_id = tenant_id
        self._event = event
        self._on_retry = on_retry
        self._traceparent = traceparent
        self._patterns = patterns_of(event.event_name, wildcards=rules.wildcards)
        self._environment = rules.environment
        self._verdicts = Verdicts()
        self._starting = Starting(pool, tenant_id, versions or Versions(), rules)
        self._time: datetime | None = None
        self._done: Published | None = None

    async def publish(self) -> Published:
        """Publish it. Raises TRANSACTION_CONFLICT when waits and triggers turn up faster than they are judged."""
        for _ in range(_ROUNDS):
            outcome = await retrying(self._attempt, on_retry=self._on_retry)
            if isinstance(outcome, Published):
                return outcome
            await self._verdicts.judge(outcome.filters, self._external())
            await self._starting.judge(outcome.triggers, self._external(), self._event.payload)
        raise refused("TRANSACTION_CONFLICT", "waits and triggers for the event turn up faster than they are judged")

    async def _attempt(self) -> Published | _Unjudged:
        event = self._event
        name = self._tenant_id, event.event_name, event.correlation_key
        async with tenant_transaction(self._pool, self._tenant_id) as db:
            await db.execute(_q["lock_event"], self._tenant_id, event.event_name, event.event_id)
            if event.keep:
                await db.execute(_q["lock_keys"], *name)
            rows = await db.fetch(_q["look_event"], *name, event.event_id, self._patterns, self._environment)
            now = rows[0]["now"]
            self._time = self._time or now
            if rows[0]["publish_time"] is not None:
                if self._done is not None and rows[0]["publish_time"] == self._time:
                    return replace(self._done, now=now)
                return Published(matched=0, duplicate=True, now=now)
            waits = [row for row in rows if row["run_id"] is not None]
            triggers = [Trigger.of(row) for row in rows if row["trigger_id"] is not None]
            filters = self._verdicts.unknown(row["filter"] for row in waits)
            if (strangers := self._starting.unknown(triggers)) or filters:
                return _Unjudged(filters=frozenset(filters), triggers=strangers)
            return await self._record(db, waits, triggers, now)

    async def _record(
        self, db: asyncpg.Connection, waits: Sequence[Row], triggers: Sequence[Trigger], now: datetime
    ) -> Published:
        """Write what the event does. All is judged."""
        event, external = self._event, self._external()
        own = run_ids(triggers, external) if waits else frozenset()
        passed = [row for row in waits if self._verdicts.of(row["filter"]) and row["run_id"] not in own]
        started = await self._starting.bear(db, triggers, external, event.payload, self._traceparent)
        matched = 0
        if passed or started or event.keep:
            matched = await db.fetchval(
                _q["insert_event"],
                self._tenant_id,
                event.event_name,
                event.correlation_key,
                event.event_id,
                event.payload.text,
                self._time,
                event.keep,
                *([row[column] for row in passed] for column in ("run_id", "step_ref", "attempt", "requirement")),
                bool(started),
            )
        refusals = self._starting.refused(triggers)
        # Known before the commit: whoever hears nothing of it finds the event, and knows again what it did.
        self._done = Published(matched=matched, duplicate=False, now=now, started=started, refused=refusals)
        return self._done

    def _external(self) -> External:
        assert self._time is not None
        event = self._event
        return External(
            event_name=event.event_name,
            correlation_key=event.correlation_key,
            event_id=event.event_id,
            payload=event.payload.value,
            time=self._time,
        )
