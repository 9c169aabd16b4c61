"""Events that start runs, beside others: the same event again, publishes, other tenants, and very many (T3, E3, D3). Each run once."""

import asyncio
from typing import Any

import asyncpg
import pytest

from ductord.db.ids import new_id
from ductord.model.starting import event_run_id
from ductord.signals.service import SERVICE
from ductord.signals.starting import Starting
from tests.conftest import Database
from tests.signals.live import Live, on, refusals
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.edges import Edges, serving


async def test_e3_an_event_that_only_started_dedupes(sender: Sender, live: Live, desk: Desk) -> None:
    """It is remembered as one that matched: again it does nothing, and says so. After a day it is another event, and still no second run (T3)."""
    definition = await live.define(on("paid"))
    first = await sender.publish(event_id="e", payload={"n": 1})
    assert (len(first.started_run_ids), await desk.events()) == (1, [("e", 0, False)])
    again = await sender.publish(event_id="e", payload={"n": 2})
    assert (again.matched, again.duplicate, list(again.started_run_ids), list(again.refused_triggers)) == (
        0,
        True,
        [],
        [],
    )
    await desk.age(25)
    later = await sender.publish(event_id="e", payload={"n": 3})
    assert (later.duplicate, list(later.started_run_ids)) == (False, [])
    [run] = await live.runs(definition)
    assert run["input"] == {"n": 1}


async def test_tc05_the_same_event_through_two_processes(database: Database, sender: Sender, live: Live) -> None:
    """TC-05: thirty times at once through two pools: one run; every other answer is a duplicate."""
    await live.define(on("paid", id_="a"), on("paid", id_="b"))
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        both = [sender, Sender(other)] * 15
        answers = await asyncio.gather(*(s.publish(event_id="e") for s in both))
    started = [sorted(answer.started_run_ids) for answer in answers if not answer.duplicate]
    assert [len(ids) for ids in started] == [2]
    assert sorted(run["run_id"] for run in await live.runs()) == started[0]


@pytest.mark.parametrize("committed", [True, False])
async def test_pg01_a_commit_whose_outcome_is_unknown(
    sender: Sender, live: Live, desk: Desk, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """PG-01: the answer to COMMIT is lost, or the COMMIT is: the caller hears what the event did, runs included, and it was done once."""
    definition = await live.define(on("paid"), on("paid", id_="bad", input_="${{ EVENT.payload.x.y }}"))
    waits = await desk.open()
    lost: list[bool] = []
    execute = asyncpg.Connection.execute

    async def losing(self: asyncpg.Connection, query: str, *args: Any, **options: Any) -> Any:
        if query.endswith("commit") and not lost and await _wrote(self):
            lost.append(True)
            if committed:
                await execute(self, query)
            self.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return await execute(self, query, *args, **options)

    monkeypatch.setattr(asyncpg.Connection, "execute", losing)
    answer = await sender.publish(event_id="e")
    assert lost
    assert (answer.matched, answer.duplicate, refusals(answer)) == (1, False, {"bad": "EXPRESSION_ERROR"})
    assert list(answer.started_run_ids) == [event_run_id(definition, "on", "paid", "e")]
    assert len(await live.runs(definition)) == len(await desk.receipts(waits)) == 1


async def _wrote(connection: asyncpg.Connection) -> bool:
    return await connection.fetchval("select pg_current_xact_id_if_assigned() is not null") is True and (
        await connection.fetchval("select count(*) from eec_workflow_event") > 0
    )


async def test_d3_publishes_and_archives_beside_events(database: Database, sender: Sender, live: Live) -> None:
    """IL-03: versions come, go and come back while events are published: each event starts at most one run, of one version, with that version's filter and
    input and never a mix; and one that is published between two changes starts the version that was live."""
    definition = await live.define(on("paid", filter_="VARS.v == 1", input_={"v": "${{ VARS.v }}"}), variables={"v": 1})
    over = asyncio.Event()

    async def publish(sender: Sender, who: int) -> int:
        count = 0
        while not over.is_set():
            answer = await sender.publish(event_id=f"{who}-{count}")
            assert not answer.refused_triggers
            assert len(answer.started_run_ids) <= 1
            count += 1
        return count

    async with serving(database, [SERVICE], pool_max_size=4) as other:
        publishers = [asyncio.create_task(publish(s, who)) for who, s in enumerate([sender, Sender(other)] * 3)]
        for version in range(2, 40):
            trigger = on("paid", filter_=f"VARS.v == {version}", input_={"v": "${{ VARS.v }}"})
            if version % 5 == 0:
                await live.archive(definition)
                assert list((await sender.publish(event_id=f"archived-{version}")).started_run_ids) == []
            await live.publish(definition, trigger, variables={"v": version})
            assert len((await sender.publish(event_id=f"between-{version}")).started_run_ids) == 1
        over.set()
        counts = await asyncio.gather(*publishers)
    runs = await live.runs()
    assert all(run["version"] == run["input"]["v"] for run in runs)
    assert len({run["origin"]["event"]["id"] for run in runs}) == len(runs) <= sum(counts) + 38
    between = {
        run["origin"]["event"]["id"]: run["version"] for run in runs if run["origin"]["event"]["id"].startswith("b")
    }
    assert between == {f"between-{version}": version for version in range(2, 40)}


async def test_d3_a_trigger_that_changes_while_it_is_judged(
    sender: Sender, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict belongs to the version: one that is published meanwhile is judged anew."""
    definition = await live.define(on("paid", input_={"v": 1}))
    judge = Starting.judge
    late: list[str] = []

    async def slowly(self: Starting, *given: object) -> None:
        await judge(self, *given)  # type: ignore[arg-type]
        if not late:
            late.append(await live.publish(definition, on("paid", input_={"v": 2})))

    monkeypatch.setattr(Starting, "judge", slowly)
    assert len((await sender.publish(event_id="e")).started_run_ids) == 1
    [run] = await live.runs()
    assert (run["version"], run["version_id"], run["input"]) == (2, late[0], {"v": 2})


async def test_l8_an_override_that_changes_while_it_is_judged(
    sender: Sender, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict belongs to the VARS too: the run's input and its frozen VARS are of one override."""
    definition = await live.define(on("paid", input_={"to": "${{ VARS.to }}"}), variables={"to": "nobody"})
    judge = Starting.judge
    changes = iter(({"to": "ops"}, {"to": "duty"}))

    async def slowly(self: Starting, *given: Any) -> None:
        await judge(self, *given)
        if change := next(changes, None):
            await live.override(definition, "", change)

    monkeypatch.setattr(Starting, "judge", slowly)
    assert len((await sender.publish(event_id="e")).started_run_ids) == 1
    [run] = await live.runs()
    assert run["input"] == run["variables"] == {"to": "duty"}


async def test_tn01_triggers_of_another_tenant(edges: Edges, sender: Sender, live: Live) -> None:
    """The same name in two tenants is two events, and starts each tenant's own."""
    mine = await live.define(on("paid"))
    theirs = await live.define(on("paid"), tenant="other")
    foreign = Sender(edges, "other")
    assert list((await foreign.publish(event_id="e")).started_run_ids) == [event_run_id(theirs, "on", "paid", "e")]
    assert await live.runs(mine) == []
    assert list((await sender.publish(event_id="e")).started_run_ids) == [event_run_id(mine, "on", "paid", "e")]
    assert list((await Sender(edges, "third").publish(event_id="e")).started_run_ids) == []


async def test_ob01_what_is_counted(sender: Sender, edges: Edges, live: Live) -> None:
    """Starts and refusals are in the metrics, refusals by code alone."""
    await live.define(on("paid"), on("paid", id_="bad", input_="${{ EVENT.payload.x.y }}"))
    for event_id in ("e", "e", "f"):
        await sender.publish(event_id=event_id)
    text = edges.host.metrics.exposition().decode()
    assert "ductor_external_events_started_total 2.0" in text
    assert 'ductor_event_triggers_refused_total{code="EXPRESSION_ERROR"} 2.0' in text
    assert 'ductor_external_events_total{result="started"} 2.0' in text
    assert 'ductor_external_events_total{result="duplicate"} 1.0' in text


async def test_one_event_starts_very_many(sender: Sender, live: Live) -> None:
    """1,200 definitions that listen to one name: one call, a run each."""
    await live.define(on("paid"), slug="d")
    await live.multiply(1_199)
    answer = await sender.publish(event_id=new_id(), payload={"text": "x" * 20_000})
    assert (len(set(answer.started_run_ids)), list(answer.refused_triggers)) == (1_200, [])
    assert await live.owner.fetchval("select count(*) from eec_workflow_wakeup where begins") == 1_200
