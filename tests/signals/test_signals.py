"""The one transaction of a signal: the order of its answers, names and repetitions, limits (E1, E2, E6, SE-05 at the door)."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import control_pb2
from ductord.db.ids import new_id
from ductord.model.enums import RunStatus
from ductord.model.run import Continuation, Node, Stop
from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.sender import Sender
from tests.signals.standing import AT, CANCELLED, CONTINUED, CUT, DECIDED, FAILED, PARKED, SUCCESSOR, TIMED_OUT, Desk
from tests.support.edges import serving

PENDING = Node()


async def test_what_the_row_says(sender: Sender, desk: Desk) -> None:
    """A decision is durable with all that was said before it is answered, and its run is woken."""
    run_id = await desk.run()
    answer = await sender.call(
        "ApproveStep", run_id=run_id, step_ref="ap", request_id="r", approver_id="alex@algib.com", comment="cleared",
        payload={"tier": "gold"},
    )  # fmt: skip
    assert (answer.status, answer.run_id, answer.request_id) == (control_pb2.ACCEPT_STATUS_ACCEPTED, run_id, "r")
    [row] = await desk.signals(run_id)
    assert json.loads(row.pop("payload")) == {"tier": "gold"}
    assert row.pop("call_id") == answer.metadata.request_id
    assert row == {
        "request_id": "r",
        "verb": "approve",
        "step_ref": "ap",
        "case_status": "",
        "actor": "anonymous",
        "approver_id": "alex@algib.com",
        "groups": [],
        "comment": "cleared",
        "status": "kept",
    }
    assert await desk.wakeups(run_id) == 1


async def test_the_status_of_a_case(sender: Sender, desk: Desk) -> None:
    """E6: without one the case is resolved; whoever resolved it stands where an approver does."""
    run_id = await desk.run()
    await sender.call("ResolveInteraction", run_id=run_id, step_ref="case", status="in_review", resolved_by="kim")
    await sender.call("ResolveInteraction", run_id=run_id, step_ref="case", payload={"ok": True})
    await sender.call("ResolveInteraction", run_id=run_id, step_ref="sig", payload=[1, None])
    rows = await desk.signals(run_id)
    assert [(r["verb"], r["case_status"], r["approver_id"]) for r in rows] == [
        ("resolve_interaction", "in_review", "kim"),
        ("resolve_interaction", "resolved", ""),
        ("resolve_interaction", "resolved", ""),
    ]
    assert [json.loads(r["payload"]) for r in rows] == [None, {"ok": True}, [1, None]]


@pytest.mark.parametrize("node", [PENDING, PARKED], ids=["pending", "waiting"])
@pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED])
async def test_a_signal_may_come_before_its_step_waits(
    node: Node, status: RunStatus, sender: Sender, desk: Desk
) -> None:
    """E1: kept, whatever the run is doing, even before any tick has taken it up."""
    run_id = await desk.run(node, status)
    await sender.call("RejectStep", run_id=run_id, step_ref="ap")
    [row] = await desk.signals(run_id)
    assert (row["verb"], row["status"]) == ("reject", "kept")
    assert row["request_id"]


ENDED = [
    (DECIDED, RunStatus.RUNNING, {}, "ignored"),
    (FAILED, RunStatus.RUNNING, {}, "ignored"),
    (CANCELLED, RunStatus.RUNNING, {}, "ignored"),
    (TIMED_OUT, RunStatus.RUNNING, {}, "ignored"),
    (DECIDED, RunStatus.COMPLETED, {}, "ignored"),
    (FAILED, RunStatus.FAILED, {}, "ignored"),
    (TIMED_OUT, RunStatus.COMPLETED, {}, "ignored"),
    (DECIDED, RunStatus.TERMINATED, CONTINUED, "ignored"),
    (CANCELLED, RunStatus.CANCELLED, {}, {"status": "cancelled"}),
    (CUT, RunStatus.FAILED, {}, {"status": "failed"}),
    (CUT, RunStatus.TERMINATED, CONTINUED, {"status": "terminated", "continued_to_run_id": SUCCESSOR}),
    (CANCELLED, RunStatus.TERMINATED, CONTINUED, {"status": "terminated", "continued_to_run_id": SUCCESSOR}),
]


@pytest.mark.parametrize(("node", "status", "fields", "outcome"), ENDED)
async def test_a_step_or_a_run_that_has_ended(
    node: Node, status: RunStatus, fields: dict[str, Any], outcome: Any, sender: Sender, desk: Desk
) -> None:
    """E1, SE-05: a step that was resolved takes the signal and nothing changes; a step that only the end of its run has cut off says that the run ended, and
    which one goes on in its place (SE-07)."""
    run_id = await desk.run(node, status, **fields)
    if outcome == "ignored":
        await sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id="r", payload={"big": "x" * 1000})
        [row] = await desk.signals(run_id)
        assert (row["status"], row["payload"]) == ("ignored", "null")
    else:
        refused = await sender.refused("ApproveStep", run_id=run_id, step_ref="ap", request_id="r")
        assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "RUN_TERMINAL")
        assert refused.metadata == outcome
        assert await desk.signals(run_id) == []
    assert await desk.wakeups(run_id) == 0


@pytest.mark.parametrize(
    ("node", "status"),
    [
        (CANCELLED, "kept"),
        (CUT, "kept"),
        (PARKED, "kept"),
        (PENDING, "kept"),
        (DECIDED, "ignored"),
        (TIMED_OUT, "ignored"),
    ],
)
async def test_se07_a_run_on_its_way_to_a_successor(node: Node, status: str, sender: Sender, desk: Desk) -> None:
    """SE-07: while a run that is continued as new waits for its attempts to leave, word for a step that this cut off is kept: the successor gets it."""
    going = Continuation(new_run_id=SUCCESSOR, request_id="first")
    stop = Stop(cause=RunStatus.TERMINATED, deadline=AT, emptied=True, continuation=going)
    run_id = await desk.run(node, stop=stop)
    await sender.call("ApproveStep", run_id=run_id, step_ref="ap")
    assert [row["status"] for row in await desk.signals(run_id)] == [status]


async def test_a_known_name_is_accepted_whatever_has_become_of_the_run(sender: Sender, desk: Desk) -> None:
    """E1: a repetition is the same signal, once, also after the run has ended."""
    run_id = await desk.run()
    said: dict[str, Any] = {
        "run_id": run_id,
        "step_ref": "ap",
        "request_id": "r",
        "comment": "yes",
        "payload": {"a": 1, "b": 2},
    }
    for _ in range(2):
        await sender.call("ApproveStep", **said)
    await desk.owner.execute("delete from eec_workflow_run where run_id = $1", run_id)
    ended = await desk.run(CUT, RunStatus.TERMINATED)
    await desk.owner.execute("update eec_workflow_run set run_id = $1 where run_id = $2", run_id, ended)
    assert (await sender.call("ApproveStep", **said)).request_id == "r"
    assert (await sender.refused("ApproveStep", **{**said, "request_id": "other"})).reason == "RUN_TERMINAL"
    assert len(await desk.signals(run_id)) == 1
    assert await desk.wakeups(run_id) == 1


@pytest.mark.parametrize(
    ("rpc", "fields"),
    [
        ("RejectStep", {}),
        ("ApproveStep", {"comment": "other"}),
        ("ApproveStep", {"approver_id": "other"}),
        ("ApproveStep", {"payload": {"a": 2}}),
        ("ApproveStep", {"step_ref": "vip"}),
        ("ResolveInteraction", {"step_ref": "case"}),
    ],
)
async def test_the_same_name_with_another_body(rpc: str, fields: dict[str, Any], sender: Sender, desk: Desk) -> None:
    run_id = await desk.run()
    said: dict[str, Any] = {"run_id": run_id, "step_ref": "ap", "request_id": "r", "payload": {"a": 1}}
    await sender.call("ApproveStep", **said)
    refused = await sender.refused(rpc, **{**said, **fields})
    assert (refused.code, refused.reason) == ("ALREADY_EXISTS", "REQUEST_MISMATCH")
    assert refused.metadata == {"request_id": "r", "verb": "approve"}
    assert len(await desk.signals(run_id)) == 1


async def test_names_are_those_of_one_run(sender: Sender, desk: Desk) -> None:
    for run_id in (await desk.run(), await desk.run()):
        await sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id="r", comment=run_id)
        assert len(await desk.signals(run_id)) == 1


@pytest.mark.parametrize(
    ("rpc", "ref", "step_type"),
    [
        ("ApproveStep", "case", "human_loop"),
        ("RejectStep", "sig", "wait"),
        ("ApproveStep", "act", "action"),
        ("ResolveInteraction", "ap", "approval"),
        ("ResolveInteraction", "ev", "wait"),
        ("ResolveInteraction", "set", "event_set"),
    ],
)
async def test_a_step_of_another_kind(rpc: str, ref: str, step_type: str, sender: Sender, desk: Desk) -> None:
    """A signal that its step could never take is not kept for good."""
    run_id = await desk.run()
    refused = await sender.refused(rpc, run_id=run_id, step_ref=ref)
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "SIGNAL_UNSUITED")
    assert refused.metadata == {"step_ref": ref, "step_type": step_type}
    assert await desk.signals(run_id) == []


async def test_unknown_runs_and_steps(sender: Sender, desk: Desk) -> None:
    """E1: NOT_FOUND comes first, before a name that is known."""
    run_id = await desk.run()
    await sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id="r")
    for rpc in ("ApproveStep", "RejectStep", "ResolveInteraction"):
        assert (await sender.refused(rpc, run_id=run_id, step_ref="nope", request_id="r")).reason == "STEP_NOT_FOUND"
        for unknown in (new_id(), "no-id"):
            assert (await sender.refused(rpc, run_id=unknown, step_ref="ap")).reason == "RUN_NOT_FOUND"


async def test_who_may_decide(sender: Sender, desk: Desk) -> None:
    """E2: a step for certain groups is decided by nobody who is not known to be in one, which is nobody while authentication is off."""
    run_id = await desk.run()
    for rpc in ("ApproveStep", "RejectStep"):
        refused = await sender.refused(rpc, run_id=run_id, step_ref="vip", approver_id="chair")
        assert (refused.code, refused.reason) == ("PERMISSION_DENIED", "APPROVER_NOT_ALLOWED")
        assert refused.metadata == {"step_ref": "vip"}
    assert await desk.signals(run_id) == []


async def test_not_what_one_has_started_oneself(sender: Sender, desk: Desk) -> None:
    """E2: with `allow_self: false` neither who started the run approves it nor who gives no name; a reject is open to everybody."""
    run_id = await desk.run()
    await desk.owner.execute("update eec_workflow_run_start set actor = 'ann' where run_id = $1", run_id)
    for name in ("ann", ""):
        refused = await sender.refused("ApproveStep", run_id=run_id, step_ref="other", approver_id=name)
        assert (refused.code, refused.reason) == ("PERMISSION_DENIED", "APPROVER_NOT_ALLOWED")
        assert refused.metadata == {"step_ref": "other"}
    assert await desk.signals(run_id) == []
    await sender.call("ApproveStep", run_id=run_id, step_ref="other", approver_id="bob")
    await sender.call("RejectStep", run_id=run_id, step_ref="other", approver_id="ann")
    assert [row["verb"] for row in await desk.signals(run_id)] == ["approve", "reject"]


async def test_a_hundred_signals_may_be_kept(sender: Sender, desk: Desk) -> None:
    """E1: at most 100, exactly, even at once; a known name needs no room, nor does one for a step that was resolved; one that is consumed makes room."""
    run_id = await desk.run()
    outcomes = await asyncio.gather(
        *(sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id=str(i)) for i in range(120)),
        return_exceptions=True,
    )
    accepted = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(accepted) == len(await desk.signals(run_id)) == 100
    refused = await sender.refused("ResolveInteraction", run_id=run_id, step_ref="case", request_id="more")
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_SIGNALS")
    assert refused.metadata == {"limit": "100"}
    assert refused.retry_after_ms == 1000
    await sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id=accepted[0].request_id)
    await desk.owner.execute(
        "update eec_workflow_signal set status = 'applied' where request_id = $1", accepted[0].request_id
    )
    await sender.call("ResolveInteraction", run_id=run_id, step_ref="case", request_id="more")


async def test_se05_ten_decisions_at_once(database: Database, sender: Sender, desk: Desk) -> None:
    """SE-05: ten approvals and rejections of different names through two processes are all accepted, kept in one order, and leave who wins to the tick."""
    run_id = await desk.run()
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        both = [sender, Sender(other)]
        rpcs = ["ApproveStep", "RejectStep"]
        answers = await asyncio.gather(
            *(both[i % 2].call(rpcs[i % 3 % 2], run_id=run_id, step_ref="ap", payload={"by": i}) for i in range(10))
        )
    rows = await desk.signals(run_id)
    assert {row["request_id"] for row in rows} == {answer.request_id for answer in answers}
    times = await desk.owner.fetch("select create_time from eec_workflow_signal order by number")
    assert times == sorted(times)
    assert [row["status"] for row in rows] == ["kept"] * 10


async def test_the_same_call_from_everywhere_at_once(database: Database, sender: Sender, desk: Desk) -> None:
    """Twenty times the same signal through two processes is one signal and one wake-up."""
    run_id = await desk.run()
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        calls = [
            s.call("ApproveStep", run_id=run_id, step_ref="ap", request_id="r") for s in [sender, Sender(other)] * 10
        ]
        await asyncio.gather(*calls)
    assert len(await desk.signals(run_id)) == 1
    assert await desk.wakeups(run_id) == 1


async def test_a_run_of_a_newer_release(sender: Sender, desk: Desk) -> None:
    """What a newer release wrote is not judged by halves."""
    run_id = await desk.run()
    await desk.owner.execute("update eec_workflow_run set engine_level = 1000 where run_id = $1", run_id)
    refused = await sender.refused("ApproveStep", run_id=run_id, step_ref="ap")
    assert (refused.code, refused.reason) == ("UNAVAILABLE", "SERVICE_UNAVAILABLE")
    assert refused.metadata == {"service": "signals"}


async def test_a_run_that_cannot_be_read_is_told_nothing(sender: Sender, desk: Desk, owner: asyncpg.Connection) -> None:
    """C9: nothing can be judged of it. The call may be repeated, once somebody has seen to it; it is no internal error."""
    run_id = await desk.run()
    await owner.execute("update eec_workflow_run set run_state = '{\"saga\": 5}' where run_id = $1", run_id)
    refusal = await sender.refused("ApproveStep", run_id=run_id, step_ref="ap")
    assert (refusal.reason, refusal.metadata["service"]) == ("SERVICE_UNAVAILABLE", "signals")
    assert await desk.signals(run_id) == []
