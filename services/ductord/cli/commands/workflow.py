"""`ductor workflow …`: definitions, offline and on a server."""

from pathlib import Path
from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Target, Tenant

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Definitions: validate and draw them offline; load, publish, export and list them on a server.",
)

Files = Annotated[
    list[str], typer.Argument(metavar="FILE…", help="Definition files, YAML or JSON; - is standard input.")
]
Name = Annotated[str, typer.Argument(metavar="SLUG|ID", help="A family slug, a definition id or a version id.")]


@app.command()
def validate(files: Files, as_json: Json = False) -> None:
    """Judge definition files offline, as strictly as a publish does. Exit code 1 if any is not valid."""
    from ductord.cli import checking, ending

    ending.finish(checking.validate(files, as_json=as_json), as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of definition files, for editors that complete and check them."""
    from ductord.cli import checking, ending

    ending.finish(checking.schema())


@app.command()
def graph(file: Annotated[str, typer.Argument(metavar="FILE", help="A definition file; - is standard input.")]) -> None:
    """Print the graph of a definition file as a Mermaid flowchart."""
    from ductord.cli import checking, ending

    ending.finish(checking.graph(file))


@app.command()
def load(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE…", help="Folders of definition files, or files.")],
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Publish every definition that differs from its current version. A broken file is told and the others are loaded; exit code 1 then."""
    from ductord.cli import authoring, client, ending

    ending.finish(
        authoring.load(client.Connection(target=target, tenant=tenant, key_file=key_file), paths, as_json=as_json),
        as_json=as_json,
    )


@app.command()
def publish(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|SLUG|ID", help="A definition file, or a family whose draft is published as it stands."
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")] = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Freeze a definition as the next version of its family. A file becomes the draft first."""
    from ductord.cli import authoring, client, ending

    ending.finish(
        authoring.publish(
            client.Connection(target=target, tenant=tenant, key_file=key_file), what, reason=reason, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def export(
    name: Name,
    draft: Annotated[bool, typer.Option("--draft", help="The draft instead of the current version.")] = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Write a definition to standard output as deterministic YAML."""
    from ductord.cli import browsing, client, ending

    ending.finish(
        browsing.export(
            client.Connection(target=target, tenant=tenant, key_file=key_file), name, draft=draft, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def diff(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A definition file; - is standard input.")],
    draft: Annotated[
        bool, typer.Option("--draft", help="Compare with the draft instead of the current version.")
    ] = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Show what publishing a file would change. Exit code 1 if anything."""
    from ductord.cli import browsing, client, ending

    ending.finish(
        browsing.diff(
            client.Connection(target=target, tenant=tenant, key_file=key_file), file, draft=draft, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command("list")
def list_(
    status: Annotated[str, typer.Option("--status", metavar="draft|published|archived", help="Only these.")] = "",
    query: Annotated[
        str, typer.Option("-q", "--query", metavar="TEXT", help="Text in slug, title or description.")
    ] = "",
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag that must be there; may be repeated.")
    ] = None,
    slug: Annotated[str, typer.Option("--slug", metavar="SLUG", help="Draft and versions of one family.")] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List drafts and versions, newest first."""
    from ductord.cli import browsing, client, ending

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        browsing.listing(
            connection, status=status, query=query, tags=tag or [], slug=slug, limit=limit, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def show(
    name: Name,
    draft: Annotated[bool, typer.Option("--draft", help="The draft instead of the current version.")] = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Show a definition: its state, steps and edges."""
    from ductord.cli import browsing, client, ending

    ending.finish(
        browsing.show(
            client.Connection(target=target, tenant=tenant, key_file=key_file), name, draft=draft, as_json=as_json
        ),
        as_json=as_json,
    )


@app.command()
def archive(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")] = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Retire a version (of a family: the current one). Its open runs go on, new ones are refused."""
    from ductord.cli import authoring, client, ending

    ending.finish(
        authoring.archive(
            client.Connection(target=target, tenant=tenant, key_file=key_file), name, reason=reason, as_json=as_json
        ),
        as_json=as_json,
    )
