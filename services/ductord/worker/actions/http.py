"""`http:request`: one HTTP request, with the attempt's idempotency key, to addresses that a stranger's definition may reach.

Redirects are followed by hand; every connection is judged by `guard` at the moment it is made. No proxy, no cookies and no credentials of this machine
are ever used (ruling N4). The attempt's own time-out bounds the whole.
"""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpcore
import httpx

from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.worker.actions.guard import GuardedNetwork
from ductord.worker.context import ActionContext, ActionError

MAX_REDIRECTS: Final = 5
CONNECT_S: Final = 10.0
SAID_BYTES: Final = 2_000
"""How much of an error's body goes into the failure's message."""
KEPT_CONNECTIONS: Final = 20
KEPT_S: Final = 30.0

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_SENSITIVE: Final = ("authorization", "cookie", "proxy-authorization")
_OURS: Final = ("host", "content-length", "transfer-encoding", "connection")


class HttpRequest:
    """The action and its connections, over a network that judges addresses. `max_bytes` bounds a response."""

    def __init__(self, network: GuardedNetwork, *, max_bytes: int) -> None:
        self._network = network
        self._max_bytes = max_bytes
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.aclose()

    async def run(self, args: Any, context: ActionContext) -> Any:
        """Returns {status, headers, body}. A status of 400 and more fails as `HTTP_<status>`; of those 408, 429 and 5xx are tried again (A2)."""
        method = args.get("method", "GET")
        url = _url(args["url"], args.get("query"))
        headers = httpx.Headers({name: _text(value) for name, value in args.get("headers", {}).items()})
        for name in _OURS:
            headers.pop(name, None)
        headers.setdefault("Accept", "*/*")
        headers.setdefault("Accept-Encoding", "identity")
        headers.setdefault("Idempotency-Key", context.idempotency_key)
        if context.traceparent:
            headers.setdefault("traceparent", context.traceparent)
        content = _content(args, headers)
        for _ in range(MAX_REDIRECTS + 1):
            response, body = await self._once(method, url, headers, content)
            location = httpx.Headers(response.headers).get("location")
            if response.status not in _REDIRECTS or location is None:
                return _answer(response, body)
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, content = ("HEAD" if method == "HEAD" else "GET"), b""
                headers.pop("content-type", None)
            target = _url(_joined(url, location), None)
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                for name in _SENSITIVE:
                    headers.pop(name, None)
            url = target
        raise ActionError("FAILED_PRECONDITION", f"more than {MAX_REDIRECTS} redirects")

    async def _once(
        self, method: str, url: httpx.URL, headers: httpx.Headers, content: bytes
    ) -> tuple[httpcore.Response, bytes]:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                network_backend=self._network,
                max_connections=None,
                max_keepalive_connections=KEPT_CONNECTIONS,
                keepalive_expiry=KEPT_S,
            )
        sent = [(b"Host", url.netloc), *headers.raw]
        if content or method in ("POST", "PUT", "PATCH"):
            sent.append((b"Content-Length", str(len(content)).encode()))
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        try:
            async with self._pool.stream(
                method, target, headers=sent, content=content, extensions={"timeout": {"connect": CONNECT_S}}
            ) as response:
                return response, await self._read(response)
        except httpcore.LocalProtocolError as error:
            raise ActionError("INVALID_ARGUMENT", f"the request cannot be sent: {error}") from None
        except httpcore.TimeoutException as error:
            raise ActionError("DEADLINE_EXCEEDED", f"{url.host}: {type(error).__name__}") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise ActionError("UNAVAILABLE", f"{url.host}: {error or type(error).__name__}") from None

    async def _read(self, response: httpcore.Response) -> bytes:
        parts, size = [], 0
        async for part in response.aiter_stream():
            size += len(part)
            if size > self._max_bytes:
                message = f"the response is more than {self._max_bytes:,} bytes"
                raise ActionError("payload_too_large", message, non_retryable=True)
            parts.append(part)
        return b"".join(parts)


def _url(text: str | httpx.URL, query: Mapping[str, Any] | None) -> httpx.URL:
    try:
        url = httpx.URL(text)
        if query:
            pairs = [(k, _text(v)) for k, vs in query.items() for v in (vs if isinstance(vs, list) else [vs])]
            url = url.copy_merge_params(tuple(pairs))
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise ActionError("INVALID_ARGUMENT", f"url is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or not 0 < (url.port or 80) < 65_536:
        raise ActionError("INVALID_ARGUMENT", "url must begin with http:// or https:// and name a host")
    if url.userinfo:
        raise ActionError("INVALID_ARGUMENT", "url must not hold credentials; send a header")
    return url


def _joined(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return url.join(location)
    except (httpx.InvalidURL, ValueError):
        raise ActionError("FAILED_PRECONDITION", f"{url.host} redirects to what is no URL") from None


def _content(args: Mapping[str, Any], headers: httpx.Headers) -> bytes:
    if "json" in args:
        headers.setdefault("Content-Type", "application/json")
        return jsonvalue.dumps(args["json"]).encode()
    return str(args.get("body", "")).encode()


def _text(value: Any) -> str:
    """A header's or query's value, as JSON writes it."""
    return value if isinstance(value, str) else jsonvalue.dumps(value)


def _answer(response: httpcore.Response, body: bytes) -> Any:
    headers = httpx.Headers(response.headers)
    if response.status >= 400:
        said = body[:SAID_BYTES].decode("utf-8", "replace").strip()
        message = f"the server answered {response.status}" + (f": {said}" if said else "")
        raise ActionError(f"HTTP_{response.status}", message, retry_after_ms=_retry_after_ms(headers))
    return {"status": response.status, "headers": dict(headers), "body": _body(headers, body)}


def _body(headers: httpx.Headers, body: bytes) -> Any:
    """JSON as its value, text as a string, nothing as null, anything else as {base64}."""
    if not body:
        return None
    kind, _, parameters = headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return jsonvalue.parse(body, root="body", max_bytes=None)
        except PayloadInvalid as error:
            message = f"the response cannot be carried: {error.message}"
            raise ActionError("payload_invalid", message, non_retryable=True) from None
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return body.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return {"base64": base64.b64encode(body).decode()}


def _retry_after_ms(headers: httpx.Headers) -> int | None:
    """Retry-After as milliseconds: seconds, or a date, measured from the server's own Date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, 2**31 - 1)
    try:
        until = _date(text)
        since = _date(headers["date"]) if "date" in headers else datetime.now(UTC)
    except (ValueError, TypeError):
        return None
    return min(max(int((until - since).total_seconds() * 1000), 0), 2**31 - 1)


def _date(text: str) -> datetime:
    date = parsedate_to_datetime(text)
    return date if date.tzinfo else date.replace(tzinfo=UTC)
