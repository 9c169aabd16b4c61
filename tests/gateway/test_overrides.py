"""Environment overrides at the HTTP doors: what reaches the definition service by REST and by Connect, and what comes back (L8, L5)."""

import json
from typing import Any

import pytest

from ductor.workflow.v1 import common_pb2
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.rpc.errors import refused
from tests.gateway.peers import Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/api/workflow-definitions/d1/env-overrides"
BIG = 9_007_199_254_740_993
OVERRIDE = api.WorkflowEnvOverride(environment="prod", variables_json=f'{{"limit":{BIG}}}', updated_by="eve")


@pytest.mark.parametrize("door", ["rest", "connect"])
async def test_an_override_is_set(gateway: Running, door: str) -> None:
    """The values stay exact both ways; at REST they stand under their own name, at Connect as the twin."""
    gateway.peers.answers["UpsertWorkflowEnvOverride"] = api.UpsertWorkflowEnvOverrideResponse(data=OVERRIDE)
    body: dict[str, Any] = {"environment": "prod", "reason": "as agreed"}
    if door == "rest":
        response = await gateway.http.put(PATH, json={**body, "variables": {"limit": BIG}})
        found = response.json()["data"]
        assert (found["environment"], found["variables"], found["updated_by"]) == ("prod", {"limit": BIG}, "eve")
    else:
        given = {
            **body,
            "workflowId": "d1",
            "variablesJson": json.dumps({"limit": BIG}),
            "payloadFormat": "PAYLOAD_FORMAT_JSON",
        }
        response = await gateway.connect("WorkflowDefinitionService/UpsertWorkflowEnvOverride", given)
        assert json.loads(response.json()["data"]["variablesJson"]) == {"limit": BIG}
    assert response.status_code == 200
    asked = gateway.peers.last.request
    assert (asked.workflow_id, asked.environment, asked.reason) == ("d1", "prod", "as agreed")
    assert json.loads(asked.variables_json) == {"limit": BIG}
    assert asked.payload_format == common_pb2.PAYLOAD_FORMAT_JSON


@pytest.mark.parametrize("door", ["rest", "connect"])
async def test_overrides_are_listed(gateway: Running, door: str) -> None:
    """A page with its token."""
    gateway.peers.answers["ListWorkflowEnvOverrides"] = api.ListWorkflowEnvOverridesResponse(
        data=[OVERRIDE], next_page_token="next"
    )
    if door == "rest":
        response = await gateway.http.get(f"{PATH}?page_size=1&page_token=this")
        found = response.json()
        assert found["data"][0]["variables"] == {"limit": BIG}
        assert found["next_page_token"] == "next"
    else:
        response = await gateway.connect(
            "WorkflowDefinitionService/ListWorkflowEnvOverrides",
            {"workflowId": "d1", "pageSize": 1, "pageToken": "this"},
        )
        found = response.json()
        assert (found["data"][0]["environment"], found["nextPageToken"]) == ("prod", "next")
    asked = gateway.peers.last.request
    assert (asked.workflow_id, asked.page_size, asked.page_token) == ("d1", 1, "this")


@pytest.mark.parametrize("door", ["rest", "connect"])
async def test_an_override_is_removed(gateway: Running, door: str) -> None:
    """The environment stands in the path; what is not there is 404."""
    gateway.peers.answers["DeleteWorkflowEnvOverride"] = refused(
        "ENV_OVERRIDE_NOT_FOUND", "there is none", environment="prod"
    )
    if door == "rest":
        response = await gateway.http.delete(f"{PATH}/prod?reason=gone")
        assert fault(response) == (404, "NOT_FOUND", "ENV_OVERRIDE_NOT_FOUND", {"environment": "prod"})
    else:
        body = {"workflowId": "d1", "environment": "prod", "reason": "gone"}
        response = await gateway.connect("WorkflowDefinitionService/DeleteWorkflowEnvOverride", body)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
    asked = gateway.peers.last.request
    assert (asked.workflow_id, asked.environment, asked.reason) == ("d1", "prod", "gone")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"environment": "prod", "variables": 1}', "FIELD_INVALID"),
        ('{"environment": "prod", "values": {}}', "FIELD_UNKNOWN"),
        ('{"environment": 1, "variables": {}}', "FIELD_INVALID"),
        ('{"environment": "prod", "workflow_id": "d2", "variables": {}}', "FIELD_DUPLICATE"),
    ],
)
async def test_bad_bodies_reach_nobody(gateway: Running, body: str, reason: str) -> None:
    """AP-01: refused at the door, with the field."""
    response = await gateway.http.put(PATH, content=body)
    assert (response.status_code, fault(response)[2]) == (400, reason)
    assert not gateway.peers.calls
