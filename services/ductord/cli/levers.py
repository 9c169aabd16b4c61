"""`ductor step …`: levers on one node of one run (rulings C2, C10, A1, A3)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ductor.workflow.v1 import control_pb2 as model
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.cli.client import Connection
from ductord.cli.ending import MISUSED, CommandFailed
from ductord.cli.operating import Manner, control


async def retry_policy(
    connection: Connection,
    run_id: str,
    step: str,
    manner: Manner,
    *,
    values: Mapping[str, Any],
    cleared: Sequence[str],
    restore: bool,
) -> int:
    """Change how a node is tried again. `values` and `cleared` name fields of the contract's NodeRetryPolicy."""
    request = api.UpdateNodeRetryPolicyRequest(run_id=run_id, step_ref=step, restore_original=restore)
    _change(request, request.retry_policy, values, cleared, restore)
    return await control(connection, "UpdateNodeRetryPolicy", request, manner, name=f"retry policy of {step}")


async def timeouts(
    connection: Connection, run_id: str, step: str, manner: Manner, *, values: Mapping[str, Any], restore: bool
) -> int:
    """Change how long a node may take; 0 removes a limit."""
    request = api.UpdateNodeTimeoutRequest(run_id=run_id, step_ref=step, restore_original=restore)
    _change(request, request.timeouts, values, (), restore)
    return await control(connection, "UpdateNodeTimeout", request, manner, name=f"time-outs of {step}")


def _change(
    request: api.UpdateNodeRetryPolicyRequest | api.UpdateNodeTimeoutRequest,
    part: model.NodeRetryPolicy | model.NodeTimeouts,
    values: Mapping[str, Any],
    cleared: Sequence[str],
    restore: bool,
) -> None:
    """Put what was given into the request: the values, and a mask of all that is changed. Raises `CommandFailed`."""
    given = {name: value for name, value in values.items() if value not in (None, [])}
    if restore and (given or cleared):
        raise CommandFailed("--restore brings all of the definition's back: give nothing beside it", code=MISUSED)
    if not restore and not given and not cleared:
        raise CommandFailed("what shall be changed? Give a value, or --restore", code=MISUSED)
    known = [field.name for field in part.DESCRIPTOR.fields]
    for name in cleared:
        if name not in known:
            raise CommandFailed(f"--clear {name!r} is not one of: {', '.join(known)}", code=MISUSED)
        if name in given:
            raise CommandFailed(f"{name} is given and cleared at once", code=MISUSED)
    for name, value in given.items():
        if isinstance(value, list):
            getattr(part, name).extend(value)
        else:
            setattr(part, name, value)
    if not restore:
        request.update_mask.paths.extend([*given, *cleared])
