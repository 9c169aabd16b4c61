"""A caller of the suite with nothing but generated stubs: publish a definition given as a tree, start runs, wait for their end."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ductor.workflow.v1 import (
    run_pb2,
)
from ductor.workflow.v1 import (
    workflow_definition_service_pb2 as definitions,
)
from ductor.workflow.v1 import (
    workflow_definition_service_pb2_grpc as definitions_grpc,
)
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads_grpc
from ductor.workflow.v1 import (
    workflow_trigger_service_pb2 as triggers,
)
from ductor.workflow.v1 import (
    workflow_trigger_service_pb2_grpc as triggers_grpc,
)

M = TypeVar("M", bound=Message)

_RETRY = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


def message(kind: type[M], tree: Mapping[str, Any]) -> M:
    """A proto message of a definition's JSON tree: short enum names become the contract's."""
    result = kind()
    json_format.ParseDict(_full_names(tree, kind.DESCRIPTOR), result)
    return result


def _full_names(value: Any, descriptor: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    out = {}
    for name, item in value.items():
        field = descriptor.fields_by_name.get(name)
        if field is None or descriptor.full_name.startswith("google."):
            out[name] = item
        elif field.type == FieldDescriptor.TYPE_ENUM and isinstance(item, str):
            prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
            out[name] = item if item.startswith(prefix) else prefix + item.upper()
        elif field.message_type is not None and not field.message_type.full_name.startswith("google."):
            convert = field.message_type
            out[name] = (
                [_full_names(i, convert) for i in item] if isinstance(item, list) else _full_names(item, convert)
            )
        else:
            out[name] = item
    return out


class Api:
    """A tenant's view of a suite at one gRPC address. `async with`."""

    def __init__(self, target: str, tenant: str) -> None:
        self.channel = grpc.aio.insecure_channel(target, options=[("grpc.service_config", json.dumps(_RETRY))])
        self.metadata: tuple[tuple[str, str], ...] = (("x-tenant-id", tenant),)
        self.definitions = definitions_grpc.WorkflowDefinitionServiceStub(self.channel)
        self.triggers = triggers_grpc.WorkflowTriggerServiceStub(self.channel)
        self.reads = reads_grpc.WorkflowServiceStub(self.channel)

    async def __aenter__(self) -> "Api":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)

    async def publish(self, tree: Mapping[str, Any]) -> str:
        """Create and publish a definition; its definition id."""
        request = message(definitions.CreateWorkflowDefinitionRequest, tree)
        created = await self.definitions.CreateWorkflowDefinition(request, metadata=self.metadata, timeout=60)
        publish = definitions.PublishWorkflowDefinitionRequest(id=created.data.id)
        await self.definitions.PublishWorkflowDefinition(publish, metadata=self.metadata, timeout=60)
        return str(created.data.id)

    async def start_many(
        self, definition_id: str, count: int, *, key: str = "", input_json: str = "{}", chunk: int = 500
    ) -> list[str]:
        """Start `count` runs in batches; their run ids, in order. With `key` a repeated call starts nothing twice."""
        run_ids: list[str] = []
        for begin in range(0, count, chunk):
            items = [
                triggers.BatchTriggerItem(input_json=input_json, idempotency_key=f"{key}-{i}" if key else "")
                for i in range(begin, min(count, begin + chunk))
            ]
            request = triggers.BatchTriggerWorkflowRequest(definition_id=definition_id, items=items)
            response = await self.triggers.BatchTriggerWorkflow(request, metadata=self.metadata, timeout=60)
            for result in response.results:
                assert result.run_id, result
                run_ids.append(result.run_id)
        return run_ids

    async def active(self, definition_type: str = "") -> int:
        """How many runs have not ended yet (at most 1,000 are counted)."""
        request = reads.ListRunsRequest(active_only=True, workflow_type=definition_type, page_size=1000)
        return len((await self.reads.ListRuns(request, metadata=self.metadata, timeout=60)).data)

    async def run(self, run_id: str) -> run_pb2.RunDetail:
        """One run."""
        answer = await self.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=self.metadata, timeout=60)
        return answer.data

    async def until_ended(self, seconds: float = 60, *, poll: float = 0.2) -> None:
        """Await that no run of the tenant is open. Raises TimeoutError with the number that still is. The limit is for runs that never end: it claims nothing
        about speed."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                left = await self.active()
            except grpc.RpcError:
                left = -1
            if left == 0:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} runs are still open")
            await asyncio.sleep(poll)


def actions(refs: Sequence[str], action: str = "noop:noop", **fields: Any) -> list[dict[str, Any]]:
    """Steps of one action."""
    return [{"ref": ref, "type": "action", "action": action, **fields} for ref in refs]


def chain(slug: str, length: int, action: str = "noop:noop", **fields: Any) -> dict[str, Any]:
    """A definition of `length` steps one after the other."""
    refs = [f"s{i}" for i in range(length)]
    edges = [{"source_ref": a, "target_ref": b, "type": "success"} for a, b in pairwise(refs)]
    return {"family_slug": slug, "title": slug, "steps": actions(refs, action, **fields), "edges": edges}
