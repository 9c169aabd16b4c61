"""PG-07: serialization failures, deadlocks and aborted transactions on any writing statement, and at COMMIT.

Whole transactions are repeated; nothing is lost or doubled.
"""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.chaos.books import assert_whole
from tests.faults.load import metric, trickle, until
from tests.support.api import Api, actions
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

RUNS = 500
TABLES = ("run_start", "run", "transition", "step_attempt", "timer", "wakeup", "checkpoint")

_INJECT = """
create sequence faults_injected;
grant usage on sequence faults_injected to public;
create function faults_inject() returns trigger language plpgsql as $$
begin
    if tg_argv[0] = 'commit' then  -- once per transaction, however many rows it brings
        if current_setting('faults.judged', true) = 'yes' then
            return null;
        end if;
        perform set_config('faults.judged', 'yes', true);
    end if;
    if random() < 0.05 then
        perform nextval('faults_injected');  -- outlives the rollback
        raise 'injected' using errcode = (array['40001', '40P01', '25P02'])[1 + floor(random() * 3)::int];
    end if;
    return null;
end $$;
"""
_CALM = "drop function if exists faults_inject() cascade"


@pytest.fixture
async def conflicts(stack: Stack, owner: asyncpg.Connection) -> AsyncIterator[float]:
    """5 % of all writing statements fail, and of the COMMITs that bring transitions. Gives what /metrics had counted before."""
    before = await _counted(stack)
    await owner.execute(_INJECT)
    for table in TABLES:
        await owner.execute(
            f"create trigger faults before insert or update or delete on eec_workflow_{table} for each statement execute function faults_inject('statement')"
        )
    await owner.execute(
        "create constraint trigger faults_at_commit after insert on eec_workflow_transition deferrable initially deferred"
        " for each row execute function faults_inject('commit')"
    )
    yield before
    await owner.execute(_CALM)
    await owner.execute("drop sequence faults_injected")


async def test_pg_07_conflicts_on_any_statement(
    stack: Stack, api: Api, owner: asyncpg.Connection, conflicts: float
) -> None:
    """PG-07: 500 runs of three steps, one of which is tried twice, with a timer each: just the attempts of the graph; /metrics shows every error."""
    steps = [
        *actions(
            ["flaky"],
            "core:fail",
            args={"times": 1},
            retry_max_attempts=3,
            retry_backoff_ms=1,
            total_timeout_ms=600_000,
        ),
        *actions(["left", "right"], timeout_ms=60_000),
    ]
    edges = [{"source_ref": "flaky", "target_ref": ref, "type": "success"} for ref in ("left", "right")]
    tree = {
        "family_slug": "contended",
        "steps": steps,
        "edges": edges,
        "checkpoints": [{"name": "both", "step_refs": ["left", "right"]}],
    }
    definition_id = await api.publish(tree)
    run_ids = await trickle(api, definition_id, RUNS, 5, batch=10)
    await api.until_ended()
    await owner.execute(_CALM)
    injected = await owner.fetchval("select last_value from faults_injected")
    assert injected > 20
    await until(lambda: _visible(stack, conflicts + injected))
    tenant = dict(api.metadata)["x-tenant-id"]
    assert await assert_whole(owner, tenant=tenant) == {"completed": RUNS}
    attempts = await owner.fetch(
        "select step_ref, attempt, status, count(*)::int as n from eec_workflow_step_attempt where tenant_id = $1 group by 1, 2, 3",
        tenant,
    )
    assert {(row["step_ref"], row["attempt"], row["status"]): row["n"] for row in attempts} == {
        ("flaky", 1, "failed"): RUNS,
        ("flaky", 2, "succeeded"): RUNS,
        ("left", 1, "succeeded"): RUNS,
        ("right", 1, "succeeded"): RUNS,
    }
    assert len(set(run_ids)) == RUNS


async def _counted(stack: Stack) -> float:
    """Conflicts that /metrics tells of: a turn that raised, a transaction that was tried again, a call that was refused (which its caller counts too)."""
    turns = [
        await metric(stack, "ductor_loop_failures_total", f'loop="{name}.') for name in ("coordinator", "dispatch")
    ]
    tried_again = await metric(stack, "ductor_transaction_retries_total")
    refused = await metric(stack, "ductor_grpc_calls_total", 'code="ABORTED"')
    return sum(turns) + tried_again + refused


async def _visible(stack: Stack, count: float) -> bool:
    return await _counted(stack) >= count  # a busy box may add a conflict of its own
