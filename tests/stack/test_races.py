"""Races on real processes: whoever is first, the others let go at once, and nobody holds a run up (G7)."""

import json
from datetime import timedelta

import asyncpg
import pytest

from tests.chaos.books import assert_whole
from tests.support.api import Api

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

RUNS = 24
STEPS = [
    {"ref": "quick", "type": "action", "action": "core:echo", "args": {"n": 1}},
    {"ref": "brief", "type": "action", "action": "core:sleep", "args": {"ms": 50}},
    {"ref": "long", "type": "action", "action": "core:sleep", "args": {"ms": 100_000}},
    {"ref": "person", "type": "approval", "approval": {"timeout_ms": 3_600_000}},
    {"ref": "moment", "type": "wait", "wait": {"duration": "1h"}},
    {"ref": "event", "type": "wait", "wait": {"event": {"event_name": "paid", "correlation_key": "'k'"}}},
    {"ref": "first", "type": "race"},
    {
        "ref": "after",
        "type": "action",
        "action": "core:echo",
        "args": {"winner": "${{ STEPS['first'].output.winner }}"},
    },
]
RACERS = ("quick", "brief", "long", "person", "moment", "event")
EDGES = [{"source_ref": ref, "target_ref": "first", "type": "success"} for ref in RACERS]
EDGES.append({"source_ref": "first", "target_ref": "after", "type": "success"})


async def test_g7_losers_let_go(api: Api, owner: asyncpg.Connection) -> None:
    """G7: short work, long work, a person, a moment and an event race in many runs at once. Each has one winner, which succeeded; the long work is told to stop
    and does, long before it would have been done or revoked; no wait, timer or attempt is left."""
    definition = await api.publish({"family_slug": "race", "title": "race", "steps": STEPS, "edges": EDGES})
    runs = await api.start_many(definition, RUNS)
    await api.until_ended(120)
    assert (await assert_whole(owner, tenant="stack"))["completed"] >= RUNS
    rows = await owner.fetch(
        "select run_id::text, step_ref, status, output::text, report_time - start_time as took from eec_workflow_step_attempt where run_id = any($1::uuid[])",
        runs,
    )
    for run_id in runs:
        of = {row["step_ref"]: row for row in rows if row["run_id"] == run_id}
        winner = json.loads(of["first"]["output"])["winner"]
        assert winner in ("quick", "brief")
        assert of[winner]["status"] == "succeeded"
        assert json.loads(of["after"]["output"]) == {"winner": winner}
        assert of["long"]["status"] != "succeeded"
        assert of["long"]["took"] is None or of["long"]["took"] < timedelta(seconds=28)
        assert of.keys().isdisjoint({"person", "moment", "event"}), "a wait that was not over has no output"
