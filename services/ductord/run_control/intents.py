"""A control becomes a durable intent: one short transaction that looks up its name, judges the run as it stands, and inserts intent and wake-up (C1).

A name that was used before wins over everything that has become of the run since. The tick judges again, since the run may move on before it comes: then the
operation says `rejected`. Nothing here waits for a coordinator. The transaction may be repeated as a whole: the name is made before it, so a commit whose
outcome was unknown is found again.
"""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.ids import new_id
from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.engine.controls import admission
from ductord.model import control as controls
from ductord.model.control import Control, Rejection
from ductord.model.enums import RunStatus, Verb
from ductord.model.errors import Refusal
from ductord.rpc.errors import refused
from ductord.rpc.reasons import CODES
from ductord.rpc.runs import run_not_found
from ductord.run_control.asked import Ask
from ductord.run_control.runs import Found, Versions, expect_readable, found, known_step

MAX_PENDING: Final = 100
"""Controls of one run that no tick has judged."""

_q: Final = Queries("ductord.run_control")
_result: Final = msgspec.json.Decoder(dict[str, str])


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, in which call (C8)."""

    tenant_id: str
    actor: str
    call_id: str


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The operation of that name that was there before, and the same."""

    status: str
    create_time: datetime
    result: dict[str, str]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A durable intent. `found`: the run as it stood. `continuing`: the request id of the oldest continue-as-new that no tick has judged, before this one."""

    found: Found
    known: Known | None
    continuing: str | None


async def accept(
    pool: asyncpg.Pool, versions: Versions, who: Who, ask: Ask, on_retry: OnRetry | None = None
) -> Accepted:
    """Record a control, or find it recorded.

    Raises RUN_NOT_FOUND, STEP_NOT_FOUND, REQUEST_MISMATCH, TOO_MANY_PENDING_CONTROLS, and what `admission` says of the run.
    """

    async def attempt() -> Accepted:
        async with tenant_transaction(pool, who.tenant_id) as db:
            await db.execute(_q["lock_intents"], ask.run_id)
            row = await db.fetchrow(_q["load_for_control"], who.tenant_id, ask.run_id, ask.request_id)
            if row is None:
                raise run_not_found()
            accepted = Accepted(
                found=await found(db, versions, who.tenant_id, ask.run_id, row),
                known=_known(row, ask),
                continuing=row["continuing"],
            )
            if accepted.known is None:
                await _insert(db, who, ask, accepted.found, row["pending"])
            return accepted

    return await retrying(attempt, on_retry=on_retry)


async def find_known(db: asyncpg.Connection, tenant_id: str, ask: Ask) -> Known | None:
    """The operation of that name, when it was there before. Raises REQUEST_MISMATCH."""
    row = await db.fetchrow(_q["load_intent"], tenant_id, ask.run_id, ask.request_id)
    return None if row is None else _known(row, ask)


def check(found: Found, ask: Ask) -> None:
    """Raise what keeps the control from a run as it stands (the table control × status is `admission`'s)."""
    for ref in {ask.step_ref, *ask.body.overrides, *ask.body.preserve} - {""}:
        known_step(found.manifest, ref)
    if wakes_only(found, ask):
        return
    expect_readable(found)
    rejection = admission.refusal(found.manifest, found.run, _control(ask, found.now))
    if rejection is not None:
        raise refusal_of(rejection)


def refusal_of(rejection: Rejection) -> Refusal:
    """The coded refusal that says why a control cannot be applied."""
    return Refusal(CODES[rejection.reason], rejection.reason, rejection.message, metadata=rejection.metadata)


def wakes_only(found: Found, ask: Ask) -> bool:
    """Whether the control has done all it does when the run is woken: a resume of a run that was set aside and is not paused (C9)."""
    paused = found.run is not None and found.run.status is RunStatus.PAUSED
    return ask.verb is Verb.RESUME and found.quarantined and not paused


async def _insert(db: asyncpg.Connection, who: Who, ask: Ask, found: Found, pending: int) -> None:
    check(found, ask)
    if pending >= MAX_PENDING:
        message = f"the run has {pending} controls that no tick has judged yet; try again when some are settled"
        raise refused("TOO_MANY_PENDING_CONTROLS", message, retry_after_ms=1_000, limit=MAX_PENDING)
    row = (
        who.tenant_id,
        ask.run_id,
        ask.request_id,
        ask.verb,
        ask.step_ref,
        controls.encode(ask.body),
        ask.body_hash,
        ask.reason,
        who.actor,
        who.call_id,
    )
    if wakes_only(found, ask):
        await db.execute(_q["insert_applied"], *row, "the run was set aside; its tick is tried again at once", new_id())
    else:
        await db.execute(_q["insert_intent"], *row)


def _control(ask: Ask, now: datetime) -> Control:
    return Control(
        request_id=ask.request_id,
        verb=ask.verb,
        create_time=now,
        reason=ask.reason,
        step_ref=ask.step_ref,
        body=ask.body,
    )


def _known(row: asyncpg.Record, ask: Ask) -> Known | None:
    if row["known_verb"] is None:
        return None
    if row["known_hash"] != ask.body_hash:
        message = "the request_id was used on this run for another control; give every control a request_id of its own"
        raise refused("REQUEST_MISMATCH", message, request_id=ask.request_id, verb=row["known_verb"])
    return Known(status=row["known_status"], create_time=row["known_time"], result=_result.decode(row["known_result"]))
