"""`ductor run …`: runs on a server."""

from typing import Annotated

import typer

from ductord.cli.commands import operate, record, settle
from ductord.cli.commands.options import Json, KeyFile, Limit, RunId, Target, Tenant

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Runs: list them, look into one, watch it live, operate it."
)


@app.command("list")
def list_(
    workflow: Annotated[str, typer.Option("--workflow", metavar="SLUG", help="Only runs of this family.")] = "",
    status: Annotated[str, typer.Option("--status", metavar="STATUS", help="Only runs in this status.")] = "",
    compensation: Annotated[
        str, typer.Option("--compensation", metavar="STATUS", help="Only runs whose compensation stands there.")
    ] = "",
    active: Annotated[bool, typer.Option("--active", help="Only runs that have not ended.")] = False,
    errors: Annotated[
        bool | None, typer.Option("--errors/--no-errors", help="Only runs with, or without, failed steps.")
    ] = None,
    subject: Annotated[str, typer.Option("--subject", metavar="TYPE:ID", help="Only runs about this.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY:ID", help="A label that must be there; may be repeated.")
    ] = None,
    parent: Annotated[str, typer.Option("--parent", metavar="RUN", help="Only children of this run.")] = "",
    root: Annotated[str, typer.Option("--root", metavar="RUN", help="Only runs below this root, at every depth.")] = "",
    journey: Annotated[
        str,
        typer.Option(
            "--journey", metavar="RUN", help="Only runs of the journey that this run began: successors, and all below."
        ),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="2h|TIME", help="Only born after this: a length before now, or a time.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="2h|TIME", help="Only born before this.")] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List runs, newest first."""
    from ductord.cli import client, ending, runs

    chosen = runs.Filter(
        workflow=workflow,
        status=status,
        compensation=compensation,
        active=active,
        errors=errors,
        subject=subject,
        labels=tuple(label or ()),
        parent=parent,
        root=root,
        journey=journey,
        since=since,
        until=until,
    )
    ending.finish(
        runs.listing(
            client.Connection(target=target, tenant=tenant, key_file=key_file), chosen, limit=limit, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def show(
    run: RunId,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Every event of its history, and the controls among them.")
    ] = False,
    attempts: Annotated[bool, typer.Option("--attempts", help="Every attempt.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Its audit trail: who did what, and why.")] = False,
    step: Annotated[
        str, typer.Option("--step", metavar="REF", help="One step with its input, output and attempts.")
    ] = "",
    index: Annotated[
        int | None, typer.Option("--index", min=0, metavar="N", help="With --step: one child of the step.")
    ] = None,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Show a run with its steps, children, input and result, what it owes and what is asked of it."""
    from ductord.cli import client, ending, showing

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        showing.run(
            connection, run, timeline=timeline, attempts=attempts, audit=audit, step=step, index=index, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def steps(
    run: RunId,
    step: Annotated[str, typer.Option("--step", metavar="REF", help="The children of this step, which fans out.")] = "",
    status: Annotated[str, typer.Option("--status", metavar="STATUS", help="Only those in this status.")] = "",
    index: Annotated[
        str, typer.Option("--index", metavar="FROM-TO", help="Only children of these indexes: 7, 10-20, 10- or -20.")
    ] = "",
    limit: Limit = 1_000,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List the steps of a run, or the children of one that fans out, by index."""
    from ductord.cli import client, ending, fans

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        fans.children(connection, run, step=step, status=status, index=index, limit=limit, as_json=as_json),
        as_json=as_json,
    )


@app.command()
def watch(
    run: RunId,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give up after so long.", show_default=False)
    ] = 86_400,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Follow a run to its end, over its successors and until nothing is owed. Exit code 1 unless it completes.

    On a terminal its graph is drawn, with a bar per fan-out and the tree of its children; elsewhere there is a line per event, and with --json a JSON line.
    """
    from ductord.cli import client, ending, watching

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(watching.watch(connection, run, timeout_s=timeout, as_json=as_json), as_json=as_json)


app.add_typer(operate.app)
app.add_typer(settle.app)
app.add_typer(record.app)
