"""TriggerWorkflow: what an id stands for, what is accepted, what is written; with no coordinator anywhere (architecture: edges never write a run)."""

import json
from typing import Any

import asyncpg
import msgspec
from google.protobuf import json_format, struct_pb2

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.db.ids import new_id
from tests.conftest import Database
from tests.support.books import TENANT, chain
from tests.support.edges import Catalogue, Edges, refusal

Label = common_pb2.CorrelationLabel


async def test_a_start_is_a_start_row_and_a_wake_up(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """`accepted` means that the row is committed: identity, resolved version, subject, labels, input, trace context; and nothing of a run's state."""
    definition_id = await catalogue.published(slug="orders")
    answer = await edges.start(
        definition_id,
        subject_type="lead",
        subject_id="lead-1",
        input_json='{"a": [1, 2.5, "x"]}',
        correlation_labels=[Label(key="order", id="o:1"), Label(key="a.b_c-d", id=" 2 ")],
        tier=common_pb2.TIER_CRITICAL,
    )
    assert answer.status == run_pb2.RUN_STATUS_PENDING
    assert not answer.duplicate
    row = await owner.fetchrow("select *, input::text as text, labels::text as label_text from eec_workflow_run_start")
    assert str(row["run_id"]) == answer.run_id == str(row["root_run_id"]) == str(row["journey_id"])
    assert (row["tenant_id"], row["family_slug"], row["version"], row["tier"]) == (TENANT, "chain", 1, "critical")
    assert (str(row["definition_id"]), str(row["given_definition_id"])) == (definition_id, definition_id)
    assert (row["subject_type"], row["subject_id"], row["nesting_depth"], row["parent_run_id"]) == (
        "lead",
        "lead-1",
        0,
        None,
    )
    assert row["text"] == '{"a":[1,2.5,"x"]}'
    assert json.loads(row["label_text"]) == {"order": "o:1", "a.b_c-d": " 2 "}
    assert row["traceparent"].split("-")[1] == answer.metadata.trace_id
    assert row["idempotency_key"] is None
    assert row["actor"] == "anonymous", "who started it (E2), with authentication off nobody by name"
    labels = await owner.fetch("select label, run_id::text, create_time from eec_workflow_run_label order by label")
    assert [r["label"] for r in labels] == ["a.b_c-d: 2 ", "order:o:1"]
    assert {(r["run_id"], r["create_time"]) for r in labels} == {(answer.run_id, row["create_time"])}
    assert [str(r["run_id"]) for r in await owner.fetch("select run_id from eec_workflow_wakeup")] == [answer.run_id]
    assert await owner.fetchval("select count(*) from eec_workflow_run") == 0


async def test_no_input_is_an_empty_object_and_null_stays_null(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """PL-07: an absent input is `{}`; a given null is null."""
    definition_id = await catalogue.published()
    for fields, text in (
        ({}, "{}"),
        ({"input_json": "null"}, "null"),
        ({"input": struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)}, "null"),
    ):
        answer = await edges.start(definition_id, **fields)
        assert (
            await owner.fetchval("select input::text from eec_workflow_run_start where run_id = $1", answer.run_id)
            == text
        )


async def test_d1_current_version_and_pinned_version(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """D1: the definition id means the newest version from the moment it is published; a version id pins."""
    definition_id = await catalogue.define("orders")
    first = await catalogue.publish(definition_id, chain(1))
    started = [await edges.start(definition_id)]
    second = await catalogue.publish(definition_id, chain(2))
    started += [await edges.start(definition_id), await edges.start(first.upper())]
    versions = [
        await owner.fetchval("select version_id::text from eec_workflow_run_start where run_id = $1", s.run_id)
        for s in started
    ]
    assert versions == [first, second, first]


async def test_d1_d3_what_may_not_be_started(edges: Edges, catalogue: Catalogue) -> None:
    """D1, D3: an unpublished definition, an archived version, and an archived newest version, which never revives an older one."""
    draft_only = await catalogue.define("draft")
    answer = await refusal(edges.start(draft_only))
    assert (answer.code, answer.reason, answer.metadata) == (
        "FAILED_PRECONDITION",
        "DEFINITION_NOT_PUBLISHED",
        {"definition_id": draft_only},
    )
    definition_id = await catalogue.define("orders")
    first = await catalogue.publish(definition_id, chain(1))
    second = await catalogue.publish(definition_id, chain(1))
    await catalogue.archive(second)
    for given in (definition_id, second):
        answer = await refusal(edges.start(given))
        assert (answer.code, answer.reason) == ("FAILED_PRECONDITION", "DEFINITION_ARCHIVED")
        assert answer.metadata == {"definition_id": definition_id, "version": "2"}
    assert (await edges.start(first)).run_id
    await catalogue.archive(first)
    assert (await refusal(edges.start(first))).reason == "DEFINITION_ARCHIVED"


async def test_d4_a_definition_with_other_triggers_only(edges: Edges, catalogue: Catalogue) -> None:
    """D4: triggers declared, none of them manual."""
    definition_id = await catalogue.published(msgspec.structs.replace(chain(1), manual_start=False))
    answer = await refusal(edges.start(definition_id))
    assert (answer.code, answer.reason) == ("FAILED_PRECONDITION", "MANUAL_TRIGGER_NOT_ALLOWED")


async def test_unknown_ids_all_look_alike(edges: Edges, catalogue: Catalogue) -> None:
    """TN-01, N1: a foreign id, a random one and a text that is none get one answer."""
    foreign = await catalogue.published(slug="theirs", tenant="other")
    version = next(iter(catalogue.manifests))
    answers = [
        await refusal(edges.start(given)) for given in (foreign, version, new_id(), "nonsense", f"{{{foreign}}}")
    ]
    answers.append(await refusal(edges.batch(foreign, [triggers.BatchTriggerItem()])))
    assert {(a.code, a.reason, a.message, str(a.metadata)) for a in answers} == {
        ("NOT_FOUND", "DEFINITION_NOT_FOUND", "there is no such definition or version", "{}")
    }
    assert (await refusal(edges.start(""))).reason == "FIELD_REQUIRED"


SCHEMA = {
    "type": "object",
    "required": ["email"],
    "properties": {"email": {"type": "string", "pattern": "^[^@]+@"}, "n": {"type": "integer"}},
}


async def test_the_input_meets_the_schema(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """`input_schema`: the path and the rule are named, the value is not; nothing is written."""
    definition_id = await catalogue.published(msgspec.structs.replace(chain(1), input_schema=SCHEMA))
    assert (await edges.start(definition_id, input_json='{"email": "a@b", "n": 5.0}')).run_id
    answer = await refusal(edges.start(definition_id, input_json='{"email": "topsecret", "n": "topsecret"}'))
    assert (answer.code, answer.reason) == ("INVALID_ARGUMENT", "INPUT_SCHEMA_MISMATCH")
    assert answer.metadata["field"] == "input"
    assert {v.path for v in answer.violations} == {"input.email", "input.n"}
    assert "topsecret" not in str([answer.message, answer.violations, answer.metadata])
    assert (await refusal(edges.start(definition_id))).metadata["path"] == "input"
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 1


# fmt: off
REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"external_deployment_id": "é" * 65}, "FIELD_INVALID", "external_deployment_id"),
    ({"idempotency_key": "k" * 257}, "FIELD_INVALID", "idempotency_key"),
    ({"idempotency_key": "é" * 129}, "FIELD_INVALID", "idempotency_key"),
    ({"idempotency_key": "a\0b"}, "FIELD_INVALID", "idempotency_key"),
    ({"subject_type": "s" * 257}, "FIELD_INVALID", "subject_type"),
    ({"subject_id": "s" * 3000}, "FIELD_INVALID", "subject_id"),
    ({"subject_id": "\0"}, "FIELD_INVALID", "subject_id"),
    ({"tier": 77}, "FIELD_INVALID", "tier"),
    ({"input_json": '{"a": "x\\u0000y"}'}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": '{"a": NaN}'}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": '{"a": 1e999}'}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": '{"big": 18446744073709551616}'}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": '{"a": 1, "a": 2}'}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": "[" * 33 + "]" * 33}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": "{"}, "PAYLOAD_INVALID", "input_json"),
    ({"input_json": '"' + "x" * (1 << 20) + '"'}, "PAYLOAD_TOO_LARGE", "input_json"),
    ({"input": struct_pb2.Value(number_value=float("nan"))}, "PAYLOAD_INVALID", "input"),
    ({"input": struct_pb2.Value(number_value=9007199254740992.0)}, "PAYLOAD_INVALID", "input"),
    ({"input": struct_pb2.Value(string_value="\0")}, "PAYLOAD_INVALID", "input"),
    ({"input": struct_pb2.Value(bool_value=True), "input_json": "true"}, "FIELDS_EXCLUSIVE", "input"),
    ({"correlation_labels": [Label(key="k", id="1")] * 2}, "FIELD_DUPLICATE", "correlation_labels[1].key"),
    ({"correlation_labels": [Label(key=f"k{i}", id="1") for i in range(9)]}, "BATCH_TOO_LARGE", "correlation_labels"),
    ({"correlation_labels": [Label(key="", id="1")]}, "FIELD_INVALID", "correlation_labels[0].key"),
    ({"correlation_labels": [Label(key="K", id="1")]}, "FIELD_INVALID", "correlation_labels[0].key"),
    ({"correlation_labels": [Label(key="k" * 65, id="1")]}, "FIELD_INVALID", "correlation_labels[0].key"),
    ({"correlation_labels": [Label(key="ductor.correlation.x", id="1")]}, "FIELD_INVALID", "correlation_labels[0].key"),
    ({"correlation_labels": [Label(key="k", id="")]}, "FIELD_INVALID", "correlation_labels[0].id"),
    ({"correlation_labels": [Label(key="k", id="é" * 65)]}, "FIELD_INVALID", "correlation_labels[0].id"),
    ({"correlation_labels": [Label(key="k", id="a\0")]}, "FIELD_INVALID", "correlation_labels[0].id"),
    ({"checkpoint_timeout_seconds": 301}, "FIELD_INVALID", "checkpoint_timeout_seconds"),
    ({"checkpoint_timeout_seconds": 10**9}, "FIELD_INVALID", "checkpoint_timeout_seconds"),
    ({"checkpoint_timeout_seconds": -1}, "FIELD_INVALID", "checkpoint_timeout_seconds"),
    ({"checkpoint": "c"}, "FIELD_INVALID", "checkpoint"),
    ({"wait_for_checkpoint": True}, "CHECKPOINT_UNKNOWN", None),
]
# fmt: on


async def test_what_a_start_may_not_say(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """PL-01, PL-03, PL-04, PG-09, L5, L6, L7, T5, AP-06: a coded error that names the field, and nothing written."""
    definition_id = await catalogue.published()
    for fields, reason, field in REFUSED:
        answer = await refusal(edges.start(definition_id, **fields))
        code = "UNIMPLEMENTED" if reason == "FEATURE_NOT_SUPPORTED" else "INVALID_ARGUMENT"
        assert (answer.code, answer.reason, answer.metadata.get("field")) == (code, reason, field), fields
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 0


async def test_pl03_int64_is_exact_through_the_text_door(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """PL-03, L5: the digits of a 64-bit integer reach the row; 5.0 is 5 through either door."""
    definition_id = await catalogue.published()
    text = await edges.start(
        definition_id, input_json='{"id": 9007199254740993, "min": -9223372036854775808, "f": 5.0}'
    )
    struct = struct_pb2.Value()
    json_format.ParseDict({"f": 5.0, "g": 0.1}, struct)
    value = await edges.start(definition_id, input=struct)
    stored = {
        r["run_id"]: r["input"]
        for r in await owner.fetch("select run_id::text, input::text from eec_workflow_run_start")
    }
    assert stored[text.run_id] == '{"id":9007199254740993,"min":-9223372036854775808,"f":5}'
    assert json.loads(stored[value.run_id]) == {"f": 5, "g": 0.1}


async def test_pg09_keys_at_the_limit(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """PG-09: 1, 128 and 256 bytes, blanks at the ends; taken as they are, without trimming. The empty key is no key."""
    definition_id = await catalogue.published()
    keys = ["k", "x" * 128, "é" * 128, " a ", "a", "\U0001f600" * 64]
    runs = {key: (await edges.start(definition_id, idempotency_key=key)).run_id for key in keys}
    assert len(set(runs.values())) == len(keys)
    for key in keys:
        assert (await edges.start(definition_id, idempotency_key=key)).run_id == runs[key]
    assert len({(await edges.start(definition_id)).run_id for _ in range(3)}) == 3
    assert await owner.fetchval("select count(*) from eec_workflow_run_start where idempotency_key is not null") == len(
        keys
    )


async def test_dead_connections_cost_no_start(database: Database, edges: Edges, catalogue: Catalogue) -> None:
    """A transaction that died with its connection is repeated as a whole; the run is born once."""
    definition_id = await catalogue.published()
    owner = await asyncpg.connect(database.owner)
    try:
        for expected in (1, 2, 3):
            assert (await edges.start(definition_id)).run_id
            assert await owner.fetchval("select count(*) from eec_workflow_run_start") == expected
            await owner.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ductor_trigger' and datname = $1",
                database.name,
            )
    finally:
        await owner.close()
