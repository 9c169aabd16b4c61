"""Resets, told beforehand (C5): targets page by page, previews and their refusals. What a reset then does is in test_applied."""

from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.engine import forks
from ductord.model import events as history
from ductord.model.enums import SignalVerb, Verb
from ductord.model.manifest import Manifest
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import say, waiting
from tests.run_control.operator import Operator
from tests.run_control.standing import Stands
from tests.support.books import Books, chain
from tests.support.edges import refusal


async def _completed(books: Books, ticker: Ticker, manifest: Manifest) -> str:
    run_id = await books.start(await books.publish(manifest))
    await ticker.drain()
    while await books.report(run_id):
        await ticker.drain()
    assert await books.status(run_id) == "completed"
    return run_id


async def _targets(operator: Operator, run_id: str, page_size: int) -> list[api.ResetTarget]:
    found: list[api.ResetTarget] = []
    token = ""
    while True:
        page = await operator.call("ListResetTargets", run_id=run_id, page_size=page_size, page_token=token)
        assert len(page.data) <= page_size
        found += page.data
        token = page.next_page_token
        if not token:
            return found


async def test_targets(operator: Operator, books: Books, ticker: Ticker) -> None:
    """Every transition but the last, which ended the run: what ended in it, and what would run again."""
    run_id = await _completed(books, ticker, chain(3))
    targets = await _targets(operator, run_id, 50)
    assert [(t.transition_seq, list(t.ended_step_refs), list(t.open_step_refs)) for t in targets] == [
        (1, [], ["s0"]),
        (2, ["s0"], ["s1"]),
        (3, ["s1"], ["s2"]),
    ]
    assert [t.description for t in targets] == [
        "at the very start; s0 would run again",
        "after the end of s0; s1 would run again",
        "after the end of s1; s2 would run again",
    ]
    assert all(t.HasField("transition_time") for t in targets)


@pytest.mark.parametrize("page_size", [1, 7, 29, 30, 1000])
async def test_targets_page_by_page(page_size: int, operator: Operator, books: Books, ticker: Ticker) -> None:
    """Whatever the page, the same targets: those that the engine finds in the history."""
    manifest = chain(30)
    run_id = await _completed(books, ticker, manifest)
    rows = await books.owner.fetch(
        "select at, events::text from eec_workflow_transition where run_id = $1 order by seq", run_id
    )
    wanted = forks.targets(manifest, run_id, ((row["at"], history.decode(row["events"])) for row in rows))
    assert [t.transition_seq for t in await _targets(operator, run_id, page_size)] == [t.seq for t in wanted]


async def test_targets_of_a_run_that_moves_on(operator: Operator, books: Books, ticker: Ticker) -> None:
    """A page that ended with the history goes on when the history does; a token belongs to its run."""
    run_id = await books.start(await books.publish(chain(4)))
    await ticker.drain()
    await books.report(run_id)
    await ticker.drain()
    first = await operator.call("ListResetTargets", run_id=run_id, page_size=1)
    assert [t.transition_seq for t in first.data] == [1]
    await books.report(run_id)
    await ticker.drain()
    second = await operator.call("ListResetTargets", run_id=run_id, page_size=5, page_token=first.next_page_token)
    assert [t.transition_seq for t in second.data] == [2, 3]
    other = await books.start(await books.publish(chain(1)))
    call = operator.call("ListResetTargets", run_id=other, page_token=first.next_page_token)
    assert (await refusal(call)).reason == "PAGE_TOKEN_INVALID"
    assert (await operator.call("ListResetTargets", run_id=other)).data == []


async def test_a_point_that_there_is_not(operator: Operator, books: Books, ticker: Ticker) -> None:
    """Past the end, at the end of a run, while it was being stopped: RESET_POINT_INVALID, with the last number that there is."""
    run_id = await _completed(books, ticker, chain(2))
    for seq in (3, 4, 2**31 - 1):
        refused = await operator.refused(Verb.RESET, run_id, transition_seq=seq)
        assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "RESET_POINT_INVALID")
        assert refused.metadata == {"transition_seq": str(seq), "last_transition_seq": "3"}
        call = operator.call("PreviewReset", source_run_id=run_id, transition_seq=seq)
        assert (await refusal(call)).reason == "RESET_POINT_INVALID"


async def test_steps_that_cannot_be_so(operator: Operator, books: Books, ticker: Ticker) -> None:
    """An unknown step, one that is kept, one that never succeeded: coded, and naming the step."""
    run_id = await _completed(books, ticker, chain(3))
    override = [{"step_ref": "s9", "input": {}}]
    assert (await operator.refused(Verb.RESET, run_id, step_input_overrides=override)).reason == "STEP_NOT_FOUND"
    assert (await operator.refused(Verb.RESET, run_id, preserve_step_refs=["s9"])).reason == "STEP_NOT_FOUND"
    override = [{"step_ref": "s0", "input": {}}]
    refused = await operator.refused(Verb.RESET, run_id, transition_seq=2, step_input_overrides=override)
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "RESET_STEP_INVALID")
    assert refused.metadata == {"step_ref": "s0", "transition_seq": "2"}


async def test_a_preview_of_a_run_that_is_still_open(operator: Operator, books: Books, ticker: Ticker) -> None:
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    answer = await operator.call("PreviewReset", source_run_id=run_id, transition_seq=1)
    assert answer.data.source_status == run_pb2.RUN_STATUS_RUNNING
    assert list(answer.data.restarted_step_refs) == ["s0", "s1"]
    assert answer.metadata.request_id


async def test_a_reset_under_a_known_name(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C1: another point or other steps under the name are another body; the same call is told its new run, whatever became of the source."""
    run_id = await _completed(books, ticker, chain(2))
    first = await operator.ask(Verb.RESET, run_id, request_id="r")
    for fields in ({"transition_seq": 2}, {"preserve_step_refs": ["s0"]}, {"force": True}):
        assert (await operator.refused(Verb.RESET, run_id, request_id="r", **fields)).reason == "REQUEST_MISMATCH"
    assert (await operator.ask(Verb.RESET, run_id, request_id="r")).new_run_id == first.new_run_id
    other = await operator.ask(Verb.RESET, run_id, request_id="s")
    assert other.new_run_id != first.new_run_id


@pytest.mark.parametrize("rpc", ["PreviewReset", "ListResetTargets", "GetRunSnapshot", "ListRunAttempts"])
async def test_tn01_reads_of_a_foreign_run(rpc: str, operator: Operator, stands: Stands) -> None:
    """TN-01: foreign, unknown and impossible ids get one answer."""
    name = "source_run_id" if rpc == "PreviewReset" else "run_id"
    more: dict[str, Any] = {"transition_seq": 1} if rpc == "PreviewReset" else {}
    foreign = await stands.run(tenant="other")
    for text in (foreign, "00000000-0000-0000-0000-000000000000", "x"):
        refused = await refusal(operator.call(rpc, **{name: text, **more}))
        assert (refused.code, refused.reason, refused.metadata) == ("NOT_FOUND", "RUN_NOT_FOUND", {})
    assert (await refusal(operator.call(rpc, **more))).metadata["field"] == name


async def test_every_attempt_page_by_page(operator: Operator, stands: Stands, owner: asyncpg.Connection) -> None:
    """ListRunAttempts: all of them, oldest first, equal times included; of one step where asked; bounded replies."""
    run_id = await stands.run()
    await owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time,"
        " status, outcome, report_time, output, output_size)"
        " select 't', $1, 's' || n % 2, n, 'standard', 'default', 'a:b', '{}', 'k', now(), now() + (n / 10) * interval '1 s', 'succeeded', 'succeeded', now(),"
        " to_json(repeat('o', 100000)), 100002 from generate_series(1, 100) n",
        run_id,
    )
    for size in (1, 30, 1000):
        found: list[tuple[str, int]] = []
        token = ""
        while True:
            page = await operator.call("ListRunAttempts", run_id=run_id, page_size=size, page_token=token)
            assert page.ByteSize() < 3.2 * (1 << 20)
            found += [(a.step_ref, a.attempt) for a in page.data]
            assert not any(a.output_truncated for a in page.data)
            token = page.next_page_token
            if not token:
                break
        assert sorted(found) == sorted((f"s{n % 2}", n) for n in range(1, 101))
        assert [n // 10 for _, n in found] == sorted(n // 10 for _, n in found)
    only = await operator.call("ListRunAttempts", run_id=run_id, step_ref="s1", page_size=1)
    assert [a.step_ref for a in only.data] == ["s1"]
    assert (await refusal(operator.call("ListRunAttempts", run_id=run_id, step_ref="s9"))).reason == "STEP_NOT_FOUND"


async def test_c5_a_reset_run_is_told_again_what_no_step_had_taken(
    operator: Operator, books: Books, ticker: Ticker
) -> None:
    """What was said after the point, and what was kept at it, is told to the new run; what a step had taken by then is not. The preview says how much."""
    lines = ("step one type=approval", "step two type=approval", "step three type=approval", "one -approved-> two", "two -approved-> three")  # fmt: skip
    run_id = await books.start(await books.publish(waiting(*lines)))
    await say(books, run_id, SignalVerb.APPROVE, "two", {"n": 2}, request_id="early", wake=False)
    await ticker.drain()
    await say(books, run_id, SignalVerb.APPROVE, "one", {"n": 1}, request_id="r1")
    await ticker.drain()
    await say(books, run_id, SignalVerb.REJECT, "two", request_id="r2")
    await say(books, run_id, SignalVerb.APPROVE, "three", {"n": 3}, request_id="r3")
    await ticker.drain()
    assert await books.status(run_id) == "completed"
    told = {seq: (await operator.call("PreviewReset", source_run_id=run_id, transition_seq=seq)).data for seq in (1, 2)}
    assert {seq: preview.reapplied_signals for seq, preview in told.items()} == {1: 4, 2: 2}
    made = await operator.call("ResetRun", source_run_id=run_id, transition_seq=2, request_id="again", reason="why")
    await ticker.drain()
    rows = await books.owner.fetch(
        "select request_id, payload::text, status from eec_workflow_signal where run_id = $1 order by number", made.new_run_id
    )  # fmt: skip
    assert [tuple(row) for row in rows] == [("r2", "null", "ignored"), ("r3", '{"n": 3}', "applied")]
    assert await books.status(made.new_run_id) == "completed"
