"""Somebody outside, at the gRPC door of the signals service."""

from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.model.errors import Refusal
from tests.support.books import TENANT
from tests.support.edges import Edges, as_tenant, refusal


class Sender(msgspec.Struct, frozen=True):
    """Calls WorkflowSignalService for one tenant."""

    edges: Edges
    tenant: str = TENANT

    async def call(self, rpc: str, timeout: float = 60, **fields: Any) -> Any:
        """Any RPC; fields as JSON has them."""
        request = ParseDict(fields, getattr(api, f"{rpc}Request")())
        return await getattr(self.edges.signals, rpc)(request, metadata=as_tenant(self.tenant), timeout=timeout)

    async def refused(self, rpc: str, **fields: Any) -> Refusal:
        """How a call is refused."""
        return await refusal(self.call(rpc, **fields))

    async def publish(self, name: str = "paid", key: str = "k", **fields: Any) -> api.PublishEventResponse:
        """PublishEvent."""
        answer: api.PublishEventResponse = await self.call(
            "PublishEvent", event_name=name, correlation_key=key, **fields
        )
        return answer

    async def told(self, name: str = "paid", key: str = "k", **fields: Any) -> tuple[int, bool]:
        """PublishEvent: matched, duplicate."""
        answer = await self.publish(name, key, **fields)
        return answer.matched, answer.duplicate
