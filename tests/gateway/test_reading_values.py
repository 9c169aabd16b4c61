"""JSON to messages in both dialects: types, numbers, nulls, times (YM-01, L5)."""

import pytest

from ductor.workflow.v1 import common_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.rpc.vocabulary import Dialect
from tests.gateway.asking import BOTH, Create, Trigger, Update, asked, read, reason, refused


@pytest.mark.parametrize(
    "body",
    [
        '{"checkpoint_timeout_seconds": "5"}',
        '{"checkpoint_timeout_seconds": 5.5}',
        '{"checkpoint_timeout_seconds": 2147483648}',
        '{"checkpoint_timeout_seconds": true}',
        '{"checkpoint_timeout_seconds": 1e30}',
        '{"checkpoint_timeout_seconds": []}',
        '{"wait_for_checkpoint": "true"}',
        '{"wait_for_checkpoint": 1}',
        '{"subject_id": 1}',
        '{"subject_id": ["1"]}',
        '{"correlation_labels": {}}',
        '{"correlation_labels": [1]}',
        '{"correlation_labels": [null]}',
    ],
)
def test_ym_01_rest_coerces_nothing(body: str) -> None:
    assert refused(Trigger, body).reason == "FIELD_INVALID"


@BOTH
def test_l5_a_number_is_judged_by_its_value(dialect: Dialect) -> None:
    for literal in ("5", "5.0", "5e0", "50e-1"):
        assert read(Trigger, f'{{"checkpoint_timeout_seconds": {literal}}}', dialect).checkpoint_timeout_seconds == 5


def test_proto_json_reads_numbers_from_strings_as_its_specification_says() -> None:
    assert read(Trigger, '{"checkpointTimeoutSeconds": "5"}', Dialect.PROTO).checkpoint_timeout_seconds == 5
    step = read(Create, '{"steps": [{"retryBackoffCoefficient": "1.5"}]}', Dialect.PROTO).steps[0]
    assert step.retry_backoff_coefficient == 1.5
    assert reason(Create, '{"steps": [{"retryBackoffCoefficient": "NaN"}]}', Dialect.PROTO)[0] == "FIELD_INVALID"


@BOTH
def test_null_is_absence_except_for_a_value(dialect: Dialect) -> None:
    assert read(Trigger, '{"subject_id": null, "correlation_labels": null, "tier": null}', dialect) == read(
        Trigger, "{}", dialect
    )
    assert read(Trigger, '{"input": null}', dialect).input_json == "null"
    assert not read(Create, '{"variables": null}', dialect).HasField("variables_json")


@BOTH
def test_a_payload_that_must_be_an_object_is_one(dialect: Dialect) -> None:
    assert read(Create, '{"variables": {"A": 1}}', dialect).variables_json == '{"A": 1}'
    assert reason(Create, '{"variables": [1]}', dialect) == ("FIELD_INVALID", "variables")
    assert reason(Create, '{"steps": [{"ref": "a", "args": "x"}]}', dialect) == ("FIELD_INVALID", "steps[0].args")


@BOTH
def test_of_a_payload_and_its_twin_only_one_is_given(dialect: Dialect) -> None:
    refusal = refused(Trigger, '{"input": 1, "input_json": "1"}', dialect)
    assert refusal.reason == "FIELDS_EXCLUSIVE"
    assert refusal.metadata == {"field": "input", "other_field": "input_json"}
    assert read(Trigger, '{"input_json": "1"}', dialect).input_json == "1"


@BOTH
def test_of_a_oneof_only_one_is_given(dialect: Dialect) -> None:
    body = '{"operations": [{"add_step": {"ref": "a"}, "remove_step": {"ref": "b"}}]}'
    assert reason(Update, body, dialect) == ("FIELDS_EXCLUSIVE", "operations[0].remove_step")


@BOTH
def test_answers_are_asked_for_by_their_twins(dialect: Dialect) -> None:
    for body, spliced in (
        ("{}", True),
        ('{"payload_format": 1}', True),
        ('{"payload_format": "PAYLOAD_FORMAT_JSON"}', False),
    ):
        request = asked(reads.GetRunRequest, body, dialect)
        assert request.message == reads.GetRunRequest(payload_format=common_pb2.PAYLOAD_FORMAT_JSON)
        assert request.spliced is spliced


def test_presence_is_kept() -> None:
    assert read(reads.ListRunsRequest, '{"has_errors": false}').HasField("has_errors")
    assert not read(reads.ListRunsRequest, "{}").HasField("has_errors")


@BOTH
@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("2026-07-11T11:10:00Z", 1783768200, 0),
        ("2026-07-11T13:10:00.5+02:00", 1783768200, 500_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
        ("0001-01-01T00:00:00Z", -62135596800, 0),
    ],
)
def test_times_are_rfc_3339(dialect: Dialect, text: str, seconds: int, nanos: int) -> None:
    time = read(reads.ListRunsRequest, f'{{"created_after": "{text}"}}', dialect).created_after
    assert (time.seconds, time.nanos) == (seconds, nanos)


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        '"2026-07-11"',
        '"2026-07-11T11:10:00"',
        '"2026-02-30T00:00:00Z"',
        '"2026-07-11T11:10:00.1234567890Z"',
        '"0001-01-01T00:00:00+02:00"',
        '"2026-07-11T25:00:00Z"',
        '"2026-07-11T11:10:00+25:00"',
        "5",
        '"now"',
    ],
)
def test_no_other_time_is_read(dialect: Dialect, text: str) -> None:
    assert reason(reads.ListRunsRequest, f'{{"created_after": {text}}}', dialect) == ("FIELD_INVALID", "created_after")
