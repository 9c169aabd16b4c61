"""The services by name, in the order in which one process starts them. A service's modules are imported when it is asked for, not before."""

import importlib
from collections.abc import Sequence
from typing import Final

from ductord.cli.ending import MISUSED, CommandFailed
from ductord.rpc.config import DATABASE_SERVICES, DatabaseService
from ductord.rpc.host import Service

NAMES: Final = (
    "definition",
    "trigger",
    "run_control",
    "signals",
    "reads",
    "admin",
    "coordinator",
    "dispatch",
    "gateway",
    "worker",
)
"""A stop goes the other way: the worker gives back its tasks while dispatch still takes them."""


def services(names: Sequence[str]) -> list[Service]:
    """The named services, all for none, in the order of `NAMES`. Raises `CommandFailed` for a name that is none."""
    for name in names:
        if name not in NAMES:
            raise CommandFailed(
                f"there is no service {name!r}", way_out=f"the services are {', '.join(NAMES)}", code=MISUSED
            )
    chosen = [name for name in NAMES if name in names or not names]
    found = [importlib.import_module(f"ductord.{name}.service").SERVICE for name in chosen]
    assert all(isinstance(service, Service) for service in found)
    return found


def with_database(names: Sequence[str]) -> list[DatabaseService]:
    """Those of the named services (all for none) that have a login of their own."""
    return [name for name in DATABASE_SERVICES if name in NAMES and (name in names or not names)]
