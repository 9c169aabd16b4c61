"""Controls: what an operator asks of a run, as the value that the service stores and a tick applies (ruling C1).

A control is one intent row, named by (run, request id). Its body is JSON in that row; the event that records its effect names the request id and never
the body.
"""

from datetime import datetime
from typing import Any

import msgspec

from ductord.model.enums import Resolution, Verb
from ductord.model.specs import RetryPolicy, Timeouts


class ControlBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the verbs need beyond run and step. Fields that a verb does not use keep their default.

    `skip_finally`: terminate. `force`: redrive, reset. `seed`, `discard_pending`, `new_run_id`: continue-as-new; `new_run_id`, `seq`, `overrides`,
    `preserve`: reset. `retry` or `timeouts` with `fields` (names of that struct's fields that count), or `restore` (the definition's again): node updates.
    `position`, `resolution`: resolve-repair; `position` None: every entry of the step that needs repair.
    """

    skip_finally: bool = False
    force: bool = False
    seed: dict[str, Any] | None = None
    discard_pending: bool = False
    new_run_id: str = ""
    seq: int = 0
    overrides: dict[str, Any] = {}
    preserve: tuple[str, ...] = ()
    retry: RetryPolicy | None = None
    timeouts: Timeouts | None = None
    fields: tuple[str, ...] = ()
    restore: bool = False
    position: int | None = None
    resolution: Resolution | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """One intent. `actor`: who asked (C8)."""

    request_id: str
    verb: Verb
    create_time: datetime
    actor: str = "anonymous"
    reason: str = ""
    step_ref: str = ""
    body: ControlBody = ControlBody()


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a control cannot be applied: a name of the contract's ErrorReason, a text that says what is the case and what to do instead, and what a machine wants
    to know of it (`status`, `continued_to_run_id`, …)."""

    reason: str
    message: str
    metadata: dict[str, str] = {}


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ControlBody)


def encode(body: ControlBody) -> str:
    """JSON text of a body, as the intent row holds it."""
    return _encoder.encode(body).decode()


def decode(text: str | bytes) -> ControlBody:
    """The body of an intent row."""
    return _decoder.decode(text)
