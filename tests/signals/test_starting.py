"""Events that start runs (T3, E4): which triggers a name matches, filters, inputs, and what the run knows of its event."""

from datetime import datetime

from ductord.model.enums import Tier
from ductord.model.starting import event_run_id, patterns_of
from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.live import Live, on, refusals
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.edges import serving


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
    assert (len(answer.started_run_ids), refusals(answer)) == (len(passing), {})
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
    assert refusals(answer) == {"on": "EXPRESSION_ERROR"}
    assert {run["family_slug"]: run["input"] for run in await live.runs()} | {"order": 0} == {
        "order": 0,
        "plain": {},
        "same": None,
    }


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
