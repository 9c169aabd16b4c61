"""Births as the engine sees them: the start of a run from its row, with as much of its payloads as a tick reads.

Small payloads come along with the row and stay with the run; large ones are fetched when something reads them, and are not kept. Reads only.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import msgspec
import orjson
from msgspec.structs import replace

from ductord.coordinator.cache import Compiled, Known
from ductord.db.queries import Queries
from ductord.model.fault import OutputRef
from ductord.model.run import Registered, RunStart
from ductord.model.starting import Origin

SQL = Queries("ductord.coordinator")

_LARGE_BYTES = 16 << 20  # of large payloads that one tick loads; what is more waits for the next
_PAYLOADS = ("input", "context", "overrides", "event", "variables")
_FIELDS = {"input": "payload", "context": "context", "overrides": "overrides", "variables": "variables"}  # of the start
_OF_TRIGGER = ("input", "event")  # what TRIGGER says
_COLUMNS = (
    "tenant_id", "run_id", "definition_id", "version_id", "version", "family_slug", "create_time", "subject_type", "subject_id", "tier", "traceparent",
    "root_run_id", "nesting_depth", "journey_id", "actor", "reset_from_seq", "environment",
)  # fmt: skip

_inverses = msgspec.json.Decoder(tuple[Registered, ...])
_preserved = msgspec.json.Decoder(dict[str, OutputRef])
_origins = msgspec.json.Decoder(Origin)
_NO_ORIGIN = Origin()

Wanted = tuple[Known, frozenset[str]]
"""A run, and the names of the payloads that a tick of it reads."""


def known_of(row: asyncpg.Record, compiled: Compiled | Exception) -> Known:
    """A run that nobody remembers, with the payloads that came along. Its state is still to be set. Raises for a row of a newer format."""
    payloads: dict[str, Any] = {}
    left: dict[str, int] = {}
    held = 0
    unread = _unread(compiled)
    for name in _PAYLOADS:
        size = row[f"{name}_bytes"]
        if size is None or name in unread:
            continue
        if row[name] is None:
            left[name] = size
        elif row[name] != "{}" or name in _OF_TRIGGER:
            payloads[name] = orjson.loads(row[name])
            held += size
    origin = _NO_ORIGIN if row["origin"] == "{}" else _origins.decode(row["origin"])
    if "event" in payloads:
        origin = _carrying(origin, payloads.pop("event"))
    start = RunStart(
        **{name: row[name] for name in _COLUMNS},
        **{_FIELDS[name]: value for name, value in payloads.items()},
        parent_run_id=row["parent_run_id"] or "",
        continued_from_run_id=row["continued_from_run_id"] or "",
        reset_from_run_id=row["reset_from_run_id"] or "",
        labels=orjson.loads(row["labels"]),
        origin=origin,
        inverses=_inverses.decode(row["inverses"]),
        preserved=_preserved.decode(row["preserved"]),
    )
    return Known(start=start, run=None, outputs={}, input_bytes=held, left=left)


def _unread(compiled: Compiled | Exception) -> tuple[str, ...]:
    """Payloads that no expression reads; the context of a run may be handed on, and its overrides are no expression's."""
    if not isinstance(compiled, Compiled):
        return (*_OF_TRIGGER, "variables")
    return (() if compiled.reads_trigger else _OF_TRIGGER) + (() if compiled.reads_variables else ("variables",))


def _carrying(origin: Origin, payload: Any) -> Origin:
    """With what the event carried, which has a column of its own."""
    assert origin.event is not None
    return replace(origin, event=replace(origin.event, payload=payload))


def reads(known: Known, compiled: Compiled, *, controlled: bool) -> frozenset[str]:
    """Which of the payloads that its start lacks a tick may read: input, event, context and variables where an expression does, the overrides of
    a reset run always, and the context also where the run may go on as a successor (C6)."""
    run = known.run
    hands_over = controlled or compiled.manifest.auto_continue or (run is not None and _continuing(run))
    wanted = {"input", "event", "overrides", "variables"} | (
        {"context"} if compiled.reads_context or hands_over else set()
    )
    return frozenset(wanted & known.left.keys())


def _continuing(run: Any) -> bool:
    return run.stop is not None and run.stop.continuation is not None


async def fill(connection: asyncpg.Connection, wanted: Iterable[Wanted]) -> set[str]:
    """Complete the starts with the large payloads that are read; the ids of the runs whose payloads are beyond what one tick carries."""
    fetched: list[tuple[Known, str]] = []
    beyond, room = set(), _LARGE_BYTES
    for known, names in wanted:
        if not names:
            continue
        room -= sum(known.left[name] for name in names)
        if room >= 0 or not fetched:
            fetched += [(known, name) for name in sorted(names)]
        else:
            beyond.add(known.start.run_id)
    if fetched:
        await _fetch(connection, fetched)
    return beyond


async def _fetch(connection: asyncpg.Connection, wanted: Sequence[tuple[Known, str]]) -> None:
    rows = await connection.fetch(
        SQL["load_large"],
        [known.start.tenant_id for known, _ in wanted],
        [known.start.run_id for known, _ in wanted],
        [name for _, name in wanted],
    )
    by_run = {known.start.run_id: known for known, _ in wanted}
    for row in rows:
        known, name = by_run[row["run_id"]], row["name"]
        value = orjson.loads(row["payload"])
        if name == "event":
            known.start = replace(known.start, origin=_carrying(known.start.origin, value))
        else:
            known.start = replace(known.start, **{_FIELDS[name]: value})
        known.input_bytes += known.left[name]
        known.left = {other: size for other, size in known.left.items() if other != name}
        known.passing = True
