"""What is known of a run before it exists, and what TRIGGER and VARS say of its start once it does (L8, T2, T3)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ductord.engine.compile import compile_definition
from ductord.engine.decide import decide
from ductord.engine.expressions import BUDGET_EXCEEDED, ExpressionError, programs_for
from ductord.engine.starting import event_input, lets_in, resolved, schedule_input
from ductord.model.decision import Decision
from ductord.model.effects import RecordOutput
from ductord.model.inbox import External, Inbox
from ductord.model.needs import APART
from ductord.model.run import RunStart
from ductord.model.specs import Expression, Template
from ductord.model.starting import EventOrigin, Origin, ScheduleSpec, TriggerSpec
from tests.language.documents import definition
from tests.support.starts import start_of
from tests.support.world import START

NOMINAL = datetime(2024, 3, 10, 7, tzinfo=UTC)
EVENT = External(
    event_name="order.created", event_id="e-1", correlation_key="c", payload={"id": 7, "total": 12.5}, time=START
)
WRITTEN = START.isoformat(timespec="microseconds").replace("+00:00", "Z")


def scheduled(tree: Any = None) -> TriggerSpec:
    spec = ScheduleSpec(cron_expression="* * * * *")
    return TriggerSpec(id="nightly", schedule=spec, input=None if tree is None else Template(tree=tree, static=False))


def evented(filter_: str = "", tree: Any = None) -> TriggerSpec:
    return TriggerSpec(
        id="orders",
        patterns=("order.*",),
        filter=Expression(source=filter_) if filter_ else None,
        input=None if tree is None else Template(tree=tree, static=False),
    )


def seen(expression: str, start: RunStart, **fields: Any) -> Any:
    """What an expression of a run with this start gives."""
    flow = {"operation": "map", "items_expr": "[1]", "expr": expression}
    compiled = compile_definition(definition({"ref": "d", "type": "dataflow", "dataflow": flow}, **fields))
    assert compiled.manifest is not None, compiled.errors
    manifest = compiled.manifest
    inbox = Inbox(start=start, given={APART: True})
    decided = decide(manifest, programs_for(manifest), None, inbox, START)
    assert isinstance(decided, Decision)
    (stored,) = [effect for effect in decided.effects if isinstance(effect, RecordOutput)]
    return orjson.loads(stored.output_json)["result"][0]


def test_l8_only_declared_names_are_overlaid() -> None:
    assert resolved({"a": 1, "b": None}, {"a": None, "c": 3}) == {"a": None, "b": None}
    assert resolved({}, {"c": 3}) == {}
    assert seen("VARS", start_of(variables={"a": 2, "gone": 3}), variables={"a": 1, "b": [1]}) == {"a": 2, "b": [1]}


def test_t2_the_input_of_a_schedule_reads_its_time_and_the_variables() -> None:
    tree = {
        "day": "${{ TRIGGER.scheduled_time }}",
        "of": "${{ TRIGGER.type }}/${{ TRIGGER.id }}",
        "to": ["${{ VARS.to }}"],
    }
    given = schedule_input(scheduled(tree), {"to": "ops"}, NOMINAL)
    assert given == {"day": "2024-03-10T07:00:00.000000Z", "of": "schedule/nightly", "to": ["ops"]}
    assert schedule_input(scheduled(), {}, NOMINAL) == {}
    assert schedule_input(scheduled("${{ timestamp(TRIGGER.scheduled_time).getDayOfYear() }}"), {}, NOMINAL) == 69


def test_t3_the_input_of_an_event_reads_the_event_and_is_its_payload_by_default() -> None:
    tree = {"order": "${{ EVENT.payload.id }}", "about": "${{ EVENT.name }} at ${{ EVENT.time }} by ${{ VARS.shop }}"}
    given = event_input(evented(tree=tree), {"shop": "s"}, EVENT)
    assert given == {"order": 7, "about": f"order.created at {WRITTEN} by s"}
    assert event_input(evented(), {}, EVENT) == EVENT.payload


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("", True),
        ("EVENT.payload.total > VARS.floor", True),
        ("EVENT.payload.total > 100", False),
        ('EVENT.correlation_key == "c" && EVENT.id == "e-1"', True),
        ("has(EVENT.payload.nothing)", False),
    ],
)
def test_t3_a_filter_reads_event_and_variables(source: str, verdict: bool) -> None:
    assert lets_in(evented(source), {"floor": 10}, EVENT) is verdict


@pytest.mark.parametrize("source", ["EVENT.payload.nothing > 1", "VARS.floor", "EVENT.payload.id", "1 / 0 == 1"])
def test_t3_a_filter_that_is_no_bool_raises(source: str) -> None:
    with pytest.raises(ExpressionError):
        lets_in(evented(source), {"floor": 10}, EVENT)


def test_a_text_that_fails_raises_and_a_dear_one_is_given_up() -> None:
    with pytest.raises(ExpressionError):
        schedule_input(scheduled({"x": "${{ VARS.missing }}"}), {}, NOMINAL)
    with pytest.raises(ExpressionError):
        event_input(evented(tree="a ${{ EVENT.payload.nothing }}"), {}, EVENT)
    dear = "VARS.n.map(a, VARS.n.map(b, VARS.n.map(c, a + b + c)))"
    with pytest.raises(ExpressionError) as failed:
        schedule_input(scheduled("${{ " + dear + " }}"), {"n": list(range(400))}, NOMINAL)
    assert failed.value.code == BUDGET_EXCEEDED


def test_one_template_filled_twice_gives_two_values() -> None:
    spec = scheduled({"at": "${{ TRIGGER.scheduled_time }}", "still": {"x": 1}})
    one, other = (schedule_input(spec, {}, NOMINAL + timedelta(minutes=n)) for n in (0, 1))
    assert one["at"] != other["at"]
    assert spec.input is not None
    assert spec.input.tree["at"] == "${{ TRIGGER.scheduled_time }}"


def test_what_a_run_sees_of_a_start_by_hand() -> None:
    start = start_of(payload={"x": 1}, subject_type="order", subject_id="7")
    assert seen("TRIGGER", start) == {
        "payload": {"x": 1},
        "event": None,
        "subject": {"type": "order", "id": "7"},
        "type": "manual",
        "id": None,
        "scheduled_time": None,
    }


def test_what_a_run_sees_of_a_schedule_t2() -> None:
    origin = Origin(trigger_id="nightly", schedule_id="s", nominal_time=NOMINAL)
    found = seen("TRIGGER", start_of(payload={}, origin=origin))
    assert (found["type"], found["id"], found["event"]) == ("schedule", "nightly", None)
    assert found["scheduled_time"] == "2024-03-10T07:00:00.000000Z"


@pytest.mark.parametrize("payload_is_input", [True, False])
def test_what_a_run_sees_of_an_event_t3(payload_is_input: bool) -> None:
    """Whether the payload was kept beside the input or is the input: it is told the same."""
    event = EventOrigin(
        name="order.created",
        id="e-1",
        correlation_key="c",
        time=START,
        payload=None if payload_is_input else EVENT.payload,
        payload_is_input=payload_is_input,
    )
    start = start_of(
        payload=EVENT.payload if payload_is_input else {"other": 1}, origin=Origin(trigger_id="orders", event=event)
    )
    found = seen("TRIGGER", start)
    assert (found["type"], found["id"], found["scheduled_time"]) == ("event", "orders", None)
    assert found["event"] == {
        "name": "order.created",
        "id": "e-1",
        "correlation_key": "c",
        "payload": EVENT.payload,
        "time": WRITTEN,
    }


def test_a_child_was_started_by_its_parent_and_tells_it_as_by_hand() -> None:
    assert seen("TRIGGER.type", start_of(payload={}, parent_run_id="p")) == "manual"
