"""Laws over the whole contract: what the gateway writes it reads, PROTO is protobuf's own JSON, and no request makes it answer 500."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.gateway.backends import BACKENDS
from ductord.gateway.faults import Reading
from ductord.gateway.reading import Reader
from ductord.gateway.routing import Routes
from ductord.rpc.vocabulary import Dialect, payload_of
from ductord.rpc.writing import Writer
from tests.gateway import test_connect
from tests.gateway.messages import bodies, messages
from tests.gateway.peers import Running, fault

RPCS = [rpc for backend in BACKENDS for rpc in backend.service.methods]
MESSAGES = list({d.full_name: d for rpc in RPCS for d in (rpc.input_type, rpc.output_type)}.values())
ROUTES = Routes(backend.service for backend in BACKENDS).all
PURE = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WIRED = settings(PURE, max_examples=100)

ANY_MESSAGE = st.sampled_from(MESSAGES).flatmap(messages)
PIECES = st.sampled_from(
    [
        "api",
        "v2",
        "workflows",
        "runs",
        "workflow-definitions",
        "steps",
        "draft",
        "publish",
        "..",
        "",
        "d1:trigger",
        "x:pause",
        ":",
        "%",
        "%ff",
        "%00",
        "a%3Ab",
        "*",
    ]
)
PATHS = st.lists(PIECES | st.text(max_size=5).map(lambda text: quote(text, errors="replace")), max_size=6).map(
    lambda parts: "/" + "/".join(parts)
)
KEYS = st.sampled_from(["status", "label", "page_size", "pageSize", "created_after", "q", "view", "input", "x"])
VALUES = st.sampled_from(["running", "1", "", "a:1", "%ff", "%", "2026-07-11T11:10:00Z", "true"])
QUERIES = st.lists(st.tuples(KEYS, VALUES).map("=".join), max_size=3).map("&".join)
NAMES = st.sampled_from(
    [
        b"content-type",
        b"x-tenant-id",
        b"authorization",
        b"x-request-id",
        b"traceparent",
        b"grpc-timeout",
        b"connect-timeout-ms",
        b"content-encoding",
        b"connect-protocol-version",
    ]
)
TYPES = [b"application/json", b"application/proto", b"application/grpc-web+proto", b"application/connect+json"]
HEADERS = st.dictionaries(
    NAMES, st.sampled_from([*TYPES, b"acme", b"\xff\xfe", b"1", b"gzip", b"5S", b"", b"a, b"]), max_size=3
)


def reread(dialect: Dialect, descriptor: Descriptor, text: bytes) -> Any:
    """The message of a text; its payload format is not what is tested."""
    reader, reading = Reader(dialect), Reading()
    plan = reader.of(descriptor)
    fields = reader.members(plan, text, reading)
    reading.finish()
    return plan.make(**fields)


def without_nulls(message: Any) -> Any:
    """The message without payloads that are null: REST writes null for an absent one too."""
    for field, value in message.ListFields():
        if payload_of(field) is not None and value == "null":
            message.ClearField(field.name)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else [value]:
                without_nulls(part)
    return message


@PURE
@given(ANY_MESSAGE, st.sampled_from(Dialect))
def test_what_is_written_is_read_again_as_the_same(message: Any, dialect: Dialect) -> None:
    assert reread(dialect, message.DESCRIPTOR, Writer(dialect, spliced=False).text(message)) == message
    again = reread(dialect, message.DESCRIPTOR, Writer(dialect).text(message))
    assert without_nulls(again) == without_nulls(message)


@PURE
@given(ANY_MESSAGE)
def test_proto_json_is_protobufs_own(message: Any) -> None:
    text = json_format.MessageToJson(message)
    assert json.loads(Writer(Dialect.PROTO, spliced=False).text(message)) == json.loads(text)
    assert reread(Dialect.PROTO, message.DESCRIPTOR, text.encode()) == message


def judged(response: Any, door: str) -> None:
    """An answer is a success or a coded error, and never a 500."""
    assert response.status_code != 500, response.text
    if response.content == b"Invalid HTTP request received.":  # the server's own answer to what is no HTTP
        return
    if response.status_code >= 400 and response.request.method != "HEAD":
        if door == "rest":
            fault(response)
        elif response.status_code not in (405, 415):  # which Connect answers with headers alone
            test_connect.fault(response)


@pytest.mark.asyncio(loop_scope="module")
@WIRED
@given(st.sampled_from(ROUTES).flatmap(lambda route: st.tuples(st.just(route), bodies(route.rpc.input_type))), QUERIES)
async def test_no_body_makes_rest_answer_500(process: Running, asked: Any, query: str) -> None:
    route, body = asked
    path = route.template.replace("{", "").replace("}", "")
    judged(await process.http.request(route.http_method, f"{path}?{query}" if query else path, content=body), "rest")


@pytest.mark.asyncio(loop_scope="module")
@WIRED
@given(st.sampled_from(RPCS).flatmap(lambda rpc: st.tuples(st.just(rpc), bodies(rpc.input_type))))
async def test_no_body_makes_connect_answer_500(process: Running, asked: Any) -> None:
    rpc, body = asked
    judged(await process.connect(f"{rpc.containing_service.name}/{rpc.name}", body), "connect")


@pytest.mark.asyncio(loop_scope="module")
@WIRED
@given(st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW"]), PATHS, QUERIES, HEADERS)
async def test_no_path_query_or_header_makes_rest_answer_500(
    process: Running, http_method: str, path: str, query: str, headers: dict[bytes, bytes]
) -> None:
    if path in ("/livez", "/readyz", "/metrics"):
        return
    response = await process.http.request(
        http_method, f"http://{process.http.base_url.netloc.decode()}{path}?{query}", headers=headers
    )
    judged(response, "rest")


@pytest.mark.asyncio(loop_scope="module")
@WIRED
@given(
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from(["GetRun", "ListRuns", "Nope", ""]),
    QUERIES,
    HEADERS,
    st.binary(max_size=20),
)
async def test_no_header_makes_connect_answer_500(
    process: Running, http_method: str, rpc: str, query: str, headers: dict[bytes, bytes], body: bytes
) -> None:
    path = f"/ductor.workflow.v1.WorkflowService/{rpc}?encoding=json&message=%7B%7D&{query}"
    response = await process.http.request(http_method, path, headers=headers, content=body)
    assert response.status_code != 500
    assert "Traceback" not in response.text


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "target",
    [
        b"/api/\xff",
        b"/api/ x",
        b"*",
        b"http://other/api/workflows/runs",
        b"//api",
        b"/api/workflows/runs?\xff=1",
        b"/%",
        b"/" + b"a" * 60_000,
    ],
)
async def test_no_request_line_makes_the_server_answer_500(process: Running, target: bytes) -> None:
    url = process.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nx-tenant-id: acme\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(60):
            line = await reader.readline()
        assert line.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), line
    finally:
        writer.close()
