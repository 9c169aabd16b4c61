"""The shape that every service has, and the process that runs one or many of them: one gRPC port, one HTTP port, one stop.

A `Service` is a name and a `start(scope)`. `start` opens what the service needs and registers what it offers on its `Scope`; the host begins to
serve when every service has started. The host knows no service by name; the CLI names them. It must never decide what a service does with its
time.
"""

import asyncio
import functools
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata
from typing import Any, Protocol

import grpc
import msgspec

from ductord.model.errors import Refusal
from ductord.rpc import channels, logs, payloads, tls, tracing
from ductord.rpc.addresses import Address
from ductord.rpc.caller import INSIDE_KEY, Authenticator
from ductord.rpc.config import ConfigurationRefused, Settings, TargetService
from ductord.rpc.credentials import Sign
from ductord.rpc.health import Check, Health, Pulse, ServiceHealth
from ductord.rpc.loops import Loop, Translate, Turn
from ductord.rpc.metrics import Metrics
from ductord.rpc.operations import App, HttpServer, Operations
from ductord.rpc.server import Add, HealthServer, RpcServer
from ductord.rpc.signals import heard

CLOSE_LIMIT_S = 5.0
"""How long one `at_stop` may take: closing a pool waits for its users, who are gone by then."""
HURRY_S = 0.5
"""What a step of the stop still gets when its time is up or a second signal came."""
RPC_GRACE_S = 2.0
"""How long RPCs still in flight after the drain may take to answer."""

_log = logging.getLogger("ductor.host")

_YOUNG = 10_000
"""How many values are made, less those that are gone, before the collector looks at the young ones."""


class Pool(Protocol):
    """What is shown of a pool of database connections (`db.pool`)."""

    def get_size(self) -> int: ...
    def get_idle_size(self) -> int: ...
    def get_max_size(self) -> int: ...


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One deployable. `name` is its folder, its `DUCTOR_<NAME>_TARGET`, its role, its name in logs, metrics and health."""

    name: str
    start: Callable[["Scope"], Awaitable[None]]

    async def serve(self, settings: Settings, *, stop: asyncio.Event | None = None) -> None:
        """Run it alone in this process, as `serve`."""
        await serve([self], settings, stop=stop)


class Scope:
    """What a service's `start` gets: the settings, and where to register what it offers and needs."""

    def __init__(self, service: Service, host: "Host", health: ServiceHealth) -> None:
        self.name = service.name
        self.settings = host.settings
        self.metrics = host.metrics
        self.draining = host.draining
        """Set when the process was asked to stop: long waits end."""
        self._host = host
        self._health = health
        self._loops: list[Loop] = []
        self._drains: list[Callable[[], Awaitable[None]]] = []
        self._closes: list[Callable[[], Awaitable[None]]] = []
        self._translate: Translate = lambda error: None
        self._failures = host.metrics.counter(
            "ductor_loop_failures", "Turns of background loops that raised.", ("loop", "reason")
        )
        self._retries = host.metrics.counter(
            "ductor_transaction_retries", "Transactions that were tried again.", ("service", "reason")
        )
        ready = host.metrics.gauge(
            "ductor_service_ready", "Whether the service can serve, as /readyz says: 1 or 0.", ("service",)
        )
        ready.labels(self.name).set_function(lambda: host.health.open and not health.known())

    def rpcs(self, add: Add, servicer: Any) -> None:
        """Serve a generated servicer on the process's gRPC port: `scope.rpcs(add_TaskServiceServicer_to_server, servicer)`."""
        self._health.rpc_services.append(self._host.server.add(add, servicer, lambda error: self._translate(error)))

    @property
    def authenticated(self) -> bool:
        """Whether somebody says who calls this process."""
        return self._host.server.authenticated

    def authenticate(self, authenticator: Authenticator) -> None:
        """Have `authenticator` say who calls this process and whether they may; the credentials of calls that go on are looked at every
        `DUCTOR_KEY_CACHE_MS`."""
        self._host.server.authenticate(authenticator)
        self.loop("credentials", self._host.server.recheck, interval_ms=self.settings.key_cache_ms)

    def http(self, app: App) -> None:
        """Serve an ASGI application on the process's HTTP port, beside /livez, /readyz and /metrics. One service of a process may."""
        self._host.operations.mount(app)

    def loop(self, name: str, turn: Turn, *, interval_ms: int) -> Loop:
        """A background loop (see `loops`), started when every service has started."""
        loop = Loop(
            f"{self.name}.{name}",
            turn,
            interval_ms=interval_ms,
            pulse=self.pulse(name),
            translate=lambda error: self._translate(error),
            on_failure=lambda reason: self._failures.labels(f"{self.name}.{name}", reason).inc(),
        )
        self._loops.append(loop)
        return loop

    def pulse(self, name: str) -> Pulse:
        """A pulse that the caller beats itself, more often than `DUCTOR_LIVENESS_MS`. Only for what cannot be a `loop`."""
        return self._health.pulse(name, self.settings.liveness_ms / 1000)

    def ready_when(self, name: str, check: Check) -> None:
        """A condition of being ready, as `answers(pool)`."""
        self._health.ready_when(name, check)

    def translate(self, translate: Translate) -> None:
        """What this service's unexpected exceptions mean to callers and loops (`db.outage.refusal_of`)."""
        self._translate = translate

    def retried(self, error: BaseException) -> None:
        """Count a transaction that is tried again (PG-07): what `db.pool.retrying` calls."""
        refusal = self._translate(error)
        self._retries.labels(self.name, refusal.reason if refusal else "INTERNAL").inc()

    def pooled(self, pool: Pool) -> None:
        """Show how many connections the service has open, at work and idle, and may have."""
        connections = self.metrics.gauge(
            "ductor_pool_connections", "Database connections of the service, by state.", ("service", "state")
        )
        connections.labels(self.name, "idle").set_function(pool.get_idle_size)
        connections.labels(self.name, "used").set_function(lambda: pool.get_size() - pool.get_idle_size())
        most = self.metrics.gauge("ductor_pool_max", "Database connections that the service may have.", ("service",))
        most.labels(self.name).set_function(pool.get_max_size)

    def on_drain(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Run at the begin of a stop, while RPCs of the process still work: stop taking, finish or give back.

        All drains and loops share `DUCTOR_DRAIN_MS`, services started last go first: what can be given back is given back well before its end.
        """
        self._drains.append(drain)

    def at_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Run at the end of a stop, when no RPC and no loop is left; also when the start fails."""
        self._closes.append(close)

    def channel(self, service: TargetService) -> grpc.aio.Channel:
        """A channel to another service: where `DUCTOR_<SERVICE>_TARGET` says, else in this process. Closed at stop.

        Raises `ConfigurationRefused` when the service is neither named nor here.
        """
        apart = bool(self.settings.target(service))
        target = self.target(service)
        if apart and (warning := channels.exposed(target, self.settings)):
            _log.warning("%s", warning)
        channel = channels.open_channel(
            target, self.settings, inside=not apart, files=self._host.certificates["target"]
        )
        self.at_stop(functools.partial(channel.close, None))
        return channel

    def inside(self) -> tuple[grpc.aio.Channel, Sign]:
        """A channel to what this very process serves, wherever others find it, and what its own calls carry beside a tenant instead of a key.

        Closed at stop.
        """
        server = self._host.server
        channel = channels.open_channel(server.inside(), self.settings, inside=True)
        self.at_stop(functools.partial(channel.close, None))
        known = ((INSIDE_KEY, server.inside_key()),)
        return channel, lambda: known

    def target(self, service: TargetService) -> str:
        """The address behind `channel`."""
        return self._host.target(service, self.name)


class Host:
    """A running process, as its composer and the tests see it."""

    def __init__(self, services: Sequence[Service], settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        build = self.metrics.gauge("ductor_build_info", "The release that runs; always 1.", ("version",))
        build.labels(_release()).set(1)
        self.health = Health()
        self.draining = asyncio.Event()
        self.hurry = asyncio.Event()
        """Set by a second signal: the drain is cut short."""
        self.server: RpcServer
        self.certificates: dict[str, tls.CertificateFiles | None]
        """Of the gRPC port, the HTTP port, and of calls to other processes; None: plaintext."""
        self.operations = Operations(self.health, self.metrics)
        payloads.warn_above(settings.payload_warn_bytes)
        self.grpc_address: Address
        self.http_address: Address | None = None
        self.health_address: Address | None = None
        self._http: HttpServer | None = None
        self._names = {service.name for service in services}
        self._scopes = [(service, Scope(service, self, self.health.add(service.name))) for service in services]

    def target(self, service: TargetService, caller: str) -> str:
        """Where `service` is called from this process."""
        if target := self.settings.target(service):
            return target
        if service in self._names:
            return self.server.inside()
        raise ConfigurationRefused(
            f"{caller} calls {service}, which is not in this process: set DUCTOR_{service.upper()}_TARGET"
        )

    async def run(self, stack: AsyncExitStack) -> None:
        """Start everything; `stack` undoes it, in whatever state it is."""
        self.settings.refuse_insecure()
        self.certificates = {
            "grpc": tls.of_grpc_port(self.settings),
            "http": tls.of_http_port(self.settings),
            "target": tls.of_targets(self.settings),
        }
        ends = self.metrics.gauge("ductor_certificate_expiry_timestamp_seconds", "When a certificate ends.", ("of",))
        for name, files in self.certificates.items():
            if files is not None and files.material.ends is not None:
                ends.labels(name).set_function(files.ends)
        self.server = RpcServer(self.settings, self.metrics, self.health, self.certificates["grpc"])
        for warning in self.settings.exposures:
            _log.warning("%s", warning)
        if self.settings.health is not None:
            # Before the services start, which may wait for a database: who probes finds the process alive and not ready.
            probes = HealthServer(self.health, self.settings.health)
            stack.push_async_callback(probes.stop)
            self.health_address = await probes.start()
        self.grpc_address = self.server.bind(self.settings.grpc)
        stack.push_async_callback(self.server.stop, RPC_GRACE_S)
        for service, scope in self._scopes:
            stack.push_async_callback(self._close, scope)
            await service.start(scope)
        stack.push_async_callback(self._stop)
        await self.server.start()
        if self.settings.http is not None:
            http = HttpServer(self.operations.app, self.settings.http, self.certificates["http"])
            self.http_address = await http.start()
            self._http = http
        for _, scope in self._scopes:
            for loop in scope._loops:
                loop.start()
        self.health.open = True

    async def _stop(self) -> None:
        """Drain, then loops, then HTTP, which may call RPCs of this process, then RPCs. `_close` follows."""
        self.health.close()
        self.draining.set()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.drain_ms / 1000
        for _, scope in reversed(self._scopes):
            for drain in reversed(scope._drains):
                await self._bounded(f"{scope.name}: drain", drain(), max(deadline - clock(), 0.1))
        loops = [loop for _, scope in self._scopes for loop in scope._loops]
        left = max(deadline - clock(), 0.1)
        await asyncio.gather(*(self._bounded(loop.name, loop.stop(left), left + 2, cut=loop.cancel) for loop in loops))
        grace = 0 if self.hurry.is_set() else RPC_GRACE_S
        if self._http is not None:
            await self._http.stop(grace)
        await self.server.stop(grace)

    async def _close(self, scope: Scope) -> None:
        for close in reversed(scope._closes):
            await self._bounded(f"{scope.name}: close", close(), CLOSE_LIMIT_S)

    async def _bounded(
        self, what: str, work: Awaitable[None], limit_s: float, *, cut: Callable[[], None] | None = None
    ) -> None:
        """Await one step of the stop; a step that raises, hangs or meets a second signal does not keep the others from their turn.

        `cut` is how to end the step early where cancelling it would leave something behind.
        """
        task = asyncio.ensure_future(work)
        hurry = asyncio.create_task(self.hurry.wait())
        try:
            await asyncio.wait([task, hurry], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and cut is not None:
                cut()
            if not task.done():
                await asyncio.wait([task], timeout=HURRY_S)
            if not task.done():
                _log.warning("%s is cut short", what)
                task.cancel()
                await asyncio.wait([task], timeout=1)
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                _log.error("%s raised", what, exc_info=error)
        finally:
            hurry.cancel()


@asynccontextmanager
async def hosting(services: Sequence[Service], settings: Settings) -> AsyncIterator[Host]:
    """Run `services` in this event loop while the context is open; leaving it is the whole stop. Installs no signal handler.

    Raises `ConfigurationRefused` before anything is bound, and what a `start` raises after undoing the starts before it.
    """
    host = Host(services, settings)
    async with AsyncExitStack() as stack:
        await host.run(stack)
        yield host


async def serve(
    services: Sequence[Service],
    settings: Settings,
    *,
    stop: asyncio.Event | None = None,
    started: Callable[[Host], None] = lambda host: None,
) -> None:
    """Run `services` until SIGTERM, SIGINT or `stop`. Sets up logs and tracing. A second signal cuts the drain short,
    and no further one does anything until the process is gone.

    `started` is called once everything serves (the CLI prints the addresses there). A stop during the start gives the start up.
    """
    logs.configure(settings)
    tracing.configure(settings, services=[service.name for service in services])
    for name in Settings.unknown(os.environ):
        _log.warning("no option is called %s; it has no effect", name)
    stop = stop or asyncio.Event()
    host: Host | None = None

    def asked() -> None:
        if stop.is_set() and host is not None:
            host.hurry.set()
        stop.set()

    with heard((signal.SIGTERM, signal.SIGINT), asked):
        try:
            async with AsyncExitStack() as stack:
                host = await _unless(stop, stack.enter_async_context(hosting(services, settings)))
                if host is not None:
                    names = ", ".join(service.name for service in services)
                    _log.info("serving %s on gRPC %s, HTTP %s", names, host.grpc_address, host.http_address or "off")
                    _spare_garbage()
                    started(host)
                    await stop.wait()
                    _log.info("stopping: draining for at most %.1f s", settings.drain_ms / 1000)
            _log.info("stopped")
        finally:
            tracing.shut_down()


def _release() -> str:
    try:
        return metadata.version("ductord")
    except metadata.PackageNotFoundError:  # run from a tree that was not installed
        return "unknown"


def _spare_garbage() -> None:
    """Let the collector of garbage leave alone what the start has made, which stays, and look less often at the rest: what ticks and calls make has hardly any
    cycles. Measured: the collector had a fifth of a coordinator's processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


async def _unless(stop: asyncio.Event, work: Awaitable[Host]) -> Host | None:
    """`work`, or None when the stop came first: then it is cancelled and has undone what it did."""
    task, stopping = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        return None if task.cancelled() else task.result()
    finally:
        stopping.cancel()


__all__ = ["Host", "Refusal", "Scope", "Service", "hosting", "serve"]
