"""From a draft to versions and their retirement, through real gRPC on a real database (spec: the lifecycle; rulings D1 to D3, C8)."""

import json

import pytest

from ductor.workflow.v1 import definition_pb2 as pb
from tests.definition.client import Definitions, order, refused, without
from tests.definition.conftest import Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOOP = {"ref": "mail", "type": "STEP_TYPE_ACTION", "action": "noop:noop"}


async def test_create_answers_the_draft_under_the_id_of_the_family(definitions: Definitions) -> None:
    """D1: the definition id names the draft; D2: the draft shows the number it would get."""
    answer = await definitions.create()
    draft = answer.data
    assert draft.id == draft.definition_id
    assert draft.status == pb.DEFINITION_STATUS_DRAFT
    assert (draft.family_slug, draft.title, list(draft.tags)) == ("order", "Order", ["sales", "demo"])
    assert (draft.version, draft.draft_revision, draft.manifest_hash) == (1, 1, "")
    assert [step.ref for step in draft.steps] == ["pay", "ship"]
    assert not draft.HasField("publish_time")
    assert not answer.warnings
    assert answer.metadata.request_id
    assert answer.metadata.fetched_at.ToMicroseconds() >= draft.create_time.ToMicroseconds()
    assert await definitions.get(draft.id, payload_format=2) == draft


async def test_a_family_may_begin_with_its_name_alone(definitions: Definitions) -> None:
    """The spec's first example: no graph yet; what would stop a publish is a warning."""
    answer = await definitions.create({"family_slug": "lead-router", "title": "Lead Router", "tags": ["sales"]})
    assert answer.data.draft_revision == 1
    assert [(w.code, w.path) for w in answer.warnings] == [("MISSING_FIELD", "steps")]


async def test_a_draft_may_leave_open_what_its_children_run(definitions: Definitions) -> None:
    """The family of a child is no name that edits find a part by."""
    child = {"ref": "child", "type": "STEP_TYPE_SUBWORKFLOW", "subworkflow": {"workflow": {}}}
    answer = await definitions.update((await definitions.create()).data.id, 1, {"addStep": child})
    assert answer.data.steps[2].subworkflow.HasField("workflow")
    assert ("MISSING_FIELD", "steps[2].subworkflow.workflow.family_slug") in [(w.code, w.path) for w in answer.warnings]


async def test_edits_are_operations_in_order_under_a_new_revision(definitions: Definitions) -> None:
    """One edit with several operations, names of the definition, and a draft that is unfinished afterwards."""
    draft = (await definitions.create()).data
    answer = await definitions.update(
        draft.id,
        1,
        {"addStep": NOOP},
        {"addEdge": {"sourceRef": "ship", "targetRef": "mail", "type": "EDGE_TYPE_DONE"}},
        {"updateStep": {"ref": "pay", "runIf": "VARS.limit > 1", "clearFields": ["args"]}},
        {"updateStep": {"ref": "ship", "retryMaxAttempts": 5}},
        {"addEdge": {"sourceRef": "mail", "targetRef": "nowhere", "type": "EDGE_TYPE_SUCCESS"}},
        {"setVariables": {"variables": {"limit": 7}}},
        {"setSettings": {"runTimeoutMs": 5, "clearFields": ["output", "tier"]}},
        title="Order v2",
        tags=["sales"],
        clear_fields=["description"],
    )
    edited = answer.data
    assert (edited.draft_revision, edited.version, edited.title, edited.description) == (2, 1, "Order v2", "")
    assert list(edited.tags) == ["sales"]
    assert [step.ref for step in edited.steps] == ["pay", "ship", "mail"]
    assert edited.steps[0].run_if == "VARS.limit > 1"
    assert not edited.steps[0].HasField("args")
    assert edited.steps[1].retry_max_attempts == 5
    assert edited.steps[1].retry_backoff_ms == 10
    assert [(e.source_ref, e.target_ref) for e in edited.edges][1:] == [("ship", "mail"), ("mail", "nowhere")]
    assert (edited.run_timeout_ms, edited.tier, edited.HasField("output")) == (5, 0, False)
    assert [(w.code, w.path) for w in answer.warnings] == [("DANGLING_EDGE", "edges[2].target_ref")]
    assert edited.update_time.ToMicroseconds() >= edited.create_time.ToMicroseconds()
    assert await definitions.get(draft.id) == edited

    refusal = await refused(definitions.publish(draft.id))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DEFINITION_INVALID")
    assert [v.code for v in refusal.violations] == ["DANGLING_EDGE"]

    emptied = await definitions.update(
        draft.id, 2, {"removeStep": {"ref": "mail"}}, {"setTriggers": {}}, {"setCheckpoints": {}}, {"setVariables": {}}
    )
    assert [step.ref for step in emptied.data.steps] == ["pay", "ship"]
    assert len(emptied.data.edges) == 1
    assert not (emptied.data.triggers)
    assert not (emptied.data.checkpoints)
    assert not (emptied.data.HasField("variables"))


async def test_publish_freezes_a_version_and_leaves_a_fresh_draft(definitions: Definitions, rows: Rows) -> None:
    """D2: numbers without gaps, the answer says which revision was published; C8: actor, reason and request id are written down."""
    draft = (await definitions.create()).data
    answer = await definitions.publish(draft.id, reason="go live", payload_format=2)
    first, fresh = answer.published, answer.draft
    assert (first.version, first.draft_revision, first.status) == (1, 1, pb.DEFINITION_STATUS_PUBLISHED)
    assert first.id not in ("", draft.id)
    assert first.definition_id == fresh.id == draft.id
    assert len(first.manifest_hash) == 64
    assert first.publish_time == first.create_time
    assert (fresh.version, fresh.draft_revision, fresh.status) == (2, 2, pb.DEFINITION_STATUS_DRAFT)
    assert list(fresh.steps) == list(first.steps) == list(draft.steps)

    await definitions.update(draft.id, 2, {"updateStep": {"ref": "pay", "args": {"amount": 1}}}, title="Second")
    second = (await definitions.publish(draft.id, 3)).published
    assert (second.version, second.draft_revision, second.title) == (2, 3, "Second")
    assert second.manifest_hash != first.manifest_hash
    assert await definitions.get(first.id, payload_format=2) == first, "a version never changes"

    stored = await rows.versions("version, manifest_hash, manifest::text")
    assert [row[:2] for row in stored] == [
        (1, first.manifest_hash),
        (2, second.manifest_hash),
    ]
    assert json.loads(stored[0][2])["family_slug"] == "order"
    first_act, second_act = await rows.audit("actor, action, target, reason, outcome, request_id, detail::text")
    call = answer.metadata.request_id
    assert first_act[:6] == ("anonymous", "publish", f"definition:{draft.id}", "go live", "applied", call)
    detail = json.loads(first_act[6])
    assert (detail["version"], detail["version_id"]) == (1, first.id)
    assert second_act[:4] == ("anonymous", "publish", f"definition:{draft.id}", "")


async def test_a_version_id_pins_that_version_and_is_never_edited(definitions: Definitions, rows: Rows) -> None:
    """D1: whatever the view; what is meant for a draft says where the draft is."""
    draft = (await definitions.create()).data
    assert (
        await refused(definitions.get(draft.id, view=pb.DEFINITION_VIEW_PUBLISHED))
    ).reason == "DEFINITION_NOT_PUBLISHED"
    assert (await refused(definitions.archive(draft.id))).reason == "DEFINITION_NOT_PUBLISHED"
    first = (await definitions.publish(draft.id)).published
    second = (await definitions.publish(draft.id)).published
    for view in (pb.DEFINITION_VIEW_UNSPECIFIED, pb.DEFINITION_VIEW_DRAFT, pb.DEFINITION_VIEW_PUBLISHED):
        assert (await definitions.get(first.id, view=view)).version == 1
        assert (await definitions.export(first.id, view=view)).version == 1
        assert (await definitions.get(first.id.upper(), view=view)).id == first.id
    assert (await definitions.get(draft.id, view=pb.DEFINITION_VIEW_PUBLISHED)).id == second.id
    assert (await definitions.get(draft.id)).status == pb.DEFINITION_STATUS_DRAFT
    before = await rows.everything()
    for call in (
        definitions.update(first.id, 1, title="x"),
        definitions.publish(first.id),
        definitions.delete_draft(first.id),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "VERSION_IMMUTABLE")
        assert refusal.metadata == {"definition_id": draft.id, "version": "1"}
    assert await rows.everything() == before


async def test_archive_retires_the_current_version_or_the_one_named(definitions: Definitions, rows: Rows) -> None:
    """D1: the definition id stands for the highest number, and for nothing once that one is archived; D3: no older one comes back."""
    draft = (await definitions.create()).data
    first = (await definitions.publish(draft.id)).published
    second = (await definitions.publish(draft.id)).published

    archived = await definitions.archive(draft.id, reason="wrong")
    assert (archived.id, archived.status) == (second.id, pb.DEFINITION_STATUS_ARCHIVED)
    assert archived.archive_time == archived.update_time
    refusal = await refused(definitions.archive(draft.id))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "DEFINITION_ARCHIVED")
    assert refusal.metadata == {"definition_id": draft.id, "version": "2"}
    refusal = await refused(definitions.get(draft.id, view=pb.DEFINITION_VIEW_PUBLISHED))
    assert refusal.reason == "DEFINITION_ARCHIVED"
    assert (await definitions.get(first.id)).status == pb.DEFINITION_STATUS_PUBLISHED

    assert (await definitions.archive(first.id)).version == 1
    assert (await refused(definitions.archive(first.id))).reason == "DEFINITION_ARCHIVED"
    third = (await definitions.publish(draft.id)).published
    assert third.version == 3
    assert (await definitions.get(draft.id, view=pb.DEFINITION_VIEW_PUBLISHED)).id == third.id
    acts = await rows.audit("action, target, reason, outcome, detail ->> 'version_id'")
    target = f"definition:{draft.id}"
    assert [act[1:] for act in acts if act[0] == "archive"] == [
        (target, "wrong", "applied", second.id), (target, "", "applied", first.id),
    ]  # fmt: skip


async def test_a_deleted_draft_leaves_the_id_and_the_versions(definitions: Definitions, rows: Rows) -> None:
    """D1: deleting the draft keeps the id; creating the slug again reopens from the newest version, and revisions go on."""
    draft = (await definitions.create()).data
    first = (await definitions.publish(draft.id)).published
    await definitions.update(draft.id, 2, {"removeStep": {"ref": "ship"}})
    assert (
        await refused(definitions.delete_draft(draft.id, expected_draft_revision=2))
    ).reason == "DRAFT_REVISION_MISMATCH"
    await definitions.delete_draft(draft.id, expected_draft_revision=3, reason="started over")

    for call in (
        definitions.get(draft.id),
        definitions.update(draft.id, 3),
        definitions.publish(draft.id),
        definitions.delete_draft(draft.id),
        definitions.validate(id=draft.id),
        definitions.export("order", view=pb.DEFINITION_VIEW_DRAFT),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason, refusal.metadata) == (
            "NOT_FOUND",
            "DRAFT_NOT_FOUND",
            {"definition_id": draft.id},
        )
    assert (await definitions.get(draft.id, view=pb.DEFINITION_VIEW_PUBLISHED)).id == first.id
    assert (await rows.audit("action, target, reason"))[-1] == (
        "delete_draft",
        f"definition:{draft.id}",
        "started over",
    )

    reopened = (await definitions.create({"family_slug": "order", "title": "Again"})).data
    assert reopened.id == draft.id
    assert (reopened.title, reopened.version, reopened.draft_revision) == ("Again", 2, 4)
    assert [step.ref for step in reopened.steps] == ["pay", "ship"]
    refusal = await refused(definitions.create())
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "FAMILY_SLUG_TAKEN")
    assert refusal.metadata == {"family_slug": "order", "definition_id": draft.id}


async def test_a_family_reopened_with_a_graph_is_that_graph(definitions: Definitions) -> None:
    """D1: nothing that a creation says is ignored; nothing of the old graph is mixed into the new one."""
    draft = (await definitions.create()).data
    await definitions.publish(draft.id)
    await definitions.delete_draft(draft.id)
    reopened = (
        await definitions.create(
            {"family_slug": "order", "steps": [{"ref": "only", "type": "action", "action": "noop:noop"}]}
        )
    ).data
    assert (reopened.id, reopened.title, len(reopened.edges), len(reopened.checkpoints)) == (draft.id, "", 0, 0)


async def test_a_family_whose_only_draft_was_deleted_begins_anew(definitions: Definitions) -> None:
    """D1: the id stays although nothing was ever published; the old revision is not given again."""
    draft = (await definitions.create()).data
    await definitions.delete_draft(draft.id)
    again = (await definitions.create(order(title="New"))).data
    assert (again.id, again.title, again.draft_revision) == (draft.id, "New", 2)
    assert (await refused(definitions.update(draft.id, 1, title="late"))).reason == "DRAFT_REVISION_MISMATCH"


async def test_duplicate_copies_the_draft_or_the_newest_version_into_a_new_family(definitions: Definitions) -> None:
    """Spec: the latest draft, or the published version when there is none; D1: a version id copies exactly that one."""
    draft = (await definitions.create()).data
    first = (await definitions.publish(draft.id)).published
    await definitions.update(draft.id, 2, title="Later")
    copy = await definitions.duplicate(draft.id, "order-copy")
    assert copy.id not in (draft.id, first.id)
    assert (copy.family_slug, copy.title, copy.draft_revision, copy.version) == ("order-copy", "Later", 1, 1)
    assert list(copy.steps) == list((await definitions.get(draft.id)).steps)
    assert (await definitions.duplicate(first.id, "of-version", title="Mine")).title == "Mine"
    assert (await definitions.duplicate(first.id, "of-version-2")).title == "Order"

    await definitions.delete_draft(draft.id)
    assert (await definitions.duplicate(draft.id, "of-newest")).title == "Order"
    await definitions.archive(draft.id)
    assert (await definitions.duplicate(draft.id, "of-archived")).title == "Order"
    refusal = await refused(definitions.duplicate(draft.id, "order"))
    assert (refusal.code, refusal.reason, refusal.metadata["definition_id"]) == (
        "ALREADY_EXISTS",
        "FAMILY_SLUG_TAKEN",
        draft.id,
    )
    assert (await definitions.publish(copy.id)).published.family_slug == "order-copy"


async def test_export_is_the_current_version_by_id_or_slug(definitions: Definitions) -> None:
    """The same definition gives the same bytes, and the file validates to the hash of the version."""
    draft = (await definitions.create()).data
    refusal = await refused(definitions.export("order"))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "DEFINITION_NOT_PUBLISHED")
    first = (await definitions.publish(draft.id)).published
    await definitions.update(draft.id, 2, {"removeStep": {"ref": "ship"}})
    exported = await definitions.export("order")
    assert (exported.id, exported.family_slug, exported.version) == (first.id, "order", 1)
    assert exported == await definitions.export(draft.id) == await definitions.export(first.id)
    assert exported.yaml.startswith("type: workflow_definition\ndefinition:\n  family_slug: order\n")
    assert (await definitions.validate(document=exported.yaml)).manifest_hash == first.manifest_hash
    of_draft = await definitions.export("order", view=pb.DEFINITION_VIEW_DRAFT)
    assert (of_draft.id, of_draft.version) == (draft.id, 2)
    assert "ship" not in of_draft.yaml
    await definitions.archive(draft.id)
    assert (await refused(definitions.export("order"))).reason == "DEFINITION_ARCHIVED"
    assert (await definitions.export(first.id)).yaml == exported.yaml


async def test_validation_tells_what_a_publish_would_refuse(definitions: Definitions, rows: Rows) -> None:
    """Inline, as a document, or by id; nothing is written by it."""
    draft = (await definitions.create()).data
    first = (await definitions.publish(draft.id)).published
    for source in ({"id": draft.id}, {"id": first.id}):
        verdict = await definitions.validate(**source)
        assert (verdict.valid, verdict.manifest_hash) == (True, first.manifest_hash)
    broken = without(order(), "edges") | {"edges": [{"source_ref": "pay", "target_ref": "shop", "type": "success"}]}
    document = await definitions.validate(
        document=json.dumps({"type": "workflow_definition", "definition": broken}, indent=1)
    )
    assert (document.valid, document.manifest_hash) == (False, "")
    (violation,) = document.violations
    assert (violation.code, violation.path) == ("DANGLING_EDGE", "edges[0].target_ref")
    assert violation.line > 1
    assert violation.column > 1
    assert (await definitions.validate(document="- 1")).violations[0].line == 1
    assert len(await rows.everything()) == 4
