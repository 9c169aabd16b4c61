"""`ductor step …`: levers on one node of one run."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, Reason, RequestId, RunId, StepRef, Target, Tenant, Timeout, Wait

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="One node of one run: hold it, start it anew, change its limits."
)

Restore = Annotated[bool, typer.Option("--restore", help="Bring the definition's values back.")]


def _simple(name: str, rpc: str, help_: str) -> None:
    @app.command(name, help=help_)
    def command(
        run: RunId,
        step: StepRef,
        reason: Reason = "",
        request_id: RequestId = "",
        wait: Wait = True,
        timeout: Timeout = 30,
        tenant: Tenant = "",
        target: Target = "",
        as_json: Json = False,
    ) -> None:
        from ductord.cli import client, ending, operating

        manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
        connection = client.Connection(target=target, tenant=tenant)
        ending.finish(
            operating.simple(connection, rpc, manner, name=f"{name} of {step}", run_id=run, step_ref=step),
            as_json=as_json,
        )


_simple("pause", "PauseNode", "Hold a node: it does not begin, and no further attempt of it is handed out.")
_simple("resume", "ResumeNode", "Let a held node go on.")
_simple(
    "reset",
    "ResetNode",
    "Start a node anew, with fresh input and a fresh retry budget, as long as nothing downstream of it has started.",
)


@app.command("retry-policy")
def retry_policy(
    run: RunId,
    step: StepRef,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Counts the first.")] = None,
    backoff_ms: Annotated[int | None, typer.Option("--backoff-ms", metavar="MS", help="The first pause.")] = None,
    coefficient: Annotated[
        float | None, typer.Option("--coefficient", metavar="X", help="By which each pause is longer.")
    ] = None,
    max_backoff_ms: Annotated[
        int | None, typer.Option("--max-backoff-ms", metavar="MS", help="The longest pause.")
    ] = None,
    jitter: Annotated[bool | None, typer.Option("--jitter/--no-jitter", help="Draw each pause.")] = None,
    retry_on: Annotated[
        list[str] | None,
        typer.Option("--retry-on", metavar="CODE", help="Only these are tried again; may be repeated."),
    ] = None,
    non_retryable: Annotated[
        list[str] | None, typer.Option("--non-retryable", metavar="CODE", help="These never are; may be repeated.")
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option("--clear", metavar="FIELD", help="Back to its default, such as `retry_on`; may be repeated."),
    ] = None,
    restore: Restore = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Change how a node is tried again, from its next failure on."""
    from ductord.cli import client, ending, levers, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant)
    values = {
        "retry_max_attempts": max_attempts,
        "retry_backoff_ms": backoff_ms,
        "retry_backoff_coefficient": coefficient,
        "retry_max_backoff_ms": max_backoff_ms,
        "retry_jitter": jitter,
        "retry_on": retry_on,
        "non_retryable": non_retryable,
    }
    ending.finish(
        levers.retry_policy(connection, run, step, manner, values=values, cleared=clear or (), restore=restore),
        as_json=as_json,
    )


@app.command()
def timeouts(
    run: RunId,
    step: StepRef,
    attempt_ms: Annotated[
        int | None, typer.Option("--attempt-ms", metavar="MS", help="Of one attempt; 0 for none, as in all of these.")
    ] = None,
    total_ms: Annotated[
        int | None, typer.Option("--total-ms", metavar="MS", help="Of all attempts together, at once.")
    ] = None,
    queue_ms: Annotated[int | None, typer.Option("--queue-ms", metavar="MS", help="Waiting for a worker.")] = None,
    heartbeat_ms: Annotated[
        int | None, typer.Option("--heartbeat-ms", metavar="MS", help="Silence of a worker.")
    ] = None,
    restore: Restore = False,
    reason: Reason = "",
    request_id: RequestId = "",
    wait: Wait = True,
    timeout: Timeout = 30,
    tenant: Tenant = "",
    target: Target = "",
    as_json: Json = False,
) -> None:
    """Change how long a node may take, from its next attempt on."""
    from ductord.cli import client, ending, levers, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant)
    values = {
        "timeout_ms": attempt_ms,
        "total_timeout_ms": total_ms,
        "queue_timeout_ms": queue_ms,
        "heartbeat_timeout_ms": heartbeat_ms,
    }
    ending.finish(levers.timeouts(connection, run, step, manner, values=values, restore=restore), as_json=as_json)
