"""The picture of a run on a terminal: its nodes, what is held, and after its end what is being undone (C2, C7)."""

import io

from rich.console import Console

from ductor.workflow.v1 import definition_pb2, run_pb2, workflow_service_pb2
from ductord.cli.drawing import Board


def _picture(answer: workflow_service_pb2.GetRunResponse, nodes: list[run_pb2.StepState]) -> list[str]:
    steps = [definition_pb2.StepDefinition(ref=node.step_ref) for node in nodes]
    paper = Console(file=io.StringIO(), width=120, record=True)
    paper.print(Board(steps, []).drawn(answer, nodes))
    return [line.rstrip() for line in paper.export_text().splitlines()]


def test_what_is_being_undone_is_drawn_below_the_graph() -> None:
    """How many entries of the ledger stand where, and the one at work with its attempt; control characters of an action cannot move the cursor."""
    entry = run_pb2.CompensationEntry
    summary = run_pb2.RunSummary(
        workflow_type="trip",
        status=run_pb2.RUN_STATUS_CANCELLED,
        compensation_status=run_pb2.COMPENSATION_STATUS_RUNNING,
    )
    ledger = [
        entry(step_ref="hotel", action="core:echo", status=run_pb2.COMPENSATION_ENTRY_STATUS_DONE, attempt=1),
        entry(step_ref="seat", action="my:un\x1b[2Jdo", status=run_pb2.COMPENSATION_ENTRY_STATUS_RUNNING, attempt=2),
        entry(step_ref="seat", action="my:close", status=run_pb2.COMPENSATION_ENTRY_STATUS_OWED),
    ]
    answer = workflow_service_pb2.GetRunResponse(data=run_pb2.RunDetail(summary=summary, compensation=ledger))
    lines = _picture(answer, [run_pb2.StepState(step_ref="hotel", status=run_pb2.NODE_STATUS_SUCCEEDED)])
    assert "compensation running  1 done  1 running  1 owed" in lines
    assert "  ▶ seat: my:un\\u001b[2Jdo, attempt 2" in lines


def test_a_held_node_says_so_and_nothing_is_said_of_no_ledger() -> None:
    answer = workflow_service_pb2.GetRunResponse(
        data=run_pb2.RunDetail(summary=run_pb2.RunSummary(workflow_type="trip", status=run_pb2.RUN_STATUS_PAUSED))
    )
    lines = _picture(answer, [run_pb2.StepState(step_ref="seat", status=run_pb2.NODE_STATUS_PENDING, paused=True)])
    assert lines[0].startswith("trip v0  paused")
    assert [line.split() for line in lines if "seat" in line] == [["·", "seat", "pending", "paused"]]
    assert not any("compensation" in line for line in lines)
