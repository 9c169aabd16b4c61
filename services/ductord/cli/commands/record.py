"""`ductor run export`, `replay`: a run's recorded facts, and today's engine deciding them again."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, RunId, Target, Tenant

app = typer.Typer(rich_markup_mode=None)


@app.command()
def export(
    run: RunId,
    file: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where to; standard output by default.")
    ] = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Write everything that the decisions about a run were taken from, as JSON Lines: what `run replay` reads."""
    from ductord.cli import client, ending, replaying

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(replaying.export(connection, run, file=file, as_json=as_json), as_json=as_json)


@app.command()
def replay(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="The run's id.", show_default=False)] = "",
    file: Annotated[
        str,
        typer.Option("--file", metavar="FILE", help="A recording instead of a run of a server; - is standard input."),
    ] = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Decide a recorded run again with this release's engine, here. Exit code 1 if anything would come out differently, and then the first difference."""
    from ductord.cli import client, ending, replaying

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(replaying.replay(connection, run, file=file, as_json=as_json), as_json=as_json)
