"""Bad input per field, with the coded error that names it; and what good input becomes in the intent's row."""

import json
import time
from typing import Any

import pytest

from ductord.model import control as controls
from ductord.model.enums import Verb
from ductord.model.ids import derived
from ductord.model.specs import RetryPolicy, Timeouts
from tests.run_control.operator import Operator
from tests.run_control.standing import Stands

POLICY, TIMEOUT, RESET, CAN = Verb.UPDATE_NODE_RETRY_POLICY, Verb.UPDATE_NODE_TIMEOUT, Verb.RESET, Verb.CONTINUE_AS_NEW
BIG = "x" * (1 << 20)

BAD: list[tuple[Verb, dict[str, Any], str, str]] = [
    (Verb.PAUSE, {"request_id": "é" * 129}, "FIELD_INVALID", "request_id"),
    (Verb.PAUSE, {"request_id": "a\0b"}, "FIELD_INVALID", "request_id"),
    (Verb.PAUSE, {"reason": "é" * 1001}, "FIELD_INVALID", "reason"),
    (Verb.PAUSE, {"reason": "a\0b"}, "FIELD_INVALID", "reason"),
    (Verb.PAUSE_NODE, {"step_ref": "s0\0"}, "FIELD_INVALID", "step_ref"),
    (CAN, {"seed_run_context_json": "[1]"}, "FIELD_INVALID", "seed_run_context_json"),
    (CAN, {"seed_run_context_json": "{"}, "PAYLOAD_INVALID", "seed_run_context_json"),
    (CAN, {"seed_run_context_json": '{"a":1,"a":2}'}, "PAYLOAD_INVALID", "seed_run_context_json"),
    (CAN, {"seed_run_context": {"n": 2**53}}, "PAYLOAD_INVALID", "seed_run_context"),
    (CAN, {"seed_run_context": {"a\0": 1}}, "PAYLOAD_INVALID", "seed_run_context"),
    (CAN, {"seed_run_context": {}, "seed_run_context_json": "{}"}, "FIELDS_EXCLUSIVE", "seed_run_context"),
    (CAN, {"seed_run_context": {"a": BIG, "b": BIG}}, "PAYLOAD_TOO_LARGE", "seed_run_context"),
    (Verb.RESOLVE_REPAIR, {"resolution": "REPAIR_RESOLUTION_UNSPECIFIED"}, "FIELD_REQUIRED", "resolution"),
    (Verb.RESOLVE_REPAIR, {"resolution": 9}, "FIELD_INVALID", "resolution"),
    (Verb.RESOLVE_REPAIR, {"position": -1}, "FIELD_INVALID", "position"),
    (POLICY, {"retry_policy": {}}, "FIELD_REQUIRED", "retry_policy"),
    (POLICY, {"restore_original": True}, "FIELDS_EXCLUSIVE", "restore_original"),
    (POLICY, {"update_mask": "foo"}, "FIELD_INVALID", "update_mask"),
    (POLICY, {"update_mask": "retryPolicy.retryOn"}, "FIELD_INVALID", "update_mask"),
    (POLICY, {"retry_policy": {"retry_max_attempts": 0}}, "FIELD_INVALID", "retry_policy.retry_max_attempts"),
    (POLICY, {"retry_policy": {"retry_max_attempts": 10_001}}, "FIELD_INVALID", "retry_policy.retry_max_attempts"),
    (POLICY, {"retry_policy": {"retry_backoff_ms": -1}}, "FIELD_INVALID", "retry_policy.retry_backoff_ms"),
    (POLICY, {"retry_policy": {"retry_max_backoff_ms": -1}}, "FIELD_INVALID", "retry_policy.retry_max_backoff_ms"),
    (POLICY, {"retry_policy": {"retry_backoff_coefficient": 0.5}}, "FIELD_INVALID", "retry_policy.retry_backoff_coefficient"),
    (POLICY, {"retry_policy": {"retry_backoff_coefficient": "NaN"}}, "FIELD_INVALID", "retry_policy.retry_backoff_coefficient"),
    (POLICY, {"retry_policy": {"retry_on": ["OK", "not a code"]}}, "FIELD_INVALID", "retry_policy.retry_on[1]"),
    (POLICY, {"retry_policy": {"non_retryable": ["A"] * 101}}, "FIELD_INVALID", "retry_policy.non_retryable"),
    (TIMEOUT, {"timeouts": {}}, "FIELD_REQUIRED", "timeouts"),
    (TIMEOUT, {"timeouts": {"timeout_ms": -1}}, "FIELD_INVALID", "timeouts.timeout_ms"),
    (TIMEOUT, {"restore_original": True}, "FIELDS_EXCLUSIVE", "restore_original"),
    (TIMEOUT, {"update_mask": "timeoutMs,queueTimeout"}, "FIELD_INVALID", "update_mask"),
    (RESET, {"transition_seq": 0}, "FIELD_REQUIRED", "transition_seq"),
    (RESET, {"transition_seq": -2}, "FIELD_INVALID", "transition_seq"),
    (RESET, {"step_input_overrides": [{"input": {}}]}, "FIELD_REQUIRED", "step_input_overrides[0].step_ref"),
    (RESET, {"step_input_overrides": [{"step_ref": "s0"}]}, "FIELD_REQUIRED", "step_input_overrides[0].input"),
    (RESET, {"step_input_overrides": [{"step_ref": "s0", "input": {}}] * 2}, "FIELD_DUPLICATE", "step_input_overrides[1].step_ref"),
    (RESET, {"step_input_overrides": [{"step_ref": "s0", "input_json": "3"}]}, "FIELD_INVALID", "step_input_overrides[0].input_json"),
    (RESET, {"step_input_overrides": [{"step_ref": "s0", "input_json": "{}", "input": {}}]}, "FIELDS_EXCLUSIVE", "step_input_overrides[0].input"),
    (RESET, {"step_input_overrides": [{"step_ref": "s0", "input": {"a": BIG}}]}, "PAYLOAD_TOO_LARGE", "step_input_overrides"),
    (RESET, {"preserve_step_refs": ["s0", "s0"]}, "FIELD_DUPLICATE", "preserve_step_refs[1]"),
    (RESET, {"preserve_step_refs": [""]}, "FIELD_REQUIRED", "preserve_step_refs[0]"),
    (RESET, {"preserve_step_refs": ["s0"], "step_input_overrides": [{"step_ref": "s0", "input": {}}]}, "FIELD_INVALID", "preserve_step_refs[0]"),
]  # fmt: skip


async def test_bad_input(operator: Operator, stands: Stands) -> None:
    """INVALID_ARGUMENT with the field's name, before anything is looked up; nothing is recorded."""
    run_id = await stands.run()
    for verb, fields, reason, field in BAD:
        refused = await operator.refused(verb, run_id, **fields)
        told = (refused.code, refused.reason, refused.metadata["field"])
        assert told == ("INVALID_ARGUMENT", reason, field), (verb, str(fields)[:100])
    assert await stands.intents(run_id) == []


async def test_many_steps_are_no_more_work_than_each(operator: Operator, stands: Stands) -> None:
    """PL-06: as many names as a request has room for are refused by their number, not checked pair by pair while nobody else is served."""
    run_id = await stands.run()
    begin = time.process_time()
    refused = await operator.refused(Verb.RESET, run_id, preserve_step_refs=[f"s{i}" for i in range(1, 200_000)])
    assert (refused.reason, refused.metadata) == ("BATCH_TOO_LARGE", {"field": "preserve_step_refs", "limit": "500"})
    assert time.process_time() - begin < 60


async def test_the_longest_that_is_allowed(operator: Operator, stands: Stands) -> None:
    """256 bytes of request id, 1,000 characters of reason (C8), anything but NUL in both; found by that name."""
    run_id = await stands.run()
    name, reason = "é/:% \U0001f600\n" * 23 + "abc", "\U0001f600" * 1000
    assert (len(name.encode()), len(reason)) == (256, 1000)
    await operator.ask(Verb.PAUSE, run_id, request_id=name, reason=reason)
    operation = await operator.operation(run_id, name)
    assert (operation.request_id, operation.reason) == (name, reason)


BODIES: list[tuple[Verb, dict[str, Any], controls.ControlBody]] = [
    (Verb.PAUSE, {}, controls.ControlBody()),
    (Verb.TERMINATE, {"skip_finally": True}, controls.ControlBody(skip_finally=True)),
    (POLICY, {"retry_policy": {"retry_max_attempts": 5, "retry_jitter": False, "retry_on": ["UNAVAILABLE"]}},
     controls.ControlBody(retry=RetryPolicy(max_attempts=5, retry_on=("UNAVAILABLE",)), fields=("jitter", "max_attempts", "retry_on"))),
    (POLICY, {"retry_policy": {"retry_max_attempts": 5}, "update_mask": "retryOn,retryBackoffMs"},
     controls.ControlBody(retry=RetryPolicy(), fields=("backoff_ms", "retry_on"))),
    (POLICY, {"retry_policy": {"retry_max_attempts": 5}, "update_mask": "*"},
     controls.ControlBody(
         retry=RetryPolicy(max_attempts=5),
         fields=("backoff_ms", "coefficient", "jitter", "max_attempts", "max_backoff_ms", "non_retryable", "retry_on"))),
    (TIMEOUT, {"timeouts": {"timeout_ms": 0, "queue_timeout_ms": 7}},
     controls.ControlBody(timeouts=Timeouts(queue_timeout_ms=7), fields=("queue_timeout_ms", "timeout_ms"))),
    (TIMEOUT, {"timeouts": {"timeout_ms": 9}, "update_mask": "totalTimeoutMs"},
     controls.ControlBody(timeouts=Timeouts(), fields=("total_timeout_ms",))),
]  # fmt: skip


async def test_what_the_intent_says(operator: Operator, stands: Stands) -> None:
    """The row holds what counts: masked or given fields, 0 as no limit."""
    for verb, fields, body in BODIES:
        run_id = await stands.run()
        await operator.ask(verb, run_id, **fields)
        [intent] = await stands.intents(run_id)
        assert controls.decode(intent["body"]) == body, fields


@pytest.mark.parametrize(("verb", "field"), [(POLICY, "retry_policy"), (TIMEOUT, "timeouts")])
async def test_the_definitions_own_again(verb: Verb, field: str, operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    rpc = "UpdateNodeRetryPolicy" if verb is POLICY else "UpdateNodeTimeout"
    await operator.call(rpc, run_id=run_id, step_ref="s0", restore_original=True)
    [intent] = await stands.intents(run_id)
    assert controls.decode(intent["body"]) == controls.ControlBody(restore=True)


async def test_payloads_are_exact(operator: Operator, stands: Stands) -> None:
    """L5: what came by the twin is in the row to the digit; the order of keys makes no other request of it."""
    run_id = await stands.run()
    await operator.ask(CAN, run_id, request_id="c", seed_run_context_json='{"b": 9007199254740993, "a": [1.5, null]}')
    await operator.ask(CAN, run_id, request_id="c", seed_run_context_json='{"a":[1.50,null],"b":9007199254740993}')
    [intent] = await stands.intents(run_id)
    body = json.loads(intent["body"])
    assert body["seed"] == {"b": 9007199254740993, "a": [1.5, None]}
    assert body["new_run_id"] == derived("continue", run_id, "c")
    other = await stands.run()
    overrides = [{"step_ref": "s1", "input_json": '{"id": 9007199254740993}'}]
    answer = await operator.ask(RESET, other, request_id="r", step_input_overrides=overrides)
    assert answer.new_run_id == derived("reset", other, "r")
    [intent] = await stands.intents(other)
    assert controls.decode(intent["body"]).overrides == {"s1": {"id": 9007199254740993}}


async def test_a_context_that_would_grow_too_large(operator: Operator, stands: Stands) -> None:
    """L7: the seed is laid over the run's own context, and both together are bounded."""
    run_id = await stands.run()
    await stands.context(run_id, {"kept": BIG})
    refused = await operator.refused(CAN, run_id, seed_run_context={"more": BIG})
    assert (refused.code, refused.reason) == ("INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE")
    assert refused.metadata == {"field": "seed_run_context", "limit_bytes": str(2 << 20)}
    await operator.ask(CAN, run_id, seed_run_context={"kept": 1, "more": BIG})
