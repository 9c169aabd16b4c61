"""An operator at the gRPC door, who names controls as the engine names its verbs."""

from typing import Any

import msgspec
from google.protobuf.json_format import ParseDict

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.model.enums import Verb
from ductord.model.errors import Refusal
from tests.support.books import TENANT
from tests.support.edges import Edges, as_tenant, refusal

RPCS = {
    Verb.PAUSE: "PauseRun",
    Verb.RESUME: "ResumeRun",
    Verb.CANCEL: "CancelRun",
    Verb.TERMINATE: "TerminateRun",
    Verb.REDRIVE: "RedriveRun",
    Verb.CONTINUE_AS_NEW: "ContinueAsNewRun",
    Verb.RESET: "ResetRun",
    Verb.PAUSE_NODE: "PauseNode",
    Verb.RESUME_NODE: "ResumeNode",
    Verb.RESET_NODE: "ResetNode",
    Verb.UPDATE_NODE_RETRY_POLICY: "UpdateNodeRetryPolicy",
    Verb.UPDATE_NODE_TIMEOUT: "UpdateNodeTimeout",
    Verb.RESOLVE_REPAIR: "ResolveRepair",
}
LEAST: dict[Verb, dict[str, Any]] = {
    Verb.RESET: {"transition_seq": 1},
    Verb.PAUSE_NODE: {"step_ref": "s0"},
    Verb.RESUME_NODE: {"step_ref": "s0"},
    Verb.RESET_NODE: {"step_ref": "s0"},
    Verb.UPDATE_NODE_RETRY_POLICY: {"step_ref": "s0", "retry_policy": {"retry_max_attempts": 3}},
    Verb.UPDATE_NODE_TIMEOUT: {"step_ref": "s0", "timeouts": {"timeout_ms": 1000}},
    Verb.RESOLVE_REPAIR: {"step_ref": "s0", "resolution": "REPAIR_RESOLUTION_DONE"},
}
"""The fields that a verb cannot do without."""


class Operator(msgspec.Struct, frozen=True):
    """Calls WorkflowRunControlService for one tenant."""

    edges: Edges
    tenant: str = TENANT

    async def call(self, rpc: str, timeout: float = 60, **fields: Any) -> Any:
        """Any RPC; fields as JSON has them."""
        request = ParseDict(fields, getattr(api, f"{rpc}Request")())
        return await getattr(self.edges.controls, rpc)(request, metadata=as_tenant(self.tenant), timeout=timeout)

    async def ask(self, verb: Verb, run_id: str, **fields: Any) -> Any:
        """A control, with the least that it needs and `fields`."""
        name = "source_run_id" if verb is Verb.RESET else "run_id"
        return await self.call(RPCS[verb], **{name: run_id, **LEAST.get(verb, {}), **fields})

    async def refused(self, verb: Verb, run_id: str, **fields: Any) -> Refusal:
        """How a control is refused."""
        return await refusal(self.ask(verb, run_id, **fields))

    async def operation(self, run_id: str, request_id: str) -> control_pb2.Operation:
        """GetOperation."""
        answer: api.GetOperationResponse = await self.call("GetOperation", run_id=run_id, request_id=request_id)
        return answer.data
