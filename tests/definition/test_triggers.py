"""Triggers from a definition to the rows that start runs, through real gRPC on a real database (D3, T2, T3)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest

from ductord.db.pool import open_pool
from ductord.definition import drafts, versions
from ductord.definition.audit import Act
from ductord.definition.judging import Judge
from ductord.definition.service import SERVICE
from ductord.rpc.errors import refusal_from
from tests.conftest import Database
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows
from tests.definition.test_loading import booted
from tests.support.edges import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEDULES = "trigger_id, live, version_id::text, version, next_time is not null"
PATTERNS = "pattern, trigger_id, version_id::text, version"


def schedule(trigger_id: str, cron: str = "0 4 * * *", **fields: Any) -> dict[str, Any]:
    """A schedule trigger."""
    return {"id": trigger_id, "type": "schedule", "schedule": {"cron_expression": cron, **fields}}


def event(trigger_id: str, *patterns: str, **fields: Any) -> dict[str, Any]:
    """An event trigger."""
    return {"id": trigger_id, "type": "event", "patterns": list(patterns), **fields}


def starting(*triggers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The order definition with these triggers beside the manual one."""
    return order(triggers=[{"id": "by_hand", "type": "manual"}, *triggers], **fields)


async def live(rows: Rows) -> tuple[list[Any], list[Any]]:
    """Live schedules and patterns."""
    schedules = await rows.of("eec_workflow_schedule", SCHEDULES)
    return [row for row in schedules if row[1]], await rows.of("eec_workflow_event_trigger", PATTERNS)


async def test_rows_follow_the_newest_version(definitions: Definitions, rows: Rows) -> None:
    """D3: each publish replaces them, an edit of the draft changes nothing; a definition's own schedule has the id `schedule`."""
    draft = (
        await definitions.create(starting(event("paid", "order.paid"), schedule={"cron_expression": "0 4 * * *"}))
    ).data
    assert await live(rows) == ([], [])
    first = (await definitions.publish(draft.id)).published
    assert await live(rows) == ([("schedule", True, first.id, 1, True)], [("order.paid", "paid", first.id, 1)])
    await definitions.update(
        draft.id,
        2,
        {
            "setTriggers": {
                "triggers": [
                    {"id": "nightly", "type": "TRIGGER_TYPE_SCHEDULE", "schedule": {"cronExpression": "0 4 * * *"}}
                ]
            }
        },
    )
    assert (await live(rows))[0][0][2] == first.id
    second = (await definitions.publish(draft.id)).published
    assert await live(rows) == (
        [("nightly", True, second.id, 2, True), ("schedule", True, second.id, 2, True)],
        [],
    )
    await definitions.update(draft.id, 4, {"setSettings": {"clearFields": ["schedule"]}})
    await definitions.publish(draft.id)
    assert await rows.of("eec_workflow_schedule", "trigger_id, live, version") == [
        ("nightly", True, 3),
        ("schedule", False, 2),
    ]


async def test_archiving_the_newest_version_retires_and_an_older_one_does_not(
    definitions: Definitions, rows: Rows
) -> None:
    """D3: no older version moves up; the next publish brings all back."""
    draft = (await definitions.create(starting(event("paid", "order.paid"), schedule("nightly")))).data
    first = (await definitions.publish(draft.id)).published
    second = (await definitions.publish(draft.id)).published
    at_second = ([("nightly", True, second.id, 2, True)], [("order.paid", "paid", second.id, 2)])
    assert await live(rows) == at_second
    await definitions.archive(first.id)
    assert await live(rows) == at_second
    await definitions.archive(draft.id)
    assert await live(rows) == ([], [])
    assert await rows.of("eec_workflow_schedule", SCHEDULES) == [("nightly", False, second.id, 2, False)]
    third = (await definitions.publish(draft.id)).published
    assert await live(rows) == (
        [("nightly", True, third.id, 3, True)],
        [("order.paid", "paid", third.id, 3)],
    )


async def test_a_publish_that_is_refused_changes_no_row(definitions: Definitions, rows: Rows) -> None:
    """One bad trigger: nothing of the definition is published, and what was live stays so."""
    draft = (await definitions.create(starting(schedule("nightly")))).data
    await definitions.publish(draft.id)
    before = await live(rows)
    bad = {
        "id": "x",
        "type": "TRIGGER_TYPE_SCHEDULE",
        "schedule": {"cronExpression": "61 * * * *", "timezone": "Mars/Base"},
    }
    answer = await definitions.update(draft.id, 2, {"setTriggers": {"triggers": [bad]}})
    assert {w.code for w in answer.warnings} == {"CRON_INVALID", "UNKNOWN_TIME_ZONE"}
    refusal = await refused(definitions.publish(draft.id))
    assert refusal.reason == "DEFINITION_INVALID"
    assert {v.code for v in refusal.violations} == {"CRON_INVALID", "UNKNOWN_TIME_ZONE"}
    assert await live(rows) == before


async def test_wildcards_are_refused_where_they_are_off(definitions: Definitions, rows: Rows) -> None:
    """T3: a draft may have them, with a warning; a validation tells the place, a publish is refused with a reason of its own."""
    definition = starting(event("e", "order.paid", "order.*"))
    answer = await definitions.create(definition)
    path = "triggers[1].patterns[1]"
    assert [(w.code, w.path) for w in answer.warnings] == [("WILDCARDS_DISABLED", path)]
    refusal = await refused(definitions.publish(answer.data.id))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "WILDCARDS_DISABLED")
    assert refusal.metadata == {"field": path, "pattern": "order.*"}
    assert "DUCTOR_EVENTS_WILDCARDS_ENABLED" in refusal.message
    assert [(v.code, v.path) for v in refusal.violations] == [("WILDCARDS_DISABLED", path)]
    text = json.dumps({"type": "workflow_definition", "definition": definition}, indent=1)
    (violation,) = (await definitions.validate(document=text)).violations
    assert (violation.code, violation.path) == ("WILDCARDS_DISABLED", path)
    assert text.splitlines()[violation.line - 1][violation.column - 1 :] == '"order.*"'
    worse = await definitions.update(answer.data.id, 1, {"removeStep": {"ref": "pay"}})
    assert "WILDCARDS_DISABLED" in [w.code for w in worse.warnings]
    assert (await refused(definitions.publish(answer.data.id))).reason == "DEFINITION_INVALID"
    assert await rows.versions("version") == []


async def test_wildcards_are_published_where_they_are_on(module_database: Database, rows: Rows) -> None:
    """T3: `ductor.events.wildcards.enabled`."""
    async with serving(module_database, [SERVICE], events_wildcards_enabled=True) as running:
        definitions = Definitions(running.channel, rows.tenant)
        answer = await definitions.create(starting(event("e", "order.*", "order.paid")))
        assert not answer.warnings
        version = (await definitions.publish(answer.data.id)).published
    assert (await live(rows))[1] == [("order.*", "e", version.id, 1), ("order.paid", "e", version.id, 1)]


async def test_publishes_and_archives_at_once_leave_the_rows_of_the_newest_version(
    definitions: Definitions, rows: Rows
) -> None:
    """D3 under races: whatever was last, rows and versions say the same."""
    draft = (await definitions.create(starting(event("e", "order.paid"), schedule("s")))).data
    await definitions.publish(draft.id)

    codes: set[str] = set()

    async def tried(call: Any) -> None:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            codes.add(refusal_from(error).code)

    async def renamed(number: int) -> None:
        revision = (await definitions.get(draft.id)).draft_revision
        triggers = [
            {"id": f"s{number}", "type": "TRIGGER_TYPE_SCHEDULE", "schedule": {"cronExpression": "0 4 * * *"}},
            {"id": "e", "type": "TRIGGER_TYPE_EVENT", "patterns": [f"order.p{number}"]},
        ]
        await definitions.update(draft.id, revision, {"setTriggers": {"triggers": triggers}})

    for round_ in range(6):
        calls: list[Any] = [definitions.archive(draft.id) for _ in range(round_ % 3)]
        calls += [definitions.publish(draft.id) for _ in range(3)]
        await asyncio.gather(*map(tried, [*calls, renamed(round_), renamed(round_ + 10)]))
        assert codes <= {"ABORTED", "FAILED_PRECONDITION"}
        number, version_id, status, triggers = (
            await rows.versions("version, version_id::text, status, document->>'triggers'")
        )[-1]
        schedules, patterns = await live(rows)
        if status == "archived":
            assert (schedules, patterns) == ([], [])
            continue
        by_type = {one["type"]: one for one in json.loads(triggers)}
        assert schedules == [(by_type["schedule"]["id"], True, version_id, number, True)]
        assert patterns == [(by_type["event"]["patterns"][0], "e", version_id, number)]


@pytest.mark.parametrize("broken", ["before", "after"])
async def test_a_publish_whose_commit_was_lost_is_done_once(
    module_database: Database, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """PG-01: version, rows and audit line are one; an archiving of what a definition id meant takes no other version."""
    pool = await open_pool(module_database.dsn("definition"), "definition")
    owner = await asyncpg.connect(module_database.owner)
    judge = Judge(max_bytes=1 << 20, wildcards=False)
    tenant = f"lost-publish-{broken}"
    definition_id = (await drafts.create(pool, tenant, starting(event("e", "x.y"), schedule("s")))).definition_id
    attempts = 0
    execute = asyncpg.Connection.execute

    async def losing(connection: asyncpg.Connection, query: str, *args: Any, **options: Any) -> Any:
        nonlocal attempts
        if not query.endswith("commit") or "insert" in query:
            return await execute(connection, query, *args, **options)
        attempts += 1
        if attempts != 2:  # the first reads the draft
            return await execute(connection, query)
        await execute(connection, query if broken == "after" else "rollback")
        raise ConnectionResetError("the answer to COMMIT never came")

    monkeypatch.setattr(asyncpg.Connection, "execute", losing)
    try:
        act = Act(audit_id=definition_id, actor="eve", reason="", request_id="r")
        published = await versions.publish(pool, tenant, definition_id, None, act, judge)
        assert attempts == 3
        assert published.version.version == 1
        for table, expected in (("version", 1), ("schedule", 1), ("event_trigger", 1), ("audit", 1)):
            count = await owner.fetchval(f"select count(*) from eec_workflow_{table} where tenant_id = $1", tenant)
            assert (table, count) == (table, expected)
    finally:
        await judge.close()
        await pool.close()
        await owner.close()


async def test_an_archiving_whose_commit_was_lost_takes_no_later_version(
    module_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PG-01: it was done, nobody heard, and a version was published before it was tried again."""
    pool = await open_pool(module_database.dsn("definition"), "definition")
    owner = await asyncpg.connect(module_database.owner)
    judge = Judge(max_bytes=1 << 20, wildcards=False)
    tenant = "lost-archive"
    definition_id = (await drafts.create(pool, tenant, starting(schedule("s")))).definition_id

    def act(number: int) -> Act:
        return Act(audit_id=f"01234567-89ab-7def-8123-456789abcde{number}", actor="eve", reason="", request_id="r")

    await versions.publish(pool, tenant, definition_id, None, act(1), judge)
    lost = False
    execute = asyncpg.Connection.execute

    async def losing(connection: asyncpg.Connection, query: str, *args: Any, **options: Any) -> Any:
        nonlocal lost
        result = await execute(connection, query, *args, **options)
        if query.endswith("commit") and not lost:
            lost = True
            await versions.publish(pool, tenant, definition_id, None, act(2), judge)
            raise ConnectionResetError("the answer to COMMIT never came")
        return result

    monkeypatch.setattr(asyncpg.Connection, "execute", losing)
    try:
        archived = await versions.archive(pool, tenant, definition_id, act(3))
        assert (archived.version, archived.status) == (1, "archived")
        found = await owner.fetch(
            "select version, status from eec_workflow_version where tenant_id = $1 order by 1", tenant
        )
        assert [tuple(row) for row in found] == [(1, "archived"), (2, "published")]
        alive = await owner.fetch("select version, live from eec_workflow_schedule where tenant_id = $1", tenant)
        assert [tuple(row) for row in alive] == [(2, True)]
    finally:
        await judge.close()
        await pool.close()
        await owner.close()


async def test_a_directory_brings_its_triggers_at_boot(module_database: Database, rows: Rows, tmp_path: Path) -> None:
    """D5: what a directory publishes goes the same way, and what is unchanged is left as it stands, with its pause."""
    definition = starting(event("e", "order.paid"), schedule("nightly", timezone="Asia/Kolkata"))
    (tmp_path / "order.json").write_text(json.dumps({"type": "workflow_definition", "definition": definition}))
    for _ in range(2):
        async with booted(module_database, tmp_path, rows.tenant):
            found = await rows.of("eec_workflow_schedule", "version, live, pause_time is not null")
        await rows.owner.execute(
            "update eec_workflow_schedule set pause_time = eec_now(), next_time = null where tenant_id = $1",
            rows.tenant,
        )
    assert found == [(1, True, True)]
    assert [row[:2] for row in (await live(rows))[1]] == [("order.paid", "e")]
