"""What a wide fan-out costs per child does not grow with its width, and what it leaves behind can be gathered by a reset run (SG-06, C5)."""

import orjson
import pytest
from msgspec import structs

from ductord.engine.limits import LIMITS
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, child_rows, family, over
from tests.coordinator.workers import Workers
from tests.support.books import Books

pytestmark = pytest.mark.pages


async def _cost(books: Books, ticker: Ticker, workers: Workers, version: str, width: int) -> tuple[float, int, int]:
    """Bytes of WAL per child from the start to the end, the size of the run's row at its largest, and of its history per child."""
    begin = await books.owner.fetchval("select pg_current_wal_insert_lsn()")
    run_id = await books.start(version, input_=f'{{"xs": {list(range(width))}}}')
    largest = 0
    while await books.status(run_id) in ("pending", "running"):
        await ticker.tick()
        size = await books.owner.fetchval(
            "select octet_length(node_states::text) + octet_length(run_state::text) from eec_workflow_run where run_id = $1",
            run_id,
        )
        largest = max(largest, size)
        if tasks := await workers.lease(500):
            await workers.succeed(*tasks)
    wal = await books.owner.fetchval("select (pg_current_wal_insert_lsn() - $1)::float8", begin)
    told = await books.owner.fetchval(
        "select sum(octet_length(events::text))::int from eec_workflow_transition where run_id = $1", run_id
    )
    assert await books.status(run_id) == "completed"
    return wal / width, largest, told // width


async def test_sg_06_the_cost_per_child_is_constant(books: Books, ticker: Ticker, workers: Workers) -> None:
    """SG-06: ten times as wide costs as much log per child, the run's row stays as small, and the history tells a few bytes of each."""
    ticker.limits = structs.replace(LIMITS, max_inline_children=10_000)
    version = await books.release(family("wide", over("inline")))
    await _cost(books, ticker, workers, version, 50)
    narrow, small, _ = await _cost(books, ticker, workers, version, 250)
    wide, large, told = await _cost(books, ticker, workers, version, 2_500)
    assert wide / narrow < 1.3
    assert large < small + 20
    assert told < 40


@pytest.mark.parametrize("kind", ["inline", "runs"])
async def test_c5_a_reset_run_gathers_what_its_source_had(books: Books, ticker: Ticker, kind: str) -> None:
    """C5, F2: a reset behind a finished scatter keeps what its children came to: rows of tasks with their outputs, or of runs as they were told."""
    await books.release(family("page", *PAGE))
    lines = (
        over(kind),
        "step bad action=noop:noop",
        "s -success-> bad",
        'step g type=gather gather={"scatter_ref": "s"}',
        "bad -success-> g",
    )
    source = await books.start(await books.release(family("parent", *lines)), input_='{"xs": [1, 2, 3]}')
    await ticker.drain()
    await books.report(output='{"n": 1}')
    await ticker.drain()
    run = await books.run(source)
    assert (run.nodes[0].status, run.nodes[1].status) == ("succeeded", "running")
    await books.report(source, outcome="failed", code="NOT_FOUND")
    await ticker.drain()
    assert await books.status(source) == "failed"
    new = await books.owner.fetchval("select gen_random_uuid()::text")
    await books.control(source, Verb.RESET, body=ControlBody(new_run_id=new, seq=run.seq))
    await ticker.drain()
    operation = await books.operation(source, Verb.RESET)
    assert operation["status"] == "applied", operation
    new = orjson.loads(operation["result"])["new_run_id"]
    await books.report(new)
    await ticker.drain()
    assert (await books.settled(new)).status == "completed"
    output = await books.owner.fetchval(
        "select output::text from eec_workflow_step_attempt where run_id = $1 and step_ref = 'g'", new
    )
    one = {"n": 1} if kind == "inline" else {"work": {"n": 1}}
    assert orjson.loads(output) == {"result": [one] * 3, "error": {}, "result_indexes": [0, 1, 2]}
    children = await books.owner.fetch(
        "select status, count(*) from eec_workflow_step_attempt where run_id = $1 and kind = 'item' group by 1", new
    )
    assert [tuple(row) for row in children] == ([("succeeded", 3)] if kind == "inline" else [])
    assert len(await child_rows(books, new)) == (0 if kind == "inline" else 3)
    assert (
        await books.owner.fetchval("select count(*) from eec_workflow_run_start where parent_run_id = $1", new)
    ) == 0
