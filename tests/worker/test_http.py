"""`http:request`: what it sends, what it makes of answers (A2), and where it does not go (N4)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ductord.worker.actions.addresses import forbidden
from ductord.worker.actions.guard import GuardedNetwork
from ductord.worker.actions.http import HttpRequest
from ductord.worker.context import ActionContext, ActionError
from tests.worker.site import Site, serving

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT = ActionContext(
    tenant_id="acme", run_id="r", step_ref="s", item_index=None, attempt=1, idempotency_key="key-1", traceparent=TRACE,
    previous_details=None, on_progress=lambda details: None,
)  # fmt: skip


class ButOne(GuardedNetwork):
    """Guarded, but for one port of this machine: a public site, as far as the guard can tell."""

    def __init__(self, port: int) -> None:
        super().__init__(allow_private=False)
        self._open = GuardedNetwork(allow_private=True)
        self._port = port

    async def connect_tcp(self, host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        """As judged."""
        if port == self._port:
            return await self._open.connect_tcp(host, port, *args, **kwargs)
        return await super().connect_tcp(host, port, *args, **kwargs)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site to call."""
    async with serving() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[HttpRequest]:
    """The action, with inner addresses allowed."""
    action = HttpRequest(GuardedNetwork(allow_private=True), max_bytes=1 << 20)
    yield action
    await action.close()


async def _fails(action: HttpRequest, **args: Any) -> ActionError:
    with pytest.raises(ActionError) as failure:
        await action.run(args, CONTEXT)
    return failure.value


async def test_a_request_carries_key_and_trace(http: HttpRequest, site: Site) -> None:
    """Idempotency-Key and traceparent, the author's headers and query, JSON as JSON."""
    answer = await http.run(
        {
            "method": "POST", "url": f"{site.url}/orders?a=1", "query": {"b": [2, "x y"], "c": True},
            "headers": {"X-Number": 5, "Authorization": "Bearer t", "Host": "elsewhere", "Content-Length": 3},
            "json": {"id": 9007199254740993},
        },
        CONTEXT,
    )  # fmt: skip
    assert (answer["status"], answer["body"]) == (200, {"id": 9007199254740993})
    [request] = site.requests
    assert (request["method"], request["path"], request["query"]) == ("POST", "/orders", "a=1&b=2&b=x+y&c=true")
    assert request["body"] == '{"id":9007199254740993}'
    headers = request["headers"]
    assert (headers["idempotency-key"], headers["traceparent"]) == ("key-1", TRACE)
    assert (headers["x-number"], headers["authorization"], headers["content-type"]) == (
        "5",
        "Bearer t",
        "application/json",
    )
    assert headers["host"] == f"127.0.0.1:{site.port}"


async def test_what_an_answer_becomes(http: HttpRequest, site: Site) -> None:
    """JSON its value, text a string in its charset, bytes base64, nothing null; too much and what JSON cannot carry fail for good."""
    assert (await http.run({"url": f"{site.url}/text"}, CONTEXT))["body"] == "é"
    assert (await http.run({"url": f"{site.url}/bytes"}, CONTEXT))["body"] == {"base64": "//4A"}
    assert (await http.run({"url": site.url, "method": "HEAD"}, CONTEXT))["body"] is None
    large = await _fails(http, url=f"{site.url}/large")
    assert (large.code, large.non_retryable) == ("payload_too_large", True)
    nan = await _fails(http, url=f"{site.url}/nan")
    assert (nan.code, nan.non_retryable) == ("payload_invalid", True)


@pytest.mark.parametrize(
    ("path", "code", "after"), [("404", "HTTP_404", None), ("429/7", "HTTP_429", 7_000), ("503", "HTTP_503", None)]
)
async def test_a_status_from_400_on_is_a_failure(
    http: HttpRequest, site: Site, path: str, code: str, after: int | None
) -> None:
    """A2: the code says which; Retry-After is honoured; the text holds what the server said."""
    failure = await _fails(http, url=f"{site.url}/status/{path}")
    assert (failure.code, failure.retry_after_ms, failure.non_retryable) == (code, after, False)
    assert failure.message.endswith("it says no")


async def test_retry_after_as_a_date(http: HttpRequest, site: Site) -> None:
    """Measured from the server's own clock; a date long gone is now; nonsense is nothing."""
    past = await _fails(http, url=f"{site.url}/status/503/Wed, 21 Oct 2015 07:28:00 GMT")
    assert past.retry_after_ms == 0
    nonsense = await _fails(http, url=f"{site.url}/status/503/soon")
    assert nonsense.retry_after_ms is None


async def test_redirects(http: HttpRequest, site: Site) -> None:
    """Followed, with the method that the status asks for; credentials do not go to another host; not for ever."""
    args = {"method": "POST", "json": {}, "headers": {"Authorization": "secret", "Cookie": "c"}}
    await http.run({**args, "url": f"{site.url}/to/303//there"}, CONTEXT)
    assert [(r["method"], r["path"]) for r in site.requests] == [("POST", "/to/303//there"), ("GET", "/there")]
    assert site.requests[1]["body"] == ""
    site.requests.clear()
    await http.run({**args, "url": f"{site.url}/to/307/http://localhost:{site.port}/there"}, CONTEXT)
    assert [r["method"] for r in site.requests] == ["POST", "POST"]
    assert site.requests[1]["body"] == "{}"
    assert "authorization" not in site.requests[1]["headers"]
    assert "cookie" not in site.requests[1]["headers"]
    assert site.requests[1]["headers"]["idempotency-key"] == "key-1"
    site.requests.clear()
    endless = await _fails(http, url=f"{site.url}/round")
    assert (endless.code, len(site.requests)) == ("FAILED_PRECONDITION", 6)


async def test_a_server_that_is_not_there(http: HttpRequest) -> None:
    """Refused connections and unknown names are UNAVAILABLE: they are tried again."""
    assert (await _fails(http, url="http://127.0.0.1:1/")).code == "UNAVAILABLE"
    assert (await _fails(http, url="http://does-not-exist.invalid/")).code == "UNAVAILABLE"


async def test_cancelling_ends_the_call(http: HttpRequest, site: Site) -> None:
    """The attempt's time-out cancels the action: the connection does not stay."""
    call = asyncio.create_task(http.run({"url": f"{site.url}/hold"}, CONTEXT))
    async with asyncio.timeout(60):
        while not site.requests:  # noqa: ASYNC110  # the site has no event
            await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await http.run({"url": site.url}, CONTEXT))["status"] == 200


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/",
        "file:///etc/passwd",
        "http://",
        "/relative",
        "http://user:pass@example.com/",
        "http://[::1/",
        "http://a:99999/",
    ],
)
async def test_what_is_no_url(http: HttpRequest, url: str) -> None:
    """Refused before anything is resolved, and not tried again."""
    assert (await _fails(http, url=url)).code == "INVALID_ARGUMENT"


async def test_what_cannot_be_a_header(http: HttpRequest, site: Site) -> None:
    """A line break forges nothing."""
    assert (await _fails(http, url=site.url, headers={"X": "a\r\nY: b"})).code == "INVALID_ARGUMENT"
    assert (await _fails(http, url=site.url, headers={"X Y": "a"})).code == "INVALID_ARGUMENT"
    assert site.requests == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]"],
)
async def test_n4_this_machine_is_not_reached(site: Site, host: str) -> None:
    """N4: whatever spelling leads to loopback; the server sees nothing."""
    action = HttpRequest(GuardedNetwork(allow_private=False), max_bytes=1)
    failure = await _fails(action, url=f"http://{host}:{site.port}/")
    await action.close()
    assert (failure.code, failure.non_retryable) == ("PERMISSION_DENIED", True)
    assert site.requests == []


async def test_n4_a_redirect_is_judged_anew(site: Site) -> None:
    """N4: an allowed site cannot send the worker inside."""
    action = HttpRequest(ButOne(site.port), max_bytes=1 << 20)
    assert (await action.run({"url": site.url}, CONTEXT))["status"] == 200
    for inside in ("http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/"):
        failure = await _fails(action, url=f"{site.url}/to/302/{inside}")
        assert failure.code == "PERMISSION_DENIED"
    await action.close()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.8.8.8", "loopback"), ("::1", "loopback"), ("::ffff:127.0.0.1", "loopback"), ("64:ff9b::7f00:1", "loopback"),
        ("169.254.169.254", "link-local"), ("fe80::1%eth0", "link-local"), ("::ffff:169.254.169.254", "link-local"),
        ("10.0.0.1", "private"), ("172.16.0.1", "private"), ("192.168.1.1", "private"), ("fd00:ec2::254", "private"),
        ("2002:0a00:0001::", "private"), ("100.100.100.200", "reserved"), ("168.63.129.16", "metadata"), ("192.0.0.192", "metadata"),
        ("0.0.0.0", "unspecified"), ("::", "unspecified"), ("224.0.0.1", "multicast"), ("ff02::1", "multicast"),
        ("240.0.0.1", "private"), ("255.255.255.255", "private"), ("::10.0.0.1", "private"),
        ("8.8.8.8", None), ("2606:4700::1111", None), ("::ffff:8.8.8.8", None), ("64:ff9b::808:808", None),
    ],
)  # fmt: skip
def test_n4_addresses(address: str, reason: str | None) -> None:
    """N4, one address at a time, in every IPv6 dress."""
    assert forbidden(address) == reason
