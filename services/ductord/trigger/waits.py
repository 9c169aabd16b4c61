"""What calls that wait for a checkpoint of a run wait for (G9): the row of its end, or the end of the run without one. How they wait is `db.waits`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import asyncpg
import msgspec

from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.model.enums import CheckpointStatus, RunStatus

_q: Final = Queries("ductord.trigger")
_refs: Final = msgspec.json.Decoder(dict[str, int])


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a wait ended. `refs`: step ref → attempt whose row holds the output; empty unless the checkpoint was reached."""

    status: CheckpointStatus
    run_status: RunStatus
    refs: dict[str, int] = {}


Key = tuple[str, str]
"""Run id, checkpoint."""


def ended_checkpoints(pool: asyncpg.Pool) -> Callable[[str, Sequence[Key]], Awaitable[Sequence[tuple[Key, Ended]]]]:
    """The look of `db.waits.Waits`: those of a tenant's checkpoints that have ended."""

    async def look(tenant_id: str, keys: Sequence[Key]) -> Sequence[tuple[Key, Ended]]:
        async with tenant_transaction(pool, tenant_id) as db:
            rows = await db.fetch(
                _q["ended_checkpoints"], tenant_id, [run_id for run_id, _ in keys], [name for _, name in keys]
            )
        return [((row["run_id"], row["name"]), _ended(row)) for row in rows]

    return look


def _ended(row: asyncpg.Record) -> Ended:
    """A checkpoint that ended, or that no tick can reach any more because its run ended without it."""
    return Ended(
        status=CheckpointStatus(row["status"] or CheckpointStatus.UNREACHABLE),
        run_status=RunStatus(row["run_status"]),
        refs=_refs.decode(row["refs"]) if row["status"] == CheckpointStatus.REACHED else {},
    )
