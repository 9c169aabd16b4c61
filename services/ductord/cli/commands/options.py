"""Options that many commands share."""

from typing import Annotated

import typer

Tenant = Annotated[
    str,
    typer.Option(
        "--tenant",
        envvar="DUCTOR_TENANT_ID",
        metavar="ID",
        help="In whose name. There is no default; a key names it.",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        envvar="DUCTOR_TARGET",
        metavar="HOST:PORT",
        help="Where the services listen for gRPC [default: 127.0.0.1:9090].",
        show_default=False,
    ),
]
KeyFile = Annotated[
    str,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="The key to call with, in a file (DUCTOR_API_KEY_FILE; DUCTOR_API_KEY is the key itself). It names its tenant.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many entries.")]

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
StepRef = Annotated[str, typer.Argument(metavar="STEP", help="The step's ref.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit trail.")]
RequestId = Annotated[
    str,
    typer.Option(
        "--request-id", metavar="ID", help="Names the operation: under the same id the same call is the same operation."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is applied or rejected; exit code 1 if it is rejected.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")]
