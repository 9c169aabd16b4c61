"""The schema: migrations apply once, and every statement of every service is valid against it."""

from pathlib import Path

import asyncpg
import pytest

import ductord
from ductord.coordinator.cache import Cache
from ductord.coordinator.tick import tick
from ductord.db.ids import new_id
from ductord.db.migrate import migrate, migration_files, pending
from ductord.db.queries import Queries
from ductord.engine.limits import LIMITS
from tests.conftest import Cluster, Database
from tests.support.books import Books, chain

SHARED = {
    ("starting", "queries.sql"): ("trigger", "signals", "coordinator"),
    ("starting", "fires.sql"): ("trigger", "coordinator"),
    ("access", "queries.sql"): ("definition", "trigger", "run_control", "signals", "reads", "admin", "dispatch"),
    ("access", "minting.sql"): ("admin",),
}
"""Whose statements they are that stand below the services."""
PLACES = [(p.parent.name, p.name) for p in Path(ductord.__file__).parent.glob("*/*.sql") if p.parent.name != "db"]
FILES = sorted((role, *place) for place in PLACES for role in SHARED.get(place, (place[0],)))


async def test_migrating_twice_changes_nothing(database: Database) -> None:
    """Applied migrations are recorded; a second call finds nothing to do."""
    assert await migrate(database.owner) == []
    connection = await asyncpg.connect(database.owner)
    try:
        assert await pending(connection) == []
    finally:
        await connection.close()


@pytest.mark.parametrize(("role", "package", "filename"), FILES)
async def test_every_statement_plans_as_its_role(database: Database, role: str, package: str, filename: str) -> None:
    """A statement that Postgres would not plan, or that the service's role may not run, fails here and not at three in the morning."""
    connection = await asyncpg.connect(database.dsn(role))
    try:
        for name, sql in Queries(f"ductord.{package}", filename).items():
            try:
                # EXPLAIN checks privileges too, which PREPARE does not; servers before 16 cannot explain parameters.
                if connection.get_server_version() >= (16,):
                    await connection.execute(f"explain (generic_plan) {sql}")
                else:
                    await connection.prepare(sql)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{package}/{filename} {name} as {role}: {error}")
    finally:
        await connection.close()


async def test_runs_of_before_go_on_after_a_migration(postgres: Cluster) -> None:
    """Expand/contract: a run that was born, and one that was under way, when the schema was that of the first release are taken up on today's."""
    name = f"t_{new_id().replace('-', '')}"
    postgres.server.sql(f'create database "{name}"')
    database = Database(server=postgres.server, name=name)
    owner = await asyncpg.connect(database.owner)
    try:
        number, first, sql = migration_files()[0]
        await owner.execute(sql)
        await owner.execute(
            "create table eec_migration (number int primary key, name text, applied_time timestamptz default now())"
        )
        await owner.execute("insert into eec_migration (number, name) values ($1, $2)", number, first)
        books = Books(owner)
        version = await books.publish(chain(2))
        born, under_way = [await books.start(version, wake=False) for _ in range(2)]
        for run_id in (born, under_way):
            await books.wake(run_id)
        await owner.execute(_UNDER_WAY, under_way)
        assert [name for _, name, _ in migration_files()][1:] == await migrate(database.owner)
        connection = await asyncpg.connect(database.dsn("coordinator"))
        cache = Cache()
        for _ in range(3):
            await tick(connection, cache, LIMITS, 10)
            await books.report()
        await tick(connection, cache, LIMITS, 10)
        await connection.close()
        assert (await books.settled(born)).status == "completed"
        assert await books.status(under_way) == "completed"
    finally:
        await owner.close()
        postgres.server.sql(f'drop database "{name}" with (force)')


_UNDER_WAY = """
with run as (
    insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, node_states, edge_states, run_state,
                                  start_time, update_time)
    select s.tenant_id, s.run_id, 'running', 1, s.version_id, 1, 1,
           '{"s0": {"status": "running", "attempt": 1, "logical": 1, "first_time": "2030-01-01T00:00:00Z"}}', '?', '{}', eec_now(), eec_now()
    from eec_workflow_run_start s where s.run_id = $1
    returning tenant_id, run_id
)
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time)
select tenant_id, run_id, 's0', 1, 'standard', 'default', 'noop:noop', '{}', 'key', eec_now(), eec_now() from run
"""
"""A run as the first release's coordinator left it, with its first step at work."""
