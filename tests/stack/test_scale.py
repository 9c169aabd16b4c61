"""Everything twice, NOTIFY on and off: the same results, and no task handed out twice."""

from collections import Counter

import asyncpg
import pytest

from tests.chaos.books import assert_whole
from tests.support.api import Api, actions, chain
from tests.support.stack import Stack, running_stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

RUNS = 150


def _mixed() -> list[dict[str, object]]:
    fan = [f"f{i}" for i in range(20)]
    edges = [{"source_ref": "a", "target_ref": ref, "type": "success"} for ref in fan]
    edges += [{"source_ref": ref, "target_ref": "z", "type": "success"} for ref in fan]
    failing = chain("fails", 2)
    failing["steps"][0] |= {"action": "core:fail", "args": {"code": "INVALID_ARGUMENT"}}
    flaky = chain("flaky", 2)
    flaky["steps"][0] |= {"action": "core:fail", "args": {"times": 1}, "retry_max_attempts": 3, "retry_backoff_ms": 10}
    return [
        chain("ten", 10),
        {"family_slug": "fan", "steps": [*actions(["a"]), *actions(fan), *actions(["z"])], "edges": edges},
        failing,
        flaky,
    ]


async def _play(api: Api, owner: asyncpg.Connection, seconds: float) -> Counter[str]:
    for tree in _mixed():
        await api.start_many(await api.publish(tree), RUNS)
    await api.until_ended(seconds)
    return await assert_whole(owner)


def _expected() -> Counter[str]:
    return Counter({"completed": 3 * RUNS, "failed": RUNS})


async def _attempts(owner: asyncpg.Connection) -> dict[str, int]:
    rows = await owner.fetch(
        "select s.family_slug, count(*)::int as n from eec_workflow_step_attempt a join eec_workflow_run_start s using (tenant_id, run_id)"
        " where s.family_slug in ('ten', 'fan', 'fails', 'flaky') group by 1"
    )
    return {row["family_slug"]: row["n"] for row in rows}


ATTEMPTS = {"ten": 10 * RUNS, "fan": 22 * RUNS, "fails": RUNS, "flaky": 3 * RUNS}


async def test_two_of_each_hand_nothing_out_twice(stack: Stack, owner: asyncpg.Connection) -> None:
    """Acceptance: two coordinators, dispatchers and workers at once; the attempts are just those of the graphs, and both workers took part."""
    async with Api(stack["edges"].target, "scale") as api:
        before = await owner.fetchval("select count(*) from eec_workflow_run")
        statuses = await _play(api, owner, 120)
    assert sum(statuses.values()) == before + 4 * RUNS
    assert await _attempts(owner) == ATTEMPTS
    assert await owner.fetchval("select count(*) from eec_workflow_step_attempt where stale_time is not null") == 0
    workers = await owner.fetchval("select count(distinct worker_id) from eec_workflow_step_attempt")
    assert workers == 2


async def test_pg_02_without_notify_the_results_are_the_same() -> None:
    """PG-02, acceptance: NOTIFY off everywhere; polling alone completes every run."""
    with running_stack(durable=False, DUCTOR_NOTIFY="0", DUCTOR_POLL_MS="200") as quiet:
        owner = await asyncpg.connect(quiet.postgres.dsn("ductor"))
        try:
            async with Api(quiet["edges"].target, "quiet") as api:
                assert await _play(api, owner, 120) == _expected()
            assert await _attempts(owner) == ATTEMPTS
        finally:
            await owner.close()
