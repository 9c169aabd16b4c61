"""What was accepted while a suite was being rolled, held against the database and the outside."""

from collections import Counter

from tests.chaos.books import assert_whole
from tests.rolling.traffic import MINUTES, STEPS, Traffic


async def audit(traffic: Traffic) -> None:
    """The law: no call failed, every accepted start is a run and nothing else is, every run completed, every step succeeded once and the outside saw its
    key just once; each word was applied once, each time of the timetable fired once.

    An attempt that a stopping worker was given too late, and gave back before it began, is no step (KB-01).
    """
    assert traffic.caller.failures == [], "\n".join(traffic.caller.failures)
    tenant = traffic.caller.tenant
    fired = await traffic.owner.fetch(
        "select nominal_time, run_id::text, source, outcome from eec_workflow_schedule_fire where tenant_id = $1 and kind = 'fire'"
        " and source <> 'manual' order by 1",
        tenant,
    )
    assert {row["outcome"] for row in fired} <= {"started"}
    traffic.started["ticks"] |= {row["run_id"] for row in fired}
    rows = await traffic.owner.fetch(
        "select run_id::text, family_slug from eec_workflow_run_start where tenant_id = $1", tenant
    )
    found: dict[str, set[str]] = {slug: set() for slug in traffic.started}
    for row in rows:
        found[row["family_slug"]].add(row["run_id"])
    for slug, ids in found.items():
        accepted = traffic.started[slug]
        assert ids == accepted, f"{slug}: lost {accepted - ids}, nobody's {ids - accepted}"
    assert await assert_whole(traffic.owner, tenant=tenant) == Counter(completed=len(rows))
    attempts = await traffic.owner.fetch(
        "select s.family_slug, a.idempotency_key, a.attempt, a.status, a.outcome from eec_workflow_step_attempt a"
        " join eec_workflow_run_start s using (tenant_id, run_id) where a.tenant_id = $1",
        tenant,
    )
    odd = [dict(row) for row in attempts if row["status"] != "succeeded" and row["outcome"] != "released"]
    assert odd == [], odd
    acted = [row for row in attempts if row["idempotency_key"] and row["status"] == "succeeded"]
    assert Counter(row["family_slug"] for row in acted) == Counter(
        {slug: {"effects": STEPS, "asks": 2}.get(slug, 1) * len(ids) for slug, ids in found.items() if ids}
    )
    seen, expected = traffic.recorder.calls, {row["idempotency_key"]: 1 for row in acted}
    assert seen == expected, (seen - Counter(expected), Counter(expected) - seen)
    words = await traffic.owner.fetch(
        "select status, count(*) as n from eec_workflow_signal where tenant_id = $1 group by 1", tenant
    )
    assert {row["status"]: row["n"] for row in words} == {"applied": len(found["asks"])}, words
    if traffic.starting:
        times = [row["nominal_time"] for row in fired]
        assert len(times) >= MINUTES
        assert len(set(times)) == len(times)
        assert (times[-1] - times[0]).total_seconds() == 60 * (len(times) - 1), "no minute is missing"
