"""KB-03: migrations expand. The older release runs on the schema of this one, with every privilege that it had, and nothing that it reads is gone."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from ductord.db.migrate import migrate, migration_files
from tests.conftest import Cluster
from tests.rolling.releases import older_tree

pytestmark = pytest.mark.xdist_group("rolling")

TAKES_AWAY = re.compile(
    r"drop (table|column|function|constraint|policy|type|sequence|view)|\brename\b|alter column|add constraint|\brevoke\b|\btruncate\b|\bdelete from\b"
)
"""What a release of before would notice. An index may go: it costs time, and its own migration says what takes its place."""
_SEEN = """
    select 'column', table_name, column_name, data_type from information_schema.columns where table_schema = 'public'
    union all select 'filled in', table_name, column_name, '' from information_schema.columns where table_schema = 'public'
        and (is_nullable = 'YES' or column_default is not null)
    union all select 'table privilege', grantee || ' ' || table_name, privilege_type, '' from information_schema.role_table_grants
        where table_schema = 'public'
    union all select 'column privilege', grantee || ' ' || table_name, column_name, privilege_type from information_schema.role_column_grants
        where table_schema = 'public'
    union all select 'function', p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid) from pg_proc p
        join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'public'
    union all select 'may call', r.rolname, p.proname, '' from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        cross join pg_roles r where n.nspname = 'public' and r.rolname like 'ductor\\_%' and has_function_privilege(r.oid, p.oid, 'execute')
"""


def older(database: str) -> set[int]:
    """Migrate a database with the older release; the numbers of its migrations."""
    tree = older_tree()
    path = os.pathsep.join([str(tree / "services"), str(tree / "gen")])
    subprocess.run(
        [sys.executable, "-P", "-m", "ductord.cli", "migrate"],
        check=True,
        capture_output=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "DUCTOR_DATABASE_URL": database},
        timeout=60,
    )
    return {int(file.name[:4]) for file in Path(tree, "services/ductord/db/migrations").glob("*.sql")}


@pytest.fixture
def empty(postgres: Cluster) -> str:
    """A database without a schema; it goes with its server."""
    name = f"older_{os.getpid()}"
    postgres.server.sql(f'drop database if exists "{name}" with (force)')
    postgres.server.sql(f'create database "{name}"')
    return postgres.server.dsn(name)


async def test_kb_03_migrations_only_add(empty: str) -> None:
    """Every column, function and privilege that the older release has is there after the migrations of this one, and what is new fills itself in."""
    done = await asyncio.to_thread(older, empty)
    before = await _seen(empty)
    applied = await migrate(empty)
    after = await _seen(empty)
    assert applied == [name for number, name, _ in migration_files() if number not in done]
    assert before - after == set()
    tables = {name for kind, name, *_ in before if kind == "column"}
    added = {(name, column) for kind, name, column, _ in after - before if kind == "column" and name in tables}
    filled = {(name, column) for kind, name, column, _ in after if kind == "filled in"}
    assert added - filled == set(), "an insert of the older release would fail"


def test_kb_03_no_migration_since_the_older_release_takes_away() -> None:
    """Nor does one rename, retype or constrain what there was."""
    done = {int(file.name[:4]) for file in Path(older_tree(), "services/ductord/db/migrations").glob("*.sql")}
    for number, name, sql in migration_files():
        if number not in done:
            found = TAKES_AWAY.search(re.sub(r"--[^\n]*", "", sql).lower())
            assert found is None, f"{name}: {found.group()}"


async def _seen(dsn: str) -> set[tuple[str, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return {tuple(row) for row in await connection.fetch(_SEEN)}
    finally:
        await connection.close()
