"""Events that start runs (T3, E3): which triggers a name matches, filters and inputs, what cannot start a run, and each run once."""

import asyncio
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.enums import Tier
from ductord.model.starting import event_run_id, patterns_of
from ductord.signals import starting
from ductord.signals.service import SERVICE
from ductord.signals.starting import Starting
from tests.conftest import Database
from tests.signals.live import Live, on, unreadable
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.edges import Edges, serving

DEAR = "EVENT.payload.all(a, EVENT.payload.all(b, EVENT.payload.all(c, a + b + c >= {})))"


@pytest.fixture
def live(owner: asyncpg.Connection) -> Live:
    """Definitions with event triggers."""
    return Live(owner)


def _refused(answer: api.PublishEventResponse) -> dict[str, str]:
    return {trigger.trigger_id: trigger.code for trigger in answer.refused_triggers}


async def test_t3_an_event_starts_a_run(sender: Sender, live: Live) -> None:
    """One run per trigger that the name matches, born whole: version, input, origin, actor, a wake-up that begins it; the payload is exact (L5)."""
    definition = await live.define(on("order.created"))
    await live.define(on("order.paid"), slug="other")
    answer = await sender.publish("order.created", "k", event_id="e", payload_json='{"n": 9007199254740993}')
    assert (answer.matched, answer.duplicate, list(answer.refused_triggers)) == (0, False, [])
    run_id = event_run_id(definition, "on", "order.created", "e")
    assert list(answer.started_run_ids) == [run_id]
    [run] = await live.runs()
    origin = run.pop("origin")
    time = datetime.fromisoformat(origin["event"].pop("time"))
    assert origin == {
        "trigger_id": "on",
        "event": {"name": "order.created", "id": "e", "correlation_key": "k", "payload_is_input": True},
    }
    assert await live.owner.fetchval("select publish_time from eec_workflow_event where event_id = 'e'") == time
    assert run.pop("event_payload") is None, "it is the input"
    version_id, traceparent = run.pop("version_id"), run.pop("traceparent")
    assert version_id in live.catalogue.manifests
    assert traceparent.startswith("00-")
    assert run == {
        "run_id": run_id,
        "definition_id": definition,
        "version": 1,
        "family_slug": "order",
        "given_definition_id": definition,
        "root_run_id": run_id,
        "journey_id": run_id,
        "input": {"n": 9007199254740993},
        "tier": "standard",
        "variables": {},
        "environment": "",
        "actor": "event:on",
    }
    assert await live.wakeups(run_id) == [True]


async def test_t3_patterns(database: Database, live: Live) -> None:
    """A literal name is always looked at; `a.b.*` with the flag alone, for what begins with `a.b.` and has more. It is never taken literally."""
    patterns = ("a.b.c", "a.b.*", "a.*", "a.b.c.*", "a.b", "*", "a.b.c.d")
    for number, pattern in enumerate(patterns):
        await live.define(on(pattern, id_=f"t{number}"), slug=f"d{number}")

    async def started(name: str, flag: bool) -> set[str]:
        async with serving(database, [SERVICE], pool_max_size=2, events_wildcards_enabled=flag) as edges:
            await Sender(edges).publish(name, event_id=f"{name}-{flag}")
        rows = await live.runs()
        return {
            patterns[int(run["origin"]["trigger_id"][1:])]
            for run in rows
            if run["origin"]["event"]["id"] == f"{name}-{flag}"
        }

    assert await started("a.b.c", flag=False) == {"a.b.c"}
    assert await started("a.b.c", flag=True) == {"a.b.c", "a.b.*", "a.*"}
    assert await started("a.b.*", flag=False) == set()
    assert await started("a.b.*", flag=True) == {"a.b.*", "a.*"}
    assert await started("a.b", flag=True) == {"a.b", "a.*"}
    assert await started("a.b.", flag=True) == {"a.*"}
    assert await started("a", flag=True) == set()
    assert await started("b.a.b.c", flag=True) == set()


def test_patterns_of_a_name() -> None:
    """What is looked up is as many patterns as the name has dots, and one."""
    assert patterns_of("a..b", wildcards=True) == ("a..b", "a.*", "a..*")
    assert patterns_of(".", wildcards=True) == (".",)
    assert patterns_of("x", wildcards=True) == ("x",)
    assert patterns_of("a.*", wildcards=False) == ()


async def test_t3_two_patterns_of_one_trigger_start_one_run(database: Database, live: Live) -> None:
    """And two triggers of one definition start two. One that cannot start its run is told once."""
    bad = on("order.created", "order.*", id_="bad", input_="${{ EVENT.payload.x.y }}")
    await live.define(on("order.created", "order.*", id_="a"), on("order.created", id_="b"), bad)
    async with serving(database, [SERVICE], pool_max_size=2, events_wildcards_enabled=True) as edges:
        answer = await Sender(edges).publish("order.created")
    assert (len(answer.started_run_ids), len(answer.refused_triggers)) == (2, 1)
    assert sorted(run["origin"]["trigger_id"] for run in await live.runs()) == ["a", "b"]


async def test_t3_the_answer_has_an_end(sender: Sender, live: Live) -> None:
    """Of very many triggers that start no run a thousand are told: an answer of all would be too large for a client, when the event has been published."""
    await live.define(on("order.created", input_="${{ EVENT.payload.x.y }}"))
    await live.multiply(1_100)
    answer = await sender.publish("order.created")
    assert (len(answer.started_run_ids), len(answer.refused_triggers)) == (0, 1_000)


async def test_t3_filters(sender: Sender, live: Live) -> None:
    """A filter is a bool over EVENT and VARS; one that is false, fails or gives no bool does not match, and is no refusal."""
    passing = [
        "EVENT.payload.amount > VARS.least",
        "EVENT.name == 'paid' && EVENT.id == 'e'",
        "EVENT.time.endsWith('Z')",
    ]
    failing = [
        "EVENT.payload.amount > 12900",
        "false",
        "EVENT.payload.missing == 1",
        "EVENT.payload.amount",
        "NOPE",
        "((",
    ]
    for number, source in enumerate((*passing, *failing)):
        await live.define(on("paid", filter_=source), slug=f"d{number}", variables={"least": 100})
    answer = await sender.publish(event_id="e", payload={"amount": 12900})
    assert (len(answer.started_run_ids), _refused(answer)) == (len(passing), {})
    assert sorted(run["family_slug"] for run in await live.runs()) == ["d0", "d1", "d2"]


async def test_t3_inputs(sender: Sender, live: Live) -> None:
    """The mapping, which reads EVENT and VARS; without one the payload; and `{}` for an event without a payload. The event stands beside a mapped input."""
    await live.define(
        on("paid", input_={"id": "${{ EVENT.payload.id }}", "to": "${{ VARS.to }}-${{ EVENT.id }}", "n": 1}),
        variables={"to": "x"},
    )
    await live.define(on("paid"), slug="plain")
    await live.define(on("paid", input_="${{ EVENT.payload }}"), slug="same")
    assert len((await sender.publish(event_id="e", payload={"id": 7})).started_run_ids) == 3
    runs = {run["family_slug"]: run for run in await live.runs()}
    assert runs["order"]["input"] == {"id": 7, "to": "x-e", "n": 1}
    assert runs["order"]["event_payload"] == {"id": 7}
    assert "payload_is_input" not in runs["order"]["origin"]["event"]
    for slug in ("plain", "same"):
        assert runs[slug]["input"] == {"id": 7}
        assert runs[slug]["origin"]["event"]["payload_is_input"]
    answer = await sender.publish(event_id="f")
    assert _refused(answer) == {"on": "EXPRESSION_ERROR"}
    assert {run["family_slug"]: run["input"] for run in await live.runs()} | {"order": 0} == {
        "order": 0,
        "plain": {},
        "same": None,
    }


async def test_t3_what_cannot_start_stops_nothing_else(sender: Sender, live: Live, desk: Desk) -> None:
    """A schema that the input does not meet, an input that fails or is too large, a version of the future: each is told by code, and the others start, and
    waits get the event. The refusal is told again while the event did nothing; it is not remembered for it."""
    huge = "${{ [EVENT.payload.text, EVENT.payload.text, EVENT.payload.text] }}"
    schema = {"type": "object", "required": ["id"]}
    await live.define(on("paid", id_="schema"), slug="a", input_schema=schema)
    await live.define(on("paid", id_="fails", input_="${{ EVENT.payload.missing.at }}"), slug="b")
    await live.define(on("paid", id_="huge", input_=huge), slug="c")
    future = await live.define(on("paid", id_="future"), slug="d")
    [version] = [v for v, m in live.catalogue.manifests.items() if m.family_slug == "d"]
    text = unreadable(live.catalogue.manifests[version])
    await live.owner.execute("update eec_workflow_version set manifest = $2 where version_id = $1", version, text)
    payload = {"text": "x" * 400_000}
    answer = await sender.publish(event_id="e", payload=payload)
    expected = {
        "schema": "INPUT_SCHEMA_MISMATCH",
        "fails": "EXPRESSION_ERROR",
        "huge": "PAYLOAD_TOO_LARGE",
        "future": "VERSION_UNREADABLE",
    }
    assert _refused(answer) == expected
    assert next(t.definition_id for t in answer.refused_triggers if t.trigger_id == "future") == future
    assert all(0 < len(t.message) < 400 and "xxx" not in t.message for t in answer.refused_triggers)
    assert (list(answer.started_run_ids), answer.duplicate, await desk.events()) == ([], False, [])
    good = await live.define(on("paid", id_="good"), slug="e")
    waits = await desk.open()
    answer = await sender.publish(event_id="e", payload=payload)
    assert (_refused(answer), answer.matched) == (expected, 1)
    assert [run["definition_id"] for run in await live.runs() if run["actor"].startswith("event:")] == [good]
    assert len(await desk.receipts(waits)) == 1
    assert await sender.told(event_id="e") == (0, True)


async def test_t3_one_hostile_trigger_stops_no_other(
    sender: Sender, live: Live, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters and inputs without end are given up each by itself; nothing is locked meanwhile."""
    for number in range(6):
        await live.define(on("paid", filter_=DEAR.format(-number)), slug=f"f{number}")
    for number in range(2):
        dear = f"${{{{ {DEAR.format(-number)} }}}}"
        await live.define(on("paid", id_=f"dear{number}", input_=dear), slug=f"i{number}")
    good = await live.define(on("paid"), slug="good")
    await desk.open()
    judge = Starting.judge
    locks: list[int] = []

    async def watched(self: Starting, *given: Any) -> None:
        judging = asyncio.create_task(judge(self, *given))
        while not judging.done():
            locks.append(
                await live.owner.fetchval(
                    "select count(*) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()"
                    " where l.locktype = 'advisory' or l.relation = 'eec_workflow_wait'::regclass"
                )
            )
        await judging

    monkeypatch.setattr(Starting, "judge", watched)
    publishing = sender.publish(event_id="e", payload=list(range(400)), timeout=60)
    answer = await publishing
    assert set(locks) == {0}
    assert (answer.matched, _refused(answer)) == (
        1,
        {"dear0": "EXPRESSION_BUDGET_EXCEEDED", "dear1": "EXPRESSION_BUDGET_EXCEEDED"},
    )
    assert list(answer.started_run_ids) == [event_run_id(good, "on", "paid", "e")]


async def test_t3_what_triggers_make_of_one_event_is_bounded(
    sender: Sender, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs that are held until the event is published have a bound together; those that are the payload itself are not among them."""
    monkeypatch.setattr(starting, "_MADE_BYTES", 2_500)
    await live.define(*(on("paid", id_=f"made{n}", input_={"of": "${{ EVENT.payload }}"}) for n in range(4)))
    await live.define(*(on("paid", id_=f"same{n}") for n in range(4)), slug="same")
    answer = await sender.publish(payload={"text": "x" * 1_000})
    assert list(_refused(answer).values()) == ["PAYLOAD_TOO_LARGE"] * 2
    assert len(answer.started_run_ids) == 6


async def test_t3_tier(sender: Sender, live: Live) -> None:
    """The trigger's, else the definition's."""
    await live.define(on("paid", id_="own", tier=Tier.CRITICAL), on("paid", id_="none"), tier=Tier.BULK)
    await sender.publish()
    assert {run["origin"]["trigger_id"]: run["tier"] for run in await live.runs()} == {
        "own": "critical",
        "none": "bulk",
    }


async def test_l8_vars_of_the_environment(database: Database, sender: Sender, live: Live) -> None:
    """Filter and input see the defaults with the override of the process's environment over them, and the run is born with it; undeclared names count for
    nothing. An override that changes between two events counts for the second."""
    definition = await live.define(
        on("paid", filter_="VARS.open", input_={"to": "${{ VARS.to }}"}), variables={"open": False, "to": "nobody"}
    )
    await live.override(definition, "prod", {"open": True, "to": "ops", "stranger": 1})
    await live.override(definition, "test", {"open": True, "to": "test"})
    assert list((await sender.publish(event_id="e1")).started_run_ids) == []
    async with serving(database, [SERVICE], pool_max_size=2, environment="prod") as edges:
        prod = Sender(edges)
        assert len((await prod.publish(event_id="e2")).started_run_ids) == 1
        await live.override(definition, "prod", {"open": True, "to": "duty"})
        assert len((await prod.publish(event_id="e3")).started_run_ids) == 1
        await live.override(definition, "prod", {"open": False})
        assert len((await prod.publish(event_id="e4")).started_run_ids) == 0
    first, second = await live.runs()
    assert (first["input"], first["environment"]) == ({"to": "ops"}, "prod")
    assert (first["variables"]["to"], second["variables"]) == ("ops", {"open": True, "to": "duty"})


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
    assert (answer.matched, answer.duplicate, _refused(answer)) == (1, False, {"bad": "EXPRESSION_ERROR"})
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


async def test_e4_the_event_that_started_a_run_is_not_for_its_waits(sender: Sender, live: Live, desk: Desk) -> None:
    """E4: published again after a day, it matches the waits of others and none of the run that it started."""
    definition = await live.define(on("paid"))
    await sender.publish(event_id="e")
    own = event_run_id(definition, "on", "paid", "e")
    await desk.age(25)
    await desk.open(own)
    other = await desk.open()
    assert await sender.told(event_id="e") == (1, False)
    assert (await desk.receipts(own), len(await desk.receipts(other))) == ([], 1)
    assert await sender.told(event_id="f") == (1, False)


async def test_a_kept_event_that_started_a_run(sender: Sender, live: Live, desk: Desk) -> None:
    """An event that matched no wait is kept as it asks, whether it started a run or not."""
    await live.define(on("paid"))
    answer = await sender.publish(event_id="e", ttl_seconds=60)
    assert (len(answer.started_run_ids), await desk.events()) == (1, [("e", 0, True)])


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
