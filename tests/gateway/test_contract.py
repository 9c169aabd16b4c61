"""The gateway serves the whole contract and nothing else: its table, its routes and its plans follow from the descriptors."""

import importlib
import pkgutil
from typing import Any

import pytest
from google.api import annotations_pb2
from google.protobuf.descriptor import MethodDescriptor

import ductor.workflow.v1 as api
from ductord.gateway.backends import BACKENDS
from ductord.gateway.codecs import JsonCodec
from ductord.gateway.routing import Routes


def services() -> dict[str, Any]:
    """Every service of the contract by its full name."""
    names = [m.name for m in pkgutil.iter_modules(api.__path__) if m.name.endswith("_service_pb2")]
    modules = [importlib.import_module(f"{api.__name__}.{name}") for name in names]
    return {s.full_name: s for module in modules for s in module.DESCRIPTOR.services_by_name.values()}


def rpcs() -> list[MethodDescriptor]:
    """Every RPC of the contract."""
    return [rpc for service in services().values() for rpc in service.methods]


def test_every_service_of_the_contract_has_a_backend() -> None:
    assert {backend.service.full_name for backend in BACKENDS} == set(services())


def test_every_annotated_rpc_has_its_routes_and_no_other_has_one() -> None:
    routed = {route.rpc.full_name for route in Routes(services().values()).all}
    annotated = {rpc.full_name for rpc in rpcs() if rpc.GetOptions().HasExtension(annotations_pb2.http)}
    assert routed == annotated
    assert not any("TaskService" in name for name in routed)


def test_every_public_rpc_is_on_rest() -> None:
    missing = {rpc.name for rpc in rpcs()} - {route.rpc.name for route in Routes(services().values()).all}
    assert missing == {"PollTasks", "CompleteTasks", "HeartbeatTasks", "DescribeQueues"}


def test_every_message_of_the_contract_can_be_spoken() -> None:
    JsonCodec(rpcs())


@pytest.mark.parametrize(
    ("http_method", "path", "rpc"),
    [
        ("POST", "/api/workflow-definitions", "CreateWorkflowDefinition"),
        ("GET", "/api/workflow-definitions/d", "GetWorkflowDefinition"),
        ("GET", "/api/workflow-definitions", "ListWorkflowDefinitions"),
        ("PATCH", "/api/workflow-definitions/d/draft", "UpdateWorkflowDraft"),
        ("DELETE", "/api/workflow-definitions/d/draft", "DeleteWorkflowDraft"),
        ("POST", "/api/workflow-definitions/d/publish", "PublishWorkflowDefinition"),
        ("POST", "/api/workflow-definitions/d/duplicate", "DuplicateWorkflowDefinition"),
        ("POST", "/api/workflow-definitions/d/archive", "ArchiveWorkflowDefinition"),
        ("POST", "/api/v2/workflow-definitions/d:trigger", "TriggerWorkflow"),
        ("GET", "/api/workflows/runs", "ListRuns"),
        ("GET", "/api/workflows/runs/r", "GetRun"),
        ("GET", "/api/workflows/runs/r/steps", "ListRunSteps"),
        ("GET", "/api/workflows/runs/r/steps/s", "GetRunStep"),
        ("GET", "/api/workflows/runs/r/timeline", "GetRunTimeline"),
        ("GET", "/api/workflows/runs/r/events", "ListRunEvents"),
    ],
)
def test_the_paths_of_the_guide_reach_their_rpcs(http_method: str, path: str, rpc: str) -> None:
    assert Routes(services().values()).match(http_method, path).route.rpc.name == rpc
