"""A run from its definition to its end, on nothing but the generated stubs: create, publish, trigger, watch until it waits, approve, watch to its end."""

import json
import os
import secrets
import sys
from collections.abc import Iterator

import grpc

from ductor.workflow.v1 import definition_pb2 as definition
from ductor.workflow.v1 import run_pb2 as run
from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions_api
from ductor.workflow.v1 import workflow_service_pb2 as runs_api
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals_api
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers_api
from ductor.workflow.v1.common_pb2 import PAYLOAD_FORMAT_JSON
from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_signal_service_pb2_grpc import WorkflowSignalServiceStub
from ductor.workflow.v1.workflow_trigger_service_pb2_grpc import WorkflowTriggerServiceStub

NAME = f"python-tour-{secrets.token_hex(6)}"
CENTS = 2**53 + 1  # more than a double holds: text carries it exactly

metadata = []
if tenant := os.environ.get("DUCTOR_TENANT_ID"):
    metadata.append(("x-tenant-id", tenant))
if key := os.environ.get("DUCTOR_API_KEY"):
    metadata.append(("authorization", f"Bearer {key}"))


def steps() -> Iterator[definition.StepDefinition]:
    """Something happens, somebody consents, something else happens."""
    action = definition.STEP_TYPE_ACTION
    yield definition.StepDefinition(
        ref="price", type=action, action="core:echo", args_json='{"cents": "${{ TRIGGER.payload.cents }}"}'
    )
    yield definition.StepDefinition(ref="consent", type=definition.STEP_TYPE_APPROVAL, approval={})
    yield definition.StepDefinition(
        ref="buy",
        type=action,
        action="core:echo",
        args_json='{"paid": "${{ STEPS.price.output.cents }}", "because": "${{ STEPS.consent.output.comment }}"}',
    )


def tour(channel: grpc.Channel) -> None:
    """All of it, one line per step."""
    definitions = WorkflowDefinitionServiceStub(channel)
    create = definitions_api.CreateWorkflowDefinitionRequest(
        family_slug=NAME,
        steps=steps(),
        edges=[
            definition.EdgeDefinition(source_ref="price", target_ref="consent", type=definition.EDGE_TYPE_SUCCESS),
            definition.EdgeDefinition(source_ref="consent", target_ref="buy", type=definition.EDGE_TYPE_APPROVED),
        ],
    )
    created = definitions.CreateWorkflowDefinition(create, metadata=metadata)
    print(f"created {NAME}")

    publish = definitions_api.PublishWorkflowDefinitionRequest(id=created.data.definition_id)
    published = definitions.PublishWorkflowDefinition(publish, metadata=metadata)
    print(f"published version {published.published.version}")

    triggers = WorkflowTriggerServiceStub(channel)
    trigger = triggers_api.TriggerWorkflowRequest(
        definition_id=created.data.definition_id,
        input_json=json.dumps({"cents": CENTS}),
        idempotency_key=NAME,  # the same call again is the same run
    )
    run_id = triggers.TriggerWorkflow(trigger, metadata=metadata).run_id
    print(f"triggered run {run_id}")

    runs, decided = WorkflowServiceStub(channel), False
    for news in runs.WatchRun(runs_api.WatchRunRequest(run_id=run_id, follow=True), metadata=metadata, timeout=60):
        for node in news.nodes:
            if node.status == run.NODE_STATUS_WAITING and not decided:
                print(f"waits for {node.step_ref}")
                approve = signals_api.ApproveStepRequest(
                    run_id=run_id, step_ref=node.step_ref, request_id=NAME, comment="why not"
                )
                WorkflowSignalServiceStub(channel).ApproveStep(approve, metadata=metadata)
                decided = True
                print("approved")

    request = runs_api.GetRunRequest(run_id=run_id, payload_format=PAYLOAD_FORMAT_JSON)
    result = json.loads(runs.GetRun(request, metadata=metadata).data.result_json)
    if result != {"buy": {"paid": CENTS, "because": "why not"}}:
        sys.exit(f"unexpected result: {result}")
    print(f"completed with {result}")


if __name__ == "__main__":
    with grpc.insecure_channel(os.environ["DUCTOR_TARGET"]) as open_channel:
        tour(open_channel)
