"""AP-05: verbs, ids with special characters, unknown paths and methods."""

from collections.abc import Mapping

import pytest
from google.api import annotations_pb2  # registers the option
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from ductord.gateway.routing import Routes
from ductord.model.errors import Refusal


def service(
    *rules: tuple[str, str], fields: tuple[str, ...] = ("run_id", "step_ref"), **given: str
) -> ServiceDescriptor:
    """A service whose RPCs `Rpc0`, `Rpc1` … have the given (HTTP method, template)."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="Request")
    for number, name in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=9, label=1)
    made = file.service.add(name="S")
    for index, (http_method, template) in enumerate(rules):
        rpc = made.method.add(name=f"Rpc{index}", input_type=".t.Request", output_type=".t.Request")
        rule = rpc.options.Extensions[annotations_pb2.http]
        setattr(rule, http_method.lower(), template)
        for name, value in given.items():
            setattr(rule, name, value)
    pool = descriptor_pool.DescriptorPool()
    for dependency in ("google/protobuf/descriptor.proto", "google/api/http.proto", "google/api/annotations.proto"):
        known = descriptor_pool.Default().FindFileByName(dependency)
        pool.AddSerializedFile(known.serialized_pb)
    pool.Add(file)
    return pool.FindServiceByName("t.S")


SIGNALS = [
    ("GET", "/runs/{run_id}"),
    ("POST", "/runs/{run_id}:pause"),
    ("POST", "/runs/{run_id}/steps/{step_ref}:approve"),
    ("GET", "/runs/{run_id}/steps/{step_ref}"),
    ("GET", "/runs/special"),
    ("POST", "/runs:explain"),
]


def routes() -> Routes:
    """The routes of `SIGNALS`."""
    return Routes([service(*SIGNALS)])


def matched(http_method: str, path: str) -> tuple[str, Mapping[str, str]]:
    """(name of the RPC, values) of a path."""
    match = routes().match(http_method, path)
    return match.route.rpc.name, match.values


def refused(http_method: str, path: str) -> Refusal:
    """The refusal of a path."""
    with pytest.raises(Refusal) as raised:
        routes().match(http_method, path)
    return raised.value


def test_ap_05_the_last_colon_splits_the_verb() -> None:
    assert matched("POST", "/runs/a:b:pause") == ("Rpc1", {"run_id": "a:b"})
    assert matched("POST", "/runs/r/steps/a:approve:approve") == ("Rpc2", {"run_id": "r", "step_ref": "a:approve"})
    assert matched("POST", "/runs:explain") == ("Rpc5", {})


def test_ap_05_a_colon_in_an_earlier_segment_is_part_of_the_id() -> None:
    assert matched("GET", "/runs/a:pause/steps/s") == ("Rpc3", {"run_id": "a:pause", "step_ref": "s"})


@pytest.mark.parametrize(
    ("segment", "value"),
    [
        ("a%3Ab", "a:b"),
        ("a%2Fb", "a/b"),
        ("%C3%A4", "ä"),
        ("a%253Ab", "a%3Ab"),
        ("..", ".."),
        ("a+b", "a+b"),
        ("a%3aapprove", "a:approve"),
    ],
)
def test_ap_05_segments_are_percent_decoded_once(segment: str, value: str) -> None:
    assert matched("GET", f"/runs/r/steps/{segment}") == ("Rpc3", {"run_id": "r", "step_ref": value})


@pytest.mark.parametrize("segment", ["%zz", "%", "a%2", "%ff", "%ED%A0%80"])
def test_ap_05_an_escape_that_is_none_is_the_callers_fault(segment: str) -> None:
    refusal = refused("GET", f"/runs/r/steps/{segment}")
    assert (refusal.code, refusal.reason, refusal.metadata) == (
        "INVALID_ARGUMENT",
        "FIELD_INVALID",
        {"field": "step_ref"},
    )


@pytest.mark.parametrize(
    "path",
    ["/", "", "/runs/", "/runs//steps/s", "/runs/r/", "/nope", "/runs/r/steps/a/b", "/runs/r:explode", "/runs/r:", "*"],
)
def test_ap_05_an_unknown_path_or_verb_is_not_found(path: str) -> None:
    for http_method in ("GET", "POST", "BREW"):
        assert (refused(http_method, path).code, refused(http_method, path).reason) == ("NOT_FOUND", "ROUTE_NOT_FOUND")


def test_ap_05_a_wrong_method_names_the_right_ones() -> None:
    assert refused("GET", "/runs/r:pause").metadata == {"allow": "POST"}
    assert refused("DELETE", "/runs/r").metadata == {"allow": "GET"}
    assert refused("GET", "/runs/r:pause").reason == "METHOD_NOT_ALLOWED"


def test_a_literal_wins_over_a_variable() -> None:
    assert matched("GET", "/runs/special") == ("Rpc4", {})
    assert matched("GET", "/runs/other") == ("Rpc0", {"run_id": "other"})


@pytest.mark.parametrize(
    "bad",
    [
        service(("GET", "/runs/{run_id=**}")),
        service(("GET", "/runs/{run.id}")),
        service(("GET", "/runs/*")),
        service(("GET", "/runs/{nope}")),
        service(("GET", "/runs/{run_id}"), ("GET", "/runs/{step_ref}")),
        service(("POST", "/runs"), body="step_ref"),
        service(("POST", "/runs"), response_body="step_ref"),
    ],
)
def test_an_annotation_that_is_not_spoken_here_fails_the_start(bad: ServiceDescriptor) -> None:
    with pytest.raises(TypeError):
        Routes([bad])
