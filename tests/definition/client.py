"""The definition service as a tenant's caller sees it, and definitions to call it with."""

import json
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductord.definition import convert
from ductord.model.errors import Refusal
from ductord.rpc.errors import refusal_from

ACME = "acme"
OTHER = "other"


def order(family_slug: str = "order", **fields: Any) -> dict[str, Any]:
    """A small definition that publishes: two actions, an edge, a trigger, a checkpoint, a variable and an output."""
    return {
        "family_slug": family_slug,
        "title": "Order",
        "description": "Two steps",
        "tags": ["sales", "demo"],
        "variables": {"limit": 3, "rate": 0.25},
        "output": {"echo": '${{ STEPS["pay"].output }}', "cost": "${{ VARS.limit * VARS.rate }}"},
        "steps": [
            {
                "ref": "pay",
                "type": "action",
                "action": "core:echo",
                "args": {"amount": "${{ TRIGGER.payload.amount }}", "n": 5},
            },
            {"ref": "ship", "type": "action", "action": "noop:noop", "retry_max_attempts": 2, "retry_backoff_ms": 10},
        ],
        "edges": [{"source_ref": "pay", "target_ref": "ship", "type": "success"}],
        "triggers": [{"id": "t1", "type": "manual"}],
        "checkpoints": [{"name": "paid", "step_refs": ["pay"]}],
        "fail_policy": "drain",
        "run_timeout_ms": 60_000,
        "tier": "critical",
        **fields,
    }


def without(definition: dict[str, Any], *names: str) -> dict[str, Any]:
    """The definition less some fields."""
    return {key: value for key, value in definition.items() if key not in names}


def message(definition: dict[str, Any], *, payload_format: int = 2) -> pb.WorkflowDefinition:
    """The definition as the contract's message: payloads as JSON text (2) or as Structs (1)."""
    filled = pb.WorkflowDefinition()
    convert.fill(filled, definition, payload_format)
    return filled


class Definitions:
    """The RPCs of the service, short. `tenant` names whose call it is."""

    def __init__(self, channel: grpc.aio.Channel, tenant: str = ACME) -> None:
        self.channel = channel
        self.tenant = tenant
        self.stub = WorkflowDefinitionServiceStub(channel)

    def of(self, tenant: str) -> "Definitions":
        """The same service, called by another tenant."""
        return Definitions(self.channel, tenant)

    async def call(self, method: str, request: Any) -> Any:
        """Any RPC by its name in the contract."""
        return await getattr(self.stub, method)(request, metadata=(("x-tenant-id", self.tenant),), timeout=60)

    async def create(
        self, definition: dict[str, Any] | None = None, *, payload_format: int = 2
    ) -> api.CreateWorkflowDefinitionResponse:
        """CreateWorkflowDefinition."""
        request = api.CreateWorkflowDefinitionRequest()
        request.payload_format = payload_format  # type: ignore[assignment]  # a number of the enum
        convert.fill(request, definition if definition is not None else order(), payload_format)
        answer: api.CreateWorkflowDefinitionResponse = await self.call("CreateWorkflowDefinition", request)
        return answer

    async def get(self, any_id: str, **fields: Any) -> pb.WorkflowDefinitionDetail:
        """GetWorkflowDefinition; its data."""
        answer: api.GetWorkflowDefinitionResponse = await self.call(
            "GetWorkflowDefinition", api.GetWorkflowDefinitionRequest(id=any_id, **fields)
        )
        return answer.data

    async def list(self, **fields: Any) -> api.ListWorkflowDefinitionsResponse:
        """ListWorkflowDefinitions."""
        answer: api.ListWorkflowDefinitionsResponse = await self.call(
            "ListWorkflowDefinitions", api.ListWorkflowDefinitionsRequest(**fields)
        )
        return answer

    async def update(
        self, any_id: str, revision: int | None, *operations: dict[str, Any], **fields: Any
    ) -> api.UpdateWorkflowDraftResponse:
        """UpdateWorkflowDraft; operations in canonical proto JSON."""
        request = api.UpdateWorkflowDraftRequest(id=any_id, expected_draft_revision=revision, **fields)
        for operation in operations:
            ParseDict(operation, request.operations.add())
        answer: api.UpdateWorkflowDraftResponse = await self.call("UpdateWorkflowDraft", request)
        return answer

    async def delete_draft(self, any_id: str, **fields: Any) -> api.DeleteWorkflowDraftResponse:
        """DeleteWorkflowDraft."""
        answer: api.DeleteWorkflowDraftResponse = await self.call(
            "DeleteWorkflowDraft", api.DeleteWorkflowDraftRequest(id=any_id, **fields)
        )
        return answer

    async def publish(
        self, any_id: str, revision: int | None = None, **fields: Any
    ) -> api.PublishWorkflowDefinitionResponse:
        """PublishWorkflowDefinition."""
        request = api.PublishWorkflowDefinitionRequest(id=any_id, expected_draft_revision=revision, **fields)
        answer: api.PublishWorkflowDefinitionResponse = await self.call("PublishWorkflowDefinition", request)
        return answer

    async def archive(self, any_id: str, **fields: Any) -> pb.WorkflowDefinitionDetail:
        """ArchiveWorkflowDefinition; its data."""
        answer: api.ArchiveWorkflowDefinitionResponse = await self.call(
            "ArchiveWorkflowDefinition", api.ArchiveWorkflowDefinitionRequest(id=any_id, **fields)
        )
        return answer.data

    async def duplicate(self, any_id: str, family_slug: str, **fields: Any) -> pb.WorkflowDefinitionDetail:
        """DuplicateWorkflowDefinition; its data."""
        request = api.DuplicateWorkflowDefinitionRequest(id=any_id, family_slug=family_slug, **fields)
        answer: api.DuplicateWorkflowDefinitionResponse = await self.call("DuplicateWorkflowDefinition", request)
        return answer.data

    async def validate(self, **fields: Any) -> pb.WorkflowDefinitionValidation:
        """ValidateWorkflowDefinition; its data."""
        answer: api.ValidateWorkflowDefinitionResponse = await self.call(
            "ValidateWorkflowDefinition", api.ValidateWorkflowDefinitionRequest(**fields)
        )
        return answer.data

    async def set_override(
        self, any_id: str, environment: str, variables: Any = None, **fields: Any
    ) -> api.WorkflowEnvOverride:
        """UpsertWorkflowEnvOverride; its data, with payloads as JSON text unless `payload_format` says otherwise."""
        if variables is not None:
            fields["variables_json"] = json.dumps(variables)
        request = api.UpsertWorkflowEnvOverrideRequest(
            workflow_id=any_id, environment=environment, **{"payload_format": 2, **fields}
        )
        answer: api.UpsertWorkflowEnvOverrideResponse = await self.call("UpsertWorkflowEnvOverride", request)
        return answer.data

    async def overrides(self, any_id: str, **fields: Any) -> api.ListWorkflowEnvOverridesResponse:
        """ListWorkflowEnvOverrides."""
        request = api.ListWorkflowEnvOverridesRequest(workflow_id=any_id, **{"payload_format": 2, **fields})
        answer: api.ListWorkflowEnvOverridesResponse = await self.call("ListWorkflowEnvOverrides", request)
        return answer

    async def delete_override(self, any_id: str, environment: str, **fields: Any) -> None:
        """DeleteWorkflowEnvOverride."""
        request = api.DeleteWorkflowEnvOverrideRequest(workflow_id=any_id, environment=environment, **fields)
        await self.call("DeleteWorkflowEnvOverride", request)

    async def export(self, name: str, **fields: Any) -> pb.WorkflowDefinitionExport:
        """ExportWorkflowDefinition; its data."""
        answer: api.ExportWorkflowDefinitionResponse = await self.call(
            "ExportWorkflowDefinition", api.ExportWorkflowDefinitionRequest(id=name, **fields)
        )
        return answer.data


async def refused(call: Any) -> Refusal:
    """Await a call that must be refused; how."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return refusal_from(error)
    raise AssertionError("the call was not refused")
