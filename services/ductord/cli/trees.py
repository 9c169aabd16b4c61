"""The runs below a run as a tree: each child under its parent, named by the step and the index that it is for."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductord.cli.output import STATUS_STYLES, clean, show
from ductord.cli.runs import fault_text
from ductord.cli.words import span, word

MOST: Final = 100
"""Lines of a tree that `run show` prints; with --json it has all that the server gives."""


def lines(tree: Sequence[model.RunTreeNode], now: object = None) -> Iterator[Text]:
    """A line per run, drawn as a tree."""
    siblings: dict[str, list[str]] = {}
    for node in tree:
        siblings.setdefault(node.parent_run_id, []).append(node.run_id)
    rails: dict[str, str] = {}
    for node in tree:
        last = siblings[node.parent_run_id][-1] == node.run_id
        rail = rails.get(node.parent_run_id, "")
        rails[node.run_id] = rail + ("   " if last else "│  ")
        yield _line(node, rail + ("└─ " if last else "├─ "), now)


def tell(run: model.RunDetail, now: object) -> None:
    """The tree of a run that has one."""
    if not run.tree:
        return
    show("")
    show("children", "dim")
    for line in islice(lines(run.tree, now), MOST):
        show(line)
    if run.tree_truncated or len(run.tree) > MOST:
        show(f"… and more: `ductor run list --root {run.summary.root_run_id or run.summary.run_id}`", "dim")


def counts_text(counts: model.ChildCounts) -> str:
    """`3/8 ended, 1 failed`; empty where there are none."""
    if not counts.expected:
        return ""
    ended = counts.succeeded + counts.failed + counts.cancelled
    return f"{ended:,}/{counts.expected:,} ended" + (f", {counts.failed:,} failed" if counts.failed else "")


def _line(node: model.RunTreeNode, rail: str, now: object) -> Text:
    status = word(model.RunStatus.DESCRIPTOR, node.status)
    took = span(node, now=now)
    more = [counts_text(node.children), "detached" if node.detached else ""]
    if node.error.code:
        more.append(fault_text(node.error))
    return Text.assemble(
        (rail, "dim"),
        f"{node.step_ref}[{node.item_index}] ",
        (status, STATUS_STYLES.get(status, "")),
        (f"  {node.workflow_type} v{node.version}  {took}  ".replace("    ", "  "), "dim"),
        node.run_id,
        (clean("".join(f"  {text}" for text in more if text)), "red" if node.error.code else "dim"),
    )
