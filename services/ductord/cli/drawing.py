"""A run's graph as a table that changes in place: a row per step in graph order, indented by its depth, with what leads to it.

A graph that is taller than the terminal shows what moves, and counts the rest.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import definition_pb2 as model
from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductor.workflow.v1 import workflow_service_pb2 as runs_api
from ductor.workflow.v1.run_pb2 import (
    RUN_STATUS_COMPLETED,
    RUN_STATUS_PENDING,
    CompensationEntryStatus,
    CompensationStatus,
    RunTreeNode,
    StepState,
)
from ductord.cli import trees
from ductord.cli.client import Client
from ductord.cli.fans import bar
from ductord.cli.output import STATUS_STYLES, clean, console, status_text
from ductord.cli.runs import node_status, remark, run_status
from ductord.cli.words import span, word
from ductord.model.errors import Refusal

GLYPHS = {
    "pending": "·",
    "running": "▶",
    "waiting": "◷",
    "succeeded": "✓",
    "completed_with_error": "!",
    "failed": "✗",
    "skipped": "↷",
    "cancelled": "⊘",
}
INTEREST = ("running", "waiting", "failed", "completed_with_error", "cancelled", "pending", "succeeded", "skipped")
"""What is shown first where not all rows fit."""
DEEPEST = 12
FRAME_ROWS = 7


def live() -> Live:
    """The screen area that is drawn again and again; refreshed by hand."""
    return Live(console=console(sys.stdout), auto_refresh=False, transient=False)


async def board(client: Client, version_id: str) -> "Board":
    """The board of a version's graph; without indentation where the graph cannot be read."""
    request = definitions.GetWorkflowDefinitionRequest(id=version_id, payload_format=common.PAYLOAD_FORMAT_JSON)
    try:
        found = (await client.call(client.definitions.GetWorkflowDefinition, request)).data
    except Refusal:
        found = model.WorkflowDefinitionDetail()
    return Board(found.steps, found.edges)


class Board:
    """How a graph is laid out; `drawn` gives a picture of one moment."""

    def __init__(self, steps: Sequence[model.StepDefinition], edges: Sequence[model.EdgeDefinition]) -> None:
        self._sources: dict[str, list[str]] = {step.ref: [] for step in steps}
        for edge in edges:
            kind = word(model.EdgeType.DESCRIPTOR, edge.type)
            self._sources.setdefault(edge.target_ref, []).append(
                edge.source_ref if kind == "success" else f"{edge.source_ref} ({kind})"
            )
        self._depth = _depths(self._sources, edges)
        self._nodes: Sequence[StepState] = ()

    def drawn(
        self,
        answer: runs_api.GetRunResponse,
        nodes: Sequence[StepState],
        *,
        tree: Sequence[RunTreeNode] = (),
        away: bool = False,
        later_s: float = 0.0,
    ) -> Group:
        """The picture. `tree`: the runs below the run. `away`: the server cannot be reached. `later_s`: how long ago the answer was told."""
        self._nodes = nodes or self._nodes
        summary, now = answer.data.summary, _later(answer.metadata.fetched_at, later_s)
        head = Text.assemble(
            (f"{summary.workflow_type} v{summary.version}  ", "bold"),
            status_text(run_status(summary)),
            (f"  {span(summary, now=now)}  {summary.run_id}", "dim"),
        )
        counts = Counter(node_status(node) for node in self._nodes)
        tail = Text("  ".join(f"{counts[status]} {status}" for status in INTEREST if counts[status]), style="dim")
        if away:
            tail = Text("the server cannot be reached; trying again …", style="yellow")
        grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        rows = console(sys.stdout).size.height - FRAME_ROWS
        shown = self._fitting(rows)
        for node in shown:
            grid.add_row(*self._row(node, now))
        hidden = len(self._nodes) - len(shown)
        more = Text(f"… and {hidden} more steps", style="dim") if hidden else Text("")
        return Group(head, grid, more, *_below(tree, rows - len(shown), now), *_ledger(answer), tail)

    def _fitting(self, rows: int) -> Sequence[StepState]:
        if len(self._nodes) <= rows:
            return self._nodes
        order = sorted(range(len(self._nodes)), key=lambda i: INTEREST.index(node_status(self._nodes[i])))
        return [self._nodes[i] for i in sorted(order[: max(rows, 3)])]

    def _row(self, node: StepState, now: object) -> list[RenderableType]:
        status = node_status(node)
        style = STATUS_STYLES.get(status, "")
        name = Text.assemble(
            "  " * min(self._depth.get(node.step_ref, 0), DEEPEST),
            (GLYPHS.get(status, "?"), style),
            f" {node.step_ref}",
        )
        tries = f"attempt {node.attempt}" if node.attempt > 1 else ""
        sources = self._sources.get(node.step_ref, [])
        return [
            name,
            status_text(status),
            Text(tries, style="yellow"),
            Text(span(node, now=now), style="dim"),
            bar(node.fan) if node.HasField("fan") else Text(""),
            Text(clean(remark(node, now)), style="red" if node.HasField("error") else "dim"),
            Text("← " + ", ".join(sources) if sources else "", style="dim", overflow="ellipsis", no_wrap=True),
        ]


def _below(tree: Sequence[RunTreeNode], rows: int, now: object) -> list[Text]:
    """The tree of children: all of it where it fits, else what is open and what failed."""
    rows = max(rows - 2, 3)
    if len(tree) > rows:
        keep = {node.run_id for node in tree if node.status not in (RUN_STATUS_COMPLETED, RUN_STATUS_PENDING)}
        for node in reversed(tree):  # whose child is shown is shown
            if node.run_id in keep:
                keep.add(node.parent_run_id)
        tree = [node for node in tree if node.run_id in keep][:rows]
    return [Text("children", style="dim"), *trees.lines(tree, now)] if tree else []


def _later(at: Timestamp, seconds: float) -> Timestamp:
    found = Timestamp()
    found.FromMicroseconds(at.ToMicroseconds() + int(seconds * 1_000_000))
    return found


def _ledger(answer: runs_api.GetRunResponse) -> list[Text]:
    """How far the unwinding of a run has come, and what is being undone; nothing where nothing is or was owed."""
    run = answer.data
    if not run.compensation:
        return []
    words = [word(CompensationEntryStatus.DESCRIPTOR, entry.status) for entry in run.compensation]
    status = word(CompensationStatus.DESCRIPTOR, run.summary.compensation_status)
    counts = "".join(f"  {count} {name.replace('_', ' ')}" for name, count in Counter(words).items())
    lines = [Text.assemble("compensation ", status_text(status), (counts, "dim"))]
    for entry, name in zip(run.compensation, words, strict=True):
        if name == "running":
            lines.append(Text(clean(f"  ▶ {entry.step_ref}: {entry.action}, attempt {entry.attempt}"), style="cyan"))
    return lines


def _depths(sources: dict[str, list[str]], edges: Sequence[model.EdgeDefinition]) -> dict[str, int]:
    """Steps between each step and the furthest entrypoint above it. Published graphs have no cycle (Kahn's order is walked)."""
    targets: dict[str, list[str]] = {}
    open_edges = Counter(edge.target_ref for edge in edges)
    for edge in edges:
        targets.setdefault(edge.source_ref, []).append(edge.target_ref)
    depth = dict.fromkeys(sources, 0)
    ready = [ref for ref in sources if not open_edges[ref]]
    while ready:
        ref = ready.pop()
        for target in targets.get(ref, ()):
            depth[target] = max(depth.get(target, 0), depth[ref] + 1)
            open_edges[target] -= 1
            if not open_edges[target]:
                ready.append(target)
    return depth
