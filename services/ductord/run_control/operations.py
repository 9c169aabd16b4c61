"""What became of a control: the operation of its name, and calls that wait until it is settled (C1)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.errors import field_invalid, field_required, refused
from ductord.rpc.runs import run_id_of, run_not_found
from ductord.rpc.words import OPERATION_STATUS, VERB

DEFAULT_WAIT_S: Final = 30
MAX_WAIT_S: Final = 300

_q: Final = Queries("ductord.run_control")
_result: Final = msgspec.json.Decoder(dict[str, str])

Key = tuple[str, str]
"""Run id, request id."""


def key_of(request: api.GetOperationRequest | api.WaitOperationRequest) -> Key:
    """Which operation a request names. Raises FIELD_REQUIRED, RUN_NOT_FOUND."""
    run_id = run_id_of(request.run_id)
    if not request.request_id:
        raise field_required("request_id")
    return run_id, request.request_id


def wait_of(request: api.WaitOperationRequest) -> int:
    """Seconds to wait. Raises FIELD_INVALID."""
    if not request.HasField("timeout_seconds"):
        return DEFAULT_WAIT_S
    if not 0 <= request.timeout_seconds <= MAX_WAIT_S:
        raise field_invalid("timeout_seconds", f"is between 0 and {MAX_WAIT_S}")
    return request.timeout_seconds


async def get_operation(db: asyncpg.Connection, tenant_id: str, key: Key) -> tuple[control_pb2.Operation, datetime]:
    """The operation, and the database's time. Raises RUN_NOT_FOUND, OPERATION_NOT_FOUND."""
    row = await db.fetchrow(_q["get_operation"], tenant_id, *key)
    if row is None:
        raise run_not_found()
    if row["request_id"] is None:
        raise refused("OPERATION_NOT_FOUND", "the run has no operation of that name")
    return operation(row), row["now"]


async def pending_operations(
    db: asyncpg.Connection, tenant_id: str, run_id: str, limit: int
) -> Sequence[control_pb2.Operation]:
    """The controls of a run that no tick has judged yet, oldest first."""
    return [operation(row) for row in await db.fetch(_q["pending_operations"], tenant_id, run_id, limit)]


def settled_operations(pool: asyncpg.Pool) -> Callable[[str, Sequence[Key]], Awaitable[Sequence[tuple[Key, bool]]]]:
    """The look of `db.waits.Waits`: those of a tenant's operations that are settled."""

    async def look(tenant_id: str, keys: Sequence[Key]) -> Sequence[tuple[Key, bool]]:
        async with tenant_transaction(pool, tenant_id) as db:
            rows = await db.fetch(
                _q["settled_operations"], tenant_id, [run_id for run_id, _ in keys], [name for _, name in keys]
            )
        return [((row["run_id"], row["request_id"]), True) for row in rows]

    return look


def operation(row: Mapping[str, Any]) -> control_pb2.Operation:
    """An intent row as the contract shows it."""
    return control_pb2.Operation(
        run_id=row["run_id"],
        request_id=row["request_id"],
        verb=VERB[row["verb"]],
        status=OPERATION_STATUS[row["status"]],
        step_ref=row["step_ref"],
        reason=row["reason"],
        actor=row["actor"],
        create_time=timestamp(row["create_time"]),
        settle_time=timestamp_or_none(row["settle_time"]),
        outcome_code=row["outcome_code"],
        outcome_message=row["outcome_message"],
        result=_result.decode(row["result"]),
    )
