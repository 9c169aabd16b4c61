"""Events whose triggers cannot start a run (T3): each is told, none stops another, and all together are bounded."""

import asyncio
from typing import Any

import pytest

from ductord.model.starting import event_run_id
from ductord.signals import starting
from ductord.signals.starting import Starting
from tests.signals.live import Live, on, refusals, unreadable
from tests.signals.sender import Sender
from tests.signals.standing import Desk

DEAR = "EVENT.payload.all(a, EVENT.payload.all(b, EVENT.payload.all(c, a + b + c >= {})))"


async def test_t3_the_answer_has_an_end(sender: Sender, live: Live) -> None:
    """Of very many triggers that start no run a thousand are told: an answer of all would be too large for a client, when the event has been published."""
    await live.define(on("order.created", input_="${{ EVENT.payload.x.y }}"))
    await live.multiply(1_100)
    answer = await sender.publish("order.created")
    assert (len(answer.started_run_ids), len(answer.refused_triggers)) == (0, 1_000)


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
    assert refusals(answer) == expected
    assert next(t.definition_id for t in answer.refused_triggers if t.trigger_id == "future") == future
    assert all(0 < len(t.message) < 400 and "xxx" not in t.message for t in answer.refused_triggers)
    assert (list(answer.started_run_ids), answer.duplicate, await desk.events()) == ([], False, [])
    good = await live.define(on("paid", id_="good"), slug="e")
    waits = await desk.open()
    answer = await sender.publish(event_id="e", payload=payload)
    assert (refusals(answer), answer.matched) == (expected, 1)
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
    assert (answer.matched, refusals(answer)) == (
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
    assert list(refusals(answer).values()) == ["PAYLOAD_TOO_LARGE"] * 2
    assert len(answer.started_run_ids) == 6
