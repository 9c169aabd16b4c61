"""Controls of a run from the command line: asked for, waited for, told (ruling C1).

Every control goes out with a request id, made here where none was given: whatever becomes of the answer, the same call under the same id is the same
operation. What is a control's result for a script stands on standard output alone: the id of a new run, else one line that says what became of it.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec

from ductor.workflow.v1 import control_pb2 as model
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.cli.client import CALL_LIMIT_S, Client, Connection, connected
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.output import compact, counted, facts, print_json, say, show, status_text, table
from ductord.cli.triggering import given
from ductord.cli.words import local, plain, word
from ductord.model.errors import Refusal

WAIT_MAX_S: Final = 300
"""The longest time that one WaitOperation waits."""
LOST: Final = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
"""Codes after which nobody here knows whether the server has done what it was asked."""
_AGAIN_S: Final = 0.2


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How a control is asked for and told. `wait`: until it has been judged, at most `timeout_s`."""

    request_id: str = ""
    reason: str = ""
    wait: bool = True
    timeout_s: float = 30
    as_json: bool = False


async def simple(connection: Connection, rpc: str, manner: Manner, *, name: str, **fields: str | bool) -> int:
    """A control that is said in a few plain fields of its request."""
    return await control(connection, rpc, getattr(api, f"{rpc}Request")(**fields), manner, name=name)


async def control(connection: Connection, rpc: str, request: Any, manner: Manner, *, name: str) -> int:
    """One control of which nothing is told but what became of it. `rpc` is its name in the contract, `name` what people call it."""
    async with connected(connection) as client:
        answer = await asked(client, rpc, request, manner)
        operation = await _awaited(client, answer, manner)
    return told(answer, operation, manner, name=name)


async def asked(client: Client, rpc: str, request: Any, manner: Manner) -> Any:
    """The answer to a control, which says that it is durable. Raises `Refusal`."""
    request.request_id = manner.request_id or str(uuid4())
    request.reason = manner.reason
    again = f"--request-id {request.request_id}"
    return await surely(client, getattr(client.controls, rpc), request, again=again, as_json=manner.as_json)


async def surely(client: Client, rpc: Any, request: Any, *, again: str, as_json: bool) -> Any:
    """The answer to a call that has a name of its own and so may be repeated; `again`: the option that does. Raises `Refusal`."""
    try:
        return await client.call(rpc, request)
    except Refusal as refusal:
        if refusal.code in LOST and "failed to connect" not in refusal.message and not as_json:
            say(f"nobody knows whether it arrived; {again} repeats it safely", "yellow")
        raise


async def settled(client: Client, run_id: str, request_id: str, timeout_s: float) -> model.Operation:
    """The operation as soon as it is no longer pending, or as it stands when time is up. A server that is away for a while is waited for."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    request = api.WaitOperationRequest(run_id=run_id, request_id=request_id)
    while True:
        left = max(deadline - clock(), 0)
        request.timeout_seconds = min(max(math.ceil(left), 1), WAIT_MAX_S)
        try:
            answer = await client.call(client.controls.WaitOperation, request, limit_s=left + CALL_LIMIT_S)
            if answer.data.status != model.OPERATION_STATUS_PENDING or clock() >= deadline:
                return answer.data
        except Refusal as refusal:
            if refusal.code not in LOST or clock() >= deadline:
                raise
        await asyncio.sleep(_AGAIN_S)


def told(answer: Any, operation: model.Operation | None, manner: Manner, *, name: str, plan: str = "") -> int:
    """Tell what became of a control; 0 unless it was rejected or time was up first. `plan`: what it does, in short, once it is applied."""
    if manner.as_json:
        print_json({**plain(answer), **({"operation": plain(operation)} if operation is not None else {})})
        return verdict(operation)
    new_run_id = successor(answer, operation)
    line = say if new_run_id else show
    if operation is None:
        line(f"{name} accepted as {answer.request_id}")
    elif operation.status == model.OPERATION_STATUS_APPLIED:
        line(f"{name} applied" + "".join(f": {text}" for text in (operation.outcome_message or plan,) if text))
    elif operation.status == model.OPERATION_STATUS_REJECTED:
        say(f"{name} rejected: {operation.outcome_message} ({operation.outcome_code})", "bold red")
    else:
        say(f"{name} is still pending after {manner.timeout_s:g} s", "yellow")
        say(f"  → `ductor run operation {operation.run_id} {operation.request_id} --wait` goes on waiting", "yellow")
    if new_run_id and verdict(operation) == DONE:
        show(new_run_id)
    return verdict(operation)


def successor(answer: Any, operation: model.Operation | None) -> str:
    """The id of the run that a control starts; the operation knows better than the answer, which came before it."""
    named = operation.result.get("new_run_id", "") if operation is not None else ""
    return named or getattr(answer, "new_run_id", "")


def verdict(operation: model.Operation | None) -> int:
    """The exit code of a control whose outcome was waited for, or was not."""
    return DONE if operation is None or operation.status == model.OPERATION_STATUS_APPLIED else FAILED


async def redrive(connection: Connection, run_id: str, manner: Manner, *, dry_run: bool, force: bool) -> int:
    """Open a run again; with `dry_run` only say what that would do."""
    request = api.RedriveRunRequest(run_id=run_id, dry_run=dry_run, force=force)
    async with connected(connection) as client:
        answer = await asked(client, "RedriveRun", request, manner)
        if dry_run:
            _plan(answer, manner.as_json)
            return DONE
        operation = await _awaited(client, answer, manner)
    plan = answer.plan
    short = [
        f"{counted(len(plan.restarted_step_refs), 'step')} anew",
        *([f"{len(plan.reevaluated_step_refs)} judged again"] if plan.reevaluated_step_refs else []),
        f"{len(plan.kept_step_refs)} kept",
    ]
    return told(answer, operation, manner, name="redrive", plan=", ".join(short))


async def continue_as_new(
    connection: Connection, run_id: str, manner: Manner, *, seed: str, discard_pending: bool
) -> int:
    """End a run and start its successor. `seed` goes as the text that it is: the server judges it, exactly (L5)."""
    request = api.ContinueAsNewRunRequest(run_id=run_id, discard_pending=discard_pending)
    if seed:
        request.seed_run_context_json = given(seed, "--seed")
    return await control(connection, "ContinueAsNewRun", request, manner, name="continue-as-new")


async def repair(
    connection: Connection, run_id: str, step: str, manner: Manner, *, chosen: Sequence[str], position: int | None
) -> int:
    """Say what became of inverses that need a person. `chosen`: the words of RepairResolution that were asked for."""
    if len(chosen) != 1:
        raise CommandFailed("--done, --retry, --not-needed: say which one of them", code=MISUSED)
    resolution = model.RepairResolution.Value(f"REPAIR_RESOLUTION_{chosen[0].upper()}")
    request = api.ResolveRepairRequest(run_id=run_id, step_ref=step, resolution=resolution, position=position)
    return await control(connection, "ResolveRepair", request, manner, name=f"repair of {step}")


async def operation(connection: Connection, run_id: str, manner: Manner) -> int:
    """What became of a control; 1 if it was rejected, or was waited for in vain."""
    async with connected(connection) as client:
        if manner.wait:
            found = await settled(client, run_id, manner.request_id, manner.timeout_s)
        else:
            request = api.GetOperationRequest(run_id=run_id, request_id=manner.request_id)
            found = (await client.call(client.controls.GetOperation, request)).data
    if manner.as_json:
        print_json(plain(found))
    else:
        facts(
            [
                ("operation", found.request_id),
                ("control", verb(found)),
                ("step", found.step_ref),
                ("status", status_text(word(model.OperationStatus.DESCRIPTOR, found.status))),
                ("because", ": ".join(text for text in (found.outcome_code, found.outcome_message) if text)),
                ("result", compact(dict(sorted(found.result.items()))) if found.result else ""),
                ("asked by", found.actor),
                ("reason", found.reason),
                ("asked", local(found.create_time)),
                ("settled", local(found.settle_time) if found.HasField("settle_time") else ""),
            ]
        )
    waiting = found.status == model.OPERATION_STATUS_PENDING and not manner.wait
    return DONE if waiting else verdict(found)


def verb(of: model.Operation) -> str:
    """What was asked for, in words."""
    return word(model.ControlVerb.DESCRIPTOR, of.verb).replace("_", " ")


async def _awaited(client: Client, answer: Any, manner: Manner) -> model.Operation | None:
    if not manner.wait:
        return None
    return await settled(client, answer.run_id, answer.request_id, manner.timeout_s)


def _plan(answer: api.RedriveRunResponse, as_json: bool) -> None:
    if as_json:
        print_json(plain(answer))
        return
    said = (
        (answer.plan.restarted_step_refs, "starts anew"),
        (answer.plan.reevaluated_step_refs, "is judged again"),
        (answer.plan.kept_step_refs, "stays"),
    )
    table(("STEP", "REDRIVE"), [(ref, what) for refs, what in said for ref in refs])
