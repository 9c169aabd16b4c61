"""GET /openapi.json: to anybody, cached, of this release; and that the committed document is OpenAPI 3.1."""

import tomllib
from importlib import resources
from pathlib import Path

import orjson
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import ductor.workflow.v1
from ductord.gateway.backends import BACKENDS
from ductord.gateway.routing import Routes
from ductord.rpc.permissions import PERMISSIONS
from tests.gateway.peers import Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

TREE = orjson.loads(resources.files(ductor.workflow.v1).joinpath("openapi.json").read_bytes())


async def test_it_is_served_without_tenant_or_key(gateway: Running) -> None:
    """Its version is the release's; no service is asked."""
    gateway.http.headers.pop("x-tenant-id")
    try:
        response = await gateway.http.get("/openapi.json")
    finally:
        gateway.http.headers["x-tenant-id"] = "acme"
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == TREE
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert response.json()["info"]["version"] == project["version"]
    assert gateway.peers.calls == []
    assert 'ductor_gateway_requests_total{code="OK",door="rest",method="openapi"}' in gateway.host.metrics.exposition().decode()  # fmt: skip


async def test_who_has_it_is_told_so(gateway: Running) -> None:
    """HEAD tells the tag, a request with the tag is answered 304, one with another tag with the document."""
    head = await gateway.http.head("/openapi.json")
    assert (head.status_code, head.content) == (200, b"")
    tag = head.headers["etag"]
    assert head.headers["cache-control"] == "public, max-age=300"
    for known in (tag, f'"x", W/{tag}', "*"):
        response = await gateway.http.get("/openapi.json", headers={"if-none-match": known})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    assert (await gateway.http.get("/openapi.json", headers={"if-none-match": '"x"'})).status_code == 200


async def test_it_is_only_read(gateway: Running) -> None:
    """Any other method is refused as everywhere."""
    response = await gateway.http.post("/openapi.json", json={})
    assert fault(response) == (405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", {"allow": "GET, HEAD"})
    assert response.headers["allow"] == "GET, HEAD"


async def test_it_is_openapi() -> None:
    """By the meta-schema of OpenAPI 3.1, with every reference resolved and every path parameter named."""
    assert [error.message for error in OpenAPIV31SpecValidator(TREE).iter_errors()] == []


async def test_it_has_every_route_its_scope_and_its_words() -> None:
    """Each route of the contract once, with the one scope of its RPC; everything is said in words."""
    routes = {(r.template, r.http_method.lower()): r.rpc for r in Routes(b.service for b in BACKENDS).all}
    told = {
        (path, method): item[method]
        for path, item in TREE["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert told.keys() == routes.keys()
    for key, operation in told.items():
        rpc = routes[key]
        assert operation["security"] == [{"key": [PERMISSIONS[f"{rpc.containing_service.full_name}/{rpc.name}"]]}]  # type: ignore[union-attr]
        assert all(parameter.get("description") or "$ref" in parameter for parameter in operation["parameters"])
        assert operation["description"]
    for name, schema in TREE["components"]["schemas"].items():
        assert schema["description"], name
