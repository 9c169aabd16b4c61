"""A start as it was asked for, checked: the field rules of one TriggerWorkflowRequest or one item of a batch.

Everything that can be judged without the definition is judged here, before a transaction begins.
"""

import hashlib
import re
from typing import Final

import msgspec
import orjson

from ductor.workflow.v1 import common_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.errors import Refusal
from ductord.model.jsonvalue import JSON
from ductord.rpc.bounds import Limits, bounded
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.hygiene import fault_of
from ductord.rpc.payloads import Payload, payload_of

MAX_LABELS: Final = 8
MAX_LABEL_KEY_BYTES: Final = 64
MAX_LABEL_ID_BYTES: Final = 128
MAX_RELEASE_BYTES: Final = 128
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_.-]*")
_RESERVED: Final = ("ductor.correlation.", "ductor.correlation_labels")
"""Where Ductor itself keeps labels in the visibility attributes (T5): nobody spoofs them by a label of such a name."""
_TIERS: Final = {
    common_pb2.TIER_UNSPECIFIED: "",
    common_pb2.TIER_CRITICAL: "critical",
    common_pb2.TIER_STANDARD: "standard",
    common_pb2.TIER_BULK: "bulk",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A start that may be tried. `run_id` is the id it will have if it is new. `key` None: no idempotency. `tier` empty: the definition's. `release`: what the
    caller says of itself (T4).

    `request_hash` is over input, subject and labels (T1) and only filled beside a key.
    """

    run_id: str
    key: str | None
    request_hash: str
    subject_type: str
    subject_id: str
    labels: dict[str, str]
    input: Payload
    tier: str
    release: str = ""


_NO_INPUT: Final = Payload(value={}, text="{}")


def read(item: api.TriggerWorkflowRequest | api.BatchTriggerItem, limits: Limits) -> Asked:
    """The checked start; without an input its input is `{}`. Raises the `Refusal` or `PayloadInvalid` of the first rule that is broken."""
    if isinstance(item, api.BatchTriggerItem) and (fault := fault_of(item)) is not None:
        raise fault
    bounded("external_deployment_id", item.external_deployment_id, MAX_RELEASE_BYTES)
    for field in ("idempotency_key", "subject_type", "subject_id"):
        bounded(field, getattr(item, field), limits.key_bytes)
    labels = _labels(item)
    given = payload_of(item, "input", max_bytes=limits.payload_bytes) or _NO_INPUT
    return Asked(
        run_id=new_id(),
        key=item.idempotency_key or None,
        request_hash=_hash(given.value, item.subject_type, item.subject_id, labels) if item.idempotency_key else "",
        subject_type=item.subject_type,
        subject_id=item.subject_id,
        labels=labels,
        input=given,
        tier=_TIERS[item.tier],
        release=item.external_deployment_id,
    )


def _labels(item: api.TriggerWorkflowRequest | api.BatchTriggerItem) -> dict[str, str]:
    """The labels by key (T5). Raises FIELD_INVALID, FIELD_DUPLICATE, BATCH_TOO_LARGE."""
    field = "correlation_labels"
    if len(item.correlation_labels) > MAX_LABELS:
        message = f"{field} has {len(item.correlation_labels)} labels, the limit is {MAX_LABELS}"
        raise refused("BATCH_TOO_LARGE", message, field=field, limit=MAX_LABELS)
    labels: dict[str, str] = {}
    for index, label in enumerate(item.correlation_labels):
        place = f"{field}[{index}]"
        if _LABEL_KEY.fullmatch(label.key) is None or len(label.key) > MAX_LABEL_KEY_BYTES:
            rule = f"is 1 to {MAX_LABEL_KEY_BYTES} bytes: a lower-case letter, then lower-case letters, digits, `_`, `.` and `-`"
            raise field_invalid(f"{place}.key", rule)
        if label.key.startswith(_RESERVED):
            raise field_invalid(f"{place}.key", "is in a namespace that only Ductor writes")
        if not 1 <= len(label.id.encode()) <= MAX_LABEL_ID_BYTES:
            raise field_invalid(f"{place}.id", f"is 1 to {MAX_LABEL_ID_BYTES} bytes")
        if label.key in labels:
            raise _duplicate(f"{place}.key")
        labels[label.key] = label.id
    return labels


def _duplicate(field: str) -> Refusal:
    return refused("FIELD_DUPLICATE", f"{field} stands twice in the request", field=field)


def _hash(value: JSON, subject_type: str, subject_id: str, labels: dict[str, str]) -> str:
    """The same for the same request, whatever the door it came in by and the order of its keys."""
    request = orjson.dumps([value, subject_type, subject_id, labels], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(request).hexdigest()
