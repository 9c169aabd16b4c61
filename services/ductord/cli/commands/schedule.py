"""`ductor schedule …`: the timetables on which definitions start runs."""

from typing import Annotated

import typer

from ductord.cli.commands.options import Json, KeyFile, Limit, Reason, RequestId, Target, Tenant

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Timetables: see them, preview them, pause them, fire them."
)

Schedule = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="The schedule's id; or SLUG/TRIGGER, or SLUG alone where the workflow has one schedule.",
    ),
]
Overlap = Annotated[
    str,
    typer.Option("--overlap", metavar="skip|allow_all", help="What to do while a run of the schedule is active."),
]


@app.command("list")
def list_(
    workflow: Annotated[
        str, typer.Option("--workflow", metavar="SLUG|ID", help="Of one workflow, by slug or definition id.")
    ] = "",
    status: Annotated[
        str,
        typer.Option(
            "--status", metavar="WORD", help="active, paused, broken or retired. Without it all but the retired ones."
        ),
    ] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List schedules, by workflow and trigger."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = schedules.listing(connection, workflow=workflow, status=status, limit=limit, as_json=as_json)
    ending.finish(work, as_json=as_json)


@app.command()
def show(
    schedule: Schedule, tenant: Tenant = "", target: Target = "", key_file: KeyFile = "", as_json: Json = False
) -> None:
    """Show a schedule and what its times have come to."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(schedules.show_one(connection, schedule, as_json=as_json), as_json=as_json)


@app.command()
def fires(
    schedule: Schedule,
    outcome: Annotated[
        str,
        typer.Option("--outcome", metavar="WORD", help="Only those: started, skipped, failed, missed or dropped."),
    ] = "",
    limit: Limit = 50,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """List what became of the times of a schedule, newest first."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = schedules.list_fires(connection, schedule, outcome=outcome, limit=limit, as_json=as_json)
    ending.finish(work, as_json=as_json)


@app.command()
def preview(
    schedule: Annotated[
        str, typer.Argument(metavar="[SCHEDULE]", help="A schedule as of `show`; or none, with --cron.")
    ] = "",
    cron: Annotated[
        str, typer.Option("--cron", metavar="TEXT", help="A cron expression; computed here, without a server.")
    ] = "",
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="The time zone of --cron [default: UTC].")
    ] = "",
    after: Annotated[
        str, typer.Option("--after", metavar="TIME", help="The times after this one [default: now].")
    ] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="How many.")] = 10,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Compute the next times of a schedule, or of a cron expression; says which of them a clock change moves or repeats."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    work = schedules.preview(
        connection, schedule, cron=cron, timezone=timezone, after=after, count=count, as_json=as_json
    )
    ending.finish(work, as_json=as_json)


@app.command()
def pause(
    schedule: Schedule,
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Keep a schedule from firing. What falls due meanwhile is dropped. A publish does not end a pause."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    act = schedules.Act(schedule=schedule, reason=reason, request_id=request_id)
    ending.finish(schedules.turn(connection, "PauseSchedule", act, as_json=as_json), as_json=as_json)


@app.command()
def resume(
    schedule: Schedule,
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Let a paused schedule fire again, from its next time on."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    act = schedules.Act(schedule=schedule, reason=reason, request_id=request_id)
    ending.finish(schedules.turn(connection, "ResumeSchedule", act, as_json=as_json), as_json=as_json)


@app.command()
def trigger(
    schedule: Schedule,
    overlap: Overlap = "",
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Fire a schedule once, now, paused or not. Prints the run's id; exit code 1 if no run was started."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    act = schedules.Act(schedule=schedule, reason=reason, request_id=request_id)
    ending.finish(schedules.trigger(connection, act, overlap=overlap, as_json=as_json), as_json=as_json)


@app.command()
def backfill(
    schedule: Schedule,
    from_: Annotated[str, typer.Option("--from", metavar="TIME|2h", help="Behind this time, or this long before now.")],
    to: Annotated[
        str, typer.Option("--to", metavar="TIME|2h", help="Up to and including this time [default: now].")
    ] = "",
    overlap: Overlap = "",
    reason: Reason = "",
    request_id: RequestId = "",
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Fire the times of a past span that have started no run, oldest first. Prints the runs' ids; exit code 1 if a time could not start one."""
    from ductord.cli import client, ending, schedules

    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    act = schedules.Act(schedule=schedule, reason=reason, request_id=request_id)
    work = schedules.backfill(connection, act, begin=from_, end=to, overlap=overlap, as_json=as_json)
    ending.finish(work, as_json=as_json)
