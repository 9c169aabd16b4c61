"""The shape that every service has, and the process that runs one or many of them: one gRPC port, one HTTP port, one stop.

A `Service` is a name and a `start(scope)`. `start` opens what the service needs and registers what it offers on its `Scope`; the host begins to
serve when every service has started. The host knows no service by name; the CLI names them. It must never decide what a service does with its
time.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import metadata

import msgspec

from ductord.rpc import logs, payloads, tls, tracing
from ductord.rpc.config import Settings
from ductord.rpc.operations import HttpServer
from ductord.rpc.process import Process
from ductord.rpc.scope import Scope
from ductord.rpc.server import HealthServer, RpcServer
from ductord.rpc.signals import heard
from ductord.rpc.stopping import bounded, unless

CLOSE_LIMIT_S = 5.0
"""How long one `at_stop` may take: closing a pool waits for its users, who are gone by then."""
RPC_GRACE_S = 2.0
"""How long RPCs still in flight after the drain may take to answer."""

_log = logging.getLogger("ductor.host")

_YOUNG = 10_000
"""How many values are made, less those that are gone, before the collector looks at the young ones."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One deployable. `name` is its folder, its `DUCTOR_<NAME>_TARGET`, its role, its name in logs, metrics and health."""

    name: str
    start: Callable[[Scope], Awaitable[None]]

    async def serve(self, settings: Settings, *, stop: asyncio.Event | None = None) -> None:
        """Run it alone in this process, as `serve`."""
        await serve([self], settings, stop=stop)


class Host(Process):
    """A running process, as its composer and the tests see it."""

    def __init__(self, services: Sequence[Service], settings: Settings) -> None:
        super().__init__(settings, {service.name for service in services})
        build = self.metrics.gauge("ductor_build_info", "The release that runs; always 1.", ("version",))
        build.labels(_release()).set(1)
        self.hurry = asyncio.Event()
        """Set by a second signal: the drain is cut short."""
        payloads.warn_above(settings.payload_warn_bytes)
        self._http: HttpServer | None = None
        self._scopes = [(service, Scope(service.name, self, self.health.add(service.name))) for service in services]

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
            for loop in scope.loops:
                loop.start()
        self.health.open = True

    async def _stop(self) -> None:
        """Drain, then loops, then HTTP, which may call RPCs of this process, then RPCs. `_close` follows."""
        self.health.close()
        self.draining.set()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.settings.drain_ms / 1000
        for _, scope in reversed(self._scopes):
            for drain in reversed(scope.drains):
                await bounded(f"{scope.name}: drain", drain(), max(deadline - clock(), 0.1), hurry=self.hurry)
        loops = [loop for _, scope in self._scopes for loop in scope.loops]
        left = max(deadline - clock(), 0.1)
        await asyncio.gather(
            *(bounded(loop.name, loop.stop(left), left + 2, hurry=self.hurry, cut=loop.cancel) for loop in loops)
        )
        grace = 0 if self.hurry.is_set() else RPC_GRACE_S
        if self._http is not None:
            await self._http.stop(grace)
        await self.server.stop(grace)

    async def _close(self, scope: Scope) -> None:
        for close in reversed(scope.closes):
            await bounded(f"{scope.name}: close", close(), CLOSE_LIMIT_S, hurry=self.hurry)


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
                host = await unless(stop, stack.enter_async_context(hosting(services, settings)))
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


__all__ = ["Host", "Scope", "Service", "hosting", "serve"]
