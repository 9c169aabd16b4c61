"""Messages as JSON for `--json`, definition trees as messages: the spelling of the REST door, no digit lost (L1, L5)."""

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import definition_pb2, run_pb2, workflow_definition_service_pb2, workflow_service_pb2
from ductord.cli.documents import filled
from ductord.cli.ending import CommandFailed
from ductord.cli.words import number, pair, plain, seconds, word

BIG = 9_007_199_254_740_993


def test_a_payload_comes_from_its_exact_twin() -> None:
    """L5: 2^53 + 1 is not rounded; the twin stands in the place of the payload."""
    run = run_pb2.RunDetail(input_json=json.dumps({"n": BIG, "x": 5.0}))
    tree = plain(run)
    assert tree["input"] == {"n": BIG, "x": 5.0}
    assert "input_json" not in tree
    assert tree["result"] is None


def test_enum_words_times_and_absences_are_those_of_rest() -> None:
    """Short lower-case words, UTC with microseconds, null for an absent message, absent optional scalars left out."""
    summary = run_pb2.RunSummary(
        run_id="r", status=run_pb2.RUN_STATUS_TIMED_OUT, create_time=Timestamp(seconds=1, nanos=2_000)
    )
    tree = plain(workflow_service_pb2.ListRunsResponse(data=[summary]))
    assert tree["data"][0]["status"] == "timed_out"
    assert tree["data"][0]["create_time"] == "1970-01-01T00:00:01.000002Z"
    assert tree["data"][0]["end_time"] is None
    assert tree["data"][0]["tier"] == "unspecified"
    assert tree["metadata"] is None
    assert "item_index" not in plain(run_pb2.Attempt())


def test_a_definition_tree_becomes_the_message_and_comes_back() -> None:
    """L1: the file's words, numbers and payloads survive the way through the contract's message."""
    tree = {
        "family_slug": "x",
        "tags": ["a", "b"],
        "variables": {"n": BIG},
        "steps": [
            {
                "ref": "s",
                "type": "action",
                "action": "core:echo",
                "args": {"x": [1, 2.5, None]},
                "join": "any",
                "retry_max_attempts": 3,
            },
        ],
        "edges": [{"source_ref": "s", "target_ref": "t", "type": "true", "default": True}],
        "fail_policy": None,
    }
    message = filled(definition_pb2.WorkflowDefinition(), tree)
    back = plain(message)
    assert back["variables"] == {"n": BIG}
    assert back["steps"][0]["args"] == {"x": [1, 2.5, None]}
    assert back["steps"][0]["join"] == "any"
    assert back["edges"][0] == {"source_ref": "s", "target_ref": "t", "type": "true", "default": True}
    assert back["fail_policy"] == "unspecified"
    create = filled(workflow_definition_service_pb2.CreateWorkflowDefinitionRequest(), tree)
    assert plain(create)["steps"] == back["steps"]


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"edges": [{"type": "sideways"}]}, r"edges\[0\].type"),
        ({"steps": [{"x": 1}]}, r"steps\[0\].x"),
    ],
)
def test_what_the_message_cannot_say_names_its_field(tree: dict[str, object], where: str) -> None:
    with pytest.raises(CommandFailed, match=where):
        filled(definition_pb2.WorkflowDefinition(), tree)


def test_words_that_people_type() -> None:
    """A wrong word lists the right ones and is a usage error."""
    assert number(run_pb2.RunStatus.DESCRIPTOR, "failed", "--status") == run_pb2.RUN_STATUS_FAILED
    assert number(run_pb2.RunStatus.DESCRIPTOR, "", "--status") == 0
    with pytest.raises(CommandFailed, match="pending, running") as failed:
        number(run_pb2.RunStatus.DESCRIPTOR, "unspecified", "--status")
    assert failed.value.code == 2
    assert word(run_pb2.RunStatus.DESCRIPTOR, 4_711) == "4711"
    assert pair("lead:a:b", "--subject") == ("lead", "a:b")
    with pytest.raises(CommandFailed, match="KEY:ID"):
        pair("lead", "--label")


def test_lengths_of_time_for_people() -> None:
    assert [seconds(s) for s in (0.0004, 0.25, 3.14, 119, 3_600, 90_000, 900_000)] == [
        "0 ms", "250 ms", "3.1 s", "119.0 s", "60 min", "25.0 h", "10 d",
    ]  # fmt: skip
