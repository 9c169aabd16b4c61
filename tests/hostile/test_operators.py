"""Operators in a hurry: a login that walks through the wall between tenants (N1), or that cannot do its work."""

import asyncpg
import pytest

from ductord.cli.ending import CommandFailed
from ductord.cli.serving import refuse_pending
from ductord.db.logins import unfit
from ductord.rpc.config import Settings
from tests.conftest import Database


async def test_n1_a_superuser_is_no_service(database: Database) -> None:
    """Row-level security does not hold for a superuser: `serve` said nothing and showed every tenant to a mistake of ours."""
    settings = Settings(trigger_database_url=database.owner)
    with pytest.raises(CommandFailed, match="tenants would not be kept apart"):
        await refuse_pending("trigger", settings)
    await refuse_pending("trigger", Settings(database_url=database.owner, database_set_role=True))


async def test_n1_the_login_of_another_service_is_refused_and_a_member_serves(database: Database) -> None:
    """A wrong URL is told at the start, not by every call; a login of the operator's own may be a member of the service's role."""
    with pytest.raises(CommandFailed, match="has not the rights of ductor_trigger"):
        await refuse_pending("trigger", Settings(trigger_database_url=database.dsn("reads")))
    await refuse_pending("trigger", Settings(trigger_database_url=database.dsn("trigger")))
    owner = await asyncpg.connect(database.owner)
    try:
        async with owner.transaction():
            await owner.execute("create role hostile_member in role ductor_trigger; set local role hostile_member")
            assert await unfit(owner, "trigger") is None
            assert await unfit(owner, "dispatch") is not None
            await owner.execute("reset role; alter role hostile_member bypassrls; set local role hostile_member")
            assert "tenants" in (await unfit(owner, "trigger") or "")
            await owner.execute("reset role; drop role hostile_member")
    finally:
        await owner.close()
