"""`ductor release …`: which releases of the tenant's callers may start runs."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Reason, RequestId, Target, Tenant

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Release pinning: which releases of the tenant's callers may start runs.",
)


@app.command()
def show(tenant: Tenant = "", target: Target = "", key_file: KeyFile = "", as_json: Json = False) -> None:
    """Show the tenant's release policy."""
    from ductord.cli import client, ending, releases

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(releases.show_policy(connection, as_json=as_json), as_json=as_json)


@app.command("set")
def set_(
    mode: Annotated[
        str,
        typer.Argument(metavar="off|required", help="required: a start must name a live release; off: it need not."),
    ],
    live: Annotated[
        list[str] | None, typer.Argument(metavar="[RELEASE]…", help="The releases that are live, all of them.")
    ] = None,
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Replace the tenant's release policy. It counts for every start that is asked for after it."""
    from ductord.cli import client, ending, releases

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = releases.set_policy(
        connection, mode=mode, live=live or [], reason=reason, request_id=request_id, as_json=as_json
    )
    ending.finish(work, as_json=as_json)
