"""Lists over many rows read what they show: each filter of the audit trail, the ledger and the runs that owe something has an index that serves it.

Counted in pages of the database, which depend on the plan and not on the machine.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from ductord.db.queries import Queries
from tests.conftest import Database

pytestmark = pytest.mark.pages

ROWS = 30_000
MOST_PAGES = 400
"""A page of 50 rows and what leads to them; the smallest of the tables has more pages than that, and an index scan of all of it touches each row's."""
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
RUN = "00000000-0000-0000-0000-000000000007"
ALONE = "00000000-0000-0000-0000-000000000008"
AUDIT = Queries("ductord.reads", "audit.sql")
LEDGER = Queries("ductord.reads", "ledger.sql")
RUNS = Queries("ductord.reads")
CHILDREN = Queries("ductord.reads", "children.sql")
TREE = Queries("ductord.reads", "tree.sql")

FILL = (
    "insert into eec_workflow_audit (tenant_id, audit_id, at, actor, action, target)"
    " select 't', gen_random_uuid(), now() - n * interval '1 s', case when n % 3000 = 0 then 'rare' else 'anonymous' end,"
    " case when n % 2000 = 0 then 'publish' else 'cancel' end, 'run:' || n / 10 from generate_series(1, $1::int) n",
    "insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, root_run_id, journey_id,"
    " create_time, labels)"
    " select 't', ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), gen_random_uuid(), 1, 'f' || n % 20, gen_random_uuid(),"
    " gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 s', '{\"k\": \"1\"}' from generate_series(1, $1::int) n",
    "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time, end_time,"
    " compensation_status) select tenant_id, run_id, 'failed', 1, version_id, 1, 1, now(), now(), now(),"
    " coalesce((array['failed', 'done', 'manual_repair', 'running'])[row_number() over () % 2000 + 1], 'none') from eec_workflow_run_start where $1::int > 0",
    "insert into eec_workflow_compensation (tenant_id, run_id, position, family_slug, step_ref, kind, block, number, action, status, create_time, update_time)"
    " select 't', ('00000000-0000-0000-0000-' || lpad(to_hex(n / 4), 12, '0'))::uuid, n % 4, 'f' || n % 20, 's', 'compensation', 'on_failure', 0, 'a',"
    " case when n % 2000 = 0 then 'manual_repair' when n % 1999 = 0 then 'failed' else 'done' end, now(), now() - n * interval '1 s'"
    " from generate_series(1, $1::int) n",
    # one tree among them: a run in three hundred is a child of the seventh
    f"update eec_workflow_run_start set parent_run_id = '{RUN}', root_run_id = '{RUN}' where $1::int > 0 and right(run_id::text, 2) = '2c'",
    # all of them have a label; and one journey: one in sixteen, the seventh first
    f"update eec_workflow_run_start set journey_id = '{RUN}' where $1::int > 0 and right(run_id::text, 1) = '7'",
    "insert into eec_workflow_run_label (tenant_id, label, create_time, run_id)"
    " select tenant_id, 'k:1', create_time, run_id from eec_workflow_run_start where $1::int > 0",
    "insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, close_policy, create_time)"
    f" select tenant_id, '{RUN}', 's', row_number() over () - 1, 1, run_id, run_id, true, 'abandon', now() from eec_workflow_run_start where $1::int > 0",
    "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time,"
    f" create_time) select 't', '{RUN}', 'items', n, 'item', 1, 'standard', 'default', 'a', '{{}}', n::text, now(), now() from generate_series(1, $1::int) n",
)  # fmt: skip


def _audit(target: str = "", action: str = "", actor: str = "") -> tuple[Any, ...]:
    return AUDIT["list_audit"], "t", None, LAST, target, action, actor, None, None, 51


def _ledger(status: str = "", family: str = "", run_id: str | None = None) -> tuple[Any, ...]:
    return LEDGER["list_compensations"], "t", None, LAST, (1 << 31) - 1, status, family, run_id, 51


def _runs(compensation: str, family: str = "") -> tuple[Any, ...]:
    return RUNS["list_runs"], "t", None, LAST, family, "", "", None, None, None, 51, compensation, ""


def _kin(
    parent: str | None = None,
    root: str | None = None,
    status: str = "",
    journey: str | None = None,
    first: str | None = None,
) -> tuple[Any, ...]:
    kin = (parent, root, journey, first)
    return RUNS["list_runs_kin"], "t", None, LAST, "", "", "", None, None, None, 51, "", status, "{}", *kin


def _labelled(*labels: str, status: str = "") -> tuple[Any, ...]:
    texts = ",".join(labels)
    return RUNS["list_runs_labelled"], "t", None, LAST, "", "", "", None, None, None, 51, "", status, f"{{{texts}}}"


def _items(first: int, last: int) -> tuple[Any, ...]:
    return CHILDREN["list_items"], "t", RUN, "items", first, last, "", "{}", 1 << 20, 51, None


def _child_runs(first: int, last: int) -> tuple[Any, ...]:
    return CHILDREN["list_child_runs"], "t", RUN, "s", first, last, "", "{}", 1 << 20, 51, None, False, True, 1


CASES = {
    "children of a run": _kin(RUN, None),
    "runs below a root": _kin(None, RUN),
    "failed runs below a root": _kin(None, RUN, "failed"),
    "a journey": _kin(journey=RUN),
    "the first run of a journey": _kin(first=RUN),
    "a journey of one run": _kin(journey=ALONE),
    "runs below a root, of its journey": _kin(root=RUN, journey=RUN),
    "a label that all have": _labelled("k:1"),
    "two labels": _labelled("k:1", "k:1"),
    "a label that all have, of failed runs": _labelled("k:1", status="failed"),
    "a page of items": _items(20_000, 20_050),
    "a page of child runs": _child_runs(20_000, 20_050),
    "the first of many children, as a tree": (TREE["children_of"], "t", f"{{{RUN}}}", 31),
    "all of the trail": _audit(),
    "the trail of one run": _audit("run:77"),
    "a rare act": _audit(action="publish"),
    "somebody's acts": _audit(actor="rare"),
    "somebody's rare acts": _audit(action="publish", actor="rare"),
    "all of the ledger": _ledger(),
    "what needs repair": _ledger("manual_repair"),
    "what failed in a family": _ledger("failed", "f3"),
    "what is done": _ledger("done"),
    "a run's entries": _ledger(run_id=RUN),
    "runs that need repair": _runs("manual_repair"),
    "runs that are being unwound": _runs("running"),
    "runs of a family whose unwinding failed": _runs("failed", "f3"),
    "runs that owe nothing": _runs("none"),
}


@pytest.fixture
async def reader(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """The reads service's own login over tables that have grown."""
    owner = await asyncpg.connect(database.owner)
    for statement in FILL:
        await owner.execute(statement, ROWS)
    await owner.execute("analyze")
    await owner.close()
    settings = {"plan_cache_mode": "force_custom_plan", "jit": "off"}
    connection = await asyncpg.connect(database.dsn("reads"), server_settings=settings)
    await connection.execute("select set_config('ductor.tenant_id', 't', false)")
    yield connection
    await connection.close()


async def test_lists_read_what_they_show(reader: asyncpg.Connection) -> None:
    """Whatever the filter: a list over 30,000 rows touches a few pages of them."""
    for name, case in CASES.items():
        text = await reader.fetchval(f"explain (analyze, buffers, format json) {_spelt_out(*case)}")
        plan = json.loads(text)[0]["Plan"]
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert pages <= MOST_PAGES, f"{name}: {pages} pages\n{json.dumps(plan, indent=1)}"


def _spelt_out(statement: str, *values: str | int | bool | None) -> str:
    """The statement with its values in it, as a custom plan sees them: EXPLAIN takes no parameters."""
    return re.sub(r"\$(\d+)", lambda found: _literal(values[int(found[1]) - 1]), statement)


def _literal(value: str | int | bool | None) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
