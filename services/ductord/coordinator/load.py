"""Loading: from claimed wake-ups to the inbox of every run, in a fixed number of statements whatever the number of runs.

Reads only. A run whose version this build does not understand is left out and named in `Batch.foreign`. What is rare (controls, late successes, word from
outside, large payloads, a reset run's first tick) costs a statement only in the ticks that have it.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import orjson
from msgspec.structs import replace

from ductord.coordinator import digests, histories, outside, starts
from ductord.coordinator.cache import LARGE_BYTES, Cache, Compiled, Known, compile_manifest
from ductord.coordinator.facts import (
    SHOWN,
    Facts,
    Keys,
    keys_of,
    load_children,
    load_controls,
    load_lates,
    load_reports,
    load_started,
    load_timers,
)
from ductord.coordinator.loaded import Batch, Loaded
from ductord.coordinator.starts import SQL
from ductord.engine.graph import graph_of
from ductord.model import stored
from ductord.model.enums import TaskKind
from ductord.model.inbox import Inbox
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION

_NOTHING = Facts()
_RARE = {
    "controlled": load_controls,
    "late": load_lates,
    "signalled": outside.load_signals,
    "received": outside.load_receipts,
    "placed": digests.load_places,
    "childed": load_children,
}
"""What few runs have, by the column that says of a run whether it does. Each answers the time of the newest, if there is one."""
_REPORTS = 10_000
_REPORTS_LEAST = 100
"""How many reports the runs of one tick are shown together, about, and each of them at least."""


async def load(
    connection: asyncpg.Connection, cache: Cache, claimed: list[asyncpg.Record], *, whole: bool = False
) -> Batch:
    """The inboxes of the claimed runs (rows of tenant_id, run_id, now). `whole`: with all reports, however many."""
    keys: Keys = [row["tenant_id"] for row in claimed], [row["run_id"] for row in claimed]
    # Another tick may push a run out of the cache meanwhile: what the statement leaves out because it is known here is kept until the end.
    cached = {run_id: known for run_id in keys[1] if (known := cache.runs.get(run_id)) is not None}
    rows = await connection.fetch(
        SQL["load_runs"], *keys, [_seq(cached.get(run_id)) for run_id in keys[1]], LARGE_BYTES
    )
    most = None if whole else max(_REPORTS_LEAST, min(SHOWN, _REPORTS // len(claimed)))
    facts, now = await _facts(connection, rows, claimed[0]["now"], most)
    versions = [_version(row, cached.get(row["run_id"])) for row in rows]
    compiled, foreign_versions = await _compiled(connection, cache, rows, versions)
    batch = Batch(now=now, runs=[], foreign=[], left=[])
    for row, version_id in zip(rows, versions, strict=True):
        run_id = row["run_id"]
        if version_id in foreign_versions or _newer(row):
            batch.foreign.append((row["tenant_id"], run_id))
            continue
        known = cached.get(run_id) or starts.known_of(row, compiled[version_id])
        batch.runs.append(_loaded(known, row, compiled[version_id], facts.get(run_id, _NOTHING)))
    await _complete(connection, batch)
    return batch


async def _facts(
    connection: asyncpg.Connection, rows: Sequence[asyncpg.Record], now: datetime, most: int | None
) -> tuple[dict[str, Facts], datetime]:
    """The facts of all runs, by run id, and the time of the tick: `now`, or that of the newest fact, which may have come in since. `rows`: of the runs;
    `most`: how many reports of each are shown. A run that no tick has begun has no attempts and no timers."""
    facts: dict[str, Facts] = defaultdict(Facts)
    newest = [now]
    if begun := [row for row in rows if row["record_version"] is not None]:
        newest += await load_reports(connection, keys_of(begun), facts, most)
    for which, add in _RARE.items():
        if having := [row for row in rows if row[which]]:
            newest += await add(connection, keys_of(having), facts)
    # Timers last: a transition is decided from every timer that is due at its time, and from no fact that is younger. Only ticks of the run set and clear them.
    now = max(newest)
    if timed := [row for row in begun if row["timer_due"] is not None and row["timer_due"] <= now]:
        await load_timers(connection, keys_of(timed), facts, now)
    return facts, now


async def _complete(connection: asyncpg.Connection, batch: Batch) -> None:
    """Add what only few runs need; runs for which there is no room in this tick go to `left`."""
    whole = [loaded for loaded in batch.runs if loaded.error is None]
    left = await starts.fill(connection, ((x.known, _reads(x)) for x in whole if x.known.left))
    left |= await histories.fill(connection, (x for x in whole if x.known.start.run_id not in left))
    batch.left = [(x.known.start.tenant_id, x.known.start.run_id) for x in whole if x.known.start.run_id in left]
    batch.runs = [x for x in batch.runs if x.known.start.run_id not in left]
    for loaded in batch.runs:
        if loaded.inbox.start is not loaded.known.start:
            loaded.inbox = replace(loaded.inbox, start=loaded.known.start)
    await look(connection, [x for x in batch.runs if x.inbox.controls or x.inbox.timers])


async def look(connection: asyncpg.Connection, runs: Sequence[Loaded]) -> None:
    """Let these runs know which of their open attempts a worker has taken: what a tick ends without a report may have acted (C7)."""
    if not runs:
        return
    starts_of = [loaded.known.start for loaded in runs]
    started = await load_started(connection, ([s.tenant_id for s in starts_of], [s.run_id for s in starts_of]))
    for loaded in runs:
        taken = started.get(loaded.known.start.run_id, frozenset())
        loaded.inbox = replace(loaded.inbox, started=taken)
        loaded.looked = True


def _reads(loaded: Loaded) -> frozenset[str]:
    assert loaded.compiled is not None
    return starts.reads(loaded.known, loaded.compiled, controlled=bool(loaded.inbox.controls))


def _newer(row: asyncpg.Record) -> bool:
    """Whether the run's state was written by a newer build: decoding what we know of it, and writing that, would lose the rest."""
    written: int | None = row["format_version"]
    return written is not None and (written > FORMAT_VERSION or row["engine_level"] > ENGINE_LEVEL)


def _seq(known: Known | None) -> int | None:
    """What is known of a run: how many transitions, 0 where only its start is, None where nothing is."""
    if known is None:
        return None
    return known.run.seq if known.run is not None else 0


def _version(row: asyncpg.Record, known: Known | None) -> str:
    version_id: str = row["version_id"] if known is None else known.start.version_id
    return version_id


def _loaded(known: Known, row: asyncpg.Record, compiled: Compiled | Exception, facts: Facts) -> Loaded:
    quarantined = row["quarantine_ticks"] is not None
    error: Exception
    if isinstance(compiled, Exception):
        error = compiled
    else:
        try:
            _set_state(known, row, compiled)
        except msgspec.ValidationError as fault:
            error = fault
        else:
            inbox = Inbox(
                start=known.start,
                reports=tuple([report for report, _ in facts.reports]),
                timers=tuple(facts.timers),
                outputs=_outputs(known, compiled, facts),
                controls=tuple(facts.controls),
                lates=tuple(facts.lates),
                signals=tuple(facts.signals),
                receipts=tuple(facts.receipts),
                digests=tuple(facts.digests),
                children=tuple(facts.children),
            )
            return Loaded(
                known=known,
                compiled=compiled,
                inbox=inbox,
                quarantined=quarantined,
                more=facts.more,
                crowded=facts.crowded,
                beyond=facts.shown_until is not None,
            )
    return Loaded(known=known, inbox=Inbox(start=known.start), quarantined=quarantined, error=error)


def _set_state(known: Known, row: asyncpg.Record, compiled: Compiled) -> None:
    if row["record_version"] is None:
        known.run = None
    elif row["node_states"] is not None:
        known.run = stored.decode_run(
            compiled.manifest,
            **{
                name: row[name]
                for name in ("run_id", "status", "record_version", "node_states", "edge_states", "run_state")
            },
            has_errors=row["has_errors"],
            start_time=row["start_time"],
            end_time=row["end_time"],
        )
        known.forget_outputs()


def _outputs(known: Known, compiled: Compiled, facts: Facts) -> dict[str, Any]:
    """Outputs at hand, of those that something reads: remembered ones that are still their node's (a redriven node has another), and those of the reports of
    steps."""
    outputs: dict[str, Any] = {}
    run, graph = known.run, graph_of(compiled.manifest)
    if run is None or not graph.read:
        return outputs
    for ref, (attempt, value, _) in known.outputs.items():
        output = run.nodes[graph.index[ref]].output
        if output is not None and output.attempt == attempt:
            outputs[ref] = value
    for report, text in facts.reports:
        if report.step_ref not in graph.read or report.kind is not TaskKind.STEP:
            continue
        if report.output is None or text is msgspec.UNSET:
            continue
        node = run.nodes[graph.index[report.step_ref]]
        if node.output is None and node.attempt == report.attempt:
            value = outputs[report.step_ref] = None if text is None else orjson.loads(text)
            known.remember_output(report.step_ref, report.attempt, value, report.output.size)
    return outputs


async def _compiled(
    connection: asyncpg.Connection, cache: Cache, rows: list[asyncpg.Record], wanted: list[str]
) -> tuple[dict[str, Compiled | Exception], set[str]]:
    """Compiled manifests by version id (or why one cannot be read), and the versions that only a newer engine understands."""
    versions: dict[str, Compiled | Exception] = {}
    unknown = {}
    for row, version_id in zip(rows, wanted, strict=True):
        if version_id not in versions:
            entry = cache.compiled.get(version_id)
            if entry is not None:
                versions[version_id] = entry
            else:
                unknown[version_id] = row["tenant_id"]
    foreign: set[str] = set()
    if unknown:
        for row in await connection.fetch(SQL["load_manifests"], list(unknown.values()), list(unknown)):
            version_id = row["version_id"]
            if row["format_version"] > FORMAT_VERSION or row["engine_level"] > ENGINE_LEVEL:
                foreign.add(version_id)
                continue
            try:
                compiled = compile_manifest(row["manifest"])
            except Exception as error:  # whatever a stored manifest can do wrong concerns its own runs alone (C9)
                versions[version_id] = error
                continue
            cache.compiled[version_id] = compiled
            versions[version_id] = compiled
    return versions, foreign
