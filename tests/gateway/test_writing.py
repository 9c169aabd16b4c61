"""Messages to JSON in both dialects: spellings, zero values, times, payload texts (contract, «JSON dialects»; PL-03)."""

import json
import re
from typing import Any

from google.protobuf import json_format, struct_pb2

from ductor.workflow.v1 import common_pb2, definition_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.rpc.vocabulary import Dialect
from ductord.rpc.writing import Writer

REST, PROTO = Writer(Dialect.REST), Writer(Dialect.PROTO)
TWINNED = Writer(Dialect.REST, spliced=False)

TIME = {"seconds": 1783768200, "nanos": 5_000_999}
SUMMARY = {
    "run_id": "r", "status": run_pb2.RUN_STATUS_TIMED_OUT, "version": 3, "create_time": TIME, "has_errors": True,
    "correlation_labels": [{"key": "order", "id": "7"}], "tier": common_pb2.TIER_BULK,
}  # fmt: skip


def detail(**given: Any) -> reads.GetRunResponse:
    """An answer of GetRun."""
    return reads.GetRunResponse(data=run_pb2.RunDetail(summary=SUMMARY, **given))  # type: ignore[arg-type]  # a tree for a message


def test_rest_spells_as_the_guide_does() -> None:
    summary = json.loads(REST.text(detail()))["data"]["summary"]
    assert summary["status"] == "timed_out"
    assert summary["tier"] == "bulk"
    assert summary["create_time"] == "2026-07-11T11:10:00.005000Z"
    assert summary["version"] == 3
    assert summary["correlation_labels"] == [{"key": "order", "id": "7"}]


def test_rest_writes_zero_values_and_null_for_what_is_absent() -> None:
    data = json.loads(REST.text(detail()))["data"]
    assert data["summary"]["end_time"] is None
    assert data["summary"]["parent_run_id"] == ""
    assert data["summary"]["nesting_depth"] == 0
    assert data["nodes"] == []
    assert data["input_truncated"] is False
    assert data["input"] is None
    assert data["error"] is None
    assert json.loads(REST.text(triggers.TriggerWorkflowResponse()))["checkpoint_status"] == "unspecified"
    assert json.loads(REST.text(reads.ListRunsResponse())) == {"data": [], "next_page_token": "", "metadata": None}


def test_an_absent_optional_scalar_stays_absent() -> None:
    """An absent field of a definition stays absent when the definition is written again."""
    step = json.loads(REST.text(definition_pb2.StepDefinition(ref="a", retry_max_attempts=0)))
    assert step["retry_max_attempts"] == 0
    assert "timeout_ms" not in step
    assert "title" not in step


def test_rest_keys_stand_in_the_order_of_the_contract() -> None:
    answer = triggers.TriggerWorkflowResponse(metadata=common_pb2.ResponseMetadata(trace_id="t"))
    assert list(json.loads(REST.text(answer)))[:3] == ["run_id", "status", "checkpoint_reached"]
    step = definition_pb2.StepDefinition(ref="a", queue="q", args_json="{}", action="x:y")
    names = [field.name for field in step.DESCRIPTOR.fields]
    written = list(json.loads(REST.text(step)))
    assert written == [name for name in names if name in written]


def test_pl_03_a_twin_is_spliced_in_untouched() -> None:
    text = '{"id": 9007199254740993,"x":1.10}'
    answer = detail(input_json=text, result_json="9223372036854775807")
    assert f'"input":{text}'.encode() in REST.text(answer)
    assert b'"result":9223372036854775807' in REST.text(answer)
    assert b"_json" not in REST.text(answer)
    assert f'"input":{text}'.encode() in PROTO.text(answer)


def test_twins_asked_for_by_name_are_strings_beside_no_payload() -> None:
    data = json.loads(TWINNED.text(detail(input_json='{"id": 9007199254740993}')))["data"]
    assert data["input_json"] == '{"id": 9007199254740993}'
    assert "input" not in data
    assert "result" not in data


def test_a_struct_is_written_too_its_integers_as_integers() -> None:
    value = struct_pb2.Value()
    json_format.ParseDict({"a": 5, "b": 1.5, "c": [None, True, "x"], "d": {"e": -2}}, value)
    assert json.loads(REST.text(detail(input=value)))["data"]["input"] == {
        "a": 5,
        "b": 1.5,
        "c": [None, True, "x"],
        "d": {"e": -2},
    }
    assert re.search(rb'"a":5[,}]', REST.text(detail(input=value))), (
        "an integer is written without a fraction, wherever the map puts it"
    )


def test_proto_json_is_what_protobuf_writes() -> None:
    answer = detail(
        nodes=[{"step_ref": "a", "status": run_pb2.NODE_STATUS_SKIPPED, "skip_reason": 4, "attempt": 2}],
        transition_count=7,
    )
    assert json.loads(PROTO.text(answer)) == json.loads(json_format.MessageToJson(answer))


def test_a_value_that_only_a_newer_service_knows_is_written_as_its_number() -> None:
    node = run_pb2.NodeSummary(step_ref="a", status=99)  # type: ignore[arg-type]  # not known here
    assert json.loads(REST.text(node))["status"] == 99
    assert json.loads(PROTO.text(node))["status"] == 99


def test_maps_and_nested_messages_are_written() -> None:
    error = triggers.BatchTriggerError(code="NOT_FOUND", reason="X", message="m", metadata={"a": "b"})
    answer = triggers.BatchTriggerWorkflowResponse(results=[triggers.BatchTriggerResult(error=error)])
    assert json.loads(REST.text(answer))["results"][0]["error"]["metadata"] == {"a": "b"}
