"""Is it alive, can it serve: pulses that loops beat, readiness checks, and `grpc.health.v1` over both.

Alive means that the loops turn; it never asks the database, so that a database's blip restarts nothing (KB-02). Ready means alive, started, not
draining, and every check passes (the pool answers). Checks run when somebody asks, at most once a second: an idle process does no work for its
probes. To `grpc.health.v1` the process is the empty name and `live`: the first is being ready, the second being alive.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Check = Callable[[], Awaitable[None]]
"""Returns when all is well, raises when not. Bounded by `CHECK_LIMIT_S`."""

CHECK_LIMIT_S = 2.0
FRESH_S = 1.0
WATCH_S = 1.0
LIVE = "live"
"""The name under which `grpc.health.v1` tells whether the process is alive, as /livez does."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

_log = logging.getLogger("ductor.health")


class Pulse:
    """When a loop last turned. Stale after `limit_s` without a beat; a loop that ended in order is not stale."""

    def __init__(self, name: str, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.limit_s = limit_s
        self._clock = clock
        self._last = clock()
        self._ended = False

    def beat(self) -> None:
        """The loop turned."""
        self._last = self._clock()

    def end(self) -> None:
        """The loop was stopped on purpose."""
        self._ended = True

    @property
    def stale(self) -> bool:
        """Whether the loop has not turned for too long."""
        return not self._ended and self._clock() - self._last > self.limit_s


class ServiceHealth:
    """The health of one service of a process."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.rpc_services: list[str] = []
        self._clock = clock
        self._pulses: list[Pulse] = []
        self._checks: dict[str, Check] = {}
        self._problems: list[str] = []
        self._checked: float | None = None
        self._checking = asyncio.Lock()

    def pulse(self, name: str, limit_s: float) -> Pulse:
        """A pulse that counts from now."""
        pulse = Pulse(f"{self.name}.{name}", limit_s, self._clock)
        self._pulses.append(pulse)
        return pulse

    def ready_when(self, name: str, check: Check) -> None:
        """Add a condition of being ready."""
        self._checks[name] = check

    def stale(self) -> list[str]:
        """Names of the loops that do not turn."""
        return [pulse.name for pulse in self._pulses if pulse.stale]

    def known(self) -> list[str]:
        """The same as `problems`, as far as it was found the last time that somebody asked."""
        return self.stale() + self._problems

    async def problems(self) -> list[str]:
        """What keeps the service from serving; names only, never an error's text. Empty: it can serve."""
        async with self._checking:  # many probes at once ask the pool once
            if self._checked is None or self._clock() - self._checked >= FRESH_S:
                before, self._problems = (
                    self._problems,
                    [n for n in await asyncio.gather(*map(self._failing, self._checks)) if n],
                )
                self._checked = self._clock()
                if before != self._problems:
                    _log.warning(
                        "%s is %s",
                        self.name,
                        f"not ready: {', '.join(self._problems)}" if self._problems else "ready again",
                    )
            return self.stale() + self._problems

    async def _failing(self, name: str) -> str | None:
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                await self._checks[name]()
        except Exception as error:
            _log.debug("check %s.%s fails", self.name, name, exc_info=error)
            return f"{self.name}.{name}"
        return None


class Health:
    """The health of a process: all its services, and whether it has started and is not draining."""

    def __init__(self) -> None:
        self.services: dict[str, ServiceHealth] = {}
        self.open = False
        """True between the end of the start and the begin of the stop."""
        self.closed = False
        """True from the begin of the stop."""

    def add(self, name: str) -> ServiceHealth:
        """The health of a further service."""
        service = self.services[name] = ServiceHealth(name)
        return service

    def close(self) -> None:
        """The stop begins: nothing is ready from here on, and nobody watches a process that goes."""
        self.open, self.closed = False, True

    def stale(self) -> list[str]:
        """Names of all loops that do not turn: what `/livez` tells."""
        return [name for service in self.services.values() for name in service.stale()]

    async def problems(self, services: Iterable[ServiceHealth] | None = None) -> list[str]:
        """What keeps the given services (all) from serving: what `/readyz` tells."""
        if not self.open:
            return ["process"]
        found = await asyncio.gather(
            *(s.problems() for s in (self.services.values() if services is None else services))
        )
        return [problem for problems in found for problem in problems]

    def named(self, name: str) -> list[ServiceHealth] | None:
        """The services that a probe means: all for the empty name, one by its deployable or RPC service name; None if unknown."""
        if not name:
            return list(self.services.values())
        found = [s for s in self.services.values() if name == s.name or name in s.rpc_services]
        return found or None


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the wheel has no types
    """`grpc.health.v1` over `Health`. Needs no tenant."""

    def __init__(self, health: Health) -> None:
        self._health = health

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802  # the contract's name
        """SERVING or NOT_SERVING; NOT_FOUND for a service that this process does not have, as the protocol says."""
        status = await self._status(request.service)
        if status == _UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service in this process")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """The status of every RPC service and of every deployable."""
        names = ["", LIVE] + [name for s in self._health.services.values() for name in (s.name, *s.rpc_services)]
        statuses = {name: health_pb2.HealthCheckResponse(status=await self._status(name)) for name in names}
        return health_pb2.HealthListResponse(statuses=statuses)

    async def Watch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:  # noqa: N802
        """The status now and at every change, until the caller or the process goes."""
        last = None
        while True:
            status = await self._status(request.service)
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            if self._health.closed:
                return
            await asyncio.sleep(WATCH_S)

    async def _status(self, name: str) -> int:
        if name == LIVE:
            return int(_NOT_SERVING if self._health.stale() else _SERVING)
        services = self._health.named(name)
        if services is None:
            return int(_UNKNOWN)
        return int(_NOT_SERVING if await self._health.problems(services) else _SERVING)
