"""`ductor run pause`, `resume`, `cancel`, `terminate`, `redrive`, `continue-as-new`, `reset`: controls of a whole run."""

from typing import Annotated

import typer

from ductord.cli.commands.options import DryRun, Json, KeyFile, Reason, RequestId, RunId, Target, Tenant, Timeout, Wait

app = typer.Typer(rich_markup_mode=None)

Force = Annotated[
    bool, typer.Option("--force", help="Also when inverses have run: kept steps then have no effect any more.")
]


def _simple(name: str, rpc: str, help_: str) -> None:
    @app.command(name, help=help_)
    def command(
        run: RunId,
        reason: Reason = "",
        request_id: RequestId = "",
        wait: Wait = True,
        timeout: Timeout = 30,
        tenant: Tenant = "",
        target: Target = "",
        key_file: KeyFile = "",
        as_json: Json = False,
    ) -> None:
        from ductord.cli import client, ending, operating

        manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
        connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
        ending.finish(operating.simple(connection, rpc, manner, name=name, run_id=run), as_json=as_json)


_simple("pause", "PauseRun", "Let nothing more of a run begin; what is in flight finishes and is recorded.")
_simple("resume", "ResumeRun", "Let a paused run go on; for a run that was set aside, try its tick again at once.")
_simple(
    "cancel", "CancelRun", "End a run gracefully: what is in flight is told to stop, then its on_cancel inverses run."
)


@app.command()
def terminate(
    run: RunId,
    skip_finally: Annotated[bool, typer.Option("--skip-finally", help="Not even the final actions run.")] = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """End a run at once, without inverses; its final actions still run."""
    from ductord.cli import client, ending, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        operating.simple(connection, "TerminateRun", manner, name="terminate", run_id=run, skip_finally=skip_finally),
        as_json=as_json,
    )


@app.command()
def redrive(
    run: RunId,
    dry_run: DryRun = False,
    force: Force = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Open a failed, timed-out or cancelled run again: what failed or was cut off starts anew, and all that follows it."""
    from ductord.cli import client, ending, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(operating.redrive(connection, run, manner, dry_run=dry_run, force=force), as_json=as_json)


@app.command("can", hidden=True)
@app.command("continue-as-new")
def continue_as_new(
    run: RunId,
    seed: Annotated[
        str,
        typer.Option("--seed", metavar="JSON|@FILE|-", help="Laid over the run context to make that of the successor."),
    ] = "",
    discard_pending: Annotated[
        bool, typer.Option("--discard-pending", help="Drop signals that no step has consumed.")
    ] = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """End a run and start a successor of the same version; prints the successor's id. Also `can`."""
    from ductord.cli import client, ending, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        operating.continue_as_new(connection, run, manner, seed=seed, discard_pending=discard_pending),
        as_json=as_json,
    )


@app.command()
def reset(
    run: RunId,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="SEQ", help="The transition after which the new run takes over."),
    ] = None,
    list_targets: Annotated[bool, typer.Option("--list-targets", help="Only list such transitions.")] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", metavar="STEP=JSON|@FILE", help="The input of a step; may be repeated."),
    ] = None,
    preserve: Annotated[
        list[str] | None,
        typer.Option("--preserve", metavar="STEP", help="A step that keeps its later output; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    force: Force = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Start a new run from the state that a run had after one of its transitions; prints the new run's id. The source stays as it is."""
    from ductord.cli import client, ending, operating, resetting

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    fork = resetting.Fork(seq=at, overrides=tuple(override or ()), preserve=tuple(preserve or ()), force=force)
    ending.finish(
        resetting.targets(connection, run, as_json=as_json)
        if list_targets
        else resetting.reset(connection, run, fork, manner, dry_run=dry_run),
        as_json=as_json,
    )
