"""What people see of fan-outs: bars and trees, the children of a step, and lines where nobody watches (F1 to F5)."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from ductor.workflow.v1 import common_pb2, definition_pb2, run_pb2, workflow_service_pb2
from ductord.cli import fans, trees, watching
from ductord.cli.drawing import Board
from ductord.cli.ending import CommandFailed
from ductord.cli.history import event_line
from tests.cli.shop import TENANT, Shop

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]

PAGES = [0, 0, 9, 0, 0, 9, 0]
"""Two of them are damaged."""


def _done(shop: Shop, *arguments: str) -> str:
    code, output, errors = shop.ductor(*arguments)
    assert code == 0, (arguments, output, errors)
    return output


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def _picture(nodes: list[run_pb2.StepState], tree: list[run_pb2.RunTreeNode]) -> list[str]:
    steps = [definition_pb2.StepDefinition(ref=node.step_ref) for node in nodes]
    answer = workflow_service_pb2.GetRunResponse(
        data=run_pb2.RunDetail(summary=run_pb2.RunSummary(workflow_type="scan", status=run_pb2.RUN_STATUS_RUNNING))
    )
    paper = Console(file=io.StringIO(), width=160, record=True)
    paper.print(Board(steps, []).drawn(answer, nodes, tree=tree))
    return [line.rstrip() for line in paper.export_text().splitlines()]


def _child(
    number: int, parent: str, depth: int, status: run_pb2.RunStatus.ValueType, **fields: Any
) -> run_pb2.RunTreeNode:
    return run_pb2.RunTreeNode(
        run_id=f"r{number}", parent_run_id=parent, step_ref="s", item_index=number, depth=depth, status=status,
        workflow_type="w", version=1, **fields,
    )  # fmt: skip


def test_a_fan_out_is_drawn_as_a_bar_and_its_children_as_a_tree() -> None:
    half = run_pb2.FanState(expected=10, begun=7, open=2, succeeded=4, failed=1)
    nodes = [
        run_pb2.StepState(step_ref="pages", status=run_pb2.NODE_STATUS_RUNNING, fan=half),
        run_pb2.StepState(step_ref="all", status=run_pb2.NODE_STATUS_PENDING),
    ]
    tree = [
        _child(1, "root", 1, run_pb2.RUN_STATUS_RUNNING, children=run_pb2.ChildCounts(expected=2, open=2)),
        _child(2, "r1", 2, run_pb2.RUN_STATUS_RUNNING),
        _child(3, "r1", 2, run_pb2.RUN_STATUS_FAILED, error=common_pb2.Fault(code="BROKEN", message="a\x1b[2Jb")),
        _child(4, "root", 1, run_pb2.RUN_STATUS_COMPLETED, detached=True),
    ]
    lines = _picture(nodes, tree)
    (pages,) = [line for line in lines if " pages " in line]
    assert pages.count("━") == fans.WIDTH // 2
    assert "5/10 ended, 1 failed" in pages
    shown = lines[lines.index("children") + 1 :]
    assert [line.split("  ")[0] for line in shown[:4]] == [
        "├─ s[1] running",
        "│",
        "│",
        "└─ s[4] completed",
    ]
    assert "0/2 ended" in shown[0]
    assert "│  └─ s[3] failed" in shown[2]
    assert "BROKEN: a\\u001b[2Jb" in shown[2]
    assert "detached" in shown[3]


def test_a_tree_that_is_too_tall_shows_what_is_open_or_failed() -> None:
    tree = [_child(n, "root", 1, run_pb2.RUN_STATUS_COMPLETED) for n in range(200)]
    tree += [_child(500, "r7", 2, run_pb2.RUN_STATUS_RUNNING)]
    shown = _picture([run_pb2.StepState(step_ref="s")], tree)
    runs = [line for line in shown if " s[" in line]
    assert ["s[7]" in line or "s[500]" in line for line in runs] == [True, True]


def test_the_lines_of_a_tree_close_where_they_end() -> None:
    tree = [_child(1, "root", 1, run_pb2.RUN_STATUS_RUNNING), _child(2, "r1", 2, run_pb2.RUN_STATUS_RUNNING)]
    assert [line.plain.split("s[")[0] for line in trees.lines(tree)] == ["└─ ", "   └─ "]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", (None, None)), ("7", (7, 7)), ("10-20", (10, 20)), ("10-", (10, None)), ("-20", (None, 20))],
)
def test_indexes_as_people_type_them(text: str, wanted: tuple[int | None, int | None]) -> None:
    assert fans.indexes(text) == wanted


@pytest.mark.parametrize("text", ["-", "a", "1-b", "1,2", "1-2-3", "--"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed):
        fans.indexes(text)


def test_the_events_of_fan_outs_are_lines() -> None:
    def said(kind: str, detail: dict[str, Any], **fields: Any) -> str:
        entry = run_pb2.TimelineEntry(type=kind, step_ref="s", detail_json=json.dumps(detail), **fields)
        return event_line(entry).partition("s  ")[2].strip()

    assert said("fan_expanded", {"expected": 10_000, "version": 3}) == "10,000 children to begin, version 3"
    assert said("fan_resumed", {"again": [[2, 1], [5, 3]]}) == "goes on: [2] [5–7] anew"
    assert said("children_begun", {"first": 0, "count": 3}) == "[0–2] begun"
    assert said("children_succeeded", {"children": [[4, 1], [0, 1], [1, 2], [2, 1]]}) == "[0–2] [4] succeeded"
    many = {"children": [[n, 1] for n in range(0, 60, 2)]}
    assert said("children_cancelled", many).endswith("[22] and 18 more cancelled")
    assert said("child_failed", {"item_index": 2, "fault": {"code": "C", "message": "m"}}) == "[2] failed: C: m"
    assert said("fan_stopped", {"fault": {"code": "children_failed"}}).endswith("cancelled: children_failed")
    assert said("child_ended", {"item_index": 1, "status": "failed", "code": "C"}, run_id="r").startswith("[1] run r ended failed: C")  # fmt: skip


def test_items_in_the_command_line_f1_sg03(shop: Shop) -> None:
    """F1, SG-03: a run whose children partly failed completes; `run show` says how many, `run steps` which, `run show --step --index` why."""
    run = shop.start("scan", pages=PAGES)
    code, output, _ = shop.ductor("run", "watch", run)
    assert code == 0
    assert re.search(r"pages +7 children to begin$", output, re.MULTILINE)
    assert output.count("failed: INVALID_ARGUMENT: damaged") == 2
    assert re.search(r"^pages +succeeded +1 +.* 7/7 ended, 2 failed$", _done(shop, "run", "show", run), re.MULTILINE)
    assert _rows(_done(shop, "run", "steps", run))[0][-3:] == ["7/7,", "2", "failed"]
    failed = _rows(_done(shop, "run", "steps", run, "--step", "pages", "--status", "failed"))
    assert [row[:2] for row in failed] == [["2", "failed"], ["5", "failed"]]
    few = shop.json("run", "steps", run, "--step", "pages", "--index", "1-3")["data"]
    assert [(child["item_index"], child["status"]) for child in few] == [(1, "succeeded"), (2, "failed"), (3, "succeeded")]  # fmt: skip
    limited = _done(shop, "run", "steps", run, "--step", "pages", "--limit", "2")
    assert "at most 2 are shown" in limited
    one = _done(shop, "run", "show", run, "--step", "pages", "--index", "2")
    assert one.startswith("step     pages[2]\nstatus   failed\n")
    assert '"times": 9' in one
    assert re.search(r"^pages\[5\] +1 item +failed", _done(shop, "run", "show", run, "--attempts"), re.MULTILINE)
    assert shop.ductor("run", "steps", run, "--step", "all")[0] == 1
    assert shop.ductor("run", "steps", run, "--step", "pages", "--index", "x")[0] == 2
    assert shop.ductor("run", "show", run, "--index", "2")[0] == 2


def test_a_tree_of_runs_in_the_command_line_f5(shop: Shop) -> None:
    """F5: who is whose child, from the root and from a child; lists by parent and root; a cancelled root takes its tree along."""
    root = shop.start("library", volumes=[{"proof": False}, {"proof": True}])

    def grown(_: Any) -> bool:
        depths = [node["depth"] for node in shop.json("run", "show", root)["data"]["tree"]]
        return depths == [1, 1, 2]

    shop.until(root, grown)
    first, second, proof = shop.json("run", "show", root)["data"]["tree"]
    shown = _done(shop, "run", "show", root)
    assert "└─ volumes[1] running  volume v1  " in shown
    assert re.search(rf"^   └─ proof\[0\] running  proof v1  .* {proof['run_id']}$", shown, re.MULTILINE)
    leaf = _done(shop, "run", "show", proof["run_id"])
    assert f"child of      {second['run_id']} proof[0]" in leaf
    assert f"root          {root}" in leaf
    assert {row[0] for row in _rows(_done(shop, "run", "list", "--root", root))} == {
        first["run_id"], second["run_id"], proof["run_id"],
    }  # fmt: skip
    assert {r["run_id"] for r in shop.json("run", "list", "--parent", root)["data"]} == {first["run_id"], second["run_id"]}  # fmt: skip
    children = shop.json("run", "steps", root, "--step", "volumes")["data"]
    assert [(c["status"], c["child_run_id"], c["child_status"]) for c in children] == [
        ("succeeded", first["run_id"], "completed"),
        ("running", second["run_id"], "running"),
    ]
    _done(shop, "run", "cancel", root, "--reason", "closed")
    for run in (root, second["run_id"], proof["run_id"]):
        code, output, _ = shop.ductor("run", "watch", run)
        assert (code, output.splitlines()[-1]) == (1, "cancelled")
    timeline = _done(shop, "run", "show", root, "--timeline")
    assert f"run {second['run_id']} started" in timeline
    assert f"run {second['run_id']} ended cancelled" in timeline


def test_on_a_terminal_bars_and_trees_are_drawn(shop: Shop) -> None:
    """`run watch` on a terminal: the bar of the fan-out, the tree of its children below the graph, redrawn to the end."""
    controller, terminal = os.openpty()
    volumes = json.dumps({"volumes": [{"proof": False}] * 3})
    environment = {
        **os.environ,
        "DUCTOR_TARGET": shop.stack["edges"].target,
        "DUCTOR_TENANT_ID": TENANT,
        "TERM": "xterm",
        "COLUMNS": "140",
        "LINES": "40",
    }
    arguments = [sys.executable, "-m", "ductord.cli", "trigger", "library", "--input", volumes, "--wait"]
    with subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=terminal) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # Linux says EIO at the end of a terminal
            while part := os.read(controller, 65_536):
                shown += part
        os.close(controller)
    pictures = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).split("library v1  ")
    assert process.returncode == 0
    assert re.search(r"✓ volumes +succeeded .*━{24} +3/3 ended", pictures[-1])
    assert len(re.findall(r"[├└]─ volumes\[\d\] completed  volume v1", pictures[-1])) == 3


def test_children_that_start_at_once_are_told_each_f5() -> None:
    """F5: two subworkflows of one tick differ in nothing but their step and their run."""
    entry = run_pb2.TimelineEntry(type="child_started", event_index=-1, detail_json='{"item_index": 0}', run_id="r", step_ref="a")  # fmt: skip
    later, other = run_pb2.TimelineEntry(), run_pb2.TimelineEntry()
    later.CopyFrom(entry)
    later.seq = 7
    other.CopyFrom(entry)
    other.step_ref = "b"
    assert watching._name(entry) == watching._name(later) != watching._name(other)
