"""The commit's part about waits for external events: they open, they close, and what they received was applied (ruling E3).

A receipt that counted is always applied: a commit that closes a wait locks it first and looks once more, so that a decision which overlooked a receipt is
void (`contested`). A wait that opens gets what is kept for it.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import orjson

from ductord.coordinator.decided import Decided, Effects, ids
from ductord.db.queries import Queries
from ductord.engine.filters import among
from ductord.engine.graph import graph_of
from ductord.model.effects import CloseWait, OpenWait, Subscription, TakeReceipts
from ductord.model.inbox import External, Receipt

SQL = Queries("ductord.coordinator", "waits.sql")

_KEPT = 1_000
"""How many kept events one pattern is given when it opens, the oldest first."""


class _Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription of a wait that opens. `own_event_id`: of the event of that name that started the run."""

    tenant_id: str
    run_id: str
    step_ref: str
    attempt: int
    event_set: bool
    own_event_id: str | None
    wanted: Subscription


async def lock_keys(connection: asyncpg.Connection, of: Effects) -> None:
    """Keep events from being kept, until this commit ends, for what is about to listen. First of all locks: whoever waits here holds nobody up."""
    if patterns := list(_patterns(of)):
        await connection.execute(
            SQL["lock_keys"],
            [p.tenant_id for p in patterns],
            [p.wanted.event_name for p in patterns],
            [None if p.wanted.any_key else p.wanted.correlation_key for p in patterns],
        )


async def contested(connection: asyncpg.Connection, of: Effects, lost: set[str]) -> set[str]:
    """Lock the waits that are about to close, but those of the runs that are `lost`. Answers the runs whose decision does not know of an event that one of
    them has received."""
    closes: list[tuple[Decided, CloseWait]] = [(d, e) for d, e in of.get(CloseWait, ()) if d.key[1] not in lost]
    if not closes:
        return set()
    columns = (*ids(closes), [e.step_ref for _, e in closes], [e.attempt for _, e in closes])
    await connection.execute(SQL["lock_waits"], *columns)
    # A statement of its own: its snapshot is younger than the locks.
    rows = await connection.fetch(SQL["receipts_of"], *columns)
    if not rows:
        return set()
    # A run that has received more than a tick is shown closes over what is left.
    shown = {(d.key[1], *_place(receipt)) for d, _ in closes for receipt in d.loaded.inbox.receipts}
    crowded = {d.key[1] for d, _ in closes if d.loaded.crowded}
    return {row["run_id"] for row in rows if row["run_id"] not in crowded and tuple(row) not in shown}


async def write_waits(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """All effects about waits, in this order: receipts taken, waits closed, waits opened."""
    if taken := list(_taken(of.get(TakeReceipts, ()))):
        await connection.execute(
            SQL["take_receipts"],
            *ids(taken),
            [r.step_ref for _, r in taken],
            [r.attempt for _, r in taken],
            [r.event_name for _, r in taken],
            [r.event_id for _, r in taken],
            [r.requirement for _, r in taken],
            now,
        )
    if closes := of.get(CloseWait):
        await connection.execute(
            SQL["close_waits"], *ids(closes), [e.step_ref for _, e in closes], [e.attempt for _, e in closes], now
        )
    if patterns := list(_patterns(of)):
        await _open(connection, patterns, now)


async def _open(connection: asyncpg.Connection, patterns: list[_Pattern], now: datetime) -> None:
    await connection.execute(
        SQL["open_waits"],
        *_places(patterns),
        [p.wanted.requirement for p in patterns],
        [p.wanted.event_name for p in patterns],
        [p.wanted.correlation_key for p in patterns],
        [p.wanted.any_key for p in patterns],
        [p.wanted.filter for p in patterns],
        [p.event_set for p in patterns],
        now,
    )
    rows = await connection.fetch(
        SQL["kept_events"],
        [p.tenant_id for p in patterns],
        [p.wanted.event_name for p in patterns],
        [p.wanted.correlation_key for p in patterns],
        [p.wanted.any_key for p in patterns],
        [bool(p.wanted.filter) for p in patterns],
        now,
        _KEPT,
        [p.own_event_id for p in patterns],
    )
    fitting: dict[int, list[External]] = {}
    for row in rows:
        fitting.setdefault(row["place"] - 1, []).append(_event(row))
    received = [
        (patterns[place], event)
        for place, events in fitting.items()
        for event in among(patterns[place].wanted.filter, events)
    ]
    if received:
        await connection.execute(
            SQL["receive_kept"],
            *_places(p for p, _ in received),
            [event.event_name for _, event in received],
            [event.event_id for _, event in received],
            [p.wanted.requirement for p, _ in received],
            now,
        )


def _patterns(of: Effects) -> Iterable[_Pattern]:
    opens: list[tuple[Decided, OpenWait]] = of.get(OpenWait, [])
    for d, e in opens:
        tenant_id, run_id = d.key
        cause = d.loaded.known.start.origin.event
        for wanted in e.subscriptions:
            yield _Pattern(
                tenant_id=tenant_id,
                run_id=run_id,
                step_ref=e.step_ref,
                attempt=e.attempt,
                event_set=_is_set(d, e.step_ref),
                own_event_id=cause.id if cause is not None and cause.name == wanted.event_name else None,
                wanted=wanted,
            )


def _is_set(d: Decided, step_ref: str) -> bool:
    assert d.loaded.compiled is not None
    manifest = d.loaded.compiled.manifest
    return manifest.steps[graph_of(manifest).index[step_ref]].event_set is not None


def _places(patterns: Iterable[_Pattern]) -> tuple[list[Any], ...]:
    """(tenant, run, step_ref, attempt) columns."""
    known = list(patterns)
    return (
        [p.tenant_id for p in known],
        [p.run_id for p in known],
        [p.step_ref for p in known],
        [p.attempt for p in known],
    )


def _taken(pairs: Iterable[tuple[Decided, TakeReceipts]]) -> Iterable[tuple[Decided, Receipt]]:
    """The receipts that ticks were shown and applied."""
    for d, e in pairs:
        for receipt in d.loaded.inbox.receipts:
            if (receipt.step_ref, receipt.attempt) == (e.step_ref, e.attempt) and receipt.event_id in e.event_ids:
                yield d, receipt


def _place(of: Receipt) -> tuple[str, int, str, str, str]:
    return of.step_ref, of.attempt, of.event_name, of.event_id, of.requirement


def _event(row: asyncpg.Record) -> External:
    return External(
        event_name=row["event_name"],
        event_id=row["event_id"],
        correlation_key=row["correlation_key"],
        payload=orjson.loads(row["payload"]) if row["payload"] is not None else None,
        time=row["publish_time"],
    )
