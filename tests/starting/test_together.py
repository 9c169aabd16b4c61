"""Everybody at once: two editors publish, somebody sets overrides, times fall due, events come in and people trigger, through two replicas of each service.

Every start is of one version, and what belongs to a version belongs together: number, manifest, input mapping, schema, values of VARS (IL-03, D3, L8, T2, T3).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import grpc
import orjson
from google.protobuf.json_format import ParseDict

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import schedule_service_pb2 as schedules
from ductor.workflow.v1 import schedule_service_pb2_grpc as schedules_grpc
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductord.definition.service import SERVICE as DEFINITION
from ductord.model.starting import event_run_id, fired_run_id, schedule_id
from ductord.signals.service import SERVICE as SIGNALS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.timetables import Timetables, at, drained, fires
from tests.definition.client import Definitions, message
from tests.support.books import TENANT, Books
from tests.support.edges import Edges, as_tenant, serving

MINUTES = 40
META = as_tenant(TENANT)
SERVICES = [DEFINITION, TRIGGER, SIGNALS]


def _definition(number: int) -> dict[str, Any]:
    """Its variable `v`, the mapping of its triggers and the schema of its input are of one number; `e` and `f` are overridden, and always as one."""
    both = {"v": "${{ VARS.v }}", "e": "${{ VARS.e }}", "f": "${{ VARS.f }}", "mapped": number}
    return {
        "family_slug": "order",
        "variables": {"v": number, "e": "none", "f": "none"},
        "input_schema": {"properties": {"v": {"const": number}, "mapped": {"const": number}}},
        "steps": [{"ref": "a", "type": "action", "action": "noop:noop", "args": {"v": "${{ VARS.v }}", "e": "${{ VARS.e }}"}}],
        "triggers": [
            {"id": "hand", "type": "manual"},
            {"id": "paid", "type": "event", "patterns": ["paid"], "filter": f"VARS.v == {number}", "input": both},
            {
                "id": "minutely",
                "type": "schedule",
                "schedule": {"cron_expression": "* * * * *", "overlap_policy": "allow_all", "catchup_window_ms": 7_200_000},
                "input": {**both, "at": "${{ TRIGGER.scheduled_time }}"},
            },
        ],
    }  # fmt: skip


async def _edit(definitions: Definitions, definition_id: str, number: int) -> None:
    """One edit and one publish; whoever comes second may be told so."""
    try:
        draft = await definitions.get(definition_id, view=pb.DEFINITION_VIEW_DRAFT)
        request = api.UpdateWorkflowDraftRequest(
            id=definition_id, expected_draft_revision=draft.draft_revision, payload_format=2  # type: ignore[arg-type]
        )  # fmt: skip
        request.operations.add().replace.definition.CopyFrom(message(_definition(number)))
        edited = await definitions.call("UpdateWorkflowDraft", request)
        await definitions.publish(definition_id, edited.data.draft_revision)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ABORTED:
            raise


async def _until(over: asyncio.Event, act: Callable[[int], Awaitable[None]]) -> int:
    count = 0
    while not over.is_set():
        await act(count)
        count += 1
    return count


async def test_il_03_every_start_is_of_one_version_and_never_of_a_mix(
    database: Database, books: Books, timetables: Timetables
) -> None:
    """IL-03 across publishes: see above. No time, no event and no start by hand fails because somebody published; each time and each event starts one run."""
    options = {"environment": "production", "pool_max_size": 4}
    async with (
        serving(database, SERVICES, **options) as one,
        serving(database, SERVICES, **options) as two,
    ):
        definitions = [Definitions(edges.channel, TENANT) for edges in (one, two)]
        draft = (await definitions[0].create(_definition(1))).data
        definition_id = draft.id
        await definitions[0].publish(definition_id, draft.draft_revision)
        over = asyncio.Event()
        tasks = [asyncio.create_task(_until(over, act)) for act in _acts(definitions, one, two, definition_id)]
        coordinators = [await asyncpg.connect(database.dsn("coordinator")) for _ in range(2)]
        firing = [fires(environment="production") for _ in coordinators]
        for minute in range(1, MINUTES + 1):
            await timetables.set(at("10:00:30") + timedelta(minutes=minute))
            pairs = zip(coordinators, firing, strict=True)
            turns = [drained(connection, with_) for connection, with_ in pairs]
            await asyncio.gather(*turns, *([_edit(definitions[0], definition_id, minute)] if minute % 3 == 0 else []))
        over.set()
        edits, overrides, events, same, *hands = await asyncio.gather(*tasks)
        await drained(coordinators[0], firing[0])  # a turn leaves a schedule alone that somebody holds
        for connection in coordinators:
            await connection.close()
    assert min(edits, overrides, events, same, *hands) > 1, "all of them were at it"
    await _one_of_each(books, definition_id, events)


def _acts(
    definitions: list[Definitions], one: Edges, two: Edges, definition_id: str
) -> list[Callable[[int], Awaitable[None]]]:
    """What goes on meanwhile: a second editor, overrides, an event stream through both doors, starts by hand, fires by hand."""
    schedule = schedule_id(definition_id, "minutely")
    clocks = schedules_grpc.ScheduleServiceStub(two.channel)

    async def override(count: int) -> None:
        if count % 4 == 3:
            await definitions[1].delete_override(definition_id, "production")
        else:
            await definitions[1].set_override(definition_id, "production", {"e": str(count), "f": str(count)})

    async def publish(edges: Edges, count: int) -> None:
        request = ParseDict(
            {"eventName": "paid", "correlationKey": "k", "eventId": f"e{count}", "payload": {}}, signals.PublishEventRequest()
        )  # fmt: skip
        answer = await edges.signals.PublishEvent(request, metadata=META, timeout=60)
        assert not answer.refused_triggers

    async def by_hand(count: int) -> None:
        await one.start(definition_id, idempotency_key=f"k{count // 3}")

    async def now(count: int) -> None:
        request = schedules.TriggerScheduleNowRequest(schedule_id=schedule, request_id=f"r{count // 2}")
        answer = await clocks.TriggerScheduleNow(request, metadata=META, timeout=60)
        assert answer.data.run_id

    return [
        lambda count: _edit(definitions[1], definition_id, 1_000 + count),
        override,
        lambda count: publish(one, count),
        lambda count: publish(two, count),
        by_hand,
        now,
    ]


async def _one_of_each(books: Books, definition_id: str, events: int) -> None:
    """What the rows must say, whoever came first."""
    rows = await books.owner.fetch(
        "select s.run_id::text, s.version, v.version as number, v.definition_id = s.definition_id as own, s.input::text, s.variables::text, s.environment,"
        " s.origin::text, v.manifest::text, s.idempotency_key from eec_workflow_run_start s left join eec_workflow_version v using (tenant_id, version_id)"
    )
    schedule = schedule_id(definition_id, "minutely")
    kinds: dict[str, set[str]] = {"event": set(), "schedule": set(), "by hand": set(), "manual": set()}
    for row in rows:
        manifest, given, overlay, origin = (
            orjson.loads(row[name]) for name in ("manifest", "input", "variables", "origin")
        )
        assert (row["version"], row["own"], row["environment"]) == (row["number"], True, "production")
        assert overlay.get("e") == overlay.get("f"), "an override is read whole"
        kind = "manual"
        if origin:
            number = manifest["variables"]["v"]
            overridden = overlay.get("e", "none")
            assert (given["v"], given["mapped"], given["e"], given["f"]) == (number, number, overridden, overridden)
            kind = "event" if "event" in origin else "schedule" if origin["nominal_time"][17:19] == "00" else "by hand"
        kinds[kind].add(row["run_id"])
    times = [at("10:01") + timedelta(minutes=n) for n in range(MINUTES)]
    assert kinds["schedule"] == {fired_run_id(schedule, time) for time in times}
    known = {event_run_id(definition_id, "paid", "paid", f"e{n}") for n in range(10 * events + 10_000)}
    assert kinds["event"] <= known
    assert len(kinds["event"]) >= events
    fired = await books.owner.fetch("select outcome, count(*) from eec_workflow_schedule_fire group by 1")
    assert dict(fired) == {"started": MINUTES + len(kinds["by hand"])}
    keys = [row["idempotency_key"] for row in rows if row["idempotency_key"]]
    assert len(keys) == len(set(keys)) == len(kinds["manual"])
    versions = await books.owner.fetchval("select count(*) from eec_workflow_version")
    assert len({row["version"] for row in rows}) > 3, f"of {versions} versions"
