"""`ductor audit …`: who did what, and why."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Target, Tenant

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The audit trail: who did what, and why.")


@app.callback()
def _audit() -> None:
    """Without it, the only command of the group would be the group."""


@app.command("list")
def list_(
    about: Annotated[
        str,
        typer.Option(
            "--about", metavar="KIND:ID", help="What it was done to: run:ID, definition:ID, schedule:ID or tenant:ID."
        ),
    ] = "",
    action: Annotated[str, typer.Option("--action", metavar="WORD", help="What was done: publish, cancel, …")] = "",
    actor: Annotated[str, typer.Option("--actor", metavar="NAME", help="Who did it.")] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="2h|TIME", help="Only after this: a length before now, or a time.")
    ] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List what was done, newest first."""
    from ductord.cli import client, ending, trail

    ending.finish(
        trail.listing(
            client.Connection(target=target, tenant=tenant, key_file=key_file),
            about=about,
            action=action,
            actor=actor,
            since=since,
            limit=limit,
            as_json=as_json,
        ),
        as_json=as_json,
    )
