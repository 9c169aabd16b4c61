"""`ductor event …`: external events for the steps that wait for them."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Target, Tenant

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="External events: publish one, or see what one would do or start."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")]
Key = Annotated[str, typer.Option("--key", metavar="TEXT", help="The correlation key by which waits are found.")]
Id = Annotated[
    str, typer.Option("--id", metavar="ID", help="The producer's id: under the same id it is the same event.")
]
Payload = Annotated[
    str,
    typer.Option("--payload", metavar="JSON|@FILE|-", help="What it tells: JSON, a file of it, or standard input."),
]


@app.command()
def publish(
    name: Name,
    key: Key = "",
    id_: Id = "",
    payload: Payload = "",
    ttl: Annotated[
        int, typer.Option("--ttl", min=0, max=86_400, metavar="SECONDS", help="Keep it so long for waits to come.")
    ] = 0,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Publish an event to every wait that it matches by name and key; prints how many."""
    from ductord.cli import client, ending, signalling

    event = signalling.Event(name=name, key=key, event_id=id_, payload=payload)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(signalling.publish(connection, event, ttl_seconds=ttl, as_json=as_json), as_json=as_json)


@app.command()
def explain(
    name: Name,
    key: Key = "",
    id_: Id = "",
    payload: Payload = "",
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Look at this run's sets alone.")] = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Say how many open event sets an event would match, and why not the others. Changes nothing."""
    from ductord.cli import client, ending, signalling

    event = signalling.Event(name=name, key=key, event_id=id_, payload=payload)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(signalling.explain(connection, event, run_id=run, as_json=as_json), as_json=as_json)


@app.command()
def triggers(
    workflow: Annotated[
        str, typer.Option("--workflow", metavar="SLUG|ID", help="Of one workflow, by slug or definition id.")
    ] = "",
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="Only those that an event of this name meets.")
    ] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List the patterns of events that start runs."""
    from ductord.cli import client, ending, signalling

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = signalling.event_triggers(connection, workflow=workflow, event=event, limit=limit, as_json=as_json)
    ending.finish(work, as_json=as_json)
