"""Child runs are born in the commit that decided it, once, and inherit what their parent was born with (ruling F5)."""

import asyncpg
import orjson
import pytest
from msgspec import structs

from ductord.engine.limits import LIMITS
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, begun, child_of, child_rows, family, over
from tests.support.books import TENANT, Books


async def test_f5_children_inherit_what_their_parent_was_born_with(books: Books, ticker: Ticker) -> None:
    """F5, T5: subject, labels, root, journey, actor and trace of the parent; one deeper; the input that the step says; and labels find them."""
    await books.release(family("page", *PAGE, "tier critical"))
    parent = await books.start(
        await books.release(family("parent", over("runs", '"input": {"n": "${{ ITEM }}", "i": "${{ INDEX }}"}'))),
        input_='{"xs": [7, 9007199254740993]}',
        subject=("order", "o1"),
        actor="ann",
    )
    await books.owner.execute(
        "update eec_workflow_run_start set labels = '{\"team\": \"red\"}', traceparent = '00-aa-bb-01', nesting_depth = 3 where run_id = $1",
        parent,
    )
    await ticker.tick(1)
    rows = await books.owner.fetch(
        "select *, run_id::text as id, root_run_id::text as root, parent_run_id::text as parent, journey_id::text as journey, input::text as text,"
        " labels::text as labelled from eec_workflow_run_start where parent_run_id is not null order by input::text"
    )
    assert {row["id"] for row in rows} == {child_of(parent, 0), child_of(parent, 1)}
    for row in rows:
        assert (row["root"], row["parent"], row["journey"], row["nesting_depth"]) == (parent, parent, parent, 4)
        assert (row["subject_type"], row["subject_id"], row["actor"], row["tier"]) == ("order", "o1", "ann", "critical")
        assert (row["family_slug"], row["version"], row["traceparent"]) == ("page", 1, "00-aa-bb-01")
        assert orjson.loads(row["labelled"]) == {"team": "red"}
    assert sorted(row["text"] for row in rows) == ['{"n":7,"i":0}', '{"n":9007199254740993,"i":1}'], "L5: to the digit"
    labels = await books.owner.fetch("select run_id::text from eec_workflow_run_label where label = 'team:red'")
    assert {row["run_id"] for row in labels} == {child_of(parent, 0), child_of(parent, 1)}
    assert [(r["status"], r["sync"], r["detached"], r["end_time"]) for r in await child_rows(books, parent)] == [
        (None, True, False, None)
    ] * 2


async def test_f1_staggered_children_begin_when_they_are_due(books: Books, ticker: Ticker) -> None:
    """F1: with an interval, each child is woken at its own time; none of them is taken for lost before."""
    parent = await begun(books, ticker, over("runs", '"interval_ms": 60000'))
    due = await books.owner.fetch(
        "select extract(epoch from w.due_time - s.create_time)::int as after from eec_workflow_wakeup w"
        " join eec_workflow_run_start s using (tenant_id, run_id) where s.parent_run_id = $1 order by 1",
        parent,
    )
    assert [row["after"] for row in due] == [0, 60, 120]


async def test_sg_02_a_crash_between_two_chunks_loses_no_child_and_doubles_none(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """SG-02, F1: 30 children begin ten a tick; the second chunk's commit is lost, and another coordinator goes on: 30 children in the end, each once,
    and the node has not ended before."""
    for one in (ticker, other_ticker):
        one.limits = structs.replace(LIMITS, children_per_tick=10)
    parent = await begun(books, ticker, over("runs"), width=30)
    assert len(await child_rows(books, parent)) == 10
    await books.owner.execute(
        "create function die() returns trigger language plpgsql as $$ begin raise exception 'gone' using errcode = '57P01'; end $$;"
        " create constraint trigger die after insert on eec_workflow_child deferrable initially deferred for each row execute function die();"
        " delete from eec_workflow_wakeup w where w.run_id <> (select root_run_id from eec_workflow_run_start s where s.run_id = w.run_id)"
    )
    with pytest.raises(asyncpg.AdminShutdownError):
        await ticker.tick(1)
    assert len(await child_rows(books, parent)) == 10
    fan = (await books.run(parent)).nodes[0].fan
    assert fan is not None
    assert (fan.expected, fan.next, fan.open) == (30, 10, 10), "expected is frozen with the expansion"
    await books.owner.execute("drop trigger die on eec_workflow_child")
    await other_ticker.drain()
    rows = await child_rows(books, parent)
    assert [row["item_index"] for row in rows] == list(range(30))
    assert (
        await books.owner.fetchval("select count(*) from eec_workflow_run_start where parent_run_id = $1", parent) == 30
    )
    assert (await books.settled(parent)).status == "running"


async def test_sw_01_no_child_begins_after_the_cancel(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """SW-01: who has decided to begin the next children when the cancel is committed decided in vain, and all that were born are told."""
    for one in (ticker, other_ticker):
        one.limits = structs.replace(LIMITS, children_per_tick=10)
    parent = await begun(books, ticker, over("runs"), width=30)
    late = await other_ticker.decide(TENANT, parent)
    assert late.born == 10
    await books.control(parent, Verb.CANCEL, wake=False)
    assert await ticker.commit(await ticker.decide(TENANT, parent)) == set()
    assert await other_ticker.commit(late) == {parent}
    await ticker.drain()
    assert await books.status(parent) == "cancelled"
    statuses = await books.owner.fetch(
        "select r.status, count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id) where s.parent_run_id = $1 group by 1",
        parent,
    )
    assert [tuple(row) for row in statuses] == [("cancelled", 10)]
    asked = await books.owner.fetch(
        "select actor, status, request_id from eec_workflow_intent where verb = 'cancel' and run_id <> $1", parent
    )
    assert {(row["actor"], row["status"]) for row in asked} == {(f"run:{parent}", "applied")}
    assert len({row["request_id"] for row in asked}) == 1
    assert (await ticker.drain()).claimed == 0


async def test_f5_the_version_is_the_newest_and_then_frozen(books: Books, ticker: Ticker) -> None:
    """F5, D1: children run the version that was the newest when their fan began, also after another was published and that was archived."""
    ticker.limits = structs.replace(LIMITS, children_per_tick=2)
    parent = await begun(books, ticker, over("runs"), width=4)
    await books.release(family("page", *PAGE))
    await books.owner.execute("update eec_workflow_version set status = 'archived' where version = 1")
    await ticker.drain()
    versions = await books.owner.fetch(
        "select version, count(*) from eec_workflow_run_start where parent_run_id = $1 group by 1", parent
    )
    assert [tuple(row) for row in versions] == [(1, 4)]


@pytest.mark.parametrize(
    ("workflow", "archive", "code"),
    [
        ('{"family_slug": "nobody"}', False, "child_workflow_unknown"),
        ('{"family_slug": "page", "version": 7}', False, "child_version_unknown"),
        ('{"family_slug": "page", "version": 1}', True, "child_version_archived"),
        ('{"family_slug": "page"}', True, "child_version_archived"),
    ],
)
async def test_f5_what_no_child_can_run_fails_before_any_starts(
    books: Books, ticker: Ticker, workflow: str, archive: bool, code: str
) -> None:
    """D1, D3, F5: an unknown family, an unknown version, an archived one, or a newest one that is archived: a coded failure, and no child."""
    await books.release(family("page", *PAGE))
    if archive:
        await books.owner.execute("update eec_workflow_version set status = 'archived'")
    line = f'step s type=subworkflow subworkflow={{"workflow": {workflow}}}'
    parent = await books.start(await books.release(family("parent", line)))
    await ticker.drain()
    fault = (await books.settled(parent)).nodes[0].fault
    assert fault is not None
    assert fault.code == code
    assert await child_rows(books, parent) == []
