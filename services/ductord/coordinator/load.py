"""Loading: from claimed wake-ups to the inbox of every run, in a fixed number of statements whatever the number of runs.

Reads only. A run whose version this build does not understand is left out and named in `Batch.foreign`.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import orjson

from ductord.coordinator.cache import LARGE_BYTES, Cache, Compiled, Known, compile_manifest
from ductord.db.queries import Queries
from ductord.engine.graph import graph_of
from ductord.model import stored
from ductord.model.enums import Outcome, TaskKind, TimerKind
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION
from ductord.model.run import Fault, Node, OutputRef, RunStart

SQL = Queries("ductord.coordinator")

_INPUTS_BYTES = 16 << 20  # of large inputs that one tick loads; what is more waits for the next


class Loaded(msgspec.Struct, kw_only=True):
    """One claimed run: everything that `decide` takes. `error` is set instead where the stored state cannot be read."""

    known: Known
    compiled: Compiled | None = None
    inbox: Inbox
    input_size: int = 0
    quarantined: bool = False
    error: Exception | None = None


class Batch(msgspec.Struct, kw_only=True):
    """The claimed runs of one tick. `now`: the one clock reading, by the database. `left`: for the next tick, this one has enough to carry."""

    now: datetime
    runs: list[Loaded]
    foreign: list[tuple[str, str]]
    left: list[tuple[str, str]]


async def load(connection: asyncpg.Connection, cache: Cache, claimed: list[asyncpg.Record]) -> Batch:
    """The inboxes of the claimed runs (rows of tenant_id, run_id, now)."""
    now: datetime = claimed[0]["now"]
    tenants = [row["tenant_id"] for row in claimed]
    runs = [row["run_id"] for row in claimed]
    cached = [cache.runs.get(run_id) for run_id in runs]
    rows = await connection.fetch(
        SQL["load_runs"],
        tenants,
        runs,
        [known.run.seq if known and known.run else -1 for known in cached],
        [known is not None for known in cached],
        LARGE_BYTES,
    )
    reports = await _reports(connection, tenants, runs)
    timers = await _timers(connection, tenants, runs, now)
    versions, foreign_versions = await _compiled(connection, cache, rows)
    inputs, left = await _large_inputs(connection, rows, versions)
    batch = Batch(now=now, runs=[], foreign=[], left=[])
    for row in rows:
        if row["version_id"] in foreign_versions or _newer(row):
            batch.foreign.append((row["tenant_id"], row["run_id"]))
            continue
        if row["run_id"] in left:
            batch.left.append((row["tenant_id"], row["run_id"]))
            continue
        given = inputs.get(row["run_id"], row["input"])
        compiled = versions[row["version_id"]]
        batch.runs.append(_loaded(cache, row, given, compiled, reports[row["run_id"]], timers[row["run_id"]]))
    return batch


async def _large_inputs(
    connection: asyncpg.Connection, rows: list[asyncpg.Record], versions: dict[str, Compiled | Exception]
) -> tuple[dict[str, str], set[str]]:
    """Inputs, by run id, that were too large to be sent along and that some expression reads; and the runs whose input is beyond what a tick carries."""
    wanted: list[asyncpg.Record] = []
    left, room = set(), _INPUTS_BYTES
    for row in rows:
        if row["input_bytes"] > LARGE_BYTES and _reads_trigger(versions.get(row["version_id"])):
            room -= row["input_bytes"]
            if room >= 0 or not wanted:
                wanted.append(row)
            else:
                left.add(row["run_id"])
    tenants, runs = [row["tenant_id"] for row in wanted], [row["run_id"] for row in wanted]
    found = await connection.fetch(SQL["load_inputs"], tenants, runs) if wanted else []
    return {row["run_id"]: row["input"] for row in found}, left


def _reads_trigger(compiled: Compiled | Exception | None) -> bool:
    return isinstance(compiled, Compiled) and compiled.reads_trigger


async def load_outputs(
    connection: asyncpg.Connection, wanted: Iterable[tuple[Loaded, str]]
) -> dict[tuple[str, str], Any]:
    """Output values by (run id, step ref) of steps that have one, or that are about to by a report; remembered with their run."""
    pairs = [(loaded, ref, attempt) for loaded, ref in wanted if (attempt := _output_attempt(loaded, ref)) is not None]
    rows = await connection.fetch(
        SQL["load_outputs"],
        [loaded.known.start.tenant_id for loaded, _, _ in pairs],
        [loaded.known.start.run_id for loaded, _, _ in pairs],
        [ref for _, ref, _ in pairs],
        [attempt for _, _, attempt in pairs],
    )
    by_run = {loaded.known.start.run_id: loaded.known for loaded, _, _ in pairs}
    values = {}
    for row in rows:
        text = row["output"]
        value = orjson.loads(text) if text is not None else None
        values[row["run_id"], row["step_ref"]] = value
        by_run[row["run_id"]].remember_output(row["step_ref"], row["attempt"], value, len(text or ""))
    return values


def _output_attempt(loaded: Loaded, ref: str) -> int | None:
    """The attempt whose row holds the output of a step."""
    node = _node(loaded, ref)
    if node is None:
        return None
    if node.output is not None:
        return node.output.attempt
    reports = loaded.inbox.reports
    return next((r.attempt for r in reports if r.step_ref == ref and r.output and r.attempt == node.attempt), None)


def _node(loaded: Loaded, ref: str) -> Node | None:
    run, compiled = loaded.known.run, loaded.compiled
    index = graph_of(compiled.manifest).index.get(ref) if compiled is not None else None
    return None if run is None or index is None else run.nodes[index]


def _newer(row: asyncpg.Record) -> bool:
    """Whether the run's state was written by a newer build: decoding what we know of it, and writing that, would lose the rest."""
    written: int | None = row["format_version"]
    return written is not None and (written > FORMAT_VERSION or row["engine_level"] > ENGINE_LEVEL)


def _loaded(
    cache: Cache,
    row: asyncpg.Record,
    given: str | None,
    compiled: Compiled | Exception,
    reports: list[tuple[AttemptReport, Any]],
    timers: list[TimerDue],
) -> Loaded:
    known = cache.runs.get(row["run_id"])
    input_size = 0
    if known is None:
        input_size = row["input_bytes"] if _reads_trigger(compiled) else 0
        known = Known(start=_start(row, given, compiled), run=None, outputs={}, input_bytes=input_size)
    loaded = Loaded(
        known=known,
        inbox=Inbox(start=known.start),
        input_size=input_size,
        quarantined=row["quarantine_ticks"] is not None,
    )
    if isinstance(compiled, Exception):
        loaded.error = compiled
        return loaded
    loaded.compiled = compiled
    try:
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
            known.outputs.clear()
    except msgspec.ValidationError as error:
        loaded.error = error
        return loaded
    outputs = _current_outputs(known, compiled)
    for report, value in reports:
        node = _node(loaded, report.step_ref)
        if report.output is not None and value is not msgspec.UNSET and node is not None and node.output is None:
            outputs[report.step_ref] = value
            known.remember_output(report.step_ref, report.attempt, value, report.output.size)
    loaded.inbox = Inbox(start=known.start, reports=tuple(r for r, _ in reports), timers=tuple(timers), outputs=outputs)
    return loaded


def _current_outputs(known: Known, compiled: Compiled) -> dict[str, Any]:
    """Remembered outputs that are still their node's (a redriven node has another)."""
    if known.run is None or not known.outputs:
        return {}
    outputs = {}
    for step, node in zip(compiled.manifest.steps, known.run.nodes, strict=True):
        entry = known.outputs.get(step.ref)
        if entry is not None and node.output is not None and node.output.attempt == entry[0]:
            outputs[step.ref] = entry[1]
    return outputs


def _start(row: asyncpg.Record, given: str | None, compiled: Compiled | Exception) -> RunStart:
    return RunStart(
        **{
            name: row[name]
            for name in (
                "tenant_id", "run_id", "definition_id", "version_id", "version", "family_slug", "create_time", "subject_type", "subject_id",
                "tier", "traceparent", "root_run_id", "nesting_depth",
            )
        },
        parent_run_id=row["parent_run_id"] or "",
        labels=orjson.loads(row["labels"]),
        payload=orjson.loads(given) if given is not None and _reads_trigger(compiled) else None,
        variables={} if isinstance(compiled, Exception) else compiled.manifest.variables,
    )  # fmt: skip


async def _compiled(
    connection: asyncpg.Connection, cache: Cache, rows: list[asyncpg.Record]
) -> tuple[dict[str, Compiled | Exception], set[str]]:
    """Compiled manifests by version id (or why one cannot be read), and the versions that only a newer engine understands."""
    versions: dict[str, Compiled | Exception] = {}
    unknown = {}
    for row in rows:
        version_id = row["version_id"]
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


async def _reports(
    connection: asyncpg.Connection, tenants: list[str], runs: list[str]
) -> dict[str, list[tuple[AttemptReport, Any]]]:
    """Reports with the values of their outputs; UNSET where it is large: `decide` names it if an expression reads it."""
    reports: dict[str, list[tuple[AttemptReport, Any]]] = defaultdict(list)
    for row in await connection.fetch(SQL["load_reports"], tenants, runs, LARGE_BYTES):
        succeeded = row["outcome"] == Outcome.SUCCEEDED
        report = AttemptReport(
            step_ref=row["step_ref"],
            attempt=row["attempt"],
            outcome=Outcome(row["outcome"]),
            report_time=row["report_time"],
            kind=TaskKind(row["kind"]),
            item_index=row["item_index"],
            start_time=row["start_time"],
            output=OutputRef(attempt=row["attempt"], size=row["output_size"] or 0, hash=row["output_hash"] or "")
            if succeeded
            else None,
            fault=Fault(code=row["error_code"], message=row["error_message"] or "") if row["error_code"] else None,
            non_retryable=row["non_retryable"],
            retry_after_ms=row["retry_after_ms"],
        )
        value: Any = orjson.loads(row["output"]) if succeeded and row["output"] is not None else None
        if row["output_left"]:
            value = msgspec.UNSET
        reports[row["run_id"]].append((report, value))
    return reports


async def _timers(
    connection: asyncpg.Connection, tenants: list[str], runs: list[str], now: datetime
) -> dict[str, list[TimerDue]]:
    timers: dict[str, list[TimerDue]] = defaultdict(list)
    for row in await connection.fetch(SQL["load_timers"], tenants, runs, now):
        timers[row["run_id"]].append(
            TimerDue(
                kind=TimerKind(row["kind"]),
                due_time=row["due_time"],
                step_ref=row["step_ref"],
                item_index=row["item_index"],
            )
        )
    return timers
