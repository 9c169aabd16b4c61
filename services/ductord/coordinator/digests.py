"""The commit's part about digests, and what ticks are told of them: who leads a window, who follows, who passes, who was merged (ruling E5).

The commit alone sees the runs of one key together. Whatever it does about a key it does under that key's lock, so a run is in one window, a window has one
leader, and an event leaves with one of them. What an arrival becomes is the engine's rule (`windows`); nothing is judged here.
"""

from collections.abc import Sequence
from datetime import datetime

import asyncpg
import msgspec

from ductord.coordinator.decided import Decided, Effects, ids
from ductord.coordinator.facts import Facts, Keys
from ductord.db.queries import Queries
from ductord.engine import windows
from ductord.model.effects import CloseDigest, FlushDigest, JoinDigest, LeaveDigest, TakeDigest
from ductord.model.enums import DigestPlace
from ductord.model.ids import derived
from ductord.model.inbox import Arrival, DigestFact

SQL = Queries("ductord.coordinator", "digests.sql")

_Key = tuple[str, str, str, str]
"""Tenant, family, step, key: what a window belongs to."""
_EFFECTS = (JoinDigest, TakeDigest, CloseDigest, FlushDigest, LeaveDigest)


class _Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A run that joins, and what becomes of it. `window_id` None: it passes."""

    of: Decided
    join: JoinDigest
    key: _Key
    window_id: str | None
    placed: windows.Placed


async def lock_keys(connection: asyncpg.Connection, of: Effects) -> None:
    """Keep all others from these keys until this commit ends."""
    pairs = [pair for effect in _EFFECTS for pair in of.get(effect, ())]
    if pairs:
        await connection.execute(
            SQL["lock_keys"],
            *ids(pairs),
            [e.step_ref for _, e in pairs],
            [e.attempt for _, e in pairs],
            [d.loaded.known.start.family_slug for d, _ in pairs],
            [e.key if isinstance(e, JoinDigest) else None for _, e in pairs],
        )


async def contested(connection: asyncpg.Connection, of: Effects, lost: set[str]) -> set[str]:
    """The runs, but for those that are `lost`, whose decision does not know what has become of a window: one that leaves and whose event has gone on with
    another run, one that goes on with an event that was taken back. The keys are locked."""
    void: set[str] = set()
    left: set[str] = set()
    if leaves := [(d, e) for d, e in of.get(LeaveDigest, ()) if d.key[1] not in lost]:
        rows = await connection.fetch(SQL["places_of"], *_waits(leaves))
        stands = {tuple(row)[:3]: row for row in rows}
        for d, e in leaves:
            row = stands.get((d.key[1], e.step_ref, e.attempt))
            shown = any(f.place is DigestPlace.MERGED for f in _facts(d, e))
            if row is not None and row["place"] == DigestPlace.MERGED and not shown:
                void.add(d.key[1])
            elif row is not None and row["window_id"] is not None:
                left.add(row["window_id"])
    if flushes := [(d, e) for d, e in of.get(FlushDigest, ()) if d.key[1] not in lost]:
        members: dict[str, set[str]] = {}
        for row in await connection.fetch(SQL["members_of"], ids(flushes)[0], [e.window_id for _, e in flushes]):
            members.setdefault(row["window_id"], set()).add(row["run_id"])
        for d, e in flushes:
            # What leaves in this very commit is no member either.
            known = {a.run_id for f in _facts(d, e) for a in f.arrivals}
            if e.window_id in left or known != members.get(e.window_id, set()):
                void.add(d.key[1])
    return void


async def write_digests(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """All effects about digests, in this order: places taken, arrivals taken back, windows closed, windows flushed, runs arrived."""
    if takes := of.get(TakeDigest):
        await connection.execute(SQL["take_places"], *_waits(takes), [e.place for _, e in takes], now)
    if leaves := of.get(LeaveDigest):
        rows = await connection.fetch(SQL["leave"], *_waits(leaves), now)
        if rows:
            columns = [row["tenant_id"] for row in rows], [row["window_id"] for row in rows]
            await connection.execute(SQL["promote"], *columns, now)
    if closes := of.get(CloseDigest):
        await connection.execute(SQL["close"], ids(closes)[0], [e.window_id for _, e in closes], now)
    if flushes := of.get(FlushDigest):
        await connection.execute(SQL["flush"], ids(flushes)[0], [e.window_id for _, e in flushes], now)
    if joins := of.get(JoinDigest):
        await _join(connection, joins, now)


async def _join(connection: asyncpg.Connection, joins: Sequence[tuple[Decided, JoinDigest]], now: datetime) -> None:
    arrived = await _arrivals(connection, joins, now)
    if opening := [a for a in arrived if a.placed.place is DigestPlace.LEADS]:
        await connection.execute(
            SQL["open"],
            [a.key[0] for a in opening],
            [a.window_id for a in opening],
            [a.key[1] for a in opening],
            [a.key[2] for a in opening],
            [a.key[3] for a in opening],
            [a.of.key[1] for a in opening],
            [a.join.mode for a in opening],
            [a.join.max_events for a in opening],
            [a.placed.due_time for a in opening],
            now,
        )
    await connection.execute(
        SQL["arrive"],
        *_waits([(a.of, a.join) for a in arrived]),
        [a.window_id for a in arrived],
        [a.join.dedupe for a in arrived],
        [a.placed.place for a in arrived],
        now,
    )
    if passing := [a.key for a in arrived if a.window_id is None]:
        await connection.execute(SQL["pass"], *map(list, zip(*passing, strict=True)), now)
    if full := [(a.key[0], a.window_id) for a in arrived if a.placed.closes]:
        await connection.execute(SQL["close"], [tenant for tenant, _ in full], [window for _, window in full], now)


async def _arrivals(
    connection: asyncpg.Connection, joins: Sequence[tuple[Decided, JoinDigest]], now: datetime
) -> list[_Arrived]:
    """One after the other, in the order of the runs' ids: all arrive at one moment."""
    keyed = [((d.key[0], d.loaded.known.start.family_slug, e.step_ref, e.key), d, e) for d, e in joins]
    keys = list({key: None for key, _, _ in keyed})
    dedupes = list({e.dedupe for _, e in joins if e.dedupe})
    opened: dict[_Key, tuple[str, windows.Window] | None] = {}
    last: dict[_Key, datetime | None] = {}
    for row in await connection.fetch(SQL["keys"], *map(list, zip(*keys, strict=True)), dedupes):
        key = keys[row["place"] - 1]
        last[key] = row["last_time"]
        known = windows.Window(max_events=row["max_events"] or 0, size=row["size"] or 0, known=set(row["known"] or ()))
        opened[key] = (row["window_id"], known) if row["window_id"] is not None else None
    arrived: list[_Arrived] = []
    for key, d, e in sorted(keyed, key=lambda one: one[1].key):
        there = opened[key]
        placed = windows.arrive(e, there[1] if there is not None else None, last[key], now)
        if placed.place is DigestPlace.PASSES:
            last[key] = now
            arrived.append(_Arrived(of=d, join=e, key=key, window_id=None, placed=placed))
            continue
        if placed.place is DigestPlace.LEADS:
            there = (derived("digest", d.key[1], e.step_ref, e.attempt), windows.opened(e))
        assert there is not None
        opened[key] = None if placed.closes else there
        arrived.append(_Arrived(of=d, join=e, key=key, window_id=there[0], placed=placed))
    return arrived


async def load_places(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add what runs have not taken yet of their places; to one whose window has closed, what that has collected. The time of the newest."""
    rows = await connection.fetch(SQL["load_places"], *keys)
    closed = [row for row in rows if row["place"] == DigestPlace.CLOSED]
    collected: dict[str, list[Arrival]] = {}
    if closed:
        columns = [row["tenant_id"] for row in closed], [row["window_id"] for row in closed]
        for row in await connection.fetch(SQL["load_arrivals"], *columns):
            arrival = Arrival(run_id=row["run_id"], time=row["arrive_time"], size=row["size"])
            collected.setdefault(row["window_id"], []).append(arrival)
    for row in rows:
        place = DigestPlace(row["place"])
        arrivals = collected.get(row["window_id"], []) if place is DigestPlace.CLOSED else []
        if place is DigestPlace.PASSES:
            arrivals = [Arrival(run_id=row["run_id"], time=row["arrive_time"], size=row["size"])]
        facts[row["run_id"]].digests.append(
            DigestFact(
                step_ref=row["step_ref"],
                attempt=row["attempt"],
                place=place,
                window_id=row["window_id"] or "",
                due_time=row["due_time"] if place is DigestPlace.LEADS else None,
                arrivals=tuple(arrivals),
                leader_run_id=row["leader_run_id"] or "",
            )
        )
    return [max(row["since"] for row in rows)] if rows else []


def _facts(d: Decided, effect: LeaveDigest | FlushDigest) -> list[DigestFact]:
    """What the tick was shown of this wait."""
    wait = (effect.step_ref, effect.attempt)
    return [fact for fact in d.loaded.inbox.digests if (fact.step_ref, fact.attempt) == wait]


def _waits(pairs: Sequence[tuple[Decided, JoinDigest | TakeDigest | LeaveDigest]]) -> tuple[list[str] | list[int], ...]:
    """(tenant, run, step_ref, attempt) columns."""
    return (*ids(pairs), [e.step_ref for _, e in pairs], [e.attempt for _, e in pairs])
