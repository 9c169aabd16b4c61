"""One call over a new channel: whether it gets in."""

from typing import Any

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc.channels import open_channel, outgoing
from tests.rpc.echo import loopback, refusal_of


async def trigger(address: str, options: dict[str, Any]) -> str:
    """The tenant that one call over a new channel was made for."""
    async with open_channel(address, loopback(**options)) as channel:
        stub = trigger_grpc.WorkflowTriggerServiceStub(channel)
        request = trigger_pb2.TriggerWorkflowRequest()
        return (await stub.TriggerWorkflow(request, metadata=outgoing(tenant_id="acme"), timeout=20)).run_id


async def refused(address: str, options: dict[str, Any]) -> str:
    """The reason of a call that does not get in."""
    return (await refusal_of(lambda: trigger(address, options))).reason
