"""Environment overrides: set, listed, removed, refused (L8), through real gRPC on a real database."""

import json
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.db.pool import open_pool
from ductord.definition import drafts, overrides
from ductord.definition.audit import Act
from tests.conftest import Database
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows
from tests.definition.test_conflicts import settled

pytestmark = pytest.mark.asyncio(loop_scope="module")

COLUMNS = "environment, variables::text, updated_by"
RANDOM = "01234567-89ab-7def-8123-456789abcdef"


async def test_an_override_is_replaced_whole(definitions: Definitions, rows: Rows) -> None:
    """L8: what is left out has its default again; a definition id and a version id name the same family."""
    draft = (await definitions.create()).data
    version = (await definitions.publish(draft.id)).published
    first = await definitions.set_override(draft.id, "prod", {"limit": 5, "rate": 0.5})
    assert (first.environment, first.variables_json, first.updated_by) == (
        "prod",
        '{"limit":5,"rate":0.5}',
        "anonymous",
    )
    second = await definitions.set_override(version.id, "prod", {"limit": None}, reason="as it was")
    assert second.variables_json == '{"limit":null}'
    assert second.update_time.ToMicroseconds() >= first.update_time.ToMicroseconds()
    await definitions.set_override(draft.id, "dev", {})
    assert await rows.of("eec_workflow_env_override", COLUMNS) == [
        ("dev", "{}", "anonymous"),
        ("prod", '{"limit":null}', "anonymous"),
    ]
    listed = await definitions.overrides(version.id)
    assert [(one.environment, one.variables_json) for one in listed.data] == [("dev", "{}"), ("prod", '{"limit":null}')]
    assert listed.data[1] == second
    assert listed.metadata.request_id


async def test_removing_brings_the_defaults_back(definitions: Definitions, rows: Rows) -> None:
    """The environment has no override then, and a second removal says so."""
    draft = (await definitions.create()).data
    await definitions.set_override(draft.id, "prod", {"limit": 5})
    await definitions.delete_override(draft.id, "prod", reason="not needed")
    assert not (await definitions.overrides(draft.id)).data
    refusal = await refused(definitions.delete_override(draft.id, "prod"))
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "ENV_OVERRIDE_NOT_FOUND")
    assert refusal.metadata == {"environment": "prod"}
    assert await rows.of("eec_workflow_env_override") == []


async def test_who_changed_what_and_why_is_written_down_and_the_values_are_not(
    definitions: Definitions, rows: Rows
) -> None:
    """C8; values may be secret."""
    draft = (await definitions.create()).data
    await definitions.set_override(draft.id, "prod", {"limit": "s3cret"}, reason="rotate")
    await definitions.delete_override(draft.id, "prod", reason="gone")
    set_, gone = await rows.audit("actor, action, target, reason, outcome, detail::text")
    assert set_[:5] == ("anonymous", "set_env_override", f"definition:{draft.id}", "rotate", "applied")
    assert json.loads(set_[5]) == {"family_slug": "order", "environment": "prod", "variables": "limit"}
    assert gone[:5] == ("anonymous", "delete_env_override", f"definition:{draft.id}", "gone", "applied")
    assert json.loads(gone[5]) == {"family_slug": "order", "environment": "prod"}


async def test_payloads_come_either_way_and_stay_exact(definitions: Definitions) -> None:
    """L5, L6: the twins; any JSON is a value; an integer that a Struct would round is answered as text."""
    draft = (await definitions.create()).data
    request = api.UpsertWorkflowEnvOverrideRequest(workflow_id=draft.id, environment="prod")
    request.variables.update({"limit": 5.0, "rate": {"a": [1, None, "x"]}})
    told = (await definitions.call("UpsertWorkflowEnvOverride", request)).data
    assert dict(told.variables)["limit"] == 5
    assert (await definitions.overrides(draft.id)).data[0].variables_json == '{"limit":5,"rate":{"a":[1,null,"x"]}}'
    exact = await definitions.set_override(draft.id, "prod", {"limit": 9007199254740993}, payload_format=1)
    assert (exact.variables_json, exact.HasField("variables")) == ('{"limit":9007199254740993}', False)
    both = api.UpsertWorkflowEnvOverrideRequest(workflow_id=draft.id, environment="prod", variables_json="{}")
    both.variables.update({})
    both.variables.SetInParent()
    assert (await refused(definitions.call("UpsertWorkflowEnvOverride", both))).reason == "FIELDS_EXCLUSIVE"


async def test_names_are_those_of_the_draft_and_of_the_newest_version(definitions: Definitions, rows: Rows) -> None:
    """Declared by either; one of an older version is gone. An override that is there already stays."""
    draft = (await definitions.create(order(variables={"a": 1, "b": 1}))).data
    await definitions.publish(draft.id)
    await definitions.set_override(draft.id, "prod", {"a": 2, "b": 2})
    await definitions.update(draft.id, 2, {"setVariables": {"variables": {"a": 1, "c": 1}}})
    await definitions.set_override(draft.id, "prod", {"a": 3, "b": 3, "c": 3})
    await definitions.publish(draft.id)
    refusal = await refused(definitions.set_override(draft.id, "prod", {"b": 4}))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "VARIABLE_UNKNOWN")
    assert await rows.of("eec_workflow_env_override", "variables::text") == ['{"a":3,"b":3,"c":3}']
    await definitions.delete_draft(draft.id)
    await definitions.set_override(draft.id, "prod", {"c": 4})
    await definitions.archive(draft.id)
    await definitions.set_override(draft.id, "prod", {"c": 5})


async def test_an_unknown_name_is_told_with_the_nearest(definitions: Definitions) -> None:
    """All of them as violations; reason and metadata are the first's."""
    draft = (await definitions.create()).data
    refusal = await refused(definitions.set_override(draft.id, "prod", {"limt": 1, "rate": 1, "a b": 1}))
    assert refusal.metadata == {"field": "variables.limt", "variable": "limt"}
    assert "did you mean `limit`?" in refusal.message
    assert [(v.code, v.path) for v in refusal.violations] == [
        ("VARIABLE_UNKNOWN", "variables.limt"),
        ("VARIABLE_UNKNOWN", 'variables["a b"]'),
    ]
    bare = (await definitions.create({"family_slug": "bare"})).data
    assert (await refused(definitions.set_override(bare.id, "prod", {"x": 1}))).reason == "VARIABLE_UNKNOWN"
    assert (await definitions.set_override(bare.id, "prod", {})).variables_json == "{}"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no environment": ({"environment": ""}, "FIELD_REQUIRED", "environment"),
    "upper case": ({"environment": "Prod"}, "FIELD_INVALID", "environment"),
    "a long name": ({"environment": "a" * 65}, "FIELD_INVALID", "environment"),
    "a line break": ({"environment": "prod\n"}, "FIELD_INVALID", "environment"),
    "a slash": ({"environment": "a/b"}, "FIELD_INVALID", "environment"),
    "no workflow": ({"workflow_id": ""}, "FIELD_REQUIRED", "workflow_id"),
    "no values": ({"variables_json": None}, "FIELD_REQUIRED", "variables"),
    "a list": ({"variables_json": "[1]"}, "FIELD_INVALID", "variables_json"),
    "null": ({"variables_json": "null"}, "FIELD_INVALID", "variables_json"),
    "no JSON": ({"variables_json": "{limit: 1}"}, "PAYLOAD_INVALID", "variables_json"),
    "a key twice": ({"variables_json": '{"limit":1,"limit":2}'}, "PAYLOAD_INVALID", "variables_json"),
    "a NUL": ({"variables_json": '{"limit":"\\u0000"}'}, "PAYLOAD_INVALID", "variables_json"),
    "too deep": ({"variables_json": '{"limit":' + "[" * 200 + "]" * 200 + "}"}, "PAYLOAD_INVALID", "variables_json"),
    "too large": ({"variables_json": '{"limit":"' + "x" * (1 << 20) + '"}'}, "PAYLOAD_TOO_LARGE", "variables_json"),
    "a long reason": ({"reason": "x" * 1_001}, "FIELD_INVALID", "reason"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_overrides_are_refused_and_nothing_is_written(
    nothing_written: str, definitions: Definitions, case: str
) -> None:
    """Each with its field; PG-09: what Postgres could not hold is refused at the door."""
    fields, reason, field = BAD[case]
    good = {"workflow_id": nothing_written, "environment": "prod", "variables_json": '{"limit": 1}'}
    refusal = await refused(
        definitions.call("UpsertWorkflowEnvOverride", api.UpsertWorkflowEnvOverrideRequest(**(good | fields)))
    )
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason)
    assert refusal.metadata["field"].startswith(field)
    if "environment" in fields or "workflow_id" in fields:
        removal = api.DeleteWorkflowEnvOverrideRequest(workflow_id=nothing_written, environment="prod")
        for name, value in fields.items():
            setattr(removal, name, value)
        assert (await refused(definitions.call("DeleteWorkflowEnvOverride", removal))).reason == reason


@pytest.mark.parametrize("any_id", [RANDOM, "order", "'", "x" * 5_000])
async def test_ids_that_are_none(definitions: Definitions, any_id: str) -> None:
    """D1: overrides take ids; what is none is not found."""
    await definitions.create()
    for call in (
        definitions.set_override(any_id, "prod", {}),
        definitions.overrides(any_id),
        definitions.delete_override(any_id, "prod"),
    ):
        assert (await refused(call)).reason == "DEFINITION_NOT_FOUND"


async def test_pages_by_environment(definitions: Definitions) -> None:
    """Keyset pages; a token belongs to its list; PL-06: a page ends where the reply would be too large, and nothing is lost."""
    draft = (await definitions.create()).data
    names = [f"env-{number:02}" for number in range(7)]
    for number, name in enumerate(reversed(names)):
        await definitions.set_override(draft.id, name, {"limit": "x" * 900_000 if number < 5 else number})
    seen: list[str] = []
    token, sizes = "", []
    while True:
        page = await definitions.overrides(draft.id, page_token=token, page_size=6)
        sizes.append(len(page.data))
        seen += [one.environment for one in page.data]
        assert all(one.variables_json for one in page.data)
        token = page.next_page_token
        if not token:
            break
    assert seen == names
    assert sizes == [5, 2]
    first = await definitions.overrides(draft.id, page_size=2)
    assert [one.environment for one in first.data] == names[:2]
    other = (await definitions.create({"family_slug": "other"})).data
    for bad in ({"page_size": 1_001}, {"page_size": -1}):
        assert (await refused(definitions.overrides(draft.id, **bad))).reason == "FIELD_INVALID"
    for workflow, bad_token in ((other.id, first.next_page_token), (draft.id, "abc"), (draft.id, "é")):
        refusal = await refused(definitions.overrides(workflow, page_token=bad_token))
        assert refusal.reason == "PAGE_TOKEN_INVALID"


async def test_edits_publishes_and_overrides_at_once(definitions: Definitions, rows: Rows) -> None:
    """Whatever order they come in, one override is left, whole, and every audit line is of one that was applied."""
    draft = (await definitions.create()).data
    calls = [definitions.set_override(draft.id, "prod", {"limit": n, "rate": n}) for n in range(8)]
    answers, refusals = await settled(
        [*calls, definitions.publish(draft.id), definitions.delete_override(draft.id, "prod")]
    )
    assert {r.reason for r in refusals} <= {"ENV_OVERRIDE_NOT_FOUND"}
    kept = await rows.of("eec_workflow_env_override", "variables::text")
    assert kept in [[], *[[f'{{"limit":{n},"rate":{n}}}'] for n in range(8)]]
    actions = await rows.audit("action")
    assert actions.count("set_env_override") == 8
    assert len(actions) == len(answers)


@pytest.mark.parametrize("broken", ["before", "after"])
@pytest.mark.parametrize("act", ["set", "delete"])
async def test_a_change_whose_commit_was_lost_is_done_and_told_once(
    module_database: Database, monkeypatch: pytest.MonkeyPatch, broken: str, act: str
) -> None:
    """PG-01: the repeated work is the same work, and has one line in the audit trail."""
    pool = await open_pool(module_database.dsn("definition"), "definition")
    owner = await asyncpg.connect(module_database.owner)
    tenant = f"lost-{act}-{broken}"
    definition_id = (await drafts.create(pool, tenant, order())).definition_id
    upsert = api.UpsertWorkflowEnvOverrideRequest(
        workflow_id=definition_id, environment="prod", variables_json='{"limit":1}'
    )
    who = Act(audit_id="01234567-89ab-7def-8123-456789abcde0", actor="eve", reason="", request_id="r")
    if act == "delete":
        first = Act(audit_id="01234567-89ab-7def-8123-456789abcde1", actor="eve", reason="", request_id="r")
        await overrides.upsert(pool, tenant, upsert, first, max_bytes=1_000)
    attempts = 0
    execute = asyncpg.Connection.execute

    async def losing(connection: asyncpg.Connection, query: str, *args: Any, **options: Any) -> Any:
        nonlocal attempts
        if not query.endswith("commit"):
            return await execute(connection, query, *args, **options)
        attempts += 1
        if attempts > 1:
            return await execute(connection, query)
        await execute(connection, query if broken == "after" else "rollback")
        raise ConnectionResetError("the answer to COMMIT never came")

    monkeypatch.setattr(asyncpg.Connection, "execute", losing)
    try:
        if act == "set":
            override, _ = await overrides.upsert(pool, tenant, upsert, who, max_bytes=1_000)
            assert override.variables == '{"limit":1}'
        else:
            request = api.DeleteWorkflowEnvOverrideRequest(workflow_id=definition_id, environment="prod")
            await overrides.delete(pool, tenant, request, who)
        assert attempts == 2
        count = "select count(*) from {} where tenant_id = $1"
        assert await owner.fetchval(count.format("eec_workflow_env_override"), tenant) == (act == "set")
        lines = f"{count.format('eec_workflow_audit')} and audit_id = $2"
        assert await owner.fetchval(lines, tenant, who.audit_id) == 1
    finally:
        await pool.close()
        await owner.close()
