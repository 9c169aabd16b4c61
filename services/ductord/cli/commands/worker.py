"""`ductor worker`: our own worker, and `ductor worker conformance`, which tries anybody's."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Target, Tenant

app = typer.Typer(
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Run a worker with the built-in actions; or see whether one in another language does what a worker must.",
)


@app.callback()
def worker(
    context: typer.Context,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="A queue to poll; may be repeated (DUCTOR_WORKER_QUEUES)."),
    ] = None,
    slots: Annotated[
        int, typer.Option("--slots", min=0, help="Attempts at once (DUCTOR_WORKER_SLOTS).", show_default=False)
    ] = 0,
) -> None:
    """Run a worker with the built-in actions. It needs no database, only DUCTOR_DISPATCH_TARGET."""
    if context.invoked_subcommand is not None:
        return
    from ductord.cli import ending, serving

    ending.finish(serving.worker(queues or [], slots), serving=True)


@app.command()
def conformance(
    command: Annotated[
        str, typer.Option("--command", metavar="COMMAND", help="How the worker is started, as in a shell.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="CHECK",
            help="lease, heartbeat, cancel, lease-loss, retry, transport, bad-output, drain; may be repeated.",
        ),
    ] = None,
    patience: Annotated[
        float, typer.Option("--patience", min=1, metavar="SECONDS", help="How long what takes a moment may take here.")
    ] = 10,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """See whether a worker in any language does what a worker must (clients/README.md). It is started and stopped several times.

    COMMAND gets DUCTOR_TARGET, DUCTOR_QUEUE, DUCTOR_DRAIN_MS, DUCTOR_TENANT_ID and DUCTOR_API_KEY in its environment.
    """
    from ductord.cli import client, ending
    from ductord.cli.conformance import trying

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = trying.conformance(connection, command, only or [], patience_s=patience, as_json=as_json)
    ending.finish(work, as_json=as_json)
