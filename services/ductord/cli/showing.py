"""`ductor run show`: a run whole, or one view of it: its history, its attempts, one step, its audit trail."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.history import event_line
from ductord.cli.ledger import ledger_table
from ductord.cli.operating import verb
from ductord.cli.output import compact, dumped, facts, print_json, show, status_text, table
from ductord.cli.runs import EXACT, attempts_of, entries, fault_text, node_status, owed, remark, run_status, steps_of
from ductord.cli.trail import of_run, trail
from ductord.cli.trees import tell
from ductord.cli.words import local, plain, span, word
from ductord.model.errors import Refusal

_VIEWS = "--timeline, --attempts, --audit and --step: choose one"


async def run(
    connection: Connection,
    run_id: str,
    *,
    timeline: bool,
    attempts: bool,
    audit: bool,
    step: str,
    index: int | None,
    as_json: bool,
) -> int:
    """A run: whole, or one view of it. `index`: a child of the step."""
    if index is not None and not step:
        raise CommandFailed("--index is of a child of a step: name it with --step", code=MISUSED)
    if timeline + attempts + audit + bool(step) > 1:
        raise CommandFailed(_VIEWS, code=MISUSED)
    async with connected(connection) as client:
        if timeline:
            _timeline(await entries(client, run_id), as_json)
        elif attempts:
            _attempts(await attempts_of(client, run_id), as_json)
        elif audit:
            trail(await of_run(client, run_id), as_json)
        elif step:
            request = api.GetRunStepRequest(run_id=run_id, step_id=step, item_index=index, payload_format=EXACT)
            _step((await client.call(client.runs.GetRunStep, request)).data, as_json)
        else:
            whole = api.GetRunRequest(run_id=run_id, payload_format=EXACT, include_tree=True)
            found = await client.call(client.runs.GetRun, whole)
            _run(found, await steps_of(client, run_id), await _pending(client, run_id), as_json)
    return DONE


async def _pending(client: Client, run_id: str) -> Sequence[control_pb2.Operation]:
    """The controls that no tick has judged yet; none where the service of controls cannot be asked, which is no reason not to show the run."""
    request = controls.GetRunSnapshotRequest(run_id=run_id, payload_format=common.PAYLOAD_FORMAT_JSON)
    try:
        return (await client.call(client.controls.GetRunSnapshot, request)).data.pending_operations
    except Refusal as refusal:
        if refusal.code not in ("UNAVAILABLE", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"):
            raise
        return ()


def _run(
    answer: api.GetRunResponse,
    nodes: Sequence[model.StepState],
    pending: Sequence[control_pb2.Operation],
    as_json: bool,
) -> None:
    if as_json:
        steps = [plain(node) for node in nodes]
        print_json({**plain(answer), "steps": steps, "pending_operations": [plain(asked) for asked in pending]})
        return
    run, now = answer.data, answer.metadata.fetched_at
    _head(run, now)
    show("")
    steps_table(nodes, now)
    tell(run, now)
    if run.compensation:
        show("")
        show("compensation", "dim")
        ledger_table(run.compensation)
    if run.compensation_truncated:
        show(f"… and more: `ductor compensation list --run {run.summary.run_id}`", "dim")
    if pending:
        show("")
        show("pending controls", "dim")
        _operations(pending)
    result = plain(run)["result"]
    if result is not None:
        show("")
        show("result", "dim")
        show(Text(dumped(result)))


def _head(run: model.RunDetail, now: Any) -> None:
    summary = run.summary
    given = plain(run)["input"]
    facts(
        [
            ("run", summary.run_id),
            ("workflow", f"{summary.workflow_type} v{summary.version}"),
            ("status", status_text(run_status(run))),
            ("error", fault_text(run.error) if run.HasField("error") else ""),
            ("at", run.error_step_ref),
            ("compensation", owed(summary)),
            ("closed", summary.close_reason.replace("_", " ")),
            ("continued by", summary.continued_to_run_id),
            ("merged into", summary.merged_into_run_id),
            ("continues", summary.continued_from_run_id),
            ("reset from", _reset(summary)),
            ("child of", _parent(run)),
            ("root", summary.root_run_id if summary.parent_run_id else ""),
            ("subject", f"{summary.subject_type}:{summary.subject_id}" if summary.subject_type else ""),
            ("labels", " ".join(f"{label.key}:{label.id}" for label in summary.correlation_labels)),
            ("started by", _origin(summary.origin)),
            ("environment", summary.environment),
            ("journey", summary.journey_id if summary.journey_id != summary.run_id else ""),
            ("key", run.idempotency_key),
            ("created", local(summary.create_time)),
            ("took", span(summary, now=now)),
            ("quarantine", run.quarantine.error if run.HasField("quarantine") else ""),
            ("input", "" if given is None else compact(given)),
        ]
    )


def _parent(run: model.RunDetail) -> str:
    if not run.summary.parent_run_id:
        return ""
    place = f" {run.parent_step_ref}[{run.parent_item_index}]" if run.parent_step_ref else ""
    return f"{run.summary.parent_run_id}{place}"


def _origin(origin: model.RunOrigin) -> str:
    """What started the run; empty by hand, and by its parent, which has a line of its own."""
    if origin.type == model.ORIGIN_TYPE_EVENT:
        return f"event {origin.event_name} {origin.event_id} ({origin.trigger_id})"
    if origin.type == model.ORIGIN_TYPE_SCHEDULE:
        return f"schedule {origin.trigger_id} for {local(origin.nominal_time)}"
    return ""


def _reset(summary: model.RunSummary) -> str:
    if not summary.reset_from_run_id:
        return ""
    return f"{summary.reset_from_run_id} after transition {summary.reset_from_transition_seq}"


def steps_table(nodes: Sequence[model.StepState], now: Any) -> None:
    """The nodes of a run."""
    table(
        ("STEP", "STATUS", "ATTEMPT", "TOOK", ""),
        [
            [n.step_ref, status_text(node_status(n)), str(n.attempt or ""), span(n, now=now), remark(n, now)]
            for n in nodes
        ],
    )


def _operations(pending: Sequence[control_pb2.Operation]) -> None:
    rows: list[list[str | Text]] = [
        [o.request_id, verb(o), o.step_ref, o.actor, local(o.create_time), o.reason]
        for o in pending
    ]  # fmt: skip
    table(("REQUEST", "CONTROL", "STEP", "BY", "ASKED", "REASON"), rows)


def _timeline(found: Sequence[model.TimelineEntry], as_json: bool) -> None:
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
        return
    for entry in found:
        show(event_line(entry))


def _attempts(found: Sequence[model.Attempt], as_json: bool) -> None:
    if as_json:
        print_json({"data": [plain(attempt) for attempt in found]})
        return
    table(("STEP", "ATTEMPT", "STATUS", "QUEUED", "WAITED", "TOOK", "WORKER", ""), [_attempt(a) for a in found])


def _attempt(attempt: model.Attempt) -> list[str | Text]:
    status = word(model.AttemptStatus.DESCRIPTOR, attempt.status)
    index = f"[{attempt.item_index}]" if attempt.HasField("item_index") else ""
    return [
        f"{attempt.step_ref}{index}",
        f"{attempt.attempt}{_KINDS.get(attempt.kind, '')}",
        status_text(status),
        local(attempt.queue_time),
        span(attempt, "queue_time", "start_time"),
        span(attempt),
        attempt.worker_id,
        fault_text(attempt.error) if attempt.HasField("error") else "",
    ]


_KINDS = {model.TASK_KIND_COMPENSATION: " inverse", model.TASK_KIND_FINALLY: " final", model.TASK_KIND_ITEM: " item"}
"""What an attempt works for where it is not the step itself."""


def _step(node: model.StepState, as_json: bool) -> None:
    if as_json:
        print_json(plain(node))
        return
    tree = plain(node)
    facts(
        [
            ("step", f"{node.step_ref}[{node.item_index}]" if node.HasField("item_index") else node.step_ref),
            ("run", node.child_run_id),
            ("status", status_text(node_status(node))),
            ("attempt", str(node.attempt)),
            ("took", span(node)),
            ("", remark(node)),
        ]
    )
    for name in ("input", "output"):
        if tree[name] is not None:
            show("")
            show(name, "dim")
            show(Text(dumped(tree[name])))
    show("")
    _attempts(node.attempts, False)
