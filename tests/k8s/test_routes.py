"""The ways in from outside: every RPC service and every REST path lead to the pods that serve them, and what is for the inside stays there."""

from typing import Any

import pytest
from google.api import annotations_pb2

from ductord.gateway.backends import BACKENDS
from ductord.rpc.operations import PATHS
from tests.k8s.manifests import environment, objects, services

pytestmark = pytest.mark.xdist_group("k8s")


def one(kind: str) -> dict[str, Any]:
    """The only object of a kind in production."""
    (found,) = objects("production", kind)
    return dict(found)


def rest_paths() -> set[str]:
    """The paths of every `google.api.http` annotation of the contract."""
    found = set()
    for backend in BACKENDS:
        for method in backend.service.methods:
            rule = method.GetOptions().Extensions[annotations_pb2.http]
            for each in (rule, *rule.additional_bindings):
                pattern = each.WhichOneof("pattern")
                if pattern:
                    found.add(getattr(each, pattern) if pattern != "custom" else each.custom.path)
    return found


def test_grpc_routes() -> None:
    """Each RPC service of the contract goes to the service that has it."""
    routed = {
        match["method"]["service"]: (ref["name"], ref["port"])
        for rule in one("GRPCRoute")["spec"]["rules"]
        for match in rule["matches"]
        for ref in rule["backendRefs"]
    }
    assert routed == {b.service.full_name: (b.target.replace("_", "-"), 9090) for b in BACKENDS}


def test_http_routes() -> None:
    """REST, Connect and the OpenAPI document go to the gateway; probes and metrics are not reached from outside."""
    (rule,) = one("HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "gateway", "port": 8080}]
    matches = [match["path"] for match in rule["matches"]]

    def routed(path: str) -> bool:
        return any(
            path == m["value"] if m["type"] == "Exact" else (path + "/").startswith(m["value"].rstrip("/") + "/")
            for m in matches
        )

    assert rest_paths()
    assert {path for path in rest_paths() if not routed(path)} == set()
    assert all(routed(f"/{b.service.full_name}/{m.name}") for b in BACKENDS for m in b.service.methods)
    assert routed("/openapi.json")
    assert not any(routed(path) for path in PATHS)
    assert rule["timeouts"] == {"request": "0s"}


def test_routes_hang_on_the_gateway() -> None:
    """Each route names a listener that takes its kind, for a host that is the listener's own: two kinds on one host would be refused."""
    gateway = one("Gateway")
    listeners = {listener["name"]: listener for listener in gateway["spec"]["listeners"]}
    assert len({listener["hostname"] for listener in listeners.values()}) == len(listeners) == 2
    for kind in ("HTTPRoute", "GRPCRoute"):
        route = one(kind)
        (parent,) = route["spec"]["parentRefs"]
        listener = listeners[parent["sectionName"]]
        assert (parent["name"], parent["namespace"]) == (gateway["metadata"]["name"], gateway["metadata"]["namespace"])
        assert route["spec"]["hostnames"] == [listener["hostname"]]
        assert listener["allowedRoutes"]["kinds"] == [{"kind": kind}]
        allowed = listener["allowedRoutes"]["namespaces"]["selector"]["matchLabels"]
        assert allowed == {"kubernetes.io/metadata.name": route["metadata"]["namespace"]}
        assert listener["protocol"] == "HTTPS"


def test_the_certificate_may_be_used() -> None:
    """The listeners' certificate is in another namespace, which grants just that."""
    grant = one("ReferenceGrant")
    gateway = one("Gateway")
    (source,), (target,) = grant["spec"]["from"], grant["spec"]["to"]
    assert source == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": gateway["metadata"]["namespace"],
    }
    for listener in gateway["spec"]["listeners"]:
        (certificate,) = listener["tls"]["certificateRefs"]
        assert certificate["namespace"] == grant["metadata"]["namespace"]
        assert target == {"group": "", "kind": "Secret", "name": certificate["name"]}


def test_proxies_speak_tls_where_pods_do() -> None:
    """A policy for each Service whose pods speak TLS on the port behind it, with the authority that callers inside know too."""
    policies = {p["metadata"]["name"]: p["spec"] for p in objects("production", "BackendTLSPolicy")}
    served = {s["metadata"]["name"] for s in objects("production", "Service")}
    assert set(policies) == served
    for name, policy in policies.items():
        pod = services("production")[name.replace("-", "_")]
        option = "DUCTOR_HTTP_TLS_CERT_FILE" if name == "gateway" else "DUCTOR_TLS_CERT_FILE"
        assert option in environment("production", pod.ductor)
        assert f"{name}-tls" in pod.secrets
        assert policy["targetRefs"] == [{"group": "", "kind": "Service", "name": name}]
        assert policy["validation"]["hostname"] == f"{name}.ductor.svc"
        assert [ref["name"] for ref in policy["validation"]["caCertificateRefs"]] == ["ductor-ca"]
    assert {port["appProtocol"] for s in objects("production", "Service") for port in s["spec"]["ports"]} == {"https"}
