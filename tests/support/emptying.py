"""A database of a test as good as new: emptied, where emptying is all that it takes; cloning one costs a third of a second, emptying one a few milliseconds.

Whether it takes more is not guessed: the catalogue is as the template's (nothing was created, altered, granted or analysed), and no table has grown.
"""

import asyncio
from typing import NamedTuple

import asyncpg

GROWN_BYTES = 1 << 20
"""By how much a database may have grown: dead rows that nobody vacuums cost scans, and estimates know of pages."""
_CATALOGUE = (
    "pg_class", "pg_attribute", "pg_attrdef", "pg_type", "pg_index", "pg_constraint", "pg_trigger", "pg_policy", "pg_sequence", "pg_namespace",
    "pg_rewrite", "pg_extension", "pg_event_trigger", "pg_publication", "pg_default_acl", "pg_statistic_ext",
    "pg_proc where proname <> 'eec_now'",
    "pg_statistic where starelid >= 16384",  # those of the catalogue itself come with time, and not by a test
)  # fmt: skip
_PRINT = f"""
select array[
    {", ".join(f"(select count(*) || '/' || coalesce(max(xmin::text::bigint), 0) from {table})" for table in _CATALOGUE)},
    (select count(*)::text from pg_db_role_setting where setdatabase = (select oid from pg_database where datname = current_database())),
    (select coalesce(sum(reltuples), 0)::text || '/' || coalesce(sum(relpages), 0) from pg_class where relnamespace = 'public'::regnamespace)
]::text[]
"""
SIZE = "select coalesce(sum(pg_relation_size(oid)), 0)::bigint from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')"
_OTHERS = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
EMPTY = """
do $$
declare t text; filled boolean;
begin
    set local session_replication_role = replica;
    for t in select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'eec_migration' loop
        execute format('select exists (select from %I)', t) into filled;
        if filled then execute format('delete from %I', t); end if;
    end loop;
    perform setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) from pg_sequences where last_value is not null;
end $$
"""
"""Every row is gone but that of a migration; numbers begin anew."""

_TABLES = "select coalesce(array_agg(relname::text), '{}') from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
_CLOCK = "select pg_get_functiondef('eec_now'::regproc)"


class Print(NamedTuple):
    """What a database is like: its catalogue, the bytes of its tables and indexes, the names of its tables, and its clock."""

    catalogue: list[str]
    size: int
    tables: list[str]
    clock: str


async def fingerprint(dsn: str) -> Print:
    """What a database is like when it has just been made."""
    connection = await asyncpg.connect(dsn)
    try:
        return await _print(connection)
    finally:
        await connection.close()


async def emptied(dsn: str, new: Print) -> bool:
    """Empty a database, if it is then as good as new. Whoever is still connected is sent away; tables and clocks of stories are taken out."""
    connection = await asyncpg.connect(dsn)
    try:
        while await connection.fetchval(_OTHERS):  # noqa: ASYNC110  # what ends has no event
            await asyncio.sleep(0.005)
        for table in set(await connection.fetchval(_TABLES)) - set(new.tables):
            await connection.execute(f'drop table "{table}"')
        if await connection.fetchval(_CLOCK) != new.clock:
            await connection.execute(new.clock)
        now = await _print(connection)
        if now.catalogue != new.catalogue or now.size > new.size + GROWN_BYTES:
            return False
        await connection.execute(EMPTY)
        return True
    finally:
        await connection.close()


async def _print(connection: asyncpg.Connection) -> Print:
    catalogue, size, tables, clock = [await connection.fetchval(each) for each in (_PRINT, SIZE, _TABLES, _CLOCK)]
    return Print(catalogue, size, sorted(tables), clock)
