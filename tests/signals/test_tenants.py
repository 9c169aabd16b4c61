"""TN-01: another tenant's runs are not there, and its events reach nobody but its own."""

import asyncpg
import pytest

from ductord.db.ids import new_id
from ductord.db.pool import open_pool
from tests.conftest import Database
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.edges import Edges

CALLS = [
    ("ApproveStep", {}),
    ("RejectStep", {}),
    ("ResolveInteraction", {}),
    ("ListWaitReceipts", {}),
    ("ExplainWorkflowEventSetMatch", {"event_name": "paid"}),
]


async def test_tn01_a_foreign_run_is_as_a_random_one(edges: Edges, desk: Desk) -> None:
    run_id = await desk.open(step_ref="set")
    foreign = Sender(edges, "other")
    for rpc, fields in CALLS:
        step = {} if fields else {"step_ref": "ap"}
        refusals = [await foreign.refused(rpc, run_id=name, **step, **fields) for name in (run_id, new_id())]
        told = [(r.code, r.reason, r.message, r.metadata) for r in refusals]
        assert told[0] == told[1], rpc
        assert told[0][:2] == ("NOT_FOUND", "RUN_NOT_FOUND")
    assert await desk.signals(run_id) == []


async def test_tn01_a_foreign_event_matches_nothing(edges: Edges, sender: Sender, desk: Desk) -> None:
    """The same name and key in two tenants are two things, and so are ids, kept events and explanations."""
    mine, theirs = await desk.open(step_ref="set"), await desk.open(step_ref="set", tenant="other")
    foreign = Sender(edges, "other")
    explained = await foreign.call("ExplainWorkflowEventSetMatch", event_name="paid", correlation_key="k")
    assert (explained.candidate_waits, explained.matched) == (1, 1)
    third = Sender(edges, "third")
    assert await third.told(event_id="e") == (0, False)
    assert await third.told(event_id="e", ttl_seconds=60) == (0, False)
    assert await foreign.told(event_id="e") == (1, False)
    assert await desk.receipts(mine) == []
    assert await sender.told(event_id="e") == (1, False)
    assert len(await desk.receipts(mine)) == len(await desk.receipts(theirs)) == 1


async def test_a_call_cannot_touch_a_run(database: Database, sender: Sender, desk: Desk) -> None:
    """The service's login may insert what came from outside, and change nothing."""
    run_id = await desk.open()
    await sender.call("ApproveStep", run_id=run_id, step_ref="ap")
    await sender.told(event_id="e")
    pool = await open_pool(database.dsn("signals"), "signals")
    try:
        for sql in (
            "update eec_workflow_run set status = 'paused'",
            "update eec_workflow_signal set status = 'applied'",
            "delete from eec_workflow_signal",
            "update eec_workflow_wait set close_time = now()",
            "update eec_workflow_event set matched = 2",
            "delete from eec_workflow_event",
            "update eec_workflow_receipt set applied_time = now()",
            "select from eec_workflow_step_attempt",
            "select from eec_workflow_intent",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await pool.execute(sql)
        assert await pool.fetchval("select count(*) from eec_workflow_signal") == 0, "no tenant, no rows"
    finally:
        await pool.close()
