"""Pages of other origins: preflights, what a page may read of every door's answers, and nothing where nothing was set."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.gateway.peers import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "https://ops.example"
RUN = "/api/workflows/runs/r1"
RPC = "/ductor.workflow.v1.WorkflowService/GetRun"
ASK = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_to() -> AsyncIterator[Running]:
    """A gateway that lets the pages of two origins call."""
    async with running(cors_origins=f" {PAGE}, http://localhost:5173") as it:
        yield it


def of_cors(response: httpx.Response) -> set[str]:
    return {name for name in response.headers if name.startswith("access-control-")}


def names(response: httpx.Response, header: str) -> set[str]:
    return {name.strip() for name in response.headers[header].lower().split(",")}


@pytest.mark.parametrize("path", [RPC, RUN, "/no/such/path"])
async def test_a_preflight_is_granted_before_anything_is_looked_at(open_to: Running, path: str) -> None:
    response = await open_to.http.options(path, headers=ASK)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["vary"] == "origin"
    assert names(response, "access-control-allow-methods") == {"get", "post", "put", "patch", "delete"}
    assert int(response.headers["access-control-max-age"]) > 0
    assert not open_to.peers.calls


async def test_a_page_may_send_what_its_clients_send(open_to: Running) -> None:
    """All that Connect's and gRPC-Web's clients for browsers add (`cors.allowedHeaders` of @connectrpc/connect), a key and a tenant."""
    allowed = names(await open_to.http.options(RPC, headers=ASK), "access-control-allow-headers")
    assert allowed >= {
        "content-type", "connect-protocol-version", "connect-timeout-ms", "connect-accept-encoding", "connect-content-encoding",
        "grpc-timeout", "x-grpc-web", "x-user-agent", "authorization", "x-tenant-id", "last-event-id",
    }  # fmt: skip
    assert "*" not in allowed


async def test_every_door_tells_the_page(open_to: Running) -> None:
    """A REST answer, a Connect answer and error, a gRPC-Web answer, an unknown path: each can be read, with its ids and its trailers."""
    page = {"origin": PAGE}
    web = page | {"content-type": "application/grpc-web+proto"}
    answers = [
        await open_to.http.get(RUN, headers=page),
        await open_to.connect("WorkflowService/GetRun", {}, origin=PAGE),
        await open_to.connect("WorkflowService/GetRun", {"nosuch": 1}, origin=PAGE),
        await open_to.http.post(RPC, headers=web, content=b"\0\0\0\0\0"),
        await open_to.http.get("/no/such/path", headers=page),
        await open_to.http.get(f"{RUN}/watch", headers=page),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 200, 404, 200]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "origin" in names(answer, "vary")
        assert names(answer, "access-control-expose-headers") >= {
            "grpc-status", "grpc-message", "grpc-status-details-bin", "x-request-id", "retry-after", "www-authenticate",
        }  # fmt: skip
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://ops.example", "https://ops.example:8443", "null", "https://OPS.example"]
)
async def test_another_origin_gets_what_it_gets_without(open_to: Running, gateway: Running, origin: str) -> None:
    for method, headers in (("OPTIONS", ASK | {"origin": origin}), ("GET", {"origin": origin})):
        told, plain = [
            await process.http.request(method, RUN, headers=headers | {"x-request-id": "one"})
            for process in (open_to, gateway)
        ]
        assert (told.status_code, told.content) == (plain.status_code, plain.content)
        assert not of_cors(told)
        assert told.headers["vary"] == "origin"  # a cache must not hand this answer to the page


async def test_an_options_that_is_no_preflight_goes_its_way(open_to: Running) -> None:
    assert (await open_to.http.options(RUN, headers={"origin": PAGE})).status_code == 405
    assert (await open_to.http.options(RUN)).status_code == 405


async def test_without_the_setting_there_is_nothing(gateway: Running) -> None:
    for response in (await gateway.http.options(RPC, headers=ASK), await gateway.http.get(RUN, headers=ASK)):
        assert not of_cors(response)
        assert "vary" not in response.headers


async def test_every_origin() -> None:
    async with running(cors_origins="*", insecure=True) as process:
        response = await process.http.get(RUN, headers={"origin": "null"})
        assert response.headers["access-control-allow-origin"] == "*"
        assert "vary" not in response.headers
        assert (await process.http.options(RUN, headers=ASK)).headers["access-control-allow-origin"] == "*"
