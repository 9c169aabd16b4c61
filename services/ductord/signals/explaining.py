"""What an event would do to the event sets that are open: counts and codes, no payload and no key (spec: Dry-run a match). Nothing is locked and nothing is
written, so a moment later it may be otherwise."""

from typing import Final

import asyncpg

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.db.runs import Row
from ductord.model.inbox import External
from ductord.rpc.answers import response_metadata
from ductord.rpc.runs import run_not_found
from ductord.signals.asked import Event
from ductord.signals.filters import Verdicts

_q: Final = Queries("ductord.signals")

_MATCHES, _RECEIVED, _ERROR, _FALSE = "", "already_received", "filter_error", "filter_false"
_BEST: Final = (_RECEIVED, _MATCHES, _ERROR, _FALSE)
"""What counts for a set with several patterns of one name: the first of these that one of them comes to. An id that came before comes to nothing."""


async def explain(
    pool: asyncpg.Pool, tenant_id: str, event: Event, run_id: str | None
) -> api.ExplainWorkflowEventSetMatchResponse:
    """The answer for a sample; `run_id`: of this run's sets alone. Raises RUN_NOT_FOUND."""
    async with tenant_transaction(pool, tenant_id) as db:
        if run_id is not None and await db.fetchrow(_q["load_run"], tenant_id, run_id) is None:
            raise run_not_found()
        where = tenant_id, event.event_name, event.correlation_key, run_id
        now = await db.fetchval(_q["now"])
        counts = await db.fetchrow(_q["count_sets"], *where)
        patterns = await db.fetch(_q["matching_sets"], *where, event.event_id)
    verdicts = Verdicts()
    sample = External(
        event_name=event.event_name,
        correlation_key=event.correlation_key,
        event_id=event.event_id,
        payload=event.payload.value,
        time=now,
    )
    await verdicts.judge(verdicts.unknown(row["filter"] for row in patterns), sample)
    codes = _codes(patterns, verdicts)
    reasons = {
        "correlation_key_differs": counts["elsewhere"],
        **{code: codes.count(code) for code in (_FALSE, _ERROR, _RECEIVED)},
        "wait_closed": counts["closed"] if run_id is not None else 0,
    }
    return api.ExplainWorkflowEventSetMatchResponse(
        candidate_waits=counts["candidates"],
        matched=codes.count(_MATCHES),
        reasons=[api.EventSetMatchReason(code=code, count=count) for code, count in reasons.items() if count],
        metadata=response_metadata(now),
    )


def _codes(patterns: list[Row], verdicts: Verdicts) -> list[str]:
    """One code per set; empty for one that matches."""
    of: dict[tuple[str, str, int], set[str]] = {}
    for row in patterns:
        of.setdefault((row["run_id"], row["step_ref"], row["attempt"]), set()).add(_code(row, verdicts))
    return [next(code for code in _BEST if code in codes) for codes in of.values()]


def _code(row: Row, verdicts: Verdicts) -> str:
    if row["received"]:
        return _RECEIVED
    passes = verdicts.of(row["filter"])
    if passes is None:
        return _ERROR
    return _MATCHES if passes else _FALSE
