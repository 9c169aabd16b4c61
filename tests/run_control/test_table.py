"""Every control in every state of a run, at the door: accepted as a durable intent, or refused with its reason. No coordinator runs: the door needs none."""

import pytest

from ductor.workflow.v1 import control_pb2
from ductord.model.enums import Verb
from tests.run_control.operator import Operator
from tests.run_control.standing import SUCCESSOR, Stands

TABLE = """
                          pending     running     paused      stopping    emptying    continuing  failed      completed   continued
pause                     ok          ok          ok          ok          stopping    ok          terminal    terminal    terminal
resume                    unsuited    unsuited    ok          unsuited    unsuited    ok          terminal    terminal    terminal
cancel                    ok          ok          ok          ok          ok          ok          terminal    terminal    terminal
terminate                 ok          ok          ok          ok          ok          ok          terminal    terminal    terminal
redrive                   open        open        open        open        open        open        ok          unsuited    terminal
continue_as_new           ok          ok          ok          stopping    stopping    ok          terminal    terminal    ok
reset                     unsuited    ok          ok          ok          ok          ok          ok          ok          ok
pause_node                ok          ok          ok          ok          stopping    ok          terminal    terminal    terminal
resume_node               node        node        node        node        stopping    ok          terminal    terminal    terminal
reset_node                node        ok          ok          stopping    stopping    ok          terminal    terminal    terminal
update_node_retry_policy  ok          ok          ok          ok          stopping    ok          terminal    terminal    terminal
update_node_timeout       ok          ok          ok          ok          stopping    ok          terminal    terminal    terminal
resolve_repair            nothing     nothing     nothing     nothing     nothing     nothing     nothing     nothing     nothing
"""
"""Step s0 runs, wherever the run is open; of a run on its way to a successor, what waits is handed on (C6)."""

REASONS = {
    "terminal": "RUN_TERMINAL",
    "stopping": "RUN_STOPPING",
    "unsuited": "RUN_STATUS_UNSUITED",
    "open": "RUN_NOT_TERMINAL",
    "node": "NODE_STATUS_UNSUITED",
    "nothing": "NOTHING_TO_REPAIR",
}
HEAD, *ROWS = [line.split() for line in TABLE.strip().splitlines()]


def test_the_table_has_every_verb() -> None:
    assert [row[0] for row in ROWS] == list(Verb)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
async def test_control_by_status(row: list[str], operator: Operator, stands: Stands) -> None:
    """Accepted: one intent and one wake-up. Refused: the reason, and nothing is recorded."""
    verb = Verb(row[0])
    for stand, wanted in zip(HEAD, row[1:], strict=True):
        run_id = await stands.run(stand)
        if wanted == "ok":
            answer = await operator.ask(verb, run_id, request_id="r", reason="because")
            assert (answer.status, answer.run_id) == (control_pb2.ACCEPT_STATUS_ACCEPTED, run_id), stand
            assert answer.request_id == "r"
            assert answer.metadata.request_id
            [intent] = await stands.intents(run_id)
            assert (intent["verb"], intent["status"], intent["reason"]) == (verb, "pending", "because")
            assert intent["call_id"] == answer.metadata.request_id
            assert intent["actor"] == "anonymous"
            assert await stands.wakeups(run_id) == 1, stand
        else:
            refusal = await operator.refused(verb, run_id, request_id="r")
            assert refusal.reason == REASONS[wanted], stand
            assert refusal.code == "FAILED_PRECONDITION"
            assert await stands.intents(run_id) == []
            assert await stands.wakeups(run_id) == 0, stand
            if stand == "continued" and wanted == "terminal":
                assert refusal.metadata["continued_to_run_id"] == SUCCESSOR


@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled", "completed", "terminated", "merged"])
async def test_redrive_by_terminal_status(status: str, operator: Operator, stands: Stands) -> None:
    """C4: what failed, ran out of time or was cancelled is redriven; the rest is not, and the refusal says which status it is."""
    run_id = await stands.run(status)
    if status in ("failed", "timed_out", "cancelled"):
        answer = await operator.ask(Verb.REDRIVE, run_id)
        assert list(answer.plan.restarted_step_refs) == ["s0", "s1"]
    else:
        refusal = await operator.refused(Verb.REDRIVE, run_id)
        assert (refusal.reason, refusal.metadata["status"]) == ("RUN_STATUS_UNSUITED", status)
