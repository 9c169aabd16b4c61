"""`ductor run list` and `run show`."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.history import event_line
from ductord.cli.output import compact, dumped, facts, print_json, status_text, table
from ductord.cli.output import show as show_line
from ductord.cli.words import local, number, pair, plain, span, word

EXACT = common.PAYLOAD_FORMAT_JSON
EVERYTHING = 1_000_000


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs, as it was typed."""

    workflow: str = ""
    status: str = ""
    active: bool = False
    errors: bool | None = None
    subject: str = ""
    labels: tuple[str, ...] = ()


async def listing(connection: Connection, chosen: Filter, *, limit: int, as_json: bool) -> int:
    """Runs, newest first."""
    subject_type, subject_id = pair(chosen.subject, "--subject")
    for label in chosen.labels:
        pair(label, "--label")
    request = api.ListRunsRequest(
        workflow_type=chosen.workflow,
        status=number(model.RunStatus.DESCRIPTOR, chosen.status, "--status"),  # type: ignore[arg-type]
        subject_type=subject_type,
        subject_id=subject_id,
        active_only=chosen.active,
        label=chosen.labels,
        has_errors=chosen.errors,
    )
    async with connected(connection) as client:
        found = await summaries(client, request, limit)
    if as_json:
        print_json({"data": [plain(run) for run in found]})
    else:
        table(("RUN", "WORKFLOW", "STATUS", "STEP", "CREATED", "TOOK", "SUBJECT"), [_row(run) for run in found])
    return DONE


async def summaries(client: Client, request: api.ListRunsRequest, limit: int) -> Sequence[model.RunSummary]:
    """Up to `limit` runs of a listing, over all its pages."""

    async def fetch(token: str, size: int) -> api.ListRunsResponse:
        page = api.ListRunsRequest()
        page.CopyFrom(request)
        page.page_token, page.page_size = token, size
        return await client.call(client.runs.ListRuns, page)

    return await pages(fetch, limit)


async def show(connection: Connection, run_id: str, *, timeline: bool, attempts: bool, step: str, as_json: bool) -> int:
    """A run: whole, or one view of it."""
    if timeline + attempts + bool(step) > 1:
        raise CommandFailed("--timeline, --attempts and --step: choose one", code=MISUSED)
    async with connected(connection) as client:
        if timeline:
            _timeline(await entries(client, run_id), as_json)
        elif attempts:
            _attempts(await attempts_of(client, run_id), as_json)
        elif step:
            request = api.GetRunStepRequest(run_id=run_id, step_id=step, payload_format=EXACT)
            _step((await client.call(client.runs.GetRunStep, request)).data, as_json)
        else:
            run = await client.call(client.runs.GetRun, api.GetRunRequest(run_id=run_id, payload_format=EXACT))
            _run(run, await steps_of(client, run_id), as_json)
    return DONE


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
    """Every event of a run's history, oldest first."""

    async def fetch(token: str, size: int) -> api.GetRunTimelineResponse:
        request = api.GetRunTimelineRequest(run_id=run_id, page_token=token, page_size=size, payload_format=EXACT)
        return await client.call(client.runs.GetRunTimeline, request)

    return await pages(fetch, EVERYTHING)


def run_status(run: model.RunSummary | model.RunDetail) -> str:
    """The status word of a run."""
    summary = run.summary if isinstance(run, model.RunDetail) else run
    return word(model.RunStatus.DESCRIPTOR, summary.status)


def node_status(node: model.StepState | model.NodeSummary) -> str:
    """The status word of a node."""
    return word(model.NodeStatus.DESCRIPTOR, node.status)


def fault_text(fault: common.Fault) -> str:
    """`CODE: message`; empty for none."""
    return f"{fault.code}: {fault.message}" if fault.message else str(fault.code)


def remark(node: model.StepState, now: Any = None) -> str:
    """What a person wants to know of a node beside its status: why it was skipped, when it is tried again, what went wrong."""
    if node.skip_reason:
        return word(model.SkipReason.DESCRIPTOR, node.skip_reason)
    error = fault_text(node.error) if node.HasField("error") else ""
    if node.HasField("retry_time") and now is not None:
        wait = (node.retry_time.ToDatetime() - now.ToDatetime()).total_seconds()
        return f"retry in {max(wait, 0):.1f} s{'; ' + error if error else ''}"
    return error


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
    ]


def _run(answer: api.GetRunResponse, nodes: Sequence[model.StepState], as_json: bool) -> None:
    if as_json:
        print_json({**plain(answer), "steps": [plain(node) for node in nodes]})
        return
    run, now = answer.data, answer.metadata.fetched_at
    summary, tree = run.summary, plain(run)
    facts(
        [
            ("run", summary.run_id),
            ("workflow", f"{summary.workflow_type} v{summary.version}"),
            ("status", status_text(run_status(run))),
            ("error", fault_text(run.error) if run.HasField("error") else ""),
            ("at", run.error_step_ref),
            ("subject", f"{summary.subject_type}:{summary.subject_id}" if summary.subject_type else ""),
            ("labels", " ".join(f"{label.key}:{label.id}" for label in summary.correlation_labels)),
            ("key", run.idempotency_key),
            ("created", local(summary.create_time)),
            ("took", span(summary, now=now)),
            ("quarantine", run.quarantine.error if run.HasField("quarantine") else ""),
            ("input", "" if tree["input"] is None else compact(tree["input"])),
        ]
    )
    show_line("")
    steps_table(nodes, now)
    if tree["result"] is not None:
        show_line("")
        show_line("result", "dim")
        show_line(Text(dumped(tree["result"])))


def steps_table(nodes: Sequence[model.StepState], now: Any) -> None:
    """The nodes of a run."""
    table(
        ("STEP", "STATUS", "ATTEMPT", "TOOK", ""),
        [
            [n.step_ref, status_text(node_status(n)), str(n.attempt or ""), span(n, now=now), remark(n, now)]
            for n in nodes
        ],
    )


def _timeline(found: Sequence[model.TimelineEntry], as_json: bool) -> None:
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
        return
    for entry in found:
        show_line(event_line(entry))


def _attempts(found: Sequence[model.Attempt], as_json: bool) -> None:
    if as_json:
        print_json({"data": [plain(attempt) for attempt in found]})
        return
    table(("STEP", "ATTEMPT", "STATUS", "QUEUED", "WAITED", "TOOK", "WORKER", ""), [_attempt(a) for a in found])


def _attempt(attempt: model.Attempt) -> list[str | Text]:
    status = word(model.AttemptStatus.DESCRIPTOR, attempt.status)
    return [
        attempt.step_ref,
        str(attempt.attempt),
        status_text(status),
        local(attempt.queue_time),
        span(attempt, "queue_time", "start_time"),
        span(attempt),
        attempt.worker_id,
        fault_text(attempt.error) if attempt.HasField("error") else "",
    ]


def _step(node: model.StepState, as_json: bool) -> None:
    if as_json:
        print_json(plain(node))
        return
    tree = plain(node)
    facts(
        [
            ("step", node.step_ref),
            ("status", status_text(node_status(node))),
            ("attempt", str(node.attempt)),
            ("took", span(node)),
            ("", remark(node)),
        ]
    )
    for name in ("input", "output"):
        if tree[name] is not None:
            show_line("")
            show_line(name, "dim")
            show_line(Text(dumped(tree[name])))
    show_line("")
    _attempts(node.attempts, False)
