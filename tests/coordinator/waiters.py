"""Runs that wait, for the coordinator's tests: definitions spelled as stories spell them, and what the outside world says to them."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg

from ductord.engine.compile import compile_definition
from ductord.model import jsonvalue
from ductord.model.enums import SignalVerb
from ductord.model.inbox import Signal
from ductord.model.manifest import Manifest
from ductord.rpc.payloads import Payload
from ductord.signals.asked import Event
from ductord.signals.publishing import Publication, Published
from tests.support.books import TENANT, Books
from tests.support.story import parse_definition


def waiting(*lines: str) -> Manifest:
    """The manifest of a definition that a story would spell so."""
    compiled = compile_definition(parse_definition(lines, "waiting"))
    assert compiled.manifest is not None, compiled.errors
    return compiled.manifest


async def say(
    books: Books,
    run_id: str,
    verb: SignalVerb,
    step_ref: str,
    payload: Any = None,
    *,
    request_id: str,
    wake: bool = True,
) -> None:
    """Somebody tells a step something, now."""
    signal = Signal(
        request_id=request_id,
        verb=verb,
        step_ref=step_ref,
        create_time=await books.owner.fetchval("select eec_now()"),
        approver_id="ann",
        comment="because",
        status="resolved" if verb is SignalVerb.RESOLVE_INTERACTION else "",
    )
    await books.signal(run_id, signal, payload, wake=wake)


class Publisher:
    """The real publishing, over the login of signals."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._events = 0

    async def publish(
        self, name: str, key: str = "", payload: Any = None, *, event_id: str = "", keep: timedelta = timedelta()
    ) -> Published:
        """An external event."""
        self._events += 1
        event = Event(
            event_name=name,
            correlation_key=key,
            event_id=event_id or f"e{self._events}",
            payload=Payload(value=payload, text=jsonvalue.dumps(payload)),
            keep=keep,
        )
        return await Publication(self._pool, TENANT, event).publish()


async def blocked(books: Books, pending: "asyncio.Task[Any]") -> None:
    """Until somebody waits for a lock in this database; the task must be at it still."""
    waits = (
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
    )
    async with asyncio.timeout(60):
        while not await books.owner.fetchval(waits):  # rows have no event
            assert not pending.done(), "it did not wait"
            await asyncio.sleep(0.005)
