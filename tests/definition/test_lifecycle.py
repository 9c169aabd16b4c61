"""From a draft to versions and their retirement, through real gRPC on a real database (spec: the lifecycle; rulings D1 to D3, C8)."""

import asyncpg

from ductor.workflow.v1 import definition_pb2 as pb
from tests.definition.client import Definitions, order, refused


async def test_create_answers_the_draft_with_the_id_of_the_family(definitions: Definitions) -> None:
    """D1: the definition id names the draft; D2: it shows the number it would get."""
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
    assert answer.metadata.fetched_at.seconds >= draft.create_time.seconds
    assert await definitions.get(draft.id, payload_format=2) == draft
