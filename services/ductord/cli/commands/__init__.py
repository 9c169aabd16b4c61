"""The command line: every command's name, options and help. Bodies import what they need when they run, so that `--help` and completion are immediate.

No command decides anything here; what it does is in the module that its body names.
"""

from pathlib import Path
from typing import Annotated

import typer

from ductord.cli.commands import audit, compensation, env, event, key, release, run, schedule, step, worker, workflow
from ductord.cli.commands.options import Json, KeyFile, Target, Tenant

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Durable DAG workflows over one Postgres. `ductor dev` starts everything on this machine.",
)
app.add_typer(workflow.app, name="workflow")
app.add_typer(env.app, name="env")
app.add_typer(run.app, name="run")
app.add_typer(step.app, name="step")
app.add_typer(event.app, name="event")
app.add_typer(schedule.app, name="schedule")
app.add_typer(release.app, name="release")
app.add_typer(key.app, name="key")
app.add_typer(audit.app, name="audit")
app.add_typer(compensation.app, name="compensation")
app.add_typer(worker.app, name="worker")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"ductor {version('ductord')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of `ductor` itself."""


@app.command()
def dev(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where Postgres and the log live.")
    ] = Path(".ductor"),
    workflows_dir: Annotated[
        str, typer.Option("--workflows-dir", metavar="DIR", help="Publish the definitions of this folder at start.")
    ] = "",
    logs: Annotated[
        str, typer.Option("--logs", metavar="file|stderr", help="Where logs go: DIR/ductor.log or standard error.")
    ] = "file",
) -> None:
    """Run everything on this machine: Postgres, all services and a worker in one process. State is kept in DIR.

    Listens on 127.0.0.1 at DUCTOR_GRPC_ADDRESS (:9090) and DUCTOR_HTTP_ADDRESS (:8080). Ctrl-C stops all of it.
    """
    from ductord.cli import dev, ending

    ending.finish(dev.dev(data_dir, workflows_dir, logs), serving=True)


@app.command()
def serve(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SERVICE]…",
            help="definition, trigger, run_control, signals, reads, admin, coordinator, dispatch, gateway, worker; none means all.",
        ),
    ] = None,
    workflows_dir: Annotated[
        str,
        typer.Option(
            "--workflows-dir",
            metavar="DIR",
            help="Publish the definitions of this folder at start (DUCTOR_WORKFLOWS_DIR).",
        ),
    ] = "",
) -> None:
    """Run services on the Postgres of DUCTOR_DATABASE_URL until SIGTERM. Refuses a database that `ductor migrate` has not brought up to date."""
    from ductord.cli import ending, serving

    ending.finish(serving.serve(services or [], workflows_dir=workflows_dir), serving=True)


@app.command()
def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Only say what is pending; exit code 1 if anything is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring the schema of DUCTOR_DATABASE_URL, which must log in as the owner, to this release."""
    from ductord.cli import ending, serving

    ending.finish(serving.migrate(check=check, as_json=as_json), as_json=as_json)


@app.command()
def config(as_json: Json = False) -> None:
    """Print every option, its value in force and what it is for. Passwords are hidden."""
    from ductord.cli import ending, serving

    ending.finish(serving.config(as_json=as_json), as_json=as_json)


@app.command()
def trigger(
    workflow: Annotated[
        str,
        typer.Argument(metavar="SLUG|ID", help="A family slug, a definition id, or a version id to pin that version."),
    ],
    input_: Annotated[
        str,
        typer.Option("--input", metavar="JSON|@FILE|-", help="The run's input: JSON, a file of it, or standard input."),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", metavar="TEXT", help="Idempotency key: the same key gets the same run.")
    ] = "",
    subject: Annotated[str, typer.Option("--subject", metavar="TYPE:ID", help="What the run is about.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY:ID", help="A correlation label; may be repeated.")
    ] = None,
    tier: Annotated[
        str, typer.Option("--tier", metavar="critical|standard|bulk", help="Weight class of the run's tasks.")
    ] = "",
    release: Annotated[
        str, typer.Option("--release", metavar="ID", help="The caller's release, where the tenant pins them.")
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the run's end; exit code 1 unless it completed.")
    ] = False,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="NAME", help="Wait for this checkpoint and print its outputs.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait.")] = 300,
    tenant: Tenant = "",
    target: Target = "",
    key_file: KeyFile = "",
    as_json: Json = False,
) -> None:
    """Start a run of a published definition and print its id."""
    from ductord.cli import client, ending, triggering

    order = triggering.Order(
        workflow=workflow,
        input=input_,
        key=key,
        subject=subject,
        labels=tuple(label or ()),
        tier=tier,
        release=release,
    )
    connection = client.Connection(target=target, tenant=tenant, key_file=key_file)
    ending.finish(
        triggering.trigger(connection, order, wait=wait, checkpoint=checkpoint, timeout_s=timeout, as_json=as_json),
        as_json=as_json,
    )
