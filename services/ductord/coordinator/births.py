"""The commit's part about runs that are born of runs: successors, reset runs, and what a reset run takes over from its source (rulings C5, C6)."""

from datetime import datetime

import asyncpg
import msgspec
import orjson

from ductord.coordinator.children import SQL as CHILDREN
from ductord.coordinator.decided import Decided, Effects, ids
from ductord.coordinator.items import SQL as ITEMS
from ductord.coordinator.records import SQL
from ductord.engine.graph import graph_of
from ductord.model.effects import AdoptHistory, StartRun
from ductord.model.enums import CheckpointStatus

_encoder = msgspec.json.Encoder()


async def start_runs(connection: asyncpg.Connection, of: Effects, now: datetime) -> bool:
    """Give birth; whether there was anything to do."""
    births: list[tuple[Decided, StartRun]] = of.get(StartRun, [])
    if not births:
        return False
    await connection.execute(
        SQL["start_runs"],
        *ids(births),
        [e.run_id for _, e in births],
        [e.context_json for _, e in births],
        [_encoder.encode(e.inverses).decode() for _, e in births],
        [e.reset_from_seq for _, e in births],
        [e.overrides_of for _, e in births],
        [_encoder.encode(e.preserved).decode() for _, e in births],
        now,
    )
    resets = [(d, e) for d, e in births if e.reset_from_seq]
    if resets:
        await connection.execute(
            SQL["reapply_signals"],
            *ids(resets),
            [e.run_id for _, e in resets],
            [e.reset_from_seq for _, e in resets],
        )
    return True


async def adopt(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """Copy what reset runs begin with: transitions, reached checkpoints, and the attempts whose outputs they keep."""
    adoptions: list[tuple[Decided, AdoptHistory]] = of.get(AdoptHistory, [])
    if not adoptions:
        return
    await connection.execute(
        SQL["adopt_transitions"],
        *ids(adoptions),
        [e.source_run_id for _, e in adoptions],
        [e.seq for _, e in adoptions],
    )
    source = {d.key[1]: e.source_run_id for d, e in adoptions}
    kept = {(*d.key, ref, attempt) for d, e in adoptions for ref, attempt in e.outputs.items()}
    reached = [(d, e, name) for d, e in adoptions for name in _reached(d)]
    if reached:
        rows = await connection.fetch(
            SQL["adopt_checkpoints"],
            *ids((d, e) for d, e, _ in reached),
            [e.source_run_id for _, e, _ in reached],
            [name for _, _, name in reached],
        )
        for row in rows:
            refs = orjson.loads(row["refs"])
            kept |= {(row["tenant_id"], row["run_id"], ref, attempt) for ref, attempt in refs.items()}
    if kept:
        ordered = sorted(kept)
        await connection.execute(
            SQL["adopt_attempts"],
            [tenant for tenant, _, _, _ in ordered],
            [run for _, run, _, _ in ordered],
            [source[run] for _, run, _, _ in ordered],
            [ref for _, _, ref, _ in ordered],
            [attempt for _, _, _, attempt in ordered],
            now,
        )
    await _adopt_children(connection, adoptions, now)


async def _adopt_children(
    connection: asyncpg.Connection, adoptions: list[tuple[Decided, AdoptHistory]], now: datetime
) -> None:
    """What finished fan-outs leave behind, for a gather to come."""
    if items := [(d, e, ref, top) for d, e in adoptions for ref, top in e.items.items()]:
        await connection.execute(
            ITEMS["adopt_items"],
            *ids((d, None) for d, _, _, _ in items),
            [e.source_run_id for _, e, _, _ in items],
            [ref for _, _, ref, _ in items],
            [top for _, _, _, top in items],
            now,
        )
    if runs := [(d, e, ref) for d, e in adoptions for ref in e.children]:
        await connection.execute(
            CHILDREN["adopt_children"],
            *ids((d, None) for d, _, _ in runs),
            [e.source_run_id for _, e, _ in runs],
            [ref for _, _, ref in runs],
            [_attempt(d, ref) for d, _, ref in runs],
        )


def _attempt(d: Decided, ref: str) -> int:
    """The attempt of a source's node by the transition that it is cut at."""
    origin, compiled = d.loaded.inbox.origin, d.loaded.compiled
    assert origin is not None
    assert compiled is not None
    return origin.run.nodes[graph_of(compiled.manifest).index[ref]].attempt


def _reached(d: Decided) -> list[str]:
    """Checkpoints that the source had reached by the transition that it is cut at."""
    origin, compiled = d.loaded.inbox.origin, d.loaded.compiled
    if origin is None or compiled is None:
        return []
    pairs = zip(compiled.manifest.checkpoints, origin.run.checkpoints, strict=True)
    return [checkpoint.name for checkpoint, state in pairs if state.status is CheckpointStatus.REACHED]
