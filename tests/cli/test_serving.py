"""`ductor serve`, `migrate`, `config`, `worker`: what they refuse, and with which exit code."""

import json
from importlib import resources

import asyncpg
import pytest

from ductord.db.ids import new_id
from tests.conftest import Database
from tests.support.dev import ductor, invoke

MIGRATIONS = sorted(
    file.name for file in resources.files("ductord.db.migrations").iterdir() if file.name.endswith(".sql")
)
ADDRESSES = {"DUCTOR_GRPC_ADDRESS": "127.0.0.1:0", "DUCTOR_HTTP_ADDRESS": "off"}


async def _empty(database: Database) -> str:
    """A database without a schema, beside the migrated one (the service roles exist: they belong to the server)."""
    name = f"e_{new_id().replace('-', '')}"
    admin = await asyncpg.connect(database.server.dsn("postgres"))
    await admin.execute(f'create database "{name}"')
    await admin.close()
    return name


async def _drop(database: Database, name: str) -> None:
    admin = await asyncpg.connect(database.server.dsn("postgres"))
    await admin.execute(f'drop database "{name}" with (force)')
    await admin.close()


async def test_serve_refuses_a_database_with_pending_migrations(database: Database) -> None:
    """It names what is missing and how to get it; `migrate --check` tells the same with 1, and 0 once it is done."""
    name = await _empty(database)
    url = {"DUCTOR_DATABASE_URL": database.server.dsn(name)}
    try:
        done = ductor("serve", "trigger", **url, **ADDRESSES)
        assert done.returncode == 1
        assert "0001_initial.sql" in done.stderr
        assert "ductor migrate" in done.stderr
        check = ductor("migrate", "--check", "--json", **url)
        assert (check.returncode, json.loads(check.stdout)) == (1, {"pending": MIGRATIONS})
        applied = ductor("migrate", **url)
        assert (applied.returncode, applied.stdout) == (0, "".join(f"applied  {name}\n" for name in MIGRATIONS))
        again = ductor("migrate", "--check", **url)
        assert (again.returncode, again.stdout) == (0, "up to date\n")
    finally:
        await _drop(database, name)


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["nonsense"], {}, "definition, trigger, run_control, signals, reads, admin"),
        (["trigger"], {}, "DUCTOR_TRIGGER_DATABASE_URL"),
        (["trigger"], {"DUCTOR_GRPC_ADDRESS": "9090"}, "DUCTOR_GRPC_ADDRESS"),
        (["worker"], {"DUCTOR_GRPC_ADDRESS": "0.0.0.0:0"}, "DUCTOR_INSECURE"),
        (["worker"], {}, "DUCTOR_DISPATCH_TARGET"),
        (["gateway"], {"DUCTOR_HTTP_ADDRESS": "127.0.0.1:0"}, "DUCTOR_DEFINITION_TARGET"),
    ],
)
def test_serve_refuses_what_cannot_be_with_2(arguments: list[str], environment: dict[str, str], text: str) -> None:
    """N3 and the targets: the option at fault is named."""
    done = ductor("serve", *arguments, **{**ADDRESSES, **environment})
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


def test_a_database_that_is_not_there() -> None:
    """Waited for as long as configured, then told."""
    url = "postgresql://x@127.0.0.1:1/ductor"
    done = ductor("serve", "trigger", DUCTOR_DATABASE_URL=url, DUCTOR_DATABASE_START_WAIT_MS="200", **ADDRESSES)
    assert done.returncode == 1
    assert "trigger cannot log in" in done.stderr
    assert ductor("migrate", DUCTOR_DATABASE_URL=url).returncode == 1
    assert ductor("migrate").returncode == 2


def test_config_tells_every_option_and_no_password() -> None:
    """Values in force, with what each is for."""
    url = "postgresql://me:secret@db/ductor"
    code, output, _ = invoke("config", DUCTOR_DATABASE_URL=url, DUCTOR_LEASE_MS="4711")
    assert code == 0
    assert "secret" not in output
    assert "4711" in output
    code, output, _ = invoke("config", "--json", DUCTOR_DATABASE_URL=url, DUCTOR_LEASE_MS="4711")
    found = json.loads(output)
    assert (found["DUCTOR_LEASE_MS"], found["DUCTOR_DATABASE_URL"]) == (4711, "postgresql://me:***@db/ductor")
