"""What a draft may hold and no version: a warning first, every violation at the publish, and nothing is published (L1; AP-01, CE-04)."""

from typing import Any

import pytest

from tests.definition.client import Definitions, order, refused, without
from tests.definition.conftest import Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")


def edges(*pairs: tuple[str, str], kind: str = "success") -> list[dict[str, Any]]:
    """Edges of one kind."""
    return [{"source_ref": source, "target_ref": target, "type": kind} for source, target in pairs]


def changed(**fields: Any) -> dict[str, Any]:
    """The order definition with step `pay` changed."""
    definition = order("bad")
    definition["steps"][0] = {
        key: value for key, value in (definition["steps"][0] | fields).items() if value is not None
    }
    return definition


UNPUBLISHABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no steps": (without(order("bad"), "steps", "edges", "checkpoints", "output"), "MISSING_FIELD", "steps"),
    "a cycle": (order("bad", edges=edges(("pay", "ship"), ("ship", "pay"))), "CYCLE", "steps[0].ref"),
    "a dangling edge": (order("bad", edges=edges(("pay", "shop"))), "DANGLING_EDGE", "edges[0].target_ref"),
    "no step type": (changed(type=None), "MISSING_FIELD", "steps[0].type"),
    "a step type to come": (changed(type="bridge", action=None, args=None), "STEP_TYPE_NOT_SUPPORTED", "steps[0].type"),
    "an unknown action": (changed(action="nobody:knows"), "UNKNOWN_ACTION", "steps[0].action"),
    "no action": (changed(action=None), "MISSING_FIELD", "steps[0].action"),
    "args of the wrong type": (changed(action="core:sleep", args={"ms": "long"}), "INVALID_ACTION_ARGS", "steps[0].args.ms"),
    "CEL that does not parse": (changed(run_if="1 +"), "", "steps[0].run_if"),
    "CEL over an unknown name": (changed(run_if="TRIGER.payload.a == 1"), "", "steps[0].run_if"),
    "CEL that is not boolean": (changed(run_if="1 + 1"), "", "steps[0].run_if"),
    "a template over no ancestor": (changed(args={"x": '${{ STEPS["ship"].output }}'}), "", "steps[0].args.x"),
    "an open template": (changed(args={"x": "${{ 1"}), "TEMPLATE_SYNTAX", "steps[0].args.x"),
    "an inverse of no action": (changed(compensation={"on_failure": [{"action": "a:b"}]}), "UNKNOWN_ACTION", "steps[0].compensation.on_failure[0].action"),
    "an inverse of wrong args": (changed(compensation={"finally": [{"action": "core:sleep"}]}), "INVALID_ACTION_ARGS", "steps[0].compensation.finally[0].args"),
    "a connection": (changed(connection_ref="c"), "FEATURE_NOT_SUPPORTED", "steps[0].connection_ref"),
    "an event trigger": (order("bad", triggers=[{"id": "e", "type": "event", "patterns": ["x*"]}]), "EVENT_PATTERN_INVALID", "triggers[0].patterns[0]"),
    "a schedule": (order("bad", schedule={"cron_expression": "0 0 31 2 *"}), "CRON_INVALID", "schedule.cron_expression"),
    "true without result_expr": (order("bad", edges=edges(("pay", "ship"), kind="true")), "RESULT_EXPR_REQUIRED", "edges[0].type"),
    "an approval's edge": (order("bad", edges=edges(("pay", "ship"), kind="approved")), "APPROVAL_REQUIRED", "edges[0].type"),
    "a checkpoint over nothing": (order("bad", checkpoints=[{"name": "c", "step_refs": ["nope"]}]), "UNKNOWN_STEP_REF", "checkpoints[0].step_refs[0]"),
    "an unknown response checkpoint": (order("bad", response_checkpoint="nope"), "UNKNOWN_CHECKPOINT", "response_checkpoint"),
    "a schema that is none": (order("bad", input_schema={"type": 5}), "INVALID_INPUT_SCHEMA", "input_schema.type"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNPUBLISHABLE)
async def test_what_a_draft_may_hold_and_no_version(definitions: Definitions, rows: Rows, case: str) -> None:
    """A warning when it is drafted, an error when it is published or validated; nothing is published."""
    definition, code, path = UNPUBLISHABLE[case]
    answer = await definitions.create(definition)
    assert path in [w.path for w in answer.warnings]
    before = await rows.everything()
    refusal = await refused(definitions.publish(answer.data.id))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DEFINITION_INVALID")
    assert refusal.metadata["violation_count"] == str(len(refusal.violations))
    assert [v.path for v in refusal.violations if not code or v.code == code] == [path]
    verdict = await definitions.validate(id=answer.data.id)
    assert (verdict.valid, [v.path for v in verdict.violations]) == (False, [v.path for v in refusal.violations])
    assert await rows.everything() == before


async def test_all_violations_are_told_at_once(definitions: Definitions) -> None:
    """Not just the first; the status is cut to what a client takes and says how many there are, validation tells them all."""
    steps = [{"ref": f"s{i}", "type": "action", "action": f"nobody:a{i}", "run_if": "nope"} for i in range(300)]
    draft = (await definitions.create({"family_slug": "bad", "steps": steps})).data
    refusal = await refused(definitions.publish(draft.id))
    assert refusal.metadata["violation_count"] == "600"
    assert 10 < len(refusal.violations) < 600
    assert len((await definitions.validate(id=draft.id)).violations) == 600
