"""What a service's `start` registers on: what it offers, what it needs, what is to be done when the process stops.

It only takes down and passes on; what is started and stopped when is the host's business.
"""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from ductord.rpc import channels
from ductord.rpc.caller import INSIDE_KEY, Authenticator
from ductord.rpc.config import TargetService
from ductord.rpc.credentials import Sign
from ductord.rpc.health import Check, Pulse, ServiceHealth
from ductord.rpc.loops import Loop, Translate, Turn
from ductord.rpc.operations import App
from ductord.rpc.process import Process
from ductord.rpc.server import Add

_log = logging.getLogger("ductor.host")


class Pool(Protocol):
    """What is shown of a pool of database connections (`db.pool`)."""

    def get_size(self) -> int: ...
    def get_idle_size(self) -> int: ...
    def get_max_size(self) -> int: ...


class Scope:
    """What a service's `start` gets: the settings, and where to register what it offers and needs."""

    def __init__(self, name: str, process: Process, health: ServiceHealth) -> None:
        self.name = name
        self.settings = process.settings
        self.metrics = process.metrics
        self.draining = process.draining
        """Set when the process was asked to stop: long waits end."""
        self.loops: list[Loop] = []
        """What was registered, in the order of it: these three are the host's."""
        self.drains: list[Callable[[], Awaitable[None]]] = []
        self.closes: list[Callable[[], Awaitable[None]]] = []
        self._process = process
        self._health = health
        self._translate: Translate = lambda error: None
        self._failures = process.metrics.counter(
            "ductor_loop_failures", "Turns of background loops that raised.", ("loop", "reason")
        )
        self._retries = process.metrics.counter(
            "ductor_transaction_retries", "Transactions that were tried again.", ("service", "reason")
        )
        ready = process.metrics.gauge(
            "ductor_service_ready", "Whether the service can serve, as /readyz says: 1 or 0.", ("service",)
        )
        ready.labels(self.name).set_function(lambda: process.health.open and not health.known())

    def rpcs(self, add: Add, servicer: Any) -> None:
        """Serve a generated servicer on the process's gRPC port: `scope.rpcs(add_TaskServiceServicer_to_server, servicer)`."""
        self._health.rpc_services.append(self._process.server.add(add, servicer, lambda error: self._translate(error)))

    @property
    def authenticated(self) -> bool:
        """Whether somebody says who calls this process."""
        return self._process.server.authenticated

    def authenticate(self, authenticator: Authenticator) -> None:
        """Have `authenticator` say who calls this process and whether they may; the credentials of calls that go on are looked at every
        `DUCTOR_KEY_CACHE_MS`."""
        self._process.server.authenticate(authenticator)
        self.loop("credentials", self._process.server.recheck, interval_ms=self.settings.key_cache_ms)

    def http(self, app: App) -> None:
        """Serve an ASGI application on the process's HTTP port, beside /livez, /readyz and /metrics. One service of a process may."""
        self._process.operations.mount(app)

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
        self.loops.append(loop)
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
        self.drains.append(drain)

    def at_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Run at the end of a stop, when no RPC and no loop is left; also when the start fails."""
        self.closes.append(close)

    def channel(self, service: TargetService) -> grpc.aio.Channel:
        """A channel to another service: where `DUCTOR_<SERVICE>_TARGET` says, else in this process. Closed at stop.

        Raises `ConfigurationRefused` when the service is neither named nor here.
        """
        apart = bool(self.settings.target(service))
        target = self.target(service)
        if apart and (warning := channels.exposed(target, self.settings)):
            _log.warning("%s", warning)
        channel = channels.open_channel(
            target, self.settings, inside=not apart, files=self._process.certificates["target"]
        )
        self.at_stop(functools.partial(channel.close, None))
        return channel

    def inside(self) -> tuple[grpc.aio.Channel, Sign]:
        """A channel to what this very process serves, wherever others find it, and what its own calls carry beside a tenant instead of a key.

        Closed at stop.
        """
        server = self._process.server
        channel = channels.open_channel(server.inside(), self.settings, inside=True)
        self.at_stop(functools.partial(channel.close, None))
        known = ((INSIDE_KEY, server.inside_key()),)
        return channel, lambda: known

    def target(self, service: TargetService) -> str:
        """The address behind `channel`."""
        return self._process.target(service, self.name)
