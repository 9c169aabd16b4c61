"""Continue-as-new, as far as its caller hears of it (C6): what the successor's context may grow to, and which run it is that goes on."""

from collections.abc import Mapping
from typing import Any, Final

import asyncpg
import orjson

from ductord.db.queries import Queries
from ductord.model.ids import derived
from ductord.model.jsonvalue import dumps, too_large
from ductord.run_control.asked import CONTEXT_MAX_BYTES, Ask
from ductord.run_control.intents import Accepted

_q: Final = Queries("ductord.run_control")


async def refuse_large_context(db: asyncpg.Connection, tenant_id: str, run_id: str, seed: Mapping[str, Any]) -> None:
    """Raise `PayloadInvalid` when the seed, laid over the context of the run, makes too large a context (L7). The context of a run never changes."""
    row = await db.fetchrow(_q["context_size"], tenant_id, run_id)
    if row is None or row["bytes"] + len(dumps(dict(seed)).encode()) <= CONTEXT_MAX_BYTES:
        return
    context = orjson.loads(await db.fetchval(_q["load_context"], tenant_id, run_id))
    size = len(dumps(context | dict(seed)).encode())
    if size > CONTEXT_MAX_BYTES:
        raise too_large(size, CONTEXT_MAX_BYTES, "seed_run_context")


def successor_of(ask: Ask, accepted: Accepted) -> str:
    """The id of the successor, as far as it is known before a tick has judged the control.

    An operation that was applied says it; else a run that goes on already has one successor for good; else the oldest continue-as-new that waits for a tick
    makes it, since controls are applied in order.
    """
    if accepted.known is not None and (told := accepted.known.result.get("new_run_id")):
        return told
    run = accepted.found.run
    if run is not None and run.continued_to_run_id:
        return run.continued_to_run_id
    if run is not None and run.stop is not None and run.stop.continuation is not None:
        return run.stop.continuation.new_run_id
    return derived("continue", ask.run_id, accepted.continuing or ask.request_id)
