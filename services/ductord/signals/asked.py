"""Signals and external events as they were asked for, checked: everything that can be judged without a row, before a transaction begins (E1, E3)."""

import hashlib
from datetime import timedelta
from typing import Final

import msgspec
import orjson

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.enums import SignalVerb
from ductord.rpc.bounds import MAX_COMMENT_BYTES, Limits, bounded
from ductord.rpc.errors import field_invalid, field_required
from ductord.rpc.payloads import Payload, payload_of
from ductord.rpc.runs import run_id_of

MAX_TTL_S: Final = 86_400
"""How long an event may be kept: no longer than its id dedupes."""
RESOLVED: Final = "resolved"
"""The status of a case that is resolved without naming one (E6)."""

_NOTHING: Final = Payload(value=None, text="null")


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody tells a step. `request_id` is filled; `body_hash` is over everything but its name. `approver_id`: in whose name, as the body says."""

    run_id: str
    step_ref: str
    request_id: str
    verb: SignalVerb
    approver_id: str
    comment: str
    status: str
    payload: Payload
    body_hash: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An external event, or a sample of one. `event_id` is filled; `keep`: how long it is kept for waits to come."""

    event_name: str
    correlation_key: str
    event_id: str
    payload: Payload
    keep: timedelta = timedelta()


def decided(verb: SignalVerb, request: api.ApproveStepRequest | api.RejectStepRequest, limits: Limits) -> Word:
    """A decision. Raises FIELD_REQUIRED, FIELD_INVALID, FIELDS_EXCLUSIVE, RUN_NOT_FOUND, `PayloadInvalid`."""
    return _word(verb, request, limits, in_whose_name="approver_id")


def resolved(request: api.ResolveInteractionRequest, limits: Limits) -> Word:
    """Word that an interaction is resolved, or what its case has come to (E6). Raises as `decided`."""
    status = bounded("status", request.status, limits.key_bytes) or RESOLVED
    return _word(SignalVerb.RESOLVE_INTERACTION, request, limits, in_whose_name="resolved_by", status=status)


def published(request: api.PublishEventRequest, limits: Limits) -> Event:
    """An event. Raises FIELD_REQUIRED, FIELD_INVALID, FIELDS_EXCLUSIVE, `PayloadInvalid`."""
    if not 0 <= request.ttl_seconds <= MAX_TTL_S:
        raise field_invalid("ttl_seconds", f"is between 0 and {MAX_TTL_S:,}")
    return _event(request, limits, timedelta(seconds=request.ttl_seconds))


def sample(request: api.ExplainWorkflowEventSetMatchRequest, limits: Limits) -> Event:
    """A sample. Raises as `published`."""
    return _event(request, limits, timedelta())


def _word(
    verb: SignalVerb,
    request: api.ApproveStepRequest | api.RejectStepRequest | api.ResolveInteractionRequest,
    limits: Limits,
    *,
    in_whose_name: str,
    status: str = "",
) -> Word:
    run_id = run_id_of(request.run_id)
    if not request.step_ref:
        raise field_required("step_ref")
    name = bounded(in_whose_name, getattr(request, in_whose_name), limits.key_bytes)
    bounded("request_id", request.request_id, limits.key_bytes)
    bounded("comment", request.comment, MAX_COMMENT_BYTES)
    payload = payload_of(request, "payload", max_bytes=limits.payload_bytes) or _NOTHING
    said = [verb.value, request.step_ref, name, request.comment, status, payload.value]
    return Word(
        run_id=run_id,
        step_ref=request.step_ref,
        request_id=request.request_id or new_id(),
        verb=verb,
        approver_id=name,
        comment=request.comment,
        status=status,
        payload=payload,
        body_hash=hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest(),
    )


def _event(
    request: api.PublishEventRequest | api.ExplainWorkflowEventSetMatchRequest, limits: Limits, keep: timedelta
) -> Event:
    if not request.event_name:
        raise field_required("event_name")
    for field in ("event_name", "correlation_key", "event_id"):
        bounded(field, getattr(request, field), limits.key_bytes)
    return Event(
        event_name=request.event_name,
        correlation_key=request.correlation_key,
        event_id=request.event_id or new_id(),
        payload=payload_of(request, "payload", max_bytes=limits.payload_bytes) or _NOTHING,
        keep=keep,
    )
