"""What ExportRun gives of the runs of a story on Postgres."""

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.engine.limits import Limits
from ductord.model import recording
from ductord.model.recording import Recording
from ductord.reads.export import export_run
from ductord.rpc.config import Settings
from ductord.rpc.paging import Page


async def exported(db: asyncpg.Connection, tenant_id: str, limits: Limits) -> list[Recording]:
    """The recordings of all runs that have begun. `limits`: the story's, which no service knows."""
    rows = await db.fetch("select run_id::text from eec_workflow_run where tenant_id = $1 order by run_id", tenant_id)
    settings = Settings()
    return [await _exported(db, tenant_id, row["run_id"], settings, limits) for row in rows]


async def _exported(
    db: asyncpg.Connection, tenant_id: str, run_id: str, settings: Settings, limits: Limits
) -> Recording:
    text, token = await export_run(db, tenant_id, run_id, Page(size=0, after=None, binding=b""), settings)
    assert not token, "a story fits one page"
    told = recording.decode(text)
    return replace(told, run=replace(told.run, limits=msgspec.to_builtins(limits)))
