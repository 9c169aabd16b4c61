"""The birth of runs: one short transaction that looks up keys, resolves the version, and inserts start rows, labels and wake-ups together.

A key that was used before wins over everything that is known about the definition since (T1, D3): it is looked up first. Losing the race for a key is no error,
the loser is told the winner's run. The transaction may be repeated as a whole: run ids are made before it, so a commit whose outcome was unknown is found again
and nothing is born twice.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg
import msgspec

from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.model.enums import RunStatus
from ductord.model.errors import Refusal
from ductord.model.jsonvalue import dumps
from ductord.rpc.errors import refused
from ductord.starting.versions import Version, Versions
from ductord.trigger.asked import Asked
from ductord.trigger.resolving import Resolved, resolve

_q: Final = Queries("ductord.trigger")


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The run that an asking got. `duplicate`: it was there before, under the same key."""

    run_id: str
    status: RunStatus
    version_id: str
    duplicate: bool = False


Outcome: TypeAlias = Started | Refusal


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What the starts of one call have in common. `actor`: who calls. `environment`: whose overrides of VARS count (L8). `given_id`: the id as the caller gave
    it, canonical. `admit` may raise to keep new runs from a version."""

    tenant_id: str
    given_id: str
    traceparent: str
    actor: str = "anonymous"
    environment: str = ""
    admit: Callable[[Version], object] = lambda version: None


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """The run that holds a key."""

    run_id: str
    request_hash: str
    version_id: str
    status: RunStatus
    now: datetime


async def bear(
    pool: asyncpg.Pool, versions: Versions, birth: Birth, asked: Sequence[Asked], on_retry: OnRetry | None = None
) -> tuple[list[Outcome], datetime]:
    """One outcome per asking, in order, and the database's time. Raises DEFINITION_NOT_FOUND for all of them."""

    async def attempt() -> tuple[list[Outcome], datetime]:
        async with tenant_transaction(pool, birth.tenant_id) as db:
            outcomes, now = await _bear(db, versions, birth, asked)
            return outcomes, now or await db.fetchval(_q["now"])

    return await retrying(attempt, on_retry=on_retry)


async def _bear(
    db: asyncpg.Connection, versions: Versions, birth: Birth, asked: Sequence[Asked]
) -> tuple[list[Outcome], datetime | None]:
    known = await _find(db, birth, {ask.key for ask in asked if ask.key is not None})
    now = next((found.now for found in known.values()), None)
    outcomes: dict[str, Outcome] = {}  # by the run id that each asking would have
    remaining = []
    for ask in asked:
        if ask.key is not None and ask.key in known:
            outcomes[ask.run_id] = _settled(ask, known[ask.key])
        else:
            remaining.append(ask)
    if remaining:
        try:
            resolved = await resolve(versions, db, birth.tenant_id, birth.given_id)
            birth.admit(resolved.version)
        except Refusal as refusal:
            if refusal.code == "NOT_FOUND":
                raise
            outcomes |= {ask.run_id: refusal for ask in remaining}
        else:
            outcomes |= await _bear_new(db, birth, resolved, remaining)
            now = resolved.now
    return [outcomes[ask.run_id] for ask in asked], now


async def _bear_new(
    db: asyncpg.Connection, birth: Birth, resolved: Resolved, asked: Sequence[Asked]
) -> dict[str, Outcome]:
    """Outcomes, by run id, of askings whose keys nobody held when we looked. The first valid one with a key speaks for the others with it."""
    outcomes: dict[str, Outcome] = {}
    fresh: dict[str, Asked] = {}
    for ask in asked:
        if ask.key is not None and ask.key in fresh:
            continue
        fault = resolved.release_fault(ask.release) or resolved.version.input_fault(ask.input.value)
        if fault is not None:
            outcomes[ask.run_id] = fault
        else:
            fresh[ask.key or ask.run_id] = ask
    holders = await _insert(db, birth, resolved, fresh.values()) if fresh else {}
    for ask in asked:
        if ask.run_id not in outcomes:
            outcomes[ask.run_id] = _settled(ask, holders[ask.key or ask.run_id])
    return outcomes


def _settled(ask: Asked, found: _Found) -> Outcome:
    """What an asking gets whose key belongs to a run: its own, the same one again, or another request's (T1)."""
    if found.run_id == ask.run_id:
        return Started(run_id=found.run_id, status=found.status, version_id=found.version_id)
    if found.request_hash != ask.request_hash:
        message = "the idempotency key was used with another input, subject or label set"
        return refused("IDEMPOTENCY_MISMATCH", message, run_id=found.run_id)
    return Started(run_id=found.run_id, status=found.status, version_id=found.version_id, duplicate=True)


async def _find(db: asyncpg.Connection, birth: Birth, keys: Iterable[str]) -> dict[str, _Found]:
    wanted = list(keys)
    if not wanted:
        return {}
    rows = await db.fetch(_q["find_keys"], birth.tenant_id, birth.given_id, wanted)
    return {
        row["idempotency_key"]: _Found(
            run_id=row["run_id"],
            request_hash=row["request_hash"],
            version_id=row["version_id"],
            status=RunStatus(row["status"]),
            now=row["now"],
        )
        for row in rows
    }


async def _insert(
    db: asyncpg.Connection, birth: Birth, resolved: Resolved, fresh: Iterable[Asked]
) -> dict[str, _Found]:
    """Insert what is new; who holds each key (or run id, where there is no key) afterwards."""
    version = resolved.version
    rows = sorted(fresh, key=lambda ask: ask.key or "")
    answer = await db.fetchrow(
        _q["insert_starts"],
        birth.tenant_id,
        resolved.definition_id,
        version.version_id,
        resolved.number,
        version.family_slug,
        birth.given_id,
        birth.traceparent,
        [ask.run_id for ask in rows],
        [ask.key for ask in rows],
        [ask.request_hash for ask in rows],
        [ask.subject_type for ask in rows],
        [ask.subject_id for ask in rows],
        [dumps(ask.labels) for ask in rows],
        [ask.input.text for ask in rows],
        [ask.tier or version.tier.value for ask in rows],
        birth.actor,
        birth.environment,
    )
    born = frozenset(answer["born"] or ())
    lost = [ask.key for ask in rows if ask.key is not None and ask.run_id not in born]
    holders = await _find(db, birth, lost)
    if len(holders) < len(lost):
        raise refused(
            "TRANSACTION_CONFLICT",
            "the holder of an idempotency key vanished; the call may be repeated",
            retry_after_ms=100,
        )
    for ask in rows:
        # A row without a key can only be kept from being born by itself: an earlier try of this call, whose commit went unheard.
        holders.setdefault(
            ask.key or ask.run_id,
            _Found(
                run_id=ask.run_id,
                request_hash=ask.request_hash,
                version_id=version.version_id,
                status=RunStatus.PENDING,
                now=resolved.now,
            ),
        )
    return holders
