"""What the end of a parent, its controls and its nodes do to children (rulings F5, C3, C6), one level at a time; and the net under all of it."""

import asyncio

import pytest

from ductord.coordinator.decided import Decided
from ductord.coordinator.sweep import Net
from ductord.model.decision import Decision
from ductord.model.effects import Effect
from ductord.model.enums import RunStatus, Verb
from ductord.model.fan_effects import Birth, CloseChildren, ControlChildren, DetachChildren, StartChildren
from ductord.model.fanout import ClosePolicy
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, begun, child_of, child_rows, end, family, over, pending
from tests.support.books import TENANT, Books


async def _does(ticker: Ticker, run_id: str, *effects: Effect) -> None:
    """Commit these effects as a decision of this run."""
    decided = await ticker.decide(TENANT, run_id)
    await ticker.commit(Decided(loaded=decided.loaded, decision=Decision(effects=effects)))


async def _asked(books: Books, *children: str) -> list[str]:
    """The verbs of what children were asked."""
    rows = await books.owner.fetch(
        "select verb from eec_workflow_intent where run_id = any($1::uuid[]) order by verb", children
    )
    return [row["verb"] for row in rows]


@pytest.mark.parametrize(
    ("policy", "status", "asked"),
    [
        ("request_cancel", RunStatus.CANCELLED, ["cancel", "cancel"]),
        ("request_cancel", RunStatus.FAILED, ["cancel", "cancel"]),
        ("request_cancel", RunStatus.COMPLETED, ["cancel", "cancel"]),
        ("request_cancel", RunStatus.TIMED_OUT, []),
        ("terminate", RunStatus.CANCELLED, ["terminate", "terminate"]),
        ("terminate", RunStatus.TIMED_OUT, ["terminate", "terminate"]),
        ("abandon", RunStatus.TERMINATED, []),
    ],
)
async def test_f5_the_close_policy(
    books: Books, ticker: Ticker, policy: str, status: RunStatus, asked: list[str]
) -> None:
    """F5: what the end of a parent does to children that are open: by policy, never to one that has ended; a run time-out cancels nobody. Nobody waits for them
    any more: their ends wake no one."""
    parent = await begun(books, ticker, over("runs", f'"parent_close_policy": "{policy}"'))
    await ticker.drain()
    await end(books, ticker, child_of(parent, 1))
    await books.owner.execute("delete from eec_workflow_wakeup")
    for _ in range(2):  # as one whose outcome was not known
        await _does(ticker, parent, CloseChildren(status=status))
    await books.owner.execute("update eec_workflow_run set status = $2 where run_id = $1", parent, status)
    children = [child_of(parent, index) for index in range(3)]
    assert await _asked(books, *children) == asked
    assert [await pending(books, child) for child in children] == ([1, 0, 1] if asked else [0, 0, 0])
    await end(books, ticker, children[0])
    assert await pending(books, parent) == 0
    assert [row["status"] is not None for row in await child_rows(books, parent)] == [True, True, False]


async def test_c6_children_that_nobody_waits_for_become_the_successors(books: Books, ticker: Ticker) -> None:
    """C6, F5: an async child is the successor's from now on, untouched; its row leaves room for the successor's own, and the successor closes it."""
    parent = await begun(
        books, ticker, over("one", '"mode": "async", "parent_close_policy": "terminate"'), "step hold action=noop:noop"
    )
    await ticker.drain()
    successor = await books.start(
        await books.owner.fetchval("select version_id::text from eec_workflow_run_start where run_id = $1", parent)
    )
    await _does(ticker, parent, CloseChildren(status=RunStatus.TERMINATED, continued_to_run_id=successor))
    assert await _asked(books, child_of(parent)) == []
    assert [(row["attempt"], row["detached"]) for row in await child_rows(books, parent)] == [(1, True)]
    await ticker.drain()
    assert [(row["attempt"], row["run_id"]) for row in await child_rows(books, successor)] == [
        (0, child_of(parent)),
        (1, child_of(successor)),
    ]
    await _does(ticker, successor, CloseChildren(status=RunStatus.FAILED))
    assert await _asked(books, child_of(parent), child_of(successor)) == ["terminate", "terminate"]


async def test_c10_a_control_before_a_birth_is_not_for_the_child(books: Books, ticker: Ticker) -> None:
    """C10: a node that begins anew has its old children cancelled and gives birth to others in one commit: the new ones are left alone. A control that comes
    after the birth is for them too."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    start = await books.owner.fetchrow(
        "select definition_id::text, version_id::text from eec_workflow_run_start where run_id = $1", child_of(parent)
    )
    birth = StartChildren(
        step_ref="s",
        attempt=2,
        family_slug="page",
        definition_id=start["definition_id"],
        version_id=start["version_id"],
        version=1,
        tier="standard",
        births=(Birth(item_index=0, run_id=child_of(parent, attempt=2), input_json="{}"),),
        close_policy=ClosePolicy.REQUEST_CANCEL,
    )
    cancel = ControlChildren(step_ref="s", verb=Verb.CANCEL, key="k", reason="anew")
    await _does(ticker, parent, cancel, birth)
    assert await _asked(books, child_of(parent)) == ["cancel"]
    assert await _asked(books, child_of(parent, attempt=2)) == []
    await _does(ticker, parent, birth, DetachChildren(step_ref="s"), CloseChildren(status=RunStatus.FAILED))
    assert [row["detached"] for row in await child_rows(books, parent)] == [True, True]
    assert await _asked(books, child_of(parent, attempt=2)) == [], "what is let go is not closed"


async def test_sw_02_a_cascade_survives_a_coordinator(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """SW-02: the cancel of a root is a control per child, one level per tick, in rows: whoever dies half-way, another coordinator goes on."""
    parent = await begun(
        books, ticker, over("one"), child=('step s type=subworkflow subworkflow={"workflow": {"family_slug": "leaf"}}',)
    )
    await books.release(family("leaf", *PAGE))
    await ticker.drain()
    runs = [parent, child_of(parent), child_of(child_of(parent))]
    assert [await books.status(run_id) for run_id in runs] == ["running"] * 3
    await books.control(parent, Verb.CANCEL)
    await ticker.tick(1)
    assert [await books.status(run_id) for run_id in runs] == ["cancelled", "running", "running"]
    await other_ticker.drain()
    assert [await books.status(run_id) for run_id in runs] == ["cancelled"] * 3


async def test_a_parent_that_ends_and_its_children_that_end_meet_in_one_order(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """SW-01: a hundred children end in one commit while their parent closes all of them in another: no deadlock, and whoever is second finds them done."""
    parent = await begun(books, ticker, over("runs"), width=100)
    await ticker.drain()
    children = [child_of(parent, index) for index in range(100)]
    for child in children:
        await books.report(child, wake=False)
    await books.owner.execute(  # each row takes its time, so that the two are at it together
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.001); return new; end $$;"
        " create trigger slow before update on eec_workflow_child for each row execute function slow()"
    )
    ending = [await ticker.decide(TENANT, child) for child in children]
    decided = await other_ticker.decide(TENANT, parent)
    effects = DetachChildren(step_ref="s"), CloseChildren(status=RunStatus.CANCELLED)
    closing = Decided(loaded=decided.loaded, decision=Decision(effects=effects))
    lost = await asyncio.gather(ticker.commit(*ending), other_ticker.commit(closing))
    assert not any(lost)
    assert {row["status"] for row in await child_rows(books, parent)} == {"completed"}


async def test_gj_06_an_end_that_nobody_told_is_found(books: Books, ticker: Ticker) -> None:
    """GJ-06: a parent that waits for children is not stuck; one whose child has ended without a word of it is told by the net, and goes on."""
    parent = await begun(books, ticker, over("runs"))
    await ticker.drain()
    net = Net(0)
    assert not (await net.round(ticker.connection)).woke
    await books.owner.execute("update eec_workflow_child set child_run_id = gen_random_uuid() where item_index = 1")
    await end(books, ticker, child_of(parent, 1), code="NOT_FOUND")
    await books.owner.execute("update eec_workflow_child set child_run_id = first_run_id")
    await books.owner.execute("delete from eec_workflow_wakeup")
    swept = await net.round(ticker.connection)
    assert {place: count for place, count in swept.repaired.items() if count} == {"untold": 1}
    row = (await child_rows(books, parent))[1]
    assert (row["status"], row["error_code"]) == ("failed", "NOT_FOUND")
    assert await pending(books, parent) == 1
    await books.owner.execute("delete from eec_workflow_wakeup")
    swept = await net.round(ticker.connection)
    assert {place: count for place, count in swept.repaired.items() if count} == {"children": 1}
    await end(books, ticker, child_of(parent, 0), child_of(parent, 2))
    await ticker.drain()
    assert await books.status(parent) == "completed"


async def test_a_parent_without_open_children_is_stuck(books: Books, ticker: Ticker) -> None:
    """Invariant 4: who waits for children has children; without any the net counts the run, page after page."""
    parent = await begun(books, ticker, over("runs"))
    await ticker.drain()
    assert (await Net(0).round(ticker.connection)).repaired["stuck"] == 0
    await books.owner.execute("delete from eec_workflow_child where parent_run_id = $1", parent)
    assert (await Net(0).round(ticker.connection)).repaired["stuck"] == 1


async def test_c4_a_parents_redrive_waits_for_what_is_being_stopped(books: Books, ticker: Ticker) -> None:
    """C4, GJ-06: a child that is being stopped keeps its parent's redrive until it has ended; the net does not take that for a lost wake-up."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    child = child_of(parent)
    await books.report(child, wake=False)
    await books.owner.execute(
        "update eec_workflow_step_attempt set report_time = null, outcome = null, start_time = eec_now(), lease_secret = 's'"
    )
    await books.control(child, Verb.CANCEL)
    await ticker.drain()
    await books.owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body_hash, actor) values ('t', $1, 'r', 'redrive', '', 'run:' || $2::text)",
        child,
        parent,
    )
    await books.wake(child)
    await ticker.drain()
    assert (await books.operation(child, "r"))["status"] == "pending"
    assert not (await Net(0).round(ticker.connection)).woke
    await books.report(child)
    await ticker.drain()
    assert (await books.operation(child, "r"))["status"] == "applied"
    assert await books.status(child) == "completed", "its work had succeeded: the redrive only has to end it"
