"""`ductor run list`, and what every view of a run asks for and calls things by."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected, pages
from ductord.cli.ending import DONE
from ductord.cli.output import print_json, status_text, table
from ductord.cli.waits import wait_text
from ductord.cli.words import local, number, pair, plain, span, time_of, word

EXACT = common.PAYLOAD_FORMAT_JSON
EVERYTHING = 1_000_000


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, as it was typed."""

    workflow: str = ""
    status: str = ""
    compensation: str = ""
    active: bool = False
    errors: bool | None = None
    subject: str = ""
    labels: tuple[str, ...] = ()
    parent: str = ""
    root: str = ""
    journey: str = ""
    since: str = ""
    until: str = ""


async def listing(connection: Connection, chosen: Filter, *, limit: int, as_json: bool) -> int:
    """Runs, newest first."""
    subject_type, subject_id = pair(chosen.subject, "--subject")
    for label in chosen.labels:
        pair(label, "--label")
    request = api.ListRunsRequest(
        workflow_type=chosen.workflow,
        status=number(model.RunStatus.DESCRIPTOR, chosen.status, "--status"),  # type: ignore[arg-type]
        compensation_status=number(model.CompensationStatus.DESCRIPTOR, chosen.compensation, "--compensation"),  # type: ignore[arg-type]
        subject_type=subject_type,
        subject_id=subject_id,
        active_only=chosen.active,
        label=chosen.labels,
        has_errors=chosen.errors,
        parent_run_id=chosen.parent,
        root_run_id=chosen.root,
        journey_id=chosen.journey,
        created_after=time_of(chosen.since, "--since") if chosen.since else None,
        created_before=time_of(chosen.until, "--until") if chosen.until else None,
    )
    async with connected(connection) as client:
        found = await summaries(client, request, limit)
    if as_json:
        print_json({"data": [plain(run) for run in found]})
    else:
        columns = ("RUN", "WORKFLOW", "STATUS", "STEP", "CREATED", "TOOK", "SUBJECT", "COMPENSATION")
        table(columns, [_row(run) for run in found])
    return DONE


async def summaries(client: Client, request: api.ListRunsRequest, limit: int) -> Sequence[model.RunSummary]:
    """Up to `limit` runs of a listing, over all its pages."""

    async def fetch(token: str, size: int) -> api.ListRunsResponse:
        page = api.ListRunsRequest()
        page.CopyFrom(request)
        page.page_token, page.page_size = token, size
        return await client.call(client.runs.ListRuns, page)

    return await pages(fetch, limit)


async def steps_of(client: Client, run_id: str) -> Sequence[model.StepState]:
    """Every node of a run, in graph order."""

    async def fetch(token: str, size: int) -> api.ListRunStepsResponse:
        request = api.ListRunStepsRequest(run_id=run_id, page_token=token, page_size=size, payload_format=EXACT)
        return await client.call(client.runs.ListRunSteps, request)

    return await pages(fetch, EVERYTHING)


async def attempts_of(client: Client, run_id: str) -> Sequence[model.Attempt]:
    """Every attempt of a run, oldest first."""

    async def fetch(token: str, size: int) -> api.ListRunEventsResponse:
        request = api.ListRunEventsRequest(run_id=run_id, page_token=token, page_size=size, payload_format=EXACT)
        return await client.call(client.runs.ListRunEvents, request)

    return await pages(fetch, EVERYTHING)


async def entries(client: Client, run_id: str) -> Sequence[model.TimelineEntry]:
    """Every event of a run's history, and the controls among them, oldest first."""

    async def fetch(token: str, size: int) -> api.GetRunTimelineResponse:
        request = api.GetRunTimelineRequest(
            run_id=run_id, page_token=token, page_size=size, payload_format=EXACT, unified=True
        )
        return await client.call(client.runs.GetRunTimeline, request)

    return await pages(fetch, EVERYTHING)


def run_status(run: model.RunSummary | model.RunDetail) -> str:
    """The status word of a run."""
    summary = run.summary if isinstance(run, model.RunDetail) else run
    return word(model.RunStatus.DESCRIPTOR, summary.status)


def owed(run: model.RunSummary) -> str | Text:
    """Where the unwinding of a run stands; empty where nothing is or was owed."""
    if run.compensation_status == model.COMPENSATION_STATUS_NONE:
        return ""
    return status_text(word(model.CompensationStatus.DESCRIPTOR, run.compensation_status))


def node_status(node: model.StepState | model.NodeSummary) -> str:
    """The status word of a node."""
    return word(model.NodeStatus.DESCRIPTOR, node.status)


def fault_text(fault: common.Fault) -> str:
    """`CODE: message`; empty for none."""
    return f"{fault.code}: {fault.message}" if fault.message else str(fault.code)


def remark(node: model.StepState, now: Any = None) -> str:
    """What a person wants to know of a node beside its status: why it was skipped, who holds it, what it waits for, when it is tried again, what
    went wrong."""
    if node.skip_reason:
        return word(model.SkipReason.DESCRIPTOR, node.skip_reason)
    remarks = ["paused"] if node.paused else []
    if node.HasField("fan"):
        remarks.append(_children(node.fan))
    if node.HasField("waiting"):
        remarks.append(wait_text(node.waiting))
    if node.HasField("retry_time") and now is not None:
        wait = (node.retry_time.ToDatetime() - now.ToDatetime()).total_seconds()
        remarks.append(f"retry in {max(wait, 0):.1f} s")
    if node.HasField("error"):
        remarks.append(fault_text(node.error))
    return "; ".join(remarks)


def _children(fan: model.FanState) -> str:
    """How far the children have come: `512/1,000 ended, 3 failed`."""
    failed = f", {fan.failed:,} failed" if fan.failed else ""
    stop = f", stopping: {fault_text(fan.stop_error)}" if fan.HasField("stop_error") else ""
    return f"{fan.succeeded + fan.failed + fan.cancelled:,}/{fan.expected:,} ended{failed}{stop}"


def _row(run: model.RunSummary) -> list[str | Text]:
    subject = f"{run.subject_type}:{run.subject_id}" if run.subject_type or run.subject_id else ""
    name = f"{run.workflow_type} v{run.version}"
    return [
        run.run_id,
        name,
        status_text(run_status(run)),
        run.current_step,
        local(run.create_time),
        span(run),
        subject,
        owed(run),
    ]
