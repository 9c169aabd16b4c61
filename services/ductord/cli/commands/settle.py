"""`ductor run operation`, `repair`, `snapshot`: what became of a control, what a person did, where a run stands."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Reason, RequestId, RunId, StepRef, Target, Tenant, Timeout, Wait

app = typer.Typer(rich_markup_mode=None)


@app.command()
def operation(
    run: RunId,
    request_id: Annotated[str, typer.Argument(metavar="ID", help="The operation's request id.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is applied or rejected.")] = False,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Show what became of a control; exit code 1 if it was rejected."""
    from ductord.cli import client, ending, operating

    manner = operating.Manner(request_id=request_id, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(operating.operation(connection, run, manner), as_json=as_json)


@app.command()
def repair(
    run: RunId,
    step: StepRef,
    done: Annotated[bool, typer.Option("--done", help="A person has undone the step.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try the inverse again.")] = False,
    not_needed: Annotated[bool, typer.Option("--not-needed", help="There is nothing to undo.")] = False,
    position: Annotated[
        int | None,
        typer.Option("--position", min=0, metavar="N", help="One entry of the ledger; else all of the step that wait."),
    ] = None,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Say what became of inverses that need a person, or have them tried again."""
    from ductord.cli import client, ending, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    chosen = [word for word, given in (("done", done), ("retry", retry), ("not_needed", not_needed)) if given]
    ending.finish(operating.repair(connection, run, step, manner, chosen=chosen, position=position), as_json=as_json)


@app.command()
def snapshot(
    run: RunId, tenant: Tenant = "", target: Target = "", key_file: KeyFile = "", as_json: Json = False
) -> None:
    """Show a run as the engine sees it: nodes, timers, open attempts, controls and compensation."""
    from ductord.cli import client, ending
    from ductord.cli import snapshot as views

    ending.finish(
        views.snapshot(client.Connection(target=target, tenant=tenant, key_file=key_file), run, as_json=as_json),
        as_json=as_json,
    )
