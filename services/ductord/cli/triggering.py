"""`ductor trigger`: start a run, and wait for a checkpoint or its end where asked to."""

import sys
from pathlib import Path

import msgspec

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import workflow_trigger_service_pb2 as api
from ductord.cli import watching
from ductord.cli.client import CALL_LIMIT_S, Connection, connected
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.output import dumped, print_json, say, show
from ductord.cli.words import number, pair, plain, word

CHECKPOINT_LIMIT_S = 300


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, as it was typed."""

    workflow: str
    input: str = ""
    key: str = ""
    subject: str = ""
    labels: tuple[str, ...] = ()
    tier: str = ""
    release: str = ""


async def trigger(
    connection: Connection, order: Order, *, wait: bool, checkpoint: str, timeout_s: float, as_json: bool
) -> int:
    """Start a run and print its id. With a wait the exit code says whether the run completed, or the checkpoint was reached."""
    if wait and checkpoint:
        raise CommandFailed("--wait and --checkpoint: wait for one of the two", code=MISUSED)
    request = asked(order)
    if checkpoint:
        request.wait_for_checkpoint = True
        request.checkpoint = checkpoint
        request.checkpoint_timeout_seconds = max(1, min(round(timeout_s), CHECKPOINT_LIMIT_S))
    async with connected(connection) as client:
        request.definition_id = await client.definition_id(order.workflow)
        limit_s = CALL_LIMIT_S + (request.checkpoint_timeout_seconds if checkpoint else 0)
        answer = await client.call(client.triggers.TriggerWorkflow, request, limit_s=limit_s)
        if wait:
            if not as_json:
                show(answer.run_id)
            return await watching.to_the_end(client, answer.run_id, timeout_s, as_json=as_json, whole=True)
    _print(answer, as_json)
    return FAILED if checkpoint and not answer.checkpoint_reached else DONE


def asked(order: Order) -> api.TriggerWorkflowRequest:
    """The request, without the definition's id. The input goes as the text that it is: the server judges it, exactly (L5, L6)."""
    subject_type, subject_id = pair(order.subject, "--subject")
    request = api.TriggerWorkflowRequest(
        subject_type=subject_type,
        subject_id=subject_id,
        idempotency_key=order.key,
        external_deployment_id=order.release,
        tier=number(common.Tier.DESCRIPTOR, order.tier, "--tier"),  # type: ignore[arg-type]
        payload_format=common.PAYLOAD_FORMAT_JSON,
    )
    for label in order.labels:
        key, identity = pair(label, "--label")
        request.correlation_labels.add(key=key, id=identity)
    if order.input:
        request.input_json = given(order.input)
    return request


def given(text: str, option: str = "--input") -> str:
    """JSON as typed for `option`, from `@file`, or from standard input for `-`. Raises `CommandFailed` for a file that cannot be read."""
    try:
        if text == "-":
            return sys.stdin.read()
        return Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            f"{option} {text}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}", code=MISUSED
        ) from None


def _print(answer: api.TriggerWorkflowResponse, as_json: bool) -> None:
    if as_json:
        print_json(plain(answer))
        return
    show(answer.run_id)
    if answer.duplicate:
        say("the key was used before: this is that run", "dim")
    if answer.checkpoint_reached:
        show(dumped(plain(answer)["response_group_output"]))
    elif answer.checkpoint:
        status = word(
            api.TriggerWorkflowResponse.DESCRIPTOR.fields_by_name["checkpoint_status"].enum_type,
            answer.checkpoint_status,
        )
        say(f"checkpoint {answer.checkpoint} is {status}", "red")
