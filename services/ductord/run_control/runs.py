"""A run as it is stored, with the manifest of its version: what a control is judged by before it is accepted."""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db import runs as db_runs
from ductord.db.queries import Queries
from ductord.engine.graph import graph_of
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from ductord.rpc.errors import refused
from ductord.rpc.runs import run_not_found

_SERVICE: Final = "run_control"
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


class Versions(db_runs.Versions):
    """The manifests that this process has met."""

    def __init__(self) -> None:
        super().__init__(_q["load_manifest"], _SERVICE)


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
        raise db_runs.Unreadable(_SERVICE)


async def found(db: asyncpg.Connection, versions: Versions, tenant_id: str, run_id: str, row: asyncpg.Record) -> Found:
    """The run of a row that has the columns of `load_run`."""
    unreadable = False
    try:
        manifest, run = await versions.run(db, tenant_id, run_id, row)
    except db_runs.Unreadable:
        manifest, run, unreadable = await versions.manifest(db, tenant_id, row["version_id"]), None, True
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
