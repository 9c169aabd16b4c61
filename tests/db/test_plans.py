"""Plans that were made while a table was empty: they are kept for seconds, and must not read a tenant's whole index for every run meanwhile."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

import ductord
from ductord.coordinator.service import PLANS
from ductord.db.pool import PROBES
from ductord.db.queries import Queries
from tests.conftest import Database

pytestmark = pytest.mark.pages

_HOT = {"coordinator": PLANS, "dispatch": PROBES}
FILES = sorted((role, path.name) for role in _HOT for path in (Path(ductord.__file__).parent / role).glob("*.sql"))
_RUNS = {"run_id", "parent_run_id", "child_run_id"}
_TIED = "eec_workflow_child"
"""Whichever of its indexes is preferred while it is empty, it is the wrong one for half of those that ask."""
_TURNED_OVER = (
    "insert into eec_workflow_wakeup (tenant_id, run_id) select 't', gen_random_uuid() from generate_series(1, 5000)",
    "delete from eec_workflow_wakeup",
    "insert into eec_workflow_wakeup (tenant_id, run_id) values ('t', gen_random_uuid())",
    "vacuum eec_workflow_wakeup",
)
_EQUAL = re.compile(r"\((?:\w+\.)?(\w+) = ")


@pytest.mark.parametrize("state", ["never analyzed", "analyzed while empty", "turned over"])
@pytest.mark.parametrize(("role", "filename"), FILES)
async def test_a_run_is_looked_up_by_its_key(database: Database, role: str, filename: str, state: str) -> None:
    """PG-05: where a statement names a run, no index is used that has other columns between the tenant and the run: such an index is as cheap as any as long as
    the table is empty, and is walked from end to end once it is not. The wake-ups seem empty whenever they are vacuumed between two ticks."""
    owner = await asyncpg.connect(database.owner)
    if state == "turned over":
        for statement in _TURNED_OVER:
            await owner.execute(statement)
    if state != "never analyzed":
        await owner.execute("analyze")
    await owner.close()
    connection = await asyncpg.connect(database.dsn(role), server_settings={"jit": "off", **_HOT[role]})
    try:
        await connection.execute("set plan_cache_mode = force_generic_plan")
        columns = await _columns(connection)
        wrong = []
        for name, sql in Queries(f"ductord.{role}", filename).items():
            for node in _nodes(await _plan(connection, name, sql)):
                if _TIED not in (node.get("Relation Name"), node.get("Index Name", "")[: len(_TIED)]) and _walks(
                    node, columns
                ):
                    wrong.append(f"{name}: {node['Node Type']} {node.get('Relation Name')} {node.get('Index Name')}")
        assert not wrong, "\n".join(wrong)
    finally:
        await connection.close()


async def _plan(connection: asyncpg.Connection, name: str, sql: str) -> dict[str, Any]:
    await connection.execute(f"prepare {name} as {sql}")
    count = await connection.fetchval(
        "select cardinality(parameter_types) from pg_prepared_statements where name = $1", name
    )
    arguments = f"({', '.join(['null'] * count)})" if count else ""
    plan = await connection.fetchval(f"explain (format json) execute {name}{arguments}")
    root: dict[str, Any] = orjson.loads(plan)[0]["Plan"]
    return root


def _walks(node: dict[str, Any], columns: dict[str, list[str]]) -> bool:
    """Whether rows of a run are looked for by an index of which no more than the tenant is asked for, and what stands behind it."""
    asked = _EQUAL.findall(node.get("Index Cond", ""))
    index = columns.get(node.get("Index Name", ""), [])
    return not _RUNS.isdisjoint([*asked, *_EQUAL.findall(node.get("Filter", ""))]) and not set(index[:2]) <= set(asked)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def _columns(connection: asyncpg.Connection) -> dict[str, list[str]]:
    """The columns of every index."""
    rows = await connection.fetch(
        "select c.relname as name, array(select a.attname::text from pg_attribute a where a.attrelid = c.oid order by a.attnum) as columns "
        "from pg_class c where c.relkind = 'i' and c.relname like 'eec%'"
    )
    return {row["name"]: row["columns"] for row in rows}
