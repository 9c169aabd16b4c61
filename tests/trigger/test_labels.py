"""Correlation labels (T5): how many, how large, of which letters, once each, what is kept for Ductor; and who inherits them."""

import asyncpg
import orjson

from ductor.workflow.v1 import common_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.ids import derived
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, child_of, family
from tests.support.books import Books
from tests.support.edges import Catalogue, Edges, refusal

Label = common_pb2.CorrelationLabel
CHILD = 'step s type=subworkflow subworkflow={"workflow": {"family_slug": "page"}}'
ACCEPTED = [
    [Label(key=f"k{i}", id="1") for i in range(8)],
    [Label(key="a", id="x")],
    [Label(key="a" + "b" * 63, id="y" * 128)],
    [Label(key="order-line.no_1", id="é" * 64)],
    [Label(key="a", id=" : "), Label(key="b", id=" : ")],
    [Label(key="ductor.own", id="1"), Label(key="ductor", id="1"), Label(key="ductor.correlation", id="1")],
]
REFUSED = {
    "nine": ([Label(key=f"k{i}", id="1") for i in range(9)], "BATCH_TOO_LARGE", ""),
    "a key twice": ([Label(key="a", id="1"), Label(key="a", id="2")], "FIELD_DUPLICATE", "[1].key"),
    "no key": ([Label(id="1")], "FIELD_INVALID", "[0].key"),
    "a long key": ([Label(key="k" * 65, id="1")], "FIELD_INVALID", "[0].key"),
    "a capital": ([Label(key="oRder", id="1")], "FIELD_INVALID", "[0].key"),
    "a digit first": ([Label(key="1a", id="1")], "FIELD_INVALID", "[0].key"),
    "a dot first": ([Label(key=".a", id="1")], "FIELD_INVALID", "[0].key"),
    "a colon": ([Label(key="a:b", id="1")], "FIELD_INVALID", "[0].key"),
    "a line's end": ([Label(key="a\n", id="1")], "FIELD_INVALID", "[0].key"),
    "another script": ([Label(key="é", id="1")], "FIELD_INVALID", "[0].key"),
    "no id": ([Label(key="a")], "FIELD_INVALID", "[0].id"),
    "a long id": ([Label(key="a", id="y" * 129)], "FIELD_INVALID", "[0].id"),
    "an id long in bytes": ([Label(key="a", id="é" * 65)], "FIELD_INVALID", "[0].id"),
    "a NUL": ([Label(key="a", id="x\0")], "FIELD_INVALID", "[0].id"),
    "a reserved key": ([Label(key="ductor.correlation.order", id="1")], "FIELD_INVALID", "[0].key"),
    "the reserved list": ([Label(key="ductor.correlation_labels", id="1")], "FIELD_INVALID", "[0].key"),
    "below the reserved list": ([Label(key="ductor.correlation_labels.x", id="1")], "FIELD_INVALID", "[0].key"),
    "the second of two": ([Label(key="a", id="1"), Label(key="ductor.correlation.x", id="1")], "FIELD_INVALID", "[1].key"),
}  # fmt: skip


async def _labels(owner: asyncpg.Connection, run_id: str) -> tuple[dict[str, str], list[str]]:
    """Those in the run's birth row, and those that lists find it by."""
    text = await owner.fetchval("select labels::text from eec_workflow_run_start where run_id = $1", run_id)
    rows = await owner.fetch("select label from eec_workflow_run_label where run_id = $1 order by label", run_id)
    return orjson.loads(text), [row[0] for row in rows]


async def test_t5_labels_within_the_limits(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """T5: eight, keys of 64 and ids of 128 bytes, taken as they are; `ductor` itself is nobody's, only its namespaces are."""
    definition_id = await catalogue.published()
    for labels in ACCEPTED:
        run_id = (await edges.start(definition_id, correlation_labels=labels)).run_id
        stored, found = await _labels(owner, run_id)
        assert stored == {label.key: label.id for label in labels}
        assert found == sorted(f"{label.key}:{label.id}" for label in labels)


async def test_t5_labels_beyond_them(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """T5: refused with the place of the label, alone and as an item of a batch, whose other items stand; nothing of it is written."""
    definition_id = await catalogue.published()
    good = triggers.BatchTriggerItem(correlation_labels=[Label(key="a", id="1")])
    for name, (labels, reason, place) in REFUSED.items():
        answer = await refusal(edges.start(definition_id, correlation_labels=labels))
        assert (answer.code, answer.reason) == ("INVALID_ARGUMENT", reason), name
        assert answer.metadata["field"] == f"correlation_labels{place}", name
        bad = triggers.BatchTriggerItem(correlation_labels=labels)
        first, second = await edges.batch(definition_id, [bad, good])
        assert (first.error.reason, bool(second.run_id)) == (reason, True), name
    assert await owner.fetchval("select count(*) from eec_workflow_run_label") == len(REFUSED)


async def test_t5_children_successors_and_resets_inherit(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """T5: all of them are found by the labels and the subject of the first; the journey is the first run's, of a reset run too."""
    await catalogue.published(family("page", *PAGE), slug="page")
    definition_id = await catalogue.published(family("parent", "step work action=noop:noop", CHILD), slug="parent")
    labels = [Label(key="order", id="o:1"), Label(key="team", id="red")]
    started = await edges.start(definition_id, correlation_labels=labels, subject_type="order", subject_id="o1")
    run_id = started.run_id
    await ticker.drain()
    reset, successor = derived("reset", run_id, "r"), derived("continue", run_id, "c")
    await books.control(run_id, Verb.RESET, request_id="r", body=ControlBody(new_run_id=reset, seq=1))
    await ticker.drain()
    await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id="c", body=ControlBody(new_run_id=successor, seed={}))
    await ticker.drain()
    await books.report()
    await ticker.drain()
    rows = await owner.fetch(
        "select run_id::text, parent_run_id::text, subject_type, subject_id, journey_id::text from eec_workflow_run_start"
    )
    assert {row["parent_run_id"] for row in rows} == {None, run_id, reset, successor}, "each of them has had a child"
    assert {child_of(run_id), reset, successor} < {row["run_id"] for row in rows}
    for row in rows:
        assert await _labels(owner, row["run_id"]) == (
            {"order": "o:1", "team": "red"}, ["order:o:1", "team:red"]
        )  # fmt: skip
        assert tuple(row)[2:] == ("order", "o1", run_id)
