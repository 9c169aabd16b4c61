"""`ductor env …`: what VARS hold in an environment instead of a workflow's defaults."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Reason, Target, Tenant

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Environment overrides: values of VARS for the runs that start in an environment (DUCTOR_ENVIRONMENT).",
)

Name = Annotated[str, typer.Argument(metavar="SLUG|ID", help="A family slug, a definition id or a version id.")]
Environment = Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="The environment's name.")]


@app.command("set")
def set_(
    name: Name,
    environment: Environment,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=JSON|NAME=@FILE]…", help="The values; a variable left out has its default."),
    ] = None,
    values: Annotated[
        str, typer.Option("--values", metavar="JSON|@FILE|-", help="All values as one JSON object.")
    ] = "",
    reason: Reason = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Set the values of an environment, all of them: what was set before and is not given has its default again. Runs that have started keep theirs."""
    from ductord.cli import client, ending, overriding

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        overriding.set_(
            connection,
            name,
            environment,
            tuple(assignments or ()),
            values=values,
            reason=reason,
            as_json=as_json,
        ),
        as_json=as_json,
    )


@app.command("list")
def list_(
    name: Name,
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List the overrides of a workflow by environment."""
    from ductord.cli import client, ending, overriding

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(overriding.listing(connection, name, limit=limit, as_json=as_json), as_json=as_json)


@app.command()
def delete(
    name: Name,
    environment: Environment,
    reason: Reason = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Remove the override of an environment: runs that start there have the defaults again."""
    from ductord.cli import client, ending, overriding

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(overriding.delete(connection, name, environment, reason=reason, as_json=as_json), as_json=as_json)
