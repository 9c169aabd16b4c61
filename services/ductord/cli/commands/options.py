"""Options that many commands share."""

from typing import Annotated

import typer

Tenant = Annotated[
    str,
    typer.Option(
        "--tenant",
        envvar="DUCTOR_TENANT_ID",
        metavar="ID",
        help="In whose name. There is no default.",
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
Json = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many entries.")]
