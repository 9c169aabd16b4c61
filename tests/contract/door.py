"""A caller of the REST side who believes the OpenAPI document to the letter: it knows no path, field or answer but those that stand there."""

from collections.abc import AsyncIterator
from importlib import resources
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import orjson

import ductor.workflow.v1

TREE: Any = orjson.loads(resources.files(ductor.workflow.v1).joinpath("openapi.json").read_bytes())
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in TREE["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
}
"""Method, path and description of each operation by its id."""


def _closed(schema: Any) -> Any:
    """The schema with no property but those it names: what a server adds without saying so is found."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _closed(part) for key, part in schema.items()}
    return {"additionalProperties": False, **out} if isinstance(schema.get("properties"), dict) else out


_COMPONENTS = {"schemas": _closed(TREE["components"]["schemas"])}


class Door:
    """`answered` and `refused` say what was seen: the operations whose answers were held against their schemas. `none`: the header of a key that opens none of
    them."""

    def __init__(self, http: httpx.AsyncClient, *, none: dict[str, str]) -> None:
        self._http = http
        self.none = none
        self._judges: dict[str, jsonschema_rs.Draft202012Validator] = {}
        self.answered: set[str] = set()
        self.refused: set[tuple[str, int]] = set()

    async def ask(self, name: str, /, *path: str, **fields: Any) -> Any:
        """One operation that goes well: path parameters in order, the other fields where the document says. The answer's JSON."""
        method, url, operation = self._request(name, path)
        if "requestBody" in operation:
            self._judge(operation["requestBody"]["content"]["application/json"]["schema"], fields, name)
            response = await self._http.request(method, url, json=fields)
        else:
            self._judge_query(operation, fields)
            response = await self._http.request(method, url, params=fields)
        assert response.status_code == 200, (name, response.text)
        self._held(response, operation, name)
        self.answered.add(name)
        return response.json()

    async def fail(self, name: str, /, *path: str, **asked: Any) -> int:
        """One operation that is refused, with whatever `httpx` shall send; the status, which must be among those of the operation."""
        method, url, operation = self._request(name, path)
        response = await self._http.request(method, url, **asked)
        assert response.status_code >= 400, (name, response.text)
        assert str(response.status_code) in operation["responses"], (name, response.text)
        self._held(response, operation, name)
        self.refused.add((name, response.status_code))
        return response.status_code

    async def stream(self, name: str, /, *path: str, **fields: Any) -> AsyncIterator[Any]:
        """The events of a stream, each held against what the document says of its data."""
        method, url, operation = self._request(name, path)
        self._judge_query(operation, fields)
        content = operation["responses"]["200"]["content"]["text/event-stream"]
        async with self._http.stream(method, url, params=fields) as response:
            assert response.status_code == 200
            assert response.headers["content-type"] == "text/event-stream"
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    event = orjson.loads(line.removeprefix("data: "))
                    self._judge(content["x-event-data"], event, name)
                    self.answered.add(name)
                    yield event

    async def metrics(self) -> str:
        """What Prometheus would scrape."""
        return (await self._http.get("/metrics")).text

    async def document(self, headers: dict[str, str]) -> Any:
        """The document as it is served."""
        return (await self._http.get("/openapi.json", headers=headers)).json()

    def _request(self, name: str, path: tuple[str, ...]) -> tuple[str, str, Any]:
        method, template, operation = OPERATIONS[name]
        named = [p["name"] for p in operation["parameters"] if p.get("in") == "path"]
        for parameter, value in zip(named, path, strict=True):
            template = template.replace(f"{{{parameter}}}", quote(value, safe=""))
        return method, template, operation

    def _held(self, response: httpx.Response, operation: Any, name: str) -> None:
        """The answer is what its status promises: headers, content type, body."""
        answer = operation["responses"][str(response.status_code)]
        if "$ref" in answer:
            answer = TREE["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        kind = response.headers["content-type"]
        assert kind in answer["content"], (name, kind)
        assert response.headers["x-request-id"]
        assert all(
            header in answer["headers"] for header in ("Retry-After", "WWW-Authenticate") if header in response.headers
        )
        self._judge(answer["content"][kind]["schema"], orjson.loads(response.content), name)

    def _judge_query(self, operation: Any, fields: dict[str, Any]) -> None:
        known = {p["name"]: p["schema"] for p in operation["parameters"] if p.get("in") == "query"}
        for key, value in fields.items():
            self._judge(known[key], value, key)

    def _judge(self, schema: Any, value: Any, name: str) -> None:
        key = orjson.dumps(schema).decode()
        if key not in self._judges:
            whole = {**_closed(schema), "components": _COMPONENTS}
            self._judges[key] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        faults = [f"{error.instance_path}: {error.message[:300]}" for error in self._judges[key].iter_errors(value)]
        assert not faults, (name, faults[:5])
