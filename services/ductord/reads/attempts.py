"""Attempts as the contract shows them: every row of a run for ListRunEvents, the latest of one step for GetRunStep."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import asyncpg

from ductor.workflow.v1 import common_pb2, run_pb2
from ductord.db.queries import Queries
from ductord.reads.room import fitting
from ductord.reads.words import ATTEMPT_STATUS, OUTCOME, TASK_KIND
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.paging import Key, Page
from ductord.rpc.payloads import fill_payload

_q: Final = Queries("ductord.reads")
_FIRST: Final = (None, "", -(1 << 31), "", 0)


async def list_attempts(
    db: asyncpg.Connection, tenant_id: str, run_id: str, ref: str, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.Attempt], str]:
    """One page of attempts, oldest first, of one step where `ref` is not empty; and the next page's token."""
    after = _FIRST if page.after is None else page.after
    rows = await db.fetch(_q["list_attempts"], tenant_id, run_id, ref, *after, page.fetch, max_bytes)

    def entries() -> Iterator[tuple[tuple[Key, ...], run_pb2.Attempt | None]]:
        for number, row in enumerate(rows):
            left_out = row["output"] is None and row["output_size"] is not None
            if left_out and number:
                yield _key(row), None
                return
            attempt = _attempt(row)
            attempt.output_truncated = left_out
            fill_payload(attempt, "output", row["output"], payload_format, max_bytes=max_bytes - attempt.ByteSize())
            yield _key(row), attempt

    shown, last = fitting(entries(), page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


async def latest(
    db: asyncpg.Connection, tenant_id: str, run_id: str, ref: str, limit: int
) -> Sequence[run_pb2.Attempt]:
    """The latest attempts of a step, newest first, without outputs."""
    return [_attempt(row) for row in await db.fetch(_q["latest_attempts"], tenant_id, run_id, ref, limit)]


def _key(row: asyncpg.Record) -> tuple[Key, ...]:
    created: datetime = row["create_time"]
    return created, row["step_ref"], row["item_index"], row["kind"], row["attempt"]


def _attempt(row: asyncpg.Record) -> run_pb2.Attempt:
    return run_pb2.Attempt(
        step_ref=row["step_ref"],
        kind=TASK_KIND[row["kind"]],
        item_index=None if row["item_index"] < 0 else row["item_index"],
        attempt=row["attempt"],
        status=ATTEMPT_STATUS[row["status"]],
        outcome=OUTCOME[row["outcome"]],
        queue_time=timestamp(row["create_time"]),
        start_time=timestamp_or_none(row["start_time"]),
        end_time=timestamp_or_none(row["report_time"]),
        worker_id=row["worker_id"] or "",
        error=_fault(row["error_code"], row["error_message"]),
        stale_report=_stale(row),
        queue=row["queue"],
        idempotency_key=row["idempotency_key"],
    )


def _stale(row: asyncpg.Record) -> run_pb2.StaleReport | None:
    if row["stale_time"] is None:
        return None
    return run_pb2.StaleReport(
        report_time=timestamp(row["stale_time"]),
        outcome=OUTCOME[row["stale_outcome"]],
        error=_fault(row["stale_error_code"], row["stale_error_message"]),
    )


def _fault(code: str | None, message: str | None) -> common_pb2.Fault | None:
    return None if code is None else common_pb2.Fault(code=code, message=message or "")
