"""The gRPC server of a process: the wrapped RPCs of its services, reflection, health, and a coded answer for what it does not serve.

It knows no service by name. A port is bound exclusively: two processes on one port would share the calls by chance. Where the port speaks TLS, calls inside the
process go over a Unix socket that only its own user can enter, never over a second port.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ductord.rpc import errors, tls
from ductord.rpc.addresses import Address
from ductord.rpc.call import Translate
from ductord.rpc.caller import Authenticator
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.health import Health, HealthServicer
from ductord.rpc.metrics import Metrics
from ductord.rpc.pipeline import Pipeline

Add = Callable[[Any, Any], None]
"""A generated `add_XServicer_to_server`."""

OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_age_ms", 30 * 60_000),  # so that callers find replicas that came later
    ("grpc.max_connection_age_grace_ms", 5 * 60_000),
)
QUIET_S: Final[float] = 0.05
"""A stop waits until no call was begun for so long. On a busy machine it takes tens of milliseconds until what has arrived is taken up."""
QUIET_LIMIT_S: Final = 1.0
"""How long it waits for that at most."""
HEADROOM: Final = 2
"""gRPC itself stops reading at twice the limit, so that what is just too large still gets a coded answer."""

SOCKET_PATH_MAX: Final = 107
"""Bytes that Linux takes."""

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[Any, Any]
else:
    _Handler = grpc.GenericRpcHandler  # generic in the stubs only


class RpcServer:
    """Build it, `add` servicers, `bind`, `start`, `stop` once. `certificates` None: the port is plaintext."""

    def __init__(
        self, settings: Settings, metrics: Metrics, health: Health, certificates: tls.CertificateFiles | None = None
    ) -> None:
        self._pipeline = Pipeline(settings, metrics)
        options = (*OPTIONS, ("grpc.max_receive_message_length", settings.request_max_bytes * HEADROOM))
        self._server = grpc.aio.server(options=options)
        self._services = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        self._served: list[str] = []
        health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(health), self._server)
        self._credentials = tls.server_credentials(certificates) if certificates is not None else None
        self._folder = ""
        self._stopped = False
        self._inside = ""

    def add(self, add: Add, servicer: Any, translate: Translate) -> str:
        """Serve a servicer through the pipeline; the full name of its service."""
        recorder = _Recorder()
        add(servicer, recorder)
        name = recorder.service
        methods = {
            f"/{name}/{m}": self._pipeline.wrapped(name, m, rpc, translate) for m, rpc in recorder.methods.items()
        }
        self._server.add_generic_rpc_handlers((_Methods(methods),))
        self._services.append(name)
        self._served.append(name)
        return name

    @property
    def authenticated(self) -> bool:
        """Whether somebody says who calls."""
        return self._pipeline.authenticator is not None

    def authenticate(self, authenticator: Authenticator) -> None:
        """Have `authenticator` say who calls and whether they may, for every servicer of the process."""
        self._pipeline.authenticator = authenticator

    async def recheck(self) -> None:
        """Look at the credentials of the calls that go on (`Pipeline.recheck`)."""
        await self._pipeline.recheck()

    def bind(self, address: Address) -> Address:
        """Take the port; the address with the port that was taken. Raises OSError naming the address."""
        bound = _bound(self._server, address, self._credentials)
        if self._credentials is None:
            self._inside = bound.reachable
        return bound

    def inside(self) -> str:
        """Where this process itself calls what it serves, always in plaintext: the port if that is, else a private socket. Before `start`.

        Raises `ConfigurationRefused` where there is no folder for the socket.
        """
        if not self._inside:
            try:
                self._folder = tempfile.mkdtemp(prefix="ductor-")  # 0700
            except OSError as error:
                message = f"services of one process call each other over a socket in a temporary folder: {error}; set TMPDIR to one that can be written to"
                raise ConfigurationRefused(message) from None
            path = f"{self._folder}/rpc"
            if len(os.fsencode(path)) > SOCKET_PATH_MAX:
                message = f"services of one process call each other over a socket, whose path would be too long: {path}; set TMPDIR to a shorter one"
                raise ConfigurationRefused(message)
            address = Address(path=path)
            self._inside = _bound(self._server, address, None).reachable
        return self._inside

    def inside_key(self) -> str:
        """By which the process knows the calls that it makes itself (`caller.inside_of`). It never leaves the process."""
        if not self._pipeline.inside:
            self._pipeline.inside = secrets.token_urlsafe(32)
        return self._pipeline.inside

    async def start(self) -> None:
        """Serve. No servicer can be added any more. Raises RuntimeError where callers need a credential and nobody can look at it."""
        if self._served and not self._pipeline.open and not self.authenticated:
            raise RuntimeError(f"{', '.join(self._served)}: none of the services looks at credentials")
        reflection.enable_server_reflection(self._services, self._server)
        self._server.add_generic_rpc_handlers((_NotServed(),))
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; what is in flight has `grace_s` to answer, then is cancelled. Harmless twice."""
        await self._quiet()
        await self._server.stop(grace_s)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _quiet(self) -> None:
        """Wait for a moment in which no call arrives.

        What has arrived and is not taken up when gRPC shuts down, it ends as CANCELLED, as if its caller had given up (grpc/grpc#41785); what is taken up is
        answered. Only a call that crosses the word of the server's going away can still come to that.
        """
        if self._stopped:
            return
        self._stopped = True
        clock = asyncio.get_running_loop().time
        end = clock() + QUIET_LIMIT_S
        while clock() < end:
            begun = self._pipeline.begun
            await asyncio.sleep(QUIET_S)
            if begun == self._pipeline.begun:
                return


class HealthServer:
    """`grpc.health.v1` and nothing else on an address of its own, in plaintext: for probes that speak no TLS and have no key."""

    def __init__(self, health: Health, address: Address) -> None:
        self._address = address
        self._server = grpc.aio.server(options=OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(health), self._server)
        self._server.add_generic_rpc_handlers((_NotServed(),))

    async def start(self) -> Address:
        """Bind and serve; the address with the port that was bound. Raises OSError naming the address."""
        bound = _bound(self._server, self._address, None)
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """The process is about to end."""
        await self._server.stop(0)


def _bound(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None) -> Address:
    try:
        add = (
            server.add_insecure_port
            if credentials is None
            else partial(server.add_secure_port, server_credentials=credentials)
        )
        port = add(address.grpc)
    except RuntimeError:
        port = 0
    if not port:
        raise OSError(f"cannot listen for gRPC on {address}: is the port taken, or the host not this machine's?")
    return address if address.path else address.at(port)


class _Recorder:
    """Stands in for a server while the generated code names its methods."""

    service: str
    methods: Mapping[str, Any]

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The older of two ways in which generated code registers."""

    def add_registered_method_handlers(self, service: str, methods: Mapping[str, Any]) -> None:
        """The newer: service and methods by name."""
        self.service, self.methods = service, methods


class _Methods(_Handler):
    """Finds a method by its path."""

    def __init__(self, methods: Mapping[str, Any]) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method)


class _NotServed(_Handler):
    """Answers for every other path, last of all."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    refusal = errors.refused("RPC_NOT_FOUND", "no RPC of this name is served here; reflection lists those that are")
    status = errors.to_status(refusal)
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, status.message, errors.trailing(status))
    return b""
