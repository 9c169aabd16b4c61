"""`ductor compensation …`: what is owed, or was, over runs."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Target, Tenant

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The compensation ledger: inverse and final actions over runs."
)


@app.callback()
def _compensation() -> None:
    """Without it, the only command of the group would be the group."""


@app.command("list")
def list_(
    status: Annotated[
        str,
        typer.Option(
            "--status", metavar="STATUS", help="Only these: owed, running, done, failed, ignored, manual_repair."
        ),
    ] = "",
    workflow: Annotated[str, typer.Option("--workflow", metavar="SLUG", help="Only of runs of this family.")] = "",
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Only of this run.")] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List entries of the ledger, the one that changed last first."""
    from ductord.cli import client, ending, ledger

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        ledger.listing(connection, status=status, workflow=workflow, run_id=run, limit=limit, as_json=as_json),
        as_json=as_json,
    )
