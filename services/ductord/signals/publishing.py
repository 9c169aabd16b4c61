"""An external event becomes receipts of the waits that it matches: one transaction that finds them by its name and key, holds them open until it ends,
and wakes their runs (E3).

A tick that closes a wait looks for receipts under the same row's lock, so what is counted here is applied. The filters of the waits are judged outside: a
transaction that meets one that has not been judged is given up, and begun again with the verdict. So no lock is held while an expression is evaluated.
"""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.model.inbox import External
from ductord.rpc.errors import refused
from ductord.signals.asked import Event
from ductord.signals.filters import Verdicts

_ROUNDS: Final = 20
"""How often waits with filters that nobody has met may turn up while an event is being published."""
_q: Final = Queries("ductord.signals")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What an event did. `now` is the database's time of it."""

    matched: int
    duplicate: bool
    now: datetime


class _Unjudged(msgspec.Struct, frozen=True):
    """Filters that have to be judged first."""

    sources: frozenset[str]


class Publication:
    """One call that publishes one event, however often its transaction is tried. Its time is that of the first try: a commit whose outcome was unknown is
    known again by it."""

    def __init__(self, pool: asyncpg.Pool, tenant_id: str, event: Event, on_retry: OnRetry | None = None) -> None:
        self._pool = pool
        self._tenant_id = tenant_id
        self._event = event
        self._on_retry = on_retry
        self._verdicts = Verdicts()
        self._time: datetime | None = None

    async def publish(self) -> Published:
        """Publish it. Raises TRANSACTION_CONFLICT when waits with new filters open faster than they are judged."""
        for _ in range(_ROUNDS):
            outcome = await retrying(self._attempt, on_retry=self._on_retry)
            if isinstance(outcome, Published):
                return outcome
            await self._verdicts.judge(outcome.sources, self._external())
        raise refused("TRANSACTION_CONFLICT", "waits for the event open faster than their filters are judged")

    async def _attempt(self) -> Published | _Unjudged:
        event = self._event
        name = self._tenant_id, event.event_name, event.correlation_key
        async with tenant_transaction(self._pool, self._tenant_id) as db:
            await db.execute(_q["lock_event"], self._tenant_id, event.event_name, event.event_id)
            if event.keep:
                await db.execute(_q["lock_keys"], *name)
            rows = await db.fetch(_q["look_event"], *name, event.event_id)
            now = rows[0]["now"]
            mine, self._time = self._time, self._time or now
            if rows[0]["publish_time"] is not None:
                if rows[0]["publish_time"] == mine:
                    return Published(matched=rows[0]["matched"], duplicate=False, now=now)
                return Published(matched=0, duplicate=True, now=now)
            waits = [row for row in rows if row["run_id"] is not None]
            if unknown := self._verdicts.unknown(row["filter"] for row in waits):
                return _Unjudged(frozenset(unknown))
            passed = [row for row in waits if self._verdicts.of(row["filter"])]
            matched = 0
            if passed or event.keep:
                columns = (
                    [row[column] for row in passed] for column in ("run_id", "step_ref", "attempt", "requirement")
                )
                matched = await db.fetchval(
                    _q["insert_event"], *name, event.event_id, event.payload.text, self._time, event.keep, *columns
                )
            return Published(matched=matched, duplicate=False, now=now)

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
