"""A run as it is stored, with the manifest of its version: what a control is judged by before it is accepted.

A manifest never changes, so each process decodes it once. What a newer release wrote is not read by halves: its own services read it.
"""

from contextlib import suppress
from datetime import datetime
from typing import Final

import asyncpg
import msgspec
from cachetools import LRUCache

from ductord.db.queries import Queries
from ductord.engine.graph import graph_of
from ductord.model import manifest as manifests
from ductord.model import stored
from ductord.model.errors import Refusal
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Manifest
from ductord.model.run import Run
from ductord.rpc.errors import refused
from ductord.rpc.runs import run_not_found

_CACHED_BYTES: Final = 16 << 20
"""How much manifest text the remembered manifests may have come from."""
_q: Final = Queries("ductord.run_control")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands. `run` None: no tick has taken it up, or what is stored of it is `unreadable`. `now` is the database's time of the look."""

    tenant_id: str
    run_id: str
    version_id: str
    manifest: Manifest
    run: Run | None
    quarantined: bool
    unreadable: bool = False
    now: datetime


class Versions:
    """The manifests that this process has met, by tenant and version id."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str], tuple[Manifest, int]] = LRUCache(
            _CACHED_BYTES, getsizeof=lambda entry: entry[1]
        )

    async def manifest(self, db: asyncpg.Connection, tenant_id: str, version_id: str) -> Manifest:
        """The manifest of a version that exists. Raises SERVICE_UNAVAILABLE for one of a newer release."""
        key = (tenant_id, version_id)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        row = await db.fetchrow(_q["load_manifest"], tenant_id, version_id)
        if _newer(row):
            raise _too_new()
        manifest = manifests.decode(row["manifest"])
        with suppress(ValueError):  # one that is too large to be remembered
            self._known[key] = manifest, len(row["manifest"])
        return manifest


async def find(db: asyncpg.Connection, versions: Versions, tenant_id: str, run_id: str) -> Found:
    """The run as it stands. Raises RUN_NOT_FOUND, SERVICE_UNAVAILABLE for one that cannot be read."""
    row = await db.fetchrow(_q["load_run"], tenant_id, run_id)
    if row is None:
        raise run_not_found()
    look = await found(db, versions, tenant_id, run_id, row)
    expect_readable(look)
    return look


def expect_readable(look: Found) -> None:
    """Raise SERVICE_UNAVAILABLE where nothing can be judged of the run, since what is stored of it cannot be read (C9)."""
    if look.unreadable:
        message = "what is stored of the run cannot be read, and it is set aside: GetRun shows the error, ResumeRun has the tick tried again"
        raise refused("SERVICE_UNAVAILABLE", message, retry_after_ms=1_000, service="run_control")


async def found(db: asyncpg.Connection, versions: Versions, tenant_id: str, run_id: str, row: asyncpg.Record) -> Found:
    """The run of a row that has the columns of `load_run`."""
    if row["record_version"] is not None and _newer(row):
        raise _too_new()
    manifest = await versions.manifest(db, tenant_id, row["version_id"])
    run, unreadable = None, False
    if row["record_version"] is not None:
        with suppress(msgspec.ValidationError):
            run = stored.decode_run(
                manifest,
                run_id=run_id,
                **{name: row[name] for name in ("status", "record_version", "node_states", "edge_states", "run_state")},
                has_errors=row["has_errors"],
                start_time=row["start_time"],
                end_time=row["end_time"],
            )
        unreadable = run is None
    return Found(
        tenant_id=tenant_id,
        run_id=run_id,
        version_id=row["version_id"],
        manifest=manifest,
        run=run,
        quarantined=row["quarantined"],
        unreadable=unreadable,
        now=row["now"],
    )


def known_step(manifest: Manifest, ref: str) -> int:
    """The index of a step. Raises STEP_NOT_FOUND."""
    index = graph_of(manifest).index.get(ref)
    if index is None:
        raise refused("STEP_NOT_FOUND", f"the run has no step {ref}")
    return index


def _newer(row: asyncpg.Record) -> bool:
    format_version: int = row["format_version"]
    return format_version > FORMAT_VERSION or row["engine_level"] > ENGINE_LEVEL


def _too_new() -> Refusal:
    message = "the run belongs to a newer release, whose services know what may be done to it; the call may be repeated"
    return refused("SERVICE_UNAVAILABLE", message, retry_after_ms=1_000, service="run_control")
