"""Event triggers from the definition to the run: published through the definition service, started by an event, driven by a real coordinator (T3, E3, E4)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductord.coordinator.service import SERVICE as COORDINATOR
from ductord.definition.service import SERVICE as DEFINITION
from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.sender import Sender
from tests.support.api import Api, message
from tests.support.books import TENANT
from tests.support.edges import Edges, serving

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Definitions, signals and a coordinator in one process."""
    async with serving(database, [DEFINITION, SERVICE, COORDINATOR], pool_max_size=4, environment="prod") as running:
        yield running


@pytest.fixture
async def api(edges: Edges) -> AsyncIterator[Api]:
    """The author of definitions."""
    async with Api(edges.host.grpc_address.reachable, TENANT) as api:
        yield api


async def _until(owner: asyncpg.Connection, sql: str, *values: Any) -> Any:
    """The first answer that is something."""
    async with asyncio.timeout(60):
        while not (found := await owner.fetchval(sql, *values)):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.02)
    return found


def _tells(*triggers: dict[str, Any], slug: str = "order", **fields: Any) -> dict[str, Any]:
    """A definition whose only step is asked to echo what TRIGGER holds."""
    step = {"ref": "tell", "type": "action", "action": "core:echo", "args": {"all": "${{ TRIGGER }}"}}
    return {"family_slug": slug, "steps": [step], "edges": [], "triggers": list(triggers), **fields}


async def _republish(api: Api, definition_id: str, *triggers: dict[str, Any]) -> None:
    """The next version of a definition, with other triggers."""
    ask = definitions.GetWorkflowDefinitionRequest(id=definition_id)
    known = await api.definitions.GetWorkflowDefinition(ask, metadata=api.metadata, timeout=60)
    operations = [{"set_triggers": {"triggers": list(triggers)}}]
    edit = {"id": definition_id, "expected_draft_revision": known.data.draft_revision, "operations": operations}
    request = message(definitions.UpdateWorkflowDraftRequest, edit)
    await api.definitions.UpdateWorkflowDraft(request, metadata=api.metadata, timeout=60)
    publish = definitions.PublishWorkflowDefinitionRequest(id=definition_id)
    await api.definitions.PublishWorkflowDefinition(publish, metadata=api.metadata, timeout=60)


async def test_t3_trigger_in_the_run(api: Api, sender: Sender, owner: asyncpg.Connection) -> None:
    """TRIGGER says which trigger and which event, payload and all, whether the input is mapped or the payload itself; patterns, filter, input and tier travel
    from the definition to the run."""
    mapped = {"id": "${{ EVENT.payload.id }}", "who": "${{ VARS.who }}"}
    await api.publish(
        _tells(
            {"id": "plain", "type": "event", "patterns": ["order.created", "order.moved"]},
            {
                "id": "mapped",
                "type": "event",
                "patterns": ["order.created"],
                "filter": "EVENT.payload.id > 1",
                "input": mapped,
            },
            variables={"who": "ops"},
        )
    )
    answer = await sender.publish("order.created", "k", event_id="e", payload={"id": 7})
    assert len(answer.started_run_ids) == 2
    sql = "select count(*) = $1 from eec_workflow_step_attempt"
    await _until(owner, sql, 2)
    rows = await owner.fetch("select input::text from eec_workflow_step_attempt")
    told = {seen["id"]: seen for row in rows if (seen := json.loads(row["input"])["all"])}
    event = {"name": "order.created", "id": "e", "correlation_key": "k", "payload": {"id": 7}}
    for name, payload in (("plain", {"id": 7}), ("mapped", {"id": 7, "who": "ops"})):
        time = told[name]["event"].pop("time")
        assert time.endswith("Z")
        assert told[name] == {
            "type": "event",
            "id": name,
            "scheduled_time": None,
            "subject": {"type": "", "id": ""},
            "payload": payload,
            "event": event,
        }
    answer = await sender.publish("order.moved", event_id="e", payload={"id": 1})
    assert len(answer.started_run_ids) == 1
    await _until(owner, sql, 3)


async def test_d3_an_archived_definition_starts_nothing(api: Api, sender: Sender) -> None:
    """The newest version's triggers are live, and no others; archiving it revives none."""

    def patterns(*names: str) -> dict[str, Any]:
        return {"id": "on", "type": "event", "patterns": list(names)}

    first = await api.publish(_tells(patterns("old", "both")))
    assert len((await sender.publish("old")).started_run_ids) == 1
    await _republish(api, first, patterns("new", "both"))
    assert len((await sender.publish("old")).started_run_ids) == 0
    assert len((await sender.publish("both")).started_run_ids) == 1
    assert len((await sender.publish("new")).started_run_ids) == 1
    archive = definitions.ArchiveWorkflowDefinitionRequest(id=first)
    await api.definitions.ArchiveWorkflowDefinition(archive, metadata=api.metadata, timeout=60)
    for name in ("old", "both", "new"):
        assert len((await sender.publish(name)).started_run_ids) == 0


async def test_e4_the_first_wait_is_not_for_the_event_that_started_the_run(
    api: Api, sender: Sender, owner: asyncpg.Connection
) -> None:
    """E4: the event is kept, and a wait of another run gets it; the run that it started waits for another event of the same name and key."""
    listens = {"event": {"event_name": "order.created", "correlation_key": "TRIGGER.event.correlation_key"}}
    wait = {"ref": "w", "type": "wait", "wait": listens}
    trigger = {"id": "on", "type": "event", "patterns": ["order.created"]}
    await api.publish({"family_slug": "own", "steps": [wait], "edges": [], "triggers": [trigger]})
    first = await sender.publish("order.created", "k", event_id="e1", ttl_seconds=300)
    [run_id] = first.started_run_ids
    await _until(owner, "select exists (select from eec_workflow_wait where run_id = $1)", run_id)
    assert await owner.fetchval("select count(*) from eec_workflow_receipt") == 0
    other = {**wait, "wait": {"event": {**listens["event"], "correlation_key": "'k'"}}}
    started = {"id": "on", "type": "event", "patterns": ["go"]}
    await api.publish({"family_slug": "other", "steps": [other], "edges": [], "triggers": [started]})
    [second_id] = (await sender.publish("go", event_id="go")).started_run_ids
    ended = "select end_time is not null from eec_workflow_run where run_id = $1"
    await _until(owner, ended, second_id)
    assert not await owner.fetchval(ended, run_id)
    answer = await sender.publish("order.created", "k", event_id="e2")
    assert (answer.matched, len(answer.started_run_ids)) == (1, 1)
    await _until(owner, ended, run_id)
