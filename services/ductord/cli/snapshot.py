"""`ductor run snapshot`: a run as the engine sees it, for who wants to know why it does not go on."""

from typing import Any

from rich.text import Text

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import control_pb2 as model
from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.cli.client import Connection, connected
from ductord.cli.ending import DONE
from ductord.cli.fans import progress
from ductord.cli.ledger import ledger_table
from ductord.cli.operating import verb
from ductord.cli.output import compact, counted, facts, print_json, show, status_text, table
from ductord.cli.runs import fault_text, run_status
from ductord.cli.waits import wait_text
from ductord.cli.words import local, plain, word


async def snapshot(connection: Connection, run_id: str, *, as_json: bool) -> int:
    """Everything about where a run stands."""
    async with connected(connection) as client:
        request = api.GetRunSnapshotRequest(run_id=run_id, payload_format=common.PAYLOAD_FORMAT_JSON)
        answer = await client.call(client.controls.GetRunSnapshot, request)
    if as_json:
        print_json(plain(answer))
        return DONE
    run = answer.data
    _head(run)
    show("")
    table(("STEP", "STATUS", "ATTEMPT", "FAILURES", "LOSSES", ""), [_node(node) for node in run.nodes])
    _part("timers", ("FOR", "STEP", "DUE"), [[t.kind, t.step_ref, local(t.due_time)] for t in run.timers])
    _part(
        "open attempts",
        ("STEP", "ATTEMPT", "KIND", "QUEUED", "TAKEN", "WORKER"),
        [_attempt(attempt) for attempt in run.open_attempts],
    )
    _part(
        "pending controls",
        ("OPERATION", "CONTROL", "STEP", "ASKED BY", "ASKED"),
        [[o.request_id, verb(o), o.step_ref, o.actor, local(o.create_time)] for o in run.pending_operations],
    )
    if run.compensation:
        show("")
        show("compensation", "dim")
        ledger_table(run.compensation)
    return DONE


def _head(run: model.RunSnapshot) -> None:
    summary = run.summary
    facts(
        [
            ("run", summary.run_id),
            ("workflow", f"{summary.workflow_type} v{summary.version}"),
            ("status", status_text(run_status(summary))),
            (
                "stopped" if summary.HasField("end_time") else "stopping",
                _stop(run.stop) if run.HasField("stop") else "",
            ),
            ("quarantine", run.quarantine.error if run.HasField("quarantine") else ""),
            ("history", f"{counted(run.transition_count, 'transition')}, length {run.history_length:,}"),
            ("edges", _edges(run)),
            ("context", _context(run)),
        ]
    )


def _stop(stop: model.StopSnapshot) -> str:
    words = [word(run_pb2.RunStatus.DESCRIPTOR, stop.cause)]
    if stop.step_ref:
        words.append(f"at {stop.step_ref}")
    if stop.HasField("error"):
        words.append(f"({fault_text(stop.error)})")
    if stop.continued_to_run_id:
        words.append(f"continued by {stop.continued_to_run_id}")
    if stop.HasField("deadline"):
        words.append(f"until {local(stop.deadline)}")
    return " ".join(words)


def _edges(run: model.RunSnapshot) -> str:
    counts: dict[str, int] = {}
    for edge in run.edges:
        state = word(model.EdgeState.DESCRIPTOR, edge.state).replace("_", " ")
        counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _context(run: model.RunSnapshot) -> str:
    if run.run_context_truncated:
        return "too large to be shown"
    context: Any = plain(run)["run_context"]
    return compact(context) if context else ""


def _part(title: str, columns: tuple[str, ...], rows: list[list[str | Text]]) -> None:
    if rows:
        show("")
        show(title, "dim")
        table(columns, rows)


def _node(node: model.NodeSnapshot) -> list[str | Text]:
    remarks = [
        *([word(run_pb2.SkipReason.DESCRIPTOR, node.skip_reason)] if node.skip_reason else []),
        *(["paused"] if node.paused else []),
        *(["asked to stop"] if node.cancelling else []),
        *([wait_text(node.waiting)] if node.HasField("waiting") else []),
        *([progress(node.fan)] if node.HasField("fan") else []),
        *(["outcome unknown"] if node.outcome_unknown else []),
        *([f"retry at {local(node.retry_time)}"] if node.HasField("retry_time") else []),
        *(["other retry policy"] if node.retry_policy_changed else []),
        *(["other time-outs"] if node.timeouts_changed else []),
        *([fault_text(node.error)] if node.HasField("error") else []),
    ]
    return [
        node.step_ref,
        status_text(word(run_pb2.NodeStatus.DESCRIPTOR, node.status)),
        str(node.attempt or ""),
        str(node.failures or ""),
        str(node.losses or ""),
        "; ".join(remarks),
    ]


def _attempt(attempt: run_pb2.Attempt) -> list[str | Text]:
    taken = local(attempt.start_time) if attempt.HasField("start_time") else ""
    kind = word(run_pb2.TaskKind.DESCRIPTOR, attempt.kind)
    return [attempt.step_ref, str(attempt.attempt), kind, local(attempt.queue_time), taken, attempt.worker_id]
