"""The children of a fan-out as reads show them: pages, filters, one child, and the tree of runs (rulings F1 to F5)."""

import json
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.model.enums import NodeStatus
from ductord.model.fan import Fan
from ductord.model.fan_events import ChildFailed, FanExpanded, FanResumed
from ductord.model.fault import Fault
from ductord.model.run import Node
from ductord.reads import tree
from tests.reads.fans import Rows, fanning, indexes
from tests.support.books import TENANT
from tests.support.edges import Catalogue, Edges, as_tenant, refusal

META = as_tenant(TENANT)
EXACT = common_pb2.PAYLOAD_FORMAT_JSON
RUN = run_pb2


async def _children(edges: Edges, run_id: str, *, size: int = 0, **filters: Any) -> list[run_pb2.StepState]:
    """All pages."""
    found: list[run_pb2.StepState] = []
    token = ""
    while True:
        request = reads.ListRunStepsRequest(
            run_id=run_id, step_ref="s0", page_size=size, page_token=token, payload_format=EXACT, **filters
        )
        page = await edges.reads.ListRunSteps(request, metadata=META, timeout=60)
        assert not size or len(page.data) <= size
        found += page.data
        if not (token := page.next_page_token):
            return found


async def _child(edges: Edges, run_id: str, index: int, **fields: Any) -> run_pb2.StepState:
    request = reads.GetRunStepRequest(run_id=run_id, step_id="s0", item_index=index, payload_format=EXACT, **fields)
    return (await edges.reads.GetRunStep(request, metadata=META, timeout=60)).data


async def _get(edges: Edges, run_id: str, **fields: Any) -> run_pb2.RunDetail:
    answer = await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id, **fields), metadata=META, timeout=60)
    return answer.data


def _running(fan: Fan, status: NodeStatus = NodeStatus.RUNNING, attempt: int = 1) -> Node:
    return Node(status=status, attempt=attempt, fan=fan, top=3)


async def _scattered(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> Rows:
    """Eight items: 0 and 1 succeeded, 2 failed at its second try, 3 backs off, 4 was cancelled, 5 to begin anew, 6 and 7 not begun."""
    run_id = (await edges.start(await catalogue.published(fanning()))).run_id
    rows = Rows(owner, run_id)
    fault = Fault(code="BROKEN", message="it broke")
    fan = Fan(
        expected=8, next=6, again=((5, 1),), open=1, succeeded=2, failed=1, cancelled=1, width=256, pages=1,
        first_failed=2, first_fault=fault,
    )  # fmt: skip
    await rows.stands(s0=_running(fan))
    for index in (0, 1):
        await rows.item(index, 2, "succeeded", output={"n": index})
    await rows.item(2, 2, "failed", error="OTHER")
    await rows.item(2, 3, "timed_out", error="BROKEN")
    await rows.item(3, 2, "failed", error="OTHER")
    await rows.item(3, 3, "open", due="now() + interval '1 h'")
    await rows.item(4, 2, "cancelled")
    await rows.item(5, 2, "failed", error="OTHER")
    return rows


async def test_items_by_index_with_what_became_of_them_f1(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """F1, F4: a child is its latest attempt; one that a redrive begins anew and one that has not begun are pending, whatever was before."""
    rows = await _scattered(edges, catalogue, owner)
    found = await _children(edges, rows.run_id)
    assert indexes(found) == list(range(8))
    assert [(s.status, s.attempt) for s in found] == [
        (RUN.NODE_STATUS_SUCCEEDED, 2), (RUN.NODE_STATUS_SUCCEEDED, 2), (RUN.NODE_STATUS_FAILED, 3), (RUN.NODE_STATUS_RUNNING, 3),
        (RUN.NODE_STATUS_CANCELLED, 2), (RUN.NODE_STATUS_PENDING, 0), (RUN.NODE_STATUS_PENDING, 0), (RUN.NODE_STATUS_PENDING, 0),
    ]  # fmt: skip
    assert found[1].output_json == '{"n": 1}'
    assert found[2].error.code == "BROKEN"
    assert found[3].HasField("retry_time")
    assert not found[3].HasField("end_time")
    assert found[0].HasField("start_time")
    assert found[0].HasField("end_time")
    (node,) = [n for n in (await _get(edges, rows.run_id)).nodes if n.step_ref == "s0"]
    assert (node.fan.mode, node.fan.expected, node.fan.begun, node.fan.open) == (RUN.FAN_MODE_INLINE, 8, 5, 1)
    assert (node.fan.succeeded, node.fan.failed, node.fan.cancelled, node.fan.width) == (2, 1, 1, 256)
    assert (node.fan.first_failed_index, node.fan.first_error.message) == (2, "it broke")
    request = reads.ListRunStepsRequest(run_id=rows.run_id)
    steps = (await edges.reads.ListRunSteps(request, metadata=META, timeout=60)).data
    assert [step.step_ref for step in steps] == ["s0", "s1"]
    assert steps[0].fan == node.fan
    assert not steps[1].HasField("fan")


async def test_every_filter_of_items_at_every_page_size(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    rows = await _scattered(edges, catalogue, owner)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"status": RUN.NODE_STATUS_SUCCEEDED}, [0, 1]),
        ({"status": RUN.NODE_STATUS_FAILED}, [2]),
        ({"status": RUN.NODE_STATUS_RUNNING}, [3]),
        ({"status": RUN.NODE_STATUS_CANCELLED}, [4]),
        ({"status": RUN.NODE_STATUS_PENDING}, [5, 6, 7]),
        ({"status": RUN.NODE_STATUS_SKIPPED}, []),
        ({"index_from": 2, "index_to": 5}, [2, 3, 4, 5]),
        ({"index_from": 1, "index_to": 1}, [1]),
        ({"index_to": 0}, [0]),
        ({"index_from": 6}, [6, 7]),
        ({"index_from": 8}, []),
        ({"index_from": 5, "index_to": 4}, []),
        ({"status": RUN.NODE_STATUS_PENDING, "index_to": 6}, [5, 6]),
        ({"status": RUN.NODE_STATUS_SUCCEEDED, "index_from": 1}, [1]),
    ]
    for filters, wanted in cases:
        for size in (0, 1, 3):
            assert indexes(await _children(edges, rows.run_id, size=size, **filters)) == wanted, (filters, size)


async def test_one_item_with_its_payloads_and_attempts(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    rows = await _scattered(edges, catalogue, owner)
    done = await _child(edges, rows.run_id, 1)
    assert (done.item_index, done.output_json, done.input_json) == (1, '{"n": 1}', '{"index": 1}')
    failed = await _child(edges, rows.run_id, 2)
    assert [a.attempt for a in failed.attempts] == [3, 2]
    assert {(a.kind, a.item_index) for a in failed.attempts} == {(RUN.TASK_KIND_ITEM, 2)}
    pending = await _child(edges, rows.run_id, 7)
    assert (pending.status, len(pending.attempts), pending.HasField("input_json")) == (
        RUN.NODE_STATUS_PENDING,
        0,
        False,
    )
    for index in (8, -1):
        request = reads.GetRunStepRequest(run_id=rows.run_id, step_id="s0", item_index=index)
        assert (await refusal(edges.reads.GetRunStep(request, metadata=META))).reason == "STEP_NOT_FOUND"


async def test_pl06_a_page_of_large_outputs_ends_early_and_loses_nothing(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """PL-06: seven outputs of 1 MiB: every page fits a reply, and each output is there once."""
    run_id = (await edges.start(await catalogue.published(fanning()))).run_id
    rows = Rows(owner, run_id)
    await rows.stands(s0=_running(Fan(expected=7, next=7, succeeded=7)))
    for index in range(7):
        await rows.item(index, 1, "succeeded", output=str(index) * ((1 << 20) - 2))
    found = await _children(edges, run_id)
    assert [json.loads(s.output_json)[0] for s in found] == [str(index) for index in range(7)]
    assert not any(s.output_truncated for s in found)


async def test_a_wide_scatter_reads_a_page_and_not_the_width_sg05(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """SG-05: ten thousand children, paged to the end; each index once."""
    run_id = (await edges.start(await catalogue.published(fanning()))).run_id
    rows = Rows(owner, run_id)
    await rows.stands(s0=_running(Fan(expected=10_000, next=9_000, open=9_000)))
    await owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key,"
        " due_time, create_time) select $1, $2, 's0', n, 'item', 1, 'standard', 'default', 'noop:noop', '{}', n::text, now(), now()"
        " from generate_series(0, 8999) n",
        TENANT,
        run_id,
    )
    found = await _children(edges, run_id, size=1_000)
    assert indexes(found) == list(range(10_000))
    assert found[8_999].status == RUN.NODE_STATUS_RUNNING
    assert found[9_000].status == RUN.NODE_STATUS_PENDING


async def _with_child_runs(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> tuple[Rows, list[str]]:
    """Six child runs of a node that goes on: completed before, failed, cancelled, open, one that was failed and is redriven, and one that could not be born."""
    child = await catalogue.define("child")
    version_id = await catalogue.publish(child, fanning(runs=True))
    run_id = (await edges.start(await catalogue.published(fanning(runs=True)))).run_id
    rows = Rows(owner, run_id)
    fan = Fan(
        expected=7, next=6, open=2, succeeded=1, failed=2, cancelled=1, definition_id=child, version_id=version_id, version=1
    )  # fmt: skip
    await rows.stands(s0=_running(fan, NodeStatus.WAITING, attempt=2))
    ids = [
        await rows.child(0, version_id, status="completed", result={"page": 1}),
        await rows.child(1, version_id, attempt=2, status="failed"),
        await rows.child(2, version_id, attempt=2, status="cancelled"),
        await rows.child(3, version_id, attempt=2, fan=Fan(expected=2, next=2, open=2, definition_id=child)),
        await rows.child(4, version_id, status="failed"),
    ]
    await owner.execute(
        "insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, close_policy, create_time)"
        " select tenant_id, parent_run_id, step_ref, item_index, 2, first_run_id, child_run_id, sync, close_policy, create_time from eec_workflow_child"
        " where parent_run_id = $1 and item_index = 4",
        run_id,
    )
    await rows.item(5, 2, "failed", error="expression_error")
    fault = Fault(code="child_failed")
    before = [ChildFailed(step_ref="s0", item_index=index, fault=fault) for index in (1, 2, 4)]
    await rows.moves(FanExpanded(step_ref="s0", attempt=1, expected=7), *before)
    now = [ChildFailed(step_ref="s0", item_index=index, fault=fault) for index in (1, 5)]
    await rows.moves(FanResumed(step_ref="s0", attempt=2, again=((1, 5),)), *now)
    return rows, ids


async def test_child_runs_by_index_f5(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """F4, F5: a child run is its latest row; one that could not be born is told by its fault; the child's own status stands beside."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)
    found = await _children(edges, rows.run_id)
    assert [s.status for s in found] == [
        RUN.NODE_STATUS_SUCCEEDED, RUN.NODE_STATUS_FAILED, RUN.NODE_STATUS_CANCELLED, RUN.NODE_STATUS_RUNNING, RUN.NODE_STATUS_RUNNING,
        RUN.NODE_STATUS_FAILED, RUN.NODE_STATUS_PENDING,
    ]  # fmt: skip
    assert [s.child_run_id for s in found] == [*ids, "", ""]
    assert [s.child_status for s in found[:4]] == [
        RUN.RUN_STATUS_COMPLETED, RUN.RUN_STATUS_FAILED, RUN.RUN_STATUS_CANCELLED, RUN.RUN_STATUS_RUNNING,
    ]  # fmt: skip
    assert found[0].output_json == '{"page": 1}'
    assert (found[1].error.code, found[2].error.code, found[5].error.code) == (
        "BROKEN",
        "child_cancelled",
        "expression_error",
    )
    for size in (0, 1, 2):
        assert indexes(await _children(edges, rows.run_id, size=size)) == list(range(7))
        failed = await _children(edges, rows.run_id, size=size, status=RUN.NODE_STATUS_FAILED)
        assert indexes(failed) == [1, 5]
        running = await _children(edges, rows.run_id, size=size, status=RUN.NODE_STATUS_RUNNING)
        assert indexes(running) == [3, 4]
    one = await _child(edges, rows.run_id, 0)
    assert (one.child_run_id, one.input_json, one.output_json) == (ids[0], '{"index": 0}', '{"page": 1}')


async def test_where_no_child_counts_as_cancelled_one_that_was_cancelled_has_failed_f5(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """F5: somebody else cancels a child: its step sees a failure, `child_cancelled`; so do the lists."""
    version_id = await catalogue.publish(await catalogue.define("child"), fanning())
    run_id = (await edges.start(await catalogue.published(fanning(runs=True)))).run_id
    rows = Rows(owner, run_id)
    await rows.stands(s0=_running(Fan(expected=1, next=1, failed=1, definition_id=new_id())))
    await rows.child(0, version_id, status="cancelled")
    assert indexes(await _children(edges, run_id, status=RUN.NODE_STATUS_FAILED)) == [0]
    assert not await _children(edges, run_id, status=RUN.NODE_STATUS_CANCELLED)
    (found,) = await _children(edges, run_id)
    assert (found.status, found.error.code) == (RUN.NODE_STATUS_FAILED, "child_cancelled")


async def test_bad_requests(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """A step that has no children, one that is not there, an index without a step, one below zero; a step whose fan-out has not begun has none."""
    rows = await _scattered(edges, catalogue, owner)

    async def reason(**fields: Any) -> tuple[str, str]:
        request = reads.ListRunStepsRequest(run_id=rows.run_id, **fields)
        refused = await refusal(edges.reads.ListRunSteps(request, metadata=META))
        return refused.reason, refused.metadata.get("field", "")

    assert await reason(step_ref="s1") == ("FIELD_INVALID", "step_ref")
    assert (await reason(step_ref="nope"))[0] == "STEP_NOT_FOUND"
    assert await reason(index_from=1) == ("FIELD_INVALID", "index_from")
    assert await reason(step_ref="s0", index_to=-1) == ("FIELD_INVALID", "index_to")
    fresh = (await edges.start(await catalogue.published(fanning(), slug="fresh"))).run_id
    assert not await _children(edges, fresh)


async def test_the_tree_below_a_run_f5(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """F5: each parent before its children, with what each has come to; the parent's step and index are in the child; lists find both."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)
    version_id = await catalogue.publish(await catalogue.define("grandchild"), fanning())
    below = [await Rows(owner, ids[3]).child(index, version_id) for index in (0, 1)]
    run = await _get(edges, rows.run_id, include_tree=True)
    shown = [(n.run_id, n.parent_run_id, n.step_ref, n.item_index, n.depth) for n in run.tree]
    assert shown == [
        (ids[0], rows.run_id, "s0", 0, 1), (ids[1], rows.run_id, "s0", 1, 1), (ids[2], rows.run_id, "s0", 2, 1), (ids[3], rows.run_id, "s0", 3, 1),
        (below[0], ids[3], "s0", 0, 2), (below[1], ids[3], "s0", 1, 2), (ids[4], rows.run_id, "s0", 4, 1),
    ]  # fmt: skip
    assert not run.tree_truncated
    assert (run.tree[3].children.expected, run.tree[3].children.open) == (2, 2)
    assert run.tree[1].error.code == "BROKEN"
    assert (run.children.expected, run.children.open, run.children.succeeded, run.children.failed) == (7, 2, 1, 2)
    assert not (await _get(edges, rows.run_id)).tree
    child = await _get(edges, below[1])
    assert (child.parent_step_ref, child.parent_item_index) == ("s0", 1)
    assert (child.summary.parent_run_id, child.summary.root_run_id, child.summary.nesting_depth) == (
        ids[3],
        rows.run_id,
        2,
    )
    root = await _get(edges, rows.run_id)
    assert (root.parent_step_ref, root.HasField("parent_item_index")) == ("", False)

    async def listed(**fields: Any) -> list[str]:
        request = reads.ListRunsRequest(**fields)
        return [r.run_id for r in (await edges.reads.ListRuns(request, metadata=META, timeout=60)).data]

    assert set(await listed(parent_run_id=rows.run_id)) == set(ids)
    assert set(await listed(root_run_id=rows.run_id)) == {*ids, *below}
    assert await listed(parent_run_id=rows.run_id, status=RUN.RUN_STATUS_COMPLETED) == [ids[0]]
    assert set(await listed(root_run_id=rows.run_id, active_only=True)) == {ids[3], *below}
    assert await listed(parent_run_id=new_id()) == []
    refused = await refusal(edges.reads.ListRuns(reads.ListRunsRequest(root_run_id="nonsense"), metadata=META))
    assert refused.reason == "RUN_NOT_FOUND"


async def test_children_that_a_predecessor_handed_over_are_in_the_tree_c6(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """C6, F5: they have attempts below 1; one of the same step and index that the run has itself hides none of them."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)
    version_id = await catalogue.publish(await catalogue.define("older"), fanning())
    handed = [await rows.child(0, version_id, attempt=attempt) for attempt in (0, -1)]
    run = await _get(edges, rows.run_id, include_tree=True)
    assert [n.run_id for n in run.tree][:3] == [ids[0], *handed]
    found = await _children(edges, rows.run_id)
    assert found[0].child_run_id == ids[0]
    before = (await _get(edges, handed[0])).summary.parent_run_id
    other = (await edges.start(await catalogue.published(fanning(), slug="before"))).run_id
    await owner.execute("update eec_workflow_run_start set parent_run_id = $2 where run_id = $1", handed[0], other)
    child = await _get(edges, handed[0])
    assert before == rows.run_id
    assert (child.summary.parent_run_id, child.parent_step_ref, child.parent_item_index) == (other, "s0", 0)


async def test_a_large_tree_is_cut_and_says_so_pl06(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PL-06: the levels next to the run are there, whoever wants the rest is told that there is one."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)
    version_id = await catalogue.publish(await catalogue.define("grandchild"), fanning())
    for index in (0, 1):
        await Rows(owner, ids[3]).child(index, version_id)
    monkeypatch.setattr(tree, "MAX_RUNS", 6)
    run = await _get(edges, rows.run_id, include_tree=True)
    assert run.tree_truncated
    assert [n.depth for n in run.tree] == [1, 1, 1, 1, 2, 1]


async def test_tn01_children_of_others_are_nobodys(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """TN-01: another tenant's children, trees and lists."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)
    other = as_tenant("other")
    for run_id in (rows.run_id, ids[0]):
        steps = reads.ListRunStepsRequest(run_id=run_id, step_ref="s0")
        assert (await refusal(edges.reads.ListRunSteps(steps, metadata=other))).reason == "RUN_NOT_FOUND"
        step = reads.GetRunStepRequest(run_id=run_id, step_id="s0", item_index=0)
        assert (await refusal(edges.reads.GetRunStep(step, metadata=other))).reason == "RUN_NOT_FOUND"
        get = reads.GetRunRequest(run_id=run_id, include_tree=True)
        assert (await refusal(edges.reads.GetRun(get, metadata=other))).reason == "RUN_NOT_FOUND"
        for field in ("parent_run_id", "root_run_id"):
            fields: dict[str, Any] = {field: run_id}
            runs = reads.ListRunsRequest(**fields)
            assert not (await edges.reads.ListRuns(runs, metadata=other)).data


async def test_child_runs_are_woven_into_the_unified_timeline_f5(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """F5: where each started and where it ended, under its own id, also over pages."""
    rows, ids = await _with_child_runs(edges, catalogue, owner)

    async def told(size: int) -> list[run_pb2.TimelineEntry]:
        found: list[run_pb2.TimelineEntry] = []
        token = ""
        while True:
            request = reads.GetRunTimelineRequest(
                run_id=rows.run_id, unified=True, page_size=size, page_token=token, payload_format=EXACT
            )
            page = await edges.reads.GetRunTimeline(request, metadata=META, timeout=60)
            found += page.data
            if not (token := page.next_page_token):
                return found

    entries = await told(100)
    assert await told(1) == entries
    assert [e for e in entries if e.type == "child_started" and e.run_id == ids[3]]
    (ended,) = [e for e in entries if e.type == "child_ended" and e.run_id == ids[1]]
    assert (ended.step_ref, ended.attempt, ended.event_index) == ("s0", 2, -1)
    assert json.loads(ended.detail_json) == {"item_index": 1, "status": "failed", "code": "BROKEN"}
    assert len([entry for entry in entries if entry.event_index < 0]) == 6 + 4
