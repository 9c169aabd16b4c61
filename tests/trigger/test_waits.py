"""G9: waiting for a checkpoint: reached, out of reach, out of time; many at once on a pool of two; without hints; with a caller in a hurry."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec
import pytest
from google.protobuf import json_format

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, serving, with_checkpoints


async def _until(condition: Callable[[], Any]) -> None:
    """Await a condition that the loop at hand brings about."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  # that is what it is for
            await asyncio.sleep(0.005)


def _started(owner: asyncpg.Connection, count: int = 1) -> Callable[[], Any]:
    async def look() -> bool:
        return bool(await owner.fetchval("select count(*) = $1 from eec_workflow_run_start", count))

    return look


async def test_reached_with_the_outputs_of_the_group(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """The call answers when the checkpoint is reached, while the run goes on; outputs by ref, exact in either format."""
    definition_id = await catalogue.published(with_checkpoints(chain(2), "first"))
    output = '{"id":9007199254740993,"n":5}'
    for payload_format in (common_pb2.PAYLOAD_FORMAT_STRUCT, common_pb2.PAYLOAD_FORMAT_JSON):
        waiting = asyncio.create_task(
            edges.start(definition_id, wait_for_checkpoint=True, payload_format=payload_format)
        )
        await _until(_started(owner, payload_format))
        await ticker.drain()
        await books.report(output=output)
        await ticker.drain()
        answer = await waiting
        assert answer.checkpoint_reached
        assert (answer.checkpoint, answer.checkpoint_status) == ("first", run_pb2.CHECKPOINT_STATUS_REACHED)
        assert answer.status == run_pb2.RUN_STATUS_RUNNING
        # A Struct would round the id: the twin is given whatever was asked for (L5).
        assert answer.response_group_output_json == f'{{"s0":{output}}}'
        await books.report()
        await ticker.drain()


async def test_outputs_as_a_struct(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """By default the group is a Struct; a repetition of the call after the run's end answers at once with the same."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    waiting = asyncio.create_task(edges.start(definition_id, wait_for_checkpoint=True, idempotency_key="k"))
    await _until(_started(owner))
    await ticker.drain()
    await books.report(output='{"a":[1,null,"x"]}')
    await ticker.drain()
    for answer in (await waiting, await edges.start(definition_id, wait_for_checkpoint=True, idempotency_key="k")):
        assert json_format.MessageToDict(answer.response_group_output) == {"s0": {"a": [1, None, "x"]}}
        assert answer.status == run_pb2.RUN_STATUS_COMPLETED
        assert answer.checkpoint_reached
    assert answer.duplicate


async def test_out_of_reach_is_told_at_once(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """A failure that makes the checkpoint impossible ends the wait, long before its time."""
    definition_id = await catalogue.published(with_checkpoints(chain(2), "first", "second", response="second"))
    waiting = asyncio.create_task(edges.start(definition_id, wait_for_checkpoint=True, checkpoint_timeout_seconds=300))
    await _until(_started(owner))
    await ticker.drain()
    await books.report(outcome="failed", code="NOT_FOUND")
    await ticker.drain()
    answer = await waiting
    assert not answer.checkpoint_reached
    assert (answer.checkpoint, answer.checkpoint_status) == ("second", run_pb2.CHECKPOINT_STATUS_UNREACHABLE)
    assert answer.status == run_pb2.RUN_STATUS_FAILED
    assert not answer.HasField("response_group_output")


async def test_a_run_that_ended_without_a_word_about_it(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """A terminal run answers at once, whatever its checkpoint rows say."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    run = await edges.start(definition_id, idempotency_key="k")
    await owner.execute(
        "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time, end_time)"
        " select tenant_id, run_id, 'terminated', 1, version_id, 1, 1, now(), now(), now() from eec_workflow_run_start"
    )
    answer = await edges.start(definition_id, idempotency_key="k", wait_for_checkpoint=True)
    assert (answer.run_id, answer.status) == (run.run_id, run_pb2.RUN_STATUS_TERMINATED)
    assert answer.checkpoint_status == run_pb2.CHECKPOINT_STATUS_UNREACHABLE


async def test_ap06_out_of_time_is_no_error(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """AP-06, G9: OK with the run's id and `checkpoint_reached` false; the run is untouched."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    answer = await edges.start(definition_id, wait_for_checkpoint=True, checkpoint_timeout_seconds=1)
    assert answer.run_id
    assert not answer.checkpoint_reached
    assert answer.checkpoint_status == run_pb2.CHECKPOINT_STATUS_PENDING
    assert answer.status == run_pb2.RUN_STATUS_PENDING
    assert await owner.fetchval("select count(*) from eec_workflow_wakeup") == 1


async def test_ap06_a_caller_in_a_hurry_hears_of_its_run(edges: Edges, catalogue: Catalogue) -> None:
    """AP-06: a deadline of the caller's that is shorter than the wait bounds it, and the answer is still the run."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    request = triggers.TriggerWorkflowRequest(definition_id=definition_id, wait_for_checkpoint=True)
    answer = await edges.trigger.TriggerWorkflow(request, metadata=as_tenant("t"), timeout=4)
    assert answer.run_id
    assert not answer.checkpoint_reached


async def test_a_caller_that_goes_away_is_forgotten(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """A cancelled call leaves no wait behind, and its run stays."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    call = edges.trigger.TriggerWorkflow(
        triggers.TriggerWorkflowRequest(definition_id=definition_id, wait_for_checkpoint=True), metadata=as_tenant("t")
    )

    async def waiting(count: int) -> bool:
        return f"ductor_checkpoint_waits {count}.0\n".encode() in edges.host.metrics.exposition()

    await _until(lambda: waiting(1))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _until(lambda: waiting(0))
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 1


async def test_two_hundred_wait_on_a_pool_of_two(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """G9: a waiting call holds no connection: 200 wait, others start runs meanwhile, and all hear when their checkpoints are reached."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    theirs = await catalogue.published(with_checkpoints(chain(1), "done"), slug="theirs", tenant="other")
    waiting = [
        asyncio.create_task(edges.start(d, tenant=tenant, wait_for_checkpoint=True, checkpoint_timeout_seconds=55))
        for d, tenant in ((definition_id, "t"), (theirs, "other"))
        for _ in range(100)
    ]
    await _until(_started(owner, 200))
    assert (await edges.start(definition_id)).run_id
    assert (
        await owner.fetchval(
            "select count(*) from pg_stat_activity where usename = 'ductor_trigger' and application_name = 'ductor-trigger' and datname = current_database()"
        )
        <= 2
    )
    await ticker.drain()
    await books.report()
    await ticker.drain()
    answers = await asyncio.gather(*waiting)
    assert all(a.checkpoint_reached and a.status == run_pb2.RUN_STATUS_COMPLETED for a in answers)
    assert len({a.run_id for a in answers}) == 200


async def test_without_hints_polling_finds_it(
    database: Database, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """NOTIFY off: the same, a little later (architecture: NOTIFY is a hint)."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    async with serving(database, [SERVICE], notify=False) as edges:
        waiting = asyncio.create_task(edges.start(definition_id, wait_for_checkpoint=True))
        await _until(_started(owner))
        await ticker.drain()
        await books.report()
        await ticker.drain()
        assert (await waiting).checkpoint_reached


async def test_a_stop_ends_waits(database: Database, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """SIGTERM does not wait five minutes for them: they answer with the run's id, unreached."""
    definition_id = await catalogue.published(with_checkpoints(chain(1), "done"))
    async with serving(database, [SERVICE]) as edges:
        call = edges.start(definition_id, wait_for_checkpoint=True, checkpoint_timeout_seconds=300)
        waiting = asyncio.create_task(call)
        await _until(_started(owner))
        leaving = asyncio.create_task(edges.host._stop())
        answer = await waiting
        await leaving
    assert answer.run_id
    assert not answer.checkpoint_reached


async def test_which_checkpoint(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """G9: the named one, else the response checkpoint, else the only one; else a coded error before a run is started."""
    none = await catalogue.published(slug="none")
    two = await catalogue.published(with_checkpoints(chain(2), "a", "b"), slug="two")
    answers = [
        await refusal(edges.start(none, wait_for_checkpoint=True)),
        await refusal(edges.start(two, wait_for_checkpoint=True)),
        await refusal(edges.start(two, wait_for_checkpoint=True, checkpoint="c")),
    ]
    assert [a.reason for a in answers] == ["CHECKPOINT_UNKNOWN", "CHECKPOINT_AMBIGUOUS", "CHECKPOINT_UNKNOWN"]
    assert {a.code for a in answers} == {"INVALID_ARGUMENT"}
    assert answers[2].metadata == {"checkpoint": "c"}
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 0
    named = await edges.start(two, wait_for_checkpoint=True, checkpoint="b", checkpoint_timeout_seconds=1)
    assert named.checkpoint == "b"


async def test_a_repeated_call_waits_by_its_runs_own_version(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """T1 with G9: the run under the key is of an older version, whose checkpoint is the one to wait for."""
    definition_id = await catalogue.define("orders")
    await catalogue.publish(definition_id, with_checkpoints(chain(1), "old"))
    first = await edges.start(definition_id, idempotency_key="k")
    await catalogue.publish(definition_id, with_checkpoints(chain(1), "new"))
    again = await edges.start(
        definition_id, idempotency_key="k", wait_for_checkpoint=True, checkpoint_timeout_seconds=1
    )
    assert (again.run_id, again.checkpoint) == (first.run_id, "old")


async def test_pl06_a_group_too_large_for_a_reply(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """PL-06, L7: outputs that do not fit are left out and flagged; one whose Struct would not fit is given as text."""
    steps = tuple(msgspec.structs.replace(s, incoming=(), outgoing=()) for s in chain(4).steps)
    wide = msgspec.structs.replace(chain(4), steps=steps, edges=(), entrypoints=(0, 1, 2, 3))
    everything = msgspec.structs.replace(
        with_checkpoints(wide, "all"), checkpoints=(with_checkpoints(wide, "all").checkpoints[0],)
    )
    group = msgspec.structs.replace(everything.checkpoints[0], steps=(0, 1, 2, 3))
    definition_id = await catalogue.published(msgspec.structs.replace(everything, checkpoints=(group,)))
    for number, (output, truncated) in enumerate(
        (("[" + ",".join("1" * 400_000) + "]", True), ("[" + ",".join("1" * 300_000) + "]", False)), 1
    ):
        waiting = asyncio.create_task(edges.start(definition_id, wait_for_checkpoint=True))
        await _until(_started(owner, number))
        await ticker.drain()
        await books.report(output=output)
        await ticker.drain()
        answer = await waiting
        assert answer.checkpoint_reached
        assert answer.response_group_output_truncated is truncated
        assert answer.ByteSize() < 3 << 20
        if not truncated:
            assert json.loads(answer.response_group_output_json).keys() == {"s0", "s1", "s2", "s3"}
