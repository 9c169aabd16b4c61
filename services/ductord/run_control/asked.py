"""A control as it was asked for, checked: everything that can be judged without the run, before a transaction begins (C1)."""

import hashlib
from typing import Any, Final

import msgspec
import orjson
from google.protobuf.message import Message

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.db.ids import new_id
from ductord.engine.compile import MAX_STEPS
from ductord.model.control import ControlBody
from ductord.model.enums import Resolution, Verb
from ductord.model.errors import Refusal
from ductord.model.ids import derived
from ductord.model.jsonvalue import JSON
from ductord.rpc.bounds import Limits, bounded, reasoned
from ductord.rpc.errors import field_invalid, field_required, refused
from ductord.rpc.payloads import payload_of
from ductord.rpc.runs import run_id_of

NOTHING: Final = ControlBody()
"""The body of a verb that needs none."""
CONTEXT_MAX_BYTES: Final = 2 << 20
"""Of a run context (ruling L7)."""

_RESOLUTIONS: Final = {
    control_pb2.REPAIR_RESOLUTION_DONE: Resolution.DONE,
    control_pb2.REPAIR_RESOLUTION_RETRY: Resolution.RETRY,
    control_pb2.REPAIR_RESOLUTION_NOT_NEEDED: Resolution.NOT_NEEDED,
}


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A control that may be tried. `step_ref` empty: it is about the run. `body_hash` is over everything but its name."""

    run_id: str
    request_id: str
    verb: Verb
    step_ref: str
    reason: str
    body: ControlBody
    body_hash: str


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every control has. `request_id` is filled."""

    run_id: str
    request_id: str
    step_ref: str
    reason: str


def named(request: Message, limits: Limits, run_field: str = "run_id") -> Named:
    """Run, request id, step and reason of any control. Raises FIELD_REQUIRED, FIELD_INVALID, RUN_NOT_FOUND."""
    fields: Any = request
    run_id = run_id_of(getattr(fields, run_field), run_field)
    step_ref = ""
    if "step_ref" in fields.DESCRIPTOR.fields_by_name:
        step_ref = fields.step_ref
        if not step_ref:
            raise field_required("step_ref")
    bounded("request_id", fields.request_id, limits.key_bytes)
    reasoned("reason", fields.reason)
    return Named(run_id=run_id, request_id=fields.request_id or new_id(), step_ref=step_ref, reason=fields.reason)


def ask(verb: Verb, name: Named, body: ControlBody = NOTHING) -> Ask:
    """A control whose body has been checked."""
    said = [verb.value, name.step_ref, name.reason, msgspec.to_builtins(body)]
    return Ask(
        run_id=name.run_id,
        request_id=name.request_id,
        verb=verb,
        step_ref=name.step_ref,
        reason=name.reason,
        body=body,
        body_hash=hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest(),
    )


def terminated(request: api.TerminateRunRequest) -> ControlBody:
    """The body of a terminate."""
    return ControlBody(skip_finally=request.skip_finally)


def redriven(request: api.RedriveRunRequest) -> ControlBody:
    """The body of a redrive."""
    return ControlBody(force=request.force)


def continued(request: api.ContinueAsNewRunRequest, name: Named) -> ControlBody:
    """The body of a continue-as-new (C6). Raises `PayloadInvalid`, FIELD_INVALID, FIELDS_EXCLUSIVE."""
    return ControlBody(
        seed=_object(request, "seed_run_context", "", CONTEXT_MAX_BYTES),
        discard_pending=request.discard_pending,
        new_run_id=derived("continue", name.run_id, name.request_id),
    )


def resolved(request: api.ResolveRepairRequest) -> ControlBody:
    """The body of a word about inverses that need repair (C7). Raises FIELD_REQUIRED, FIELD_INVALID."""
    resolution = _RESOLUTIONS.get(request.resolution)
    if resolution is None:
        raise field_required("resolution")
    position = request.position if request.HasField("position") else None
    if position is not None and position < 0:
        raise field_invalid("position", "is a position in the ledger, from 0")
    return ControlBody(resolution=resolution, position=position)


def reset(
    request: api.ResetRunRequest | api.PreviewResetRequest, limits: Limits, name: Named | None = None
) -> ControlBody:
    """The body of a reset or of its preview (C5). Raises `PayloadInvalid`, FIELD_REQUIRED, FIELD_INVALID, FIELD_DUPLICATE, FIELDS_EXCLUSIVE."""
    if not request.transition_seq:
        raise field_required("transition_seq")
    if request.transition_seq < 0:
        raise field_invalid("transition_seq", "is the number of a transition, from 1")
    return ControlBody(
        seq=request.transition_seq,
        overrides=_overrides(request, limits),
        preserve=_preserved(request),
        force=request.force,
        new_run_id=derived("reset", name.run_id, name.request_id) if name is not None else "",
    )


def _overrides(request: api.ResetRunRequest | api.PreviewResetRequest, limits: Limits) -> dict[str, Any]:
    _no_more_than_steps(request, "step_input_overrides")
    overrides: dict[str, Any] = {}
    for index, override in enumerate(request.step_input_overrides):
        place = f"step_input_overrides[{index}]"
        if not override.step_ref:
            raise field_required(f"{place}.step_ref")
        if override.step_ref in overrides:
            raise _duplicate(f"{place}.step_ref")
        given = _object(override, "input", place, limits.payload_bytes)
        if given is None:
            raise field_required(f"{place}.input")
        overrides[override.step_ref] = given
    return dict(sorted(overrides.items()))


def _preserved(request: api.ResetRunRequest | api.PreviewResetRequest) -> tuple[str, ...]:
    _no_more_than_steps(request, "preserve_step_refs")
    overridden = {override.step_ref for override in request.step_input_overrides}
    refs: set[str] = set()
    for index, ref in enumerate(request.preserve_step_refs):
        if not ref:
            raise field_required(f"preserve_step_refs[{index}]")
        if ref in refs:
            raise _duplicate(f"preserve_step_refs[{index}]")
        if ref in overridden:
            raise field_invalid(f"preserve_step_refs[{index}]", "names a step that does not run and so takes no input")
        refs.add(ref)
    return tuple(sorted(refs))


def _no_more_than_steps(request: api.ResetRunRequest | api.PreviewResetRequest, field: str) -> None:
    """No definition has more steps. Raises BATCH_TOO_LARGE."""
    count = len(getattr(request, field))
    if count > MAX_STEPS:
        message = f"{field} has {count:,} entries, the limit is {MAX_STEPS}"
        raise refused("BATCH_TOO_LARGE", message, field=field, limit=MAX_STEPS)


def _object(message: Message, field: str, root: str, max_bytes: int) -> dict[str, JSON] | None:
    """The payload in a Struct field or its twin, which may hold nothing but an object either."""
    given = payload_of(message, field, root=root, max_bytes=max_bytes)
    if given is None:
        return None
    if not isinstance(given.value, dict):
        raise field_invalid(f"{root}.{field}_json" if root else f"{field}_json", "is a JSON object")
    return given.value


def _duplicate(field: str) -> Refusal:
    return refused("FIELD_DUPLICATE", f"{field} stands twice in the request", field=field)
