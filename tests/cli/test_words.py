"""Messages as JSON for `--json`: the spelling of the REST door, no digit lost (L5)."""

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import run_pb2, workflow_service_pb2
from ductord.cli.ending import WAYS_OUT, CommandFailed
from ductord.cli.waits import waits_for
from ductord.cli.words import number, pair, plain, seconds, word
from ductord.rpc.reasons import CODES

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


def test_ways_out_are_of_reasons_that_exist() -> None:
    """Advice for a reason that the contract does not have would never be seen."""
    assert set(WAYS_OUT) <= set(CODES)


def test_lengths_of_time_for_people() -> None:
    assert [seconds(s) for s in (0.0004, 0.25, 3.14, 119, 3_600, 90_000, 900_000)] == [
        "0 ms", "250 ms", "3.1 s", "119.0 s", "60 min", "25.0 h", "10 d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        ({"type": "timer", "due_time": "T1"}, "waits until T1"),
        ({"type": "timer", "due_time": "T1", "condition": "STEPS.a.status == 'failed'"}, "waits until STEPS.a.status == 'failed'"),
        ({"type": "timer", "due_time": "T1", "timeout_time": "T2"}, "waits until T1, or until T2"),
        ({"type": "event", "event_name": "paid", "correlation_key": "o-1", "timeout_time": "T2"}, "waits for event paid, key o-1, until T2"),
        ({"type": "event", "event_name": "paid"}, "waits for event paid"),
        ({"type": "signal", "signal": "go"}, "waits for signal go"),
        ({"type": "approval", "approvers": ["ann", "bob"]}, "waits for approval, approved by ann and bob so far"),
        ({"type": "approval", "votes": [{"approver_id": "ann"}]}, "waits for approval, approved by ann so far"),
        ({"type": "interaction", "case_id": "c1", "case_status": "open"}, "waits for case c1 (open)"),
        (
            {"type": "event_set", "correlation_key": "o-1", "received": [{"event_name": "paid", "requirement": "p"}, {"event_name": "paid"}]},
            "waits for a set of events, key o-1, 2 events so far (p, paid)",
        ),
        ({"type": "digest", "digest_leader_run_id": "r1"}, "waits for a digest, led by r1"),
        ({"type": "digest", "leads": True, "due_time": "T1"}, "waits for a digest that it leads, until T1"),
        ({"type": "moon_phase"}, "waits for moon phase"),
    ],
)  # fmt: skip
def test_what_a_step_waits_for_in_words(wait: dict[str, Any], said: str) -> None:
    """Of steps as reads show them and of events of a history; also of a type that a newer server has."""
    assert waits_for(wait, str) == said
