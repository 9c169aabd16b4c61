"""`ductor serve`, `worker`, `migrate`, `config`: processes on a Postgres of the operator's.

A server does not change the schema: `migrate` does, and `serve` refuses while anything is pending, so that no replica runs on a schema that it does not know.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import asyncpg
from rich.text import Text

from ductord.cli import roster
from ductord.cli.configured import configured, misconfigured
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.output import print_json, say, show, table
from ductord.db.logins import unfit
from ductord.db.migrate import migrate as migrate_database
from ductord.db.migrate import pending
from ductord.db.outage import is_outage, patient
from ductord.rpc.config import ConfigurationRefused, DatabaseService, Settings
from ductord.rpc.host import serve as serve_services


async def serve(names: Sequence[str], *, workflows_dir: str = "", **given: Any) -> int:
    """Run the named services (all for none) until SIGTERM or SIGINT."""
    if workflows_dir:
        given["workflows_dir"] = workflows_dir
    chosen = configured(**given)
    try:
        services = roster.services(names)
        for service in roster.with_database(names)[:1]:
            await refuse_pending(service, chosen)
        await serve_services(services, chosen)
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None
    except OSError as error:
        raise CommandFailed(error.strerror or str(error)) from None
    return DONE


async def worker(queues: Sequence[str], slots: int) -> int:
    """Run a worker alone. The ports that nobody named are of the system's choice: a worker is not called, only probed."""
    given: dict[str, Any] = {}
    if queues:
        given["worker_queues"] = ",".join(queues)
    if slots:
        given["worker_slots"] = slots
    if "DUCTOR_GRPC_ADDRESS" not in os.environ:
        given["grpc_address"] = "127.0.0.1:0"
    if "DUCTOR_HTTP_ADDRESS" not in os.environ:
        given["http_address"] = "127.0.0.1:0"
    return await serve(["worker"], **given)


async def migrate(*, check: bool, as_json: bool) -> int:
    """Apply what is pending, or only tell it."""
    chosen = configured()
    if not chosen.database_url:
        raise CommandFailed(
            "DUCTOR_DATABASE_URL is not set", way_out="set it to a login that owns the schema", code=MISUSED
        )
    try:
        names = await (_pending(chosen.database_url) if check else migrate_database(chosen.database_url))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        raise CommandFailed(f"the database refuses: {error}") from None
    if as_json:
        print_json({"pending" if check else "applied": names})
    else:
        for name in names:
            show(f"{'pending' if check else 'applied'}  {name}")
        if not names:
            show("up to date")
    return FAILED if check and names else DONE


async def config(*, as_json: bool) -> int:
    """Every option, its value and what it is for."""
    chosen = configured()
    values = chosen.printable()
    if as_json:
        print_json(dict(values))
        return DONE
    fields = type(chosen).model_fields.items()
    rows = [
        (name, Text(str(value), style="bold" if given else ""), field.description or "")
        for (name, value), (key, field) in zip(values.items(), fields, strict=True)
        for given in [value != field.default]
        if key
    ]
    table(("OPTION", "VALUE", "WHAT FOR"), rows)
    if sys.stdout.isatty():
        say("values in bold differ from the default", "dim")
    return DONE


async def refuse_pending(service: DatabaseService, chosen: Settings) -> None:
    """Raise `CommandFailed` unless the service can log in, with the login that it should have, to a database that lacks no migration."""
    options = chosen.pool(service)
    try:
        connection = await patient(
            lambda: asyncpg.connect(options["dsn"]),
            chosen.database_start_wait_ms,
            lambda error: say("waiting for the database …", "dim"),
        )
    except Exception as error:
        if not is_outage(error) and not isinstance(error, asyncpg.PostgresError | ValueError):
            raise
        way_out = "`ductor migrate` makes the services' logins; give them passwords or certificates of your own"
        raise CommandFailed(f"{service} cannot log in to the database: {error}", way_out=way_out) from None
    try:
        names = await pending(connection)
        fault = None if names or options["set_role"] else await unfit(connection, service)
    finally:
        await connection.close()
    if fault:
        way_out = f"let it log in as ductor_{service}, or as a role of your own that is a member of it and nothing more"
        raise CommandFailed(f"{service} must not serve with this login: {fault}", way_out=way_out)
    if names:
        raise CommandFailed(
            f"the database lacks {', '.join(names)}", way_out="run `ductor migrate` as the owner first", code=FAILED
        )


async def _pending(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return await pending(connection)
    finally:
        await connection.close()
