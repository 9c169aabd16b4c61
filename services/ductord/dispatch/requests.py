"""Requests of `TaskService` as values, bounded and checked (contract, «Worker protocol»). Raises `Refusal`; reads no row."""

from typing import Final

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.db.ids import new_id
from ductord.dispatch import reports, token
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import Poll
from ductord.dispatch.outcomes import Beat
from ductord.dispatch.reports import KeyedReport
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_invalid, field_required, refused

MAX_BATCH: Final = 1_000
"""Reports or heartbeats in one call."""
MAX_PAIRS: Final = 1_024
"""Combinations of queue and action in one poll: each costs an index probe."""


def poll(request: api.PollTasksRequest, tenant_id: str | None, settings: Settings) -> Poll:
    """What a worker asks for. An empty poll id gets one of our own: then a lost reply is not redelivered."""
    queues = _names("queues", request.queues, settings.key_max_bytes)
    actions = _names("actions", request.actions, settings.key_max_bytes)
    if len(queues) * len(actions) > MAX_PAIRS:
        raise field_invalid("actions", f"makes more than {MAX_PAIRS:,} pairs with queues; poll in parts")
    if request.max_tasks < 0:
        raise field_invalid("max_tasks", "must not be negative")
    if request.wait_ms < 0:
        raise field_invalid("wait_ms", "must not be negative")
    for field, text in (("worker_id", request.worker_id), ("poll_id", request.poll_id)):
        _bounded(field, text, settings.key_max_bytes)
    return Poll(
        wanted=Filter(tenant_id=tenant_id, queues=queues, actions=actions),
        worker_id=request.worker_id,
        poll_id=request.poll_id or new_id(),
        limit=min(request.max_tasks or 1, settings.dispatch_batch_size),
    )


def completions(request: api.CompleteTasksRequest, tenant_id: str | None, settings: Settings) -> list[KeyedReport]:
    """The reports that name a lease of the caller's, each with its place in the request."""
    _batch("completions", len(request.completions))
    found = []
    for number, completion in enumerate(request.completions):
        report = reports.of_completion(completion, number, settings.payload_max_bytes)
        key = token.read(completion.task_token, tenant_id)
        if key is not None:
            found.append(KeyedReport(number=number, key=key, report=report))
    return found


def beats(
    request: api.HeartbeatTasksRequest, tenant_id: str | None, settings: Settings
) -> tuple[list[Beat], list[str]]:
    """(the heartbeats that name a lease of the caller's, what was wrong with details).

    Details that cannot be carried are no progress: such a heartbeat only renews the lease, so that it costs neither this task nor the others of the
    batch their leases.
    """
    _batch("heartbeats", len(request.heartbeats))
    found, faults = [], []
    for number, beat in enumerate(request.heartbeats):
        key = token.read(beat.task_token, tenant_id)
        if key is None:
            continue
        details = beat.details_json if beat.HasField("details_json") else None
        if details is not None:
            try:
                jsonvalue.parse(
                    details, root=f"heartbeats[{number}].details_json", max_bytes=settings.payload_max_bytes
                )
            except PayloadInvalid as error:
                faults.append(error.message)
                details = None
        found.append(Beat(number=number, key=key, details=details))
    return found, faults


def queue_names(request: api.DescribeQueuesRequest, settings: Settings) -> tuple[str, ...]:
    """The queues to describe, none for all."""
    return _names("queues", request.queues, settings.key_max_bytes) if request.queues else ()


def _names(field: str, texts: object, max_bytes: int) -> tuple[str, ...]:
    names = tuple(sorted(set(texts)))  # type: ignore[call-overload]  # a repeated field of strings
    if not names:
        raise field_required(field)
    if len(names) > MAX_PAIRS:
        raise refused("BATCH_TOO_LARGE", f"{field} has more than {MAX_PAIRS:,} entries", field=field, limit=MAX_PAIRS)
    for name in names:
        if not name:
            raise field_invalid(field, "has an empty entry")
        _bounded(field, name, max_bytes)
    return names


def _bounded(field: str, text: str, max_bytes: int) -> None:
    if len(text.encode()) > max_bytes:
        raise field_invalid(field, f"must not be longer than {max_bytes} bytes")


def _batch(field: str, count: int) -> None:
    if count > MAX_BATCH:
        raise refused(
            "BATCH_TOO_LARGE",
            f"{field} has {count:,} entries, the limit is {MAX_BATCH:,}",
            field=field,
            limit=MAX_BATCH,
        )
