"""Fan-outs for people: how far one has come, in words and as a bar, and its children as a table (`ductor run steps`)."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.progress_bar import ProgressBar
from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.output import print_json, show, status_text, table
from ductord.cli.runs import EXACT, fault_text, node_status
from ductord.cli.words import number, plain, span, word

WIDTH: Final = 24


def progress(fan: model.FanState) -> str:
    """`512/1,000, 20 running, 3 failed`."""
    ended = fan.succeeded + fan.failed + fan.cancelled
    parts = [f"{ended:,}/{fan.expected:,}"]
    counts = ((fan.open, "running"), (fan.failed, "failed"), (fan.cancelled, "cancelled"))
    return ", ".join(parts + [f"{count:,} {what}" for count, what in counts if count])


def bar(fan: model.FanState) -> ProgressBar:
    """How much of a fan-out has ended, red once something failed."""
    ended = fan.succeeded + fan.failed + fan.cancelled
    style = "red" if fan.failed else "green"
    return ProgressBar(
        total=max(fan.expected, 1), completed=ended if fan.expected else 1, width=WIDTH, complete_style=style,
        finished_style=style,
    )  # fmt: skip


def indexes(text: str) -> tuple[int | None, int | None]:
    """`10-20`, `10-`, `-20` or `7` as the first and the last index; None where it is open. Raises `CommandFailed`."""
    first, dash, last = text.partition("-")
    if not text:
        return None, None
    if not all(part.isdigit() or (dash and not part) for part in (first, last if dash else first)) or text == "-":
        raise CommandFailed(f"--index is written as 7, 10-20, 10- or -20, not {text!r}", code=MISUSED)
    begin = int(first) if first else None
    return begin, (int(last) if last else None) if dash else begin


async def children(
    connection: Connection, run_id: str, *, step: str, status: str, index: str, limit: int, as_json: bool
) -> int:
    """The children of a step, or without one the steps of the run."""
    first, last = indexes(index)
    wanted = api.ListRunStepsRequest(
        run_id=run_id,
        step_ref=step,
        status=number(model.NodeStatus.DESCRIPTOR, status, "--status"),  # type: ignore[arg-type]
        index_from=first,
        index_to=last,
        payload_format=EXACT,
    )
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListRunStepsResponse:
            page = api.ListRunStepsRequest()
            page.CopyFrom(wanted)
            page.page_token, page.page_size = token, size
            return await client.call(client.runs.ListRunSteps, page)

        found: Sequence[model.StepState] = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(child) for child in found]})
    elif step:
        table(("INDEX", "STATUS", "ATTEMPT", "TOOK", "RUN", ""), [_row(child) for child in found])
    else:
        table(("STEP", "STATUS", "ATTEMPT", "TOOK", "CHILDREN", ""), [_node(node) for node in found])
    if len(found) == limit and not as_json:
        show(f"… at most {limit:,} are shown; --limit shows more", "dim")
    return DONE


def _row(child: model.StepState) -> list[str | Text]:
    return [
        str(child.item_index), status_text(node_status(child)), str(child.attempt or ""), span(child), child.child_run_id,
        "; ".join(_remarks(child)),
    ]  # fmt: skip


def _remarks(child: model.StepState) -> Iterator[str]:
    if child.child_status and word(model.RunStatus.DESCRIPTOR, child.child_status) not in ("running", "completed"):
        yield f"run {word(model.RunStatus.DESCRIPTOR, child.child_status)}"
    if child.HasField("error"):
        yield fault_text(child.error)


def _node(node: model.StepState) -> list[str | Text]:
    children_text = progress(node.fan) if node.HasField("fan") else ""
    error = fault_text(node.error) if node.HasField("error") else ""
    return [node.step_ref, status_text(node_status(node)), str(node.attempt or ""), span(node), children_text, error]
