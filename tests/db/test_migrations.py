"""The schema: migrations apply once, and every statement of every service is valid against it."""

from pathlib import Path

import asyncpg
import pytest

import ductord
from ductord.db.migrate import migrate, pending
from ductord.db.queries import Queries
from tests.conftest import Database

FILES = sorted((p.parent.name, p.name) for p in Path(ductord.__file__).parent.glob("*/*.sql") if p.parent.name != "db")


async def test_migrating_twice_changes_nothing(database: Database) -> None:
    """Applied migrations are recorded; a second call finds nothing to do."""
    assert await migrate(database.owner) == []
    connection = await asyncpg.connect(database.owner)
    try:
        assert await pending(connection) == []
    finally:
        await connection.close()


@pytest.mark.parametrize(("role", "filename"), FILES)
async def test_every_statement_plans_as_its_role(database: Database, role: str, filename: str) -> None:
    """A statement that Postgres would not plan, or that the service's role may not run, fails here and not at three in the morning."""
    connection = await asyncpg.connect(database.dsn(role))
    try:
        for name, sql in Queries(f"ductord.{role}", filename).items():
            try:
                # EXPLAIN checks privileges too, which PREPARE does not; servers before 16 cannot explain parameters.
                if connection.get_server_version() >= (16,):
                    await connection.execute(f"explain (generic_plan) {sql}")
                else:
                    await connection.prepare(sql)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{role}/{filename} {name}: {error}")
    finally:
        await connection.close()
