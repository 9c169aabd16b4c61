"""`ductor run …`: runs on a server."""

from typing import Annotated

import typer

from ductord.cli.commands import operate, settle
from ductord.cli.commands.options import Json, Limit, RunId, Target, Tenant

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Runs: list them, look into one, watch it live, operate it."
)


@app.command("list")
def list_(
    workflow: Annotated[str, typer.Option("--workflow", metavar="SLUG", help="Only runs of this family.")] = "",
    status: Annotated[str, typer.Option("--status", metavar="STATUS", help="Only runs in this status.")] = "",
    active: Annotated[bool, typer.Option("--active", help="Only runs that have not ended.")] = False,
    errors: Annotated[
        bool | None, typer.Option("--errors/--no-errors", help="Only runs with, or without, failed steps.")
    ] = None,
    subject: Annotated[str, typer.Option("--subject", metavar="TYPE:ID", help="Only runs about this.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY:ID", help="A label that must be there; may be repeated.")
    ] = None,
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    from ductord.cli import client, ending, runs

    chosen = runs.Filter(
        workflow=workflow, status=status, active=active, errors=errors, subject=subject, labels=tuple(label or ())
    )
    ending.finish(
        runs.listing(client.Connection(target=target, tenant=tenant), chosen, limit=limit, as_json=as_json),
        as_json=as_json,
    )


@app.command()
def show(
    run: RunId,
    timeline: Annotated[bool, typer.Option("--timeline", help="Every event of its history.")] = False,
    attempts: Annotated[bool, typer.Option("--attempts", help="Every attempt.")] = False,
    step: Annotated[
        str, typer.Option("--step", metavar="REF", help="One step with its input, output and attempts.")
    ] = "",
    tenant: Tenant = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Show a run with its steps, input and result."""
    from ductord.cli import client, ending, runs

    connection = client.Connection(target=target, tenant=tenant)
    ending.finish(
        runs.show(connection, run, timeline=timeline, attempts=attempts, step=step, as_json=as_json), as_json=as_json
    )


@app.command()
def watch(
    run: RunId,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give up after so long.", show_default=False)
    ] = 86_400,
    tenant: Tenant = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Follow a run to its end: its graph on a terminal, a line per event elsewhere, JSON lines with --json. Exit code 1 unless it completes."""
    from ductord.cli import client, ending, watching

    connection = client.Connection(target=target, tenant=tenant)
    ending.finish(watching.watch(connection, run, timeout_s=timeout, as_json=as_json), as_json=as_json)


app.add_typer(operate.app)
app.add_typer(settle.app)
