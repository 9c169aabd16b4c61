"""`ductor step …`: levers on one node of one run, and word to a step that waits for it."""

from typing import Annotated

import typer

from ductord.cli.commands.options import (
    Json,
    KeyFile,
    Limit,
    Reason,
    RequestId,
    RunId,
    StepRef,
    Target,
    Tenant,
    Timeout,
    Wait,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="One node of one run: hold it, start it anew, change its limits, tell it what it waits for.",
)

Comment = Annotated[str, typer.Option("--comment", metavar="TEXT", help="Why; it goes into the step's output.")]
By = Annotated[
    str,
    typer.Option("--by", metavar="WHO", help="In whose name. With authentication it is the caller, whatever is said."),
]
Payload = Annotated[
    str,
    typer.Option(
        "--payload",
        metavar="JSON|@FILE|-",
        help="What goes into the step's output: JSON, a file of it, or standard input.",
    ),
]

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
        key_file: KeyFile = "",
        as_json: Json = False,
    ) -> None:
        from ductord.cli import client, ending, operating

        manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
        connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
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
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Change how a node is tried again, from its next failure on."""
    from ductord.cli import client, ending, levers, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
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
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Change how long a node may take, from its next attempt on."""
    from ductord.cli import client, ending, levers, operating

    manner = operating.Manner(request_id=request_id, reason=reason, wait=wait, timeout_s=timeout, as_json=as_json)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    values = {
        "timeout_ms": attempt_ms,
        "total_timeout_ms": total_ms,
        "queue_timeout_ms": queue_ms,
        "heartbeat_timeout_ms": heartbeat_ms,
    }
    ending.finish(levers.timeouts(connection, run, step, manner, values=values, restore=restore), as_json=as_json)


def _decision(name: str, rpc: str, help_: str) -> None:
    @app.command(name, help=help_)
    def command(
        run: RunId,
        step: StepRef,
        by: By = "",
        comment: Comment = "",
        payload: Payload = "",
        request_id: RequestId = "",
        tenant: Tenant = "",
        target: Target = "",
        key_file: KeyFile = "",
        as_json: Json = False,
    ) -> None:
        from ductord.cli import client, ending, signalling

        word = signalling.Word(run_id=run, step=step, by=by, comment=comment, payload=payload, request_id=request_id)
        connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
        ending.finish(signalling.decide(connection, rpc, word, as_json=as_json), as_json=as_json)


_decision("approve", "ApproveStep", "Approve a step. One that does not wait yet is told when it does.")
_decision("reject", "RejectStep", "Reject a step. One that does not wait yet is told when it does.")


@app.command()
def resolve(
    run: RunId,
    step: StepRef,
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help="What the case has come to [default: resolved].")
    ] = "",
    by: By = "",
    comment: Comment = "",
    payload: Payload = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Resolve the interaction that a step waits for, or move its case on."""
    from ductord.cli import client, ending, signalling

    word = signalling.Word(run_id=run, step=step, by=by, comment=comment, payload=payload, request_id=request_id)
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(signalling.resolve(connection, word, status=status, as_json=as_json), as_json=as_json)


@app.command()
def receipts(
    run: RunId,
    step: StepRef,
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List the external events that a step has received, oldest first."""
    from ductord.cli import client, ending, signalling

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(signalling.receipts(connection, run, step, limit=limit, as_json=as_json), as_json=as_json)
