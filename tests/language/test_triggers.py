"""Triggers and schedules as authors write them: what compiles to what, and what every breach is called (rulings T2, T3, D4, L1; field cases TC-04, TC-05)."""

from typing import Any

import pytest

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.model.manifest import Manifest, decode, encode
from ductord.model.specs import Expression, Template
from ductord.model.starting import ScheduleSpec, TriggerSpec
from tests.language.documents import codes, definition, step

EVERY_MINUTE = {"cron_expression": "* * * * *"}


def schedule(**fields: Any) -> dict[str, Any]:
    return {"id": "s", "type": "schedule", "schedule": EVERY_MINUTE} | fields


def on(cron: str, /, **fields: Any) -> dict[str, Any]:
    return schedule(schedule={"cron_expression": cron, **fields})


def event(*patterns: str, **fields: Any) -> dict[str, Any]:
    return {"id": "e", "type": "event", "patterns": list(patterns) or ["order.created"]} | fields


def compiled(*triggers: dict[str, Any], **fields: Any) -> Manifest:
    tree = definition(step("a"), **({"triggers": list(triggers)} if triggers else {}), **fields)
    manifest = compile_definition(tree).manifest
    assert manifest is not None
    assert decode(encode(manifest)) == manifest
    return manifest


def test_triggers_with_their_defaults_resolved_t2_t3() -> None:
    manifest = compiled(
        event("order.created", "invoice.*", filter="EVENT.payload.total > VARS.floor", input={"id": "${{ EVENT.payload.id }}"}, tier="critical"),
        {"id": "by_hand", "type": "manual"},
        on("0 2 * * *", timezone="Europe/Berlin", catchup_window_ms=1_000, overlap_policy="allow_all"),
        variables={"floor": 10},
        schedule=EVERY_MINUTE,
    )  # fmt: skip
    assert manifest.triggers == (
        TriggerSpec(
            id="e",
            patterns=("order.created", "invoice.*"),
            filter=Expression(source="EVENT.payload.total > VARS.floor", names=("EVENT", "VARS")),
            input=Template(tree={"id": "${{ EVENT.payload.id }}"}, static=False, names=("EVENT",)),
            tier=manifest.triggers[0].tier,
        ),
        TriggerSpec(
            id="s",
            schedule=ScheduleSpec(
                cron_expression="0 2 * * *",
                timezone="Europe/Berlin",
                catchup_window_ms=1_000,
                overlap_policy="allow_all",
            ),
        ),
        TriggerSpec(id="schedule", schedule=ScheduleSpec(cron_expression="* * * * *")),
    )
    assert manifest.triggers[0].tier == "critical"


def test_defaults_that_are_written_out_change_no_hash_t2() -> None:
    written = on("* * * * *", timezone="UTC", catchup_window_ms=600_000, overlap_policy="skip")
    assert manifest_hash(compiled(written)) == manifest_hash(compiled(schedule()))


@pytest.mark.parametrize(
    ("triggers", "fields", "allowed"),
    [
        ((), {}, True),
        ((), {"schedule": EVERY_MINUTE}, True),
        ((event(),), {}, False),
        ((schedule(),), {}, False),
        ((schedule(), {"id": "m", "type": "manual"}), {}, True),
    ],
)
def test_only_declared_triggers_say_whether_a_run_may_be_started_by_hand_d4(
    triggers: tuple[dict[str, Any], ...], fields: dict[str, Any], allowed: bool
) -> None:
    assert compiled(*triggers, **fields).manual_start is allowed


@pytest.mark.parametrize(
    ("tree", "level"),
    [
        (definition(step("a", args={"x": "${{ TRIGGER.payload }}", "e": "${{ TRIGGER.event }}", "t": "${{ TRIGGER }}"})), 1),
        (definition(step("a"), triggers=[{"id": "m", "type": "manual"}]), 1),
        (definition(step("a", args={"x": "${{ TRIGGER.scheduled_time }}"})), 5),
        (definition(step("a", run_if='TRIGGER["type"] == "manual"')), 5),
        (definition(step("a"), output={"x": "${{ TRIGGER.id }}"}), 5),
        (definition(step("a"), triggers=[event()]), 5),
        (definition(step("a"), schedule=EVERY_MINUTE), 5),
    ],
)  # fmt: skip
def test_the_level_of_behaviour_is_the_lowest_that_runs_it(tree: Any, level: int) -> None:
    manifest = compile_definition(tree).manifest
    assert manifest is not None
    assert manifest.engine_level == level


@pytest.mark.parametrize(
    "cron",
    ["0 0 31 2 *", "5-1 * * * *", "* * * * *\n", "* * * * * *", "R R * * *", "", "@reboot", "60 * * * *", "*/0 * * * *", "0 0 30 2 *",
     "* * * * 8", "0 0 */31 2 1#5"],
)  # fmt: skip
def test_cron_text_that_cannot_be_is_refused_tc_04(cron: str) -> None:
    assert codes(definition(step("a"), triggers=[on(cron)])) == [
        ("CRON_INVALID", "triggers[0].schedule.cron_expression")
    ]
    assert codes(definition(step("a"), schedule={"cron_expression": cron})) == [
        ("CRON_INVALID", "schedule.cron_expression")
    ]


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 31 2 5", "0 0 L * *", "0 0 * * 5#3", "* * * JAN SUN", "* * * * 7"])
def test_rare_cron_text_is_taken_tc_04(cron: str) -> None:
    assert codes(definition(step("a"), triggers=[on(cron)])) == []


def test_the_refusal_of_a_cron_text_tells_how_days_combine_tc_05() -> None:
    (found,) = compile_definition(definition(step("a"), triggers=[on("0 0 32 * 5")])).errors
    assert "combine by OR" in found.message


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (on("* * * * *", timezone="Mars/Olympus"), ("UNKNOWN_TIME_ZONE", "schedule.timezone")),
        (on("* * * * *", timezone=""), ("UNKNOWN_TIME_ZONE", "schedule.timezone")),
        (on("* * * * *", catchup_window_ms=999), ("CATCHUP_WINDOW_INVALID", "schedule.catchup_window_ms")),
        (on("* * * * *", catchup_window_ms=-1), ("CATCHUP_WINDOW_INVALID", "schedule.catchup_window_ms")),
        (on("* * * * *", catchup_window_ms=1 << 31), ("CATCHUP_WINDOW_INVALID", "schedule.catchup_window_ms")),
        (on("* * * * *", catchup_window_ms="5m"), ("WRONG_TYPE", "schedule.catchup_window_ms")),
        (on("* * * * *", overlap_policy="queue"), ("INVALID_OVERLAP_POLICY", "schedule.overlap_policy")),
        (on("* * * * *", overlap_policy=""), ("INVALID_OVERLAP_POLICY", "schedule.overlap_policy")),
        (on("* * * * *", cron="x"), ("UNKNOWN_FIELD", "schedule.cron")),
        (on("9" * 257), ("INVALID_LENGTH", "schedule.cron_expression")),
        (schedule(schedule={}), ("MISSING_FIELD", "schedule.cron_expression")),
        (schedule(schedule=None), ("MISSING_FIELD", "schedule")),
        (schedule(patterns=["a"]), ("FIELD_NOT_APPLICABLE", "patterns")),
        (schedule(filter="true"), ("FIELD_NOT_APPLICABLE", "filter")),
        (schedule(input={"x": "${{ TRIGGER.payload }}"}), ("UNKNOWN_NAME", "input.x")),
        (schedule(input={"x": "${{ EVENT.name }}"}), ("NAME_NOT_AVAILABLE", "input.x")),
        (schedule(input={"x": "${{ RUN.id }}"}), ("NAME_NOT_AVAILABLE", "input.x")),
        (event(patterns=None), ("MISSING_FIELD", "patterns")),
        (event(patterns=[]), ("INVALID_LENGTH", "patterns")),
        (event(*[f"e{number}" for number in range(101)]), ("INVALID_LENGTH", "patterns")),
        (event("a", "a"), ("EVENT_PATTERN_INVALID", "patterns[1]")),
        (event("*"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event(".*"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event("a*"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event("a.*.b"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event("a.*.*"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event(""), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event("é" * 129), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event("${{ VARS.x }}"), ("EVENT_PATTERN_INVALID", "patterns[0]")),
        (event(schedule=EVERY_MINUTE), ("FIELD_NOT_APPLICABLE", "schedule")),
        (event(filter="TRIGGER.payload == 1"), ("NAME_NOT_AVAILABLE", "filter")),
        (event(filter="EVENT.payloda == 1"), ("UNKNOWN_NAME", "filter")),
        (event(filter="1"), ("NOT_BOOLEAN", "filter")),
        (event(filter="STEPS.a.output"), ("NAME_NOT_AVAILABLE", "filter")),
        (event(filter="EVENT.payload ="), ("EXPRESSION_SYNTAX", "filter")),
        (event(filter="${{ true }}"), ("EXPRESSION_SYNTAX", "filter")),
        (event(input={"x": "${{ EVENT.name"}), ("TEMPLATE_SYNTAX", "input.x")),
        (event(tier="huge"), ("UNKNOWN_VALUE", "tier")),
        ({"id": "m", "type": "manual", "input": {"x": 1}}, ("FIELD_NOT_APPLICABLE", "input")),
        ({"id": "m", "type": "manual", "tier": "critical"}, ("FIELD_NOT_APPLICABLE", "tier")),
        ({"id": "m", "type": "webhook"}, ("UNKNOWN_TRIGGER_TYPE", "type")),
        ({"id": "a b", "type": "manual"}, ("INVALID_NAME", "id")),
    ],
)  # fmt: skip
def test_breaches_of_triggers(trigger: dict[str, Any], expected: tuple[str, str]) -> None:
    code, path = expected
    assert codes(definition(step("a"), triggers=[trigger])) == [(code, f"triggers[0].{path}")]


def test_the_refusal_of_an_overlap_policy_names_both() -> None:
    (found,) = compile_definition(definition(step("a"), triggers=[on("* * * * *", overlap_policy="queue")])).errors
    assert "`skip` or `allow_all`" in found.message


def test_the_definitions_own_schedule_has_an_id_of_its_own() -> None:
    taken = schedule(id="schedule")
    assert codes(definition(step("a"), triggers=[taken])) == []
    assert codes(definition(step("a"), triggers=[taken], schedule=EVERY_MINUTE)) == [
        ("DUPLICATE_TRIGGER_ID", "triggers[0].id")
    ]


def test_triggers_are_numerous_within_bounds() -> None:
    triggers = [event(id=f"t{number}") for number in range(101)]
    assert codes(definition(step("a"), triggers=triggers)) == [("INVALID_LENGTH", "triggers")]
    assert codes(definition(step("a"), triggers=triggers[:100])) == []


def test_a_variable_that_only_a_trigger_reads_is_read() -> None:
    tree = definition(step("a"), variables={"x": 1}, triggers=[event(filter="EVENT.payload == VARS.x")])
    assert codes(tree) == []
    assert compile_definition(tree).warnings == ()
