"""Word to steps that wait, and external events, from the command line (rulings E1 to E3).

Every signal and every event goes out with a name, made here where none was given: whatever becomes of the answer, the same call under the same name is the
same signal, the same event. An answer says that the word is durable; what the run makes of it is seen in the run.
"""

from typing import Any
from uuid import uuid4

import msgspec

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_api
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE
from ductord.cli.operating import surely
from ductord.cli.output import counted, facts, print_json, say, show, table
from ductord.cli.triggering import given
from ductord.cli.words import local, plain


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody tells a step, as it was typed. `by`: in whose name."""

    run_id: str
    step: str
    by: str = ""
    comment: str = ""
    payload: str = ""
    request_id: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An external event, or a sample of one, as it was typed."""

    name: str
    key: str = ""
    event_id: str = ""
    payload: str = ""


async def decide(connection: Connection, rpc: str, word: Word, *, as_json: bool) -> int:
    """Approve or reject a step. `rpc` is the name in the contract."""
    request = getattr(api, f"{rpc}Request")(approver_id=word.by)
    name = "approval" if rpc == "ApproveStep" else "rejection"
    return await _tell(connection, rpc, request, word, name=name, as_json=as_json)


async def resolve(connection: Connection, word: Word, *, status: str, as_json: bool) -> int:
    """Resolve an interaction, or say what its case has come to."""
    request = api.ResolveInteractionRequest(status=status, resolved_by=word.by)
    return await _tell(connection, "ResolveInteraction", request, word, name="resolution", as_json=as_json)


async def publish(connection: Connection, event: Event, *, ttl_seconds: int, as_json: bool) -> int:
    """Publish an event and say how many waits it matched, which runs it started, and which triggers could not start one."""
    request = api.PublishEventRequest(ttl_seconds=ttl_seconds)
    _fill(request, event)
    request.event_id = event.event_id or str(uuid4())
    async with connected(connection) as client:
        answer = await surely(
            client, client.signals.PublishEvent, request, again=f"--id {request.event_id}", as_json=as_json
        )
    if as_json:
        print_json(plain(answer))
        return DONE
    show(f"matched {answer.matched}")
    if answer.duplicate:
        say("the event was published before", "dim")
    elif not answer.matched and ttl_seconds:
        say(f"it is kept for {ttl_seconds} s", "dim")
    for run_id in answer.started_run_ids:
        show(f"started {run_id}")
    if answer.refused_triggers:
        rows = [(t.definition_id, t.trigger_id, t.code, t.message) for t in answer.refused_triggers]
        table(("STARTED NOTHING", "TRIGGER", "CODE", "WHY"), rows)
    return DONE


async def explain(connection: Connection, event: Event, *, run_id: str, as_json: bool) -> int:
    """Say what a sample event would do to the open event sets, and why not."""
    request = api.ExplainWorkflowEventSetMatchRequest(event_id=event.event_id, run_id=run_id)
    _fill(request, event)
    async with connected(connection) as client:
        answer = await client.call(client.signals.ExplainWorkflowEventSetMatch, request)
    if as_json:
        print_json(plain(answer))
        return DONE
    facts([("open sets", counted(answer.candidate_waits, "set")), ("would match", str(answer.matched))])
    if answer.reasons:
        table(("WHY NOT", "SETS"), [(reason.code, str(reason.count)) for reason in answer.reasons])
    return DONE


async def receipts(connection: Connection, run_id: str, step: str, *, limit: int, as_json: bool) -> int:
    """List the external events that a step has received."""
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListWaitReceiptsResponse:
            request = api.ListWaitReceiptsRequest(run_id=run_id, step_ref=step, page_size=size, page_token=token)
            return await client.call(client.signals.ListWaitReceipts, request)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(receipt) for receipt in found]})
        return DONE
    rows = [(r.event_id, r.event_name, r.requirement, local(r.receive_time)) for r in found]
    table(("EVENT", "NAME", "REQUIREMENT", "RECEIVED"), rows)
    return DONE


async def event_triggers(connection: Connection, *, workflow: str, event: str, limit: int, as_json: bool) -> int:
    """The live patterns of event triggers."""
    async with connected(connection) as client:
        definition_id = await client.definition_id(workflow) if workflow else ""

        async def fetch(token: str, size: int) -> trigger_api.ListEventTriggersResponse:
            request = trigger_api.ListEventTriggersRequest(
                definition_id=definition_id, event_name=event, page_size=size, page_token=token
            )
            return await client.call(client.triggers.ListEventTriggers, request)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(one) for one in found]})
        return DONE
    rows = [(one.pattern, one.workflow_type, f"v{one.version}", one.trigger_id, one.filter) for one in found]
    table(("PATTERN", "WORKFLOW", "VERSION", "TRIGGER", "FILTER"), rows)
    return DONE


async def _tell(connection: Connection, rpc: str, request: Any, word: Word, *, name: str, as_json: bool) -> int:
    request.run_id, request.step_ref, request.comment = word.run_id, word.step, word.comment
    request.request_id = word.request_id or str(uuid4())
    if word.payload:
        request.payload_json = given(word.payload, "--payload")
    again = f"--request-id {request.request_id}"
    async with connected(connection) as client:
        answer = await surely(client, getattr(client.signals, rpc), request, again=again, as_json=as_json)
    if as_json:
        print_json(plain(answer))
    else:
        show(f"{name} of {word.step} accepted as {answer.request_id}")
    return DONE


def _fill(request: api.PublishEventRequest | api.ExplainWorkflowEventSetMatchRequest, event: Event) -> None:
    """What both have. The payload goes as the text that it is: the server judges it, exactly (L5, L6)."""
    request.event_name, request.correlation_key = event.name, event.key
    if event.payload:
        request.payload_json = given(event.payload, "--payload")
