"""`ductor key …`: who may call, and what."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Reason, RequestId, Target, Tenant

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="API keys (DUCTOR_AUTH=keys): made, replaced and ended by a key with the scope admin; the first ones over the database.",
)

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="A key's id, its name, or what its token begins with (dk_acme.01234567).")
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="What it may do; may be repeated: workflow_definition:read, workflow_definition:write, workflow:read, workflow:write, "
        "workflow_run:write, workflow_events:publish, worker:tasks, admin.",
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME", help="A group that its holder is in, for approvals; may be repeated."),
]
ActsForOthers = Annotated[
    bool, typer.Option("--acts-for-others", help="It may approve and reject in the name of whom it gives.")
]
Expires = Annotated[
    str,
    typer.Option("--expires", metavar="90d|TIME", help="When it ends: a length from now, or a time. Never without."),
]
Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="FILE", help="Put the token there, for its owner alone (0600), and print it nowhere."
    ),
]
Platform = Annotated[
    bool,
    typer.Option(
        "--platform", help="The platform's own keys, over admin's database login (DUCTOR_ADMIN_DATABASE_URL)."
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name; calls made with it have the actor key:NAME.")],
    scopes: Scopes = None,
    groups: Groups = None,
    acts_for_others: ActsForOthers = False,
    expires: Expires = "",
    out: Out = "",
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Make a key of the tenant and print its token, once and never again."""
    from ductord.cli import client, ending, keys

    draft = keys.Draft(
        name=name,
        scopes=scopes or [],
        groups=groups or [],
        acts_for_others=acts_for_others,
        expires=expires,
        reason=reason,
        request_id=request_id,
    )
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(keys.create(connection, draft, out=out, as_json=as_json), as_json=as_json)


@app.command("list")
def list_(
    status: Annotated[str, typer.Option("--status", metavar="active|expired|revoked", help="Only these.")] = "",
    platform: Platform = False,
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List keys, newest first. Their tokens are not kept and cannot be shown."""
    from ductord.cli import client, ending, keys

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        keys.listing(connection, platform=platform, status=status, limit=limit, as_json=as_json), as_json=as_json
    )


@app.command()
def show(
    key: Key,
    platform: Platform = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Show a key: what it may do, whether it is good, when it was used last."""
    from ductord.cli import client, ending, keys

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(keys.show_key(connection, key, platform=platform, as_json=as_json), as_json=as_json)


@app.command()
def rotate(
    key: Key,
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap", metavar="LENGTH", help="How long the old key stays good: 0, 30m, 12h, 7d; a day without it."
        ),
    ] = "",
    expires: Expires = "",
    out: Out = "",
    reason: Reason = "",
    request_id: RequestId = "",
    platform: Platform = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Replace a key by one of the same name and scopes, and print the new token. The old one is good for a while longer."""
    from ductord.cli import client, ending, keys

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = keys.rotate(
        connection,
        key,
        platform=platform,
        overlap=overlap,
        expires=expires,
        reason=reason,
        request_id=request_id,
        out=out,
        as_json=as_json,
    )
    ending.finish(work, as_json=as_json)


@app.command()
def revoke(
    key: Key,
    reason: Reason = "",
    request_id: RequestId = "",
    platform: Platform = False,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """End a key for good; it counts within seconds everywhere (DUCTOR_KEY_CACHE_MS)."""
    from ductord.cli import client, ending, keys

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = keys.revoke(connection, key, platform=platform, reason=reason, request_id=request_id, as_json=as_json)
    ending.finish(work, as_json=as_json)


@app.command()
def bootstrap(
    platform: Annotated[
        bool,
        typer.Option("--platform", help="A key of the platform's own: our workers', or an operator's of all tenants."),
    ] = False,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Its name.")] = "bootstrap",
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What it may do; may be repeated. Without it admin for a tenant, worker:tasks for the platform.",
        ),
    ] = None,
    expires: Expires = "",
    out: Out = "",
    reason: Reason = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Make a key that no key is needed for: over admin's database login (DUCTOR_ADMIN_DATABASE_URL or DUCTOR_DATABASE_URL)."""
    from ductord.cli import ending, keys

    draft = keys.Draft(name=name, scopes=scopes or [], expires=expires, reason=reason)
    # Whose is the platform's is said by --platform; the tenant that every other command of this shell means must not stand in the way.
    work = keys.bootstrap("" if platform else tenant, draft, platform=platform, out=out, as_json=as_json)
    ending.finish(work, as_json=as_json)
