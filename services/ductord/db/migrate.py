"""Migrations: numbered SQL files applied once each, in order, under one lock, each in its own transaction; then the roles.

Expand/contract only: a release must run on the schema before and after its own migrations. Runs as the owner; no service does.
"""

from importlib import resources

import asyncpg

_LOCK = 0x647563746F72  # "ductor": one migration at a time per database


def migration_files() -> list[tuple[int, str, str]]:
    """(number, name, SQL) of every migration, in order."""
    folder = resources.files("ductord.db").joinpath("migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    return [(int(name[:4]), name, folder.joinpath(name).read_text("utf-8")) for name in files]


async def migrate(dsn: str) -> list[str]:
    """Bring the database at `dsn` to this release's schema; the names of what was applied (empty: it was current)."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists eec_migration (number int primary key, name text not null, applied_time timestamptz not null default now())"
        )
        done = {row["number"] for row in await connection.fetch("select number from eec_migration")}
        applied = []
        for number, name, sql in migration_files():
            if number in done:
                continue
            async with connection.transaction():
                await connection.execute(sql)
                await connection.execute("insert into eec_migration (number, name) values ($1, $2)", number, name)
            applied.append(name)
        async with connection.transaction():
            # Roles belong to the cluster: two databases of one cluster must not alter them at the same moment.
            await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(resources.files("ductord.db").joinpath("roles.sql").read_text("utf-8"))
        return applied
    finally:
        await connection.close()


async def pending(connection: asyncpg.Connection) -> list[str]:
    """Names of migrations that the connected database lacks (services refuse to serve while there are any)."""
    if await connection.fetchval("select to_regclass('eec_migration')") is None:
        return [name for _, name, _ in migration_files()]
    done = {row["number"] for row in await connection.fetch("select number from eec_migration")}
    return [name for number, name, _ in migration_files() if number not in done]
