"""WatchRun: a run is followed to its end, message by message, by as many callers as like to.

A stream that waits holds a future and nothing else: one loop looks for all of them at once which runs have moved (`db.waits`), a NOTIFY only makes it look
sooner. What is told is what rows say, never what was heard: a hint that is lost, a database that restarts, a caller that comes back with `after_seq` cost time
and nothing else. It touches nothing: a stream that ends, in whatever way, changes no run.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import common_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.outage import passes
from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.db.waits import Waits
from ductord.reads.changes import message_after
from ductord.reads.versions import Outlines
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.runs import run_id_of

MIN_INTERVAL_MS: Final = 100
HEARTBEAT_MS: Final = 15_000
GAP_S: Final = 0.02
"""The least time between two looks for all streams: people watch, and a busy coordinator hints thousands of times a second."""
RETRY_S: Final = 0.5
"""How long a stream rests before it looks again at a database that was not there."""
_q: Final = Queries("ductord.reads", "watch.sql")

Key = tuple[str, int]
"""Run id, transitions that were told."""


def moved(pool: asyncpg.Pool) -> Callable[[str, Sequence[Key]], Awaitable[Sequence[tuple[Key, bool]]]]:
    """The look of `db.waits.Waits`: those of a tenant's runs that have gone on."""

    async def look(tenant_id: str, keys: Sequence[Key]) -> Sequence[tuple[Key, bool]]:
        async with tenant_transaction(pool, tenant_id) as db:
            rows = await db.fetch(_q["moved"], tenant_id, [run_id for run_id, _ in keys], [seq for _, seq in keys])
        return [((row["run_id"], row["seq"]), True) for row in rows]

    return look


class Watches:
    """The streams of a process. `waits`: over `moved`. `draining`: set when the process is asked to stop."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        waits: Waits[Key, bool],
        outlines: Outlines,
        settings: Settings,
        draining: asyncio.Event,
    ) -> None:
        self._pool = pool
        self._waits = waits
        self._outlines = outlines
        self._max_bytes = settings.reply_max_bytes
        self._most = max(settings.max_calls // 2, 1)
        self._draining = draining
        self._looks = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))
        """When all of a thousand streams have something to tell, other calls are served all the same."""
        self._open = 0

    def __len__(self) -> int:
        return self._open

    async def follow(self, tenant_id: str, request: api.WatchRunRequest) -> AsyncGenerator[api.WatchRunResponse]:
        """The messages of one stream. Raises RUN_NOT_FOUND, FIELD_INVALID and OVERLOADED before the first, SERVICE_DRAINING at any time."""
        run_id = run_id_of(request.run_id)
        after: int | None = request.after_seq if request.HasField("after_seq") else None
        if after is not None and after < 0:
            raise field_invalid("after_seq", "is at least 0")
        pace = _Pace(
            rest_s=_seconds(request, "min_interval_ms", 20, MIN_INTERVAL_MS),
            heartbeat_s=_seconds(request, "heartbeat_ms", 100, HEARTBEAT_MS),
        )
        if self._open >= self._most:
            text = "more runs are being watched than the service takes; try again"
            raise refused("OVERLOADED", text, retry_after_ms=5_000)
        self._open += 1
        try:
            while run_id:
                async with aclosing(self._to_its_end(tenant_id, run_id, after, pace)) as messages:
                    async for message in messages:
                        yield message
                        pace.begun = True
                run_id, after = message.summary.continued_to_run_id if request.follow else "", None
        finally:
            self._open -= 1

    async def _to_its_end(
        self, tenant_id: str, run_id: str, after: int | None, pace: "_Pace"
    ) -> AsyncGenerator[api.WatchRunResponse]:
        """The messages about one run, of which the last one says so."""
        clock = asyncio.get_running_loop().time
        while True:
            looked = clock()
            try:
                async with self._looks, tenant_transaction(self._pool, tenant_id) as db:
                    message = await message_after(db, self._outlines, tenant_id, run_id, after, self._max_bytes)
            except Exception as error:
                if not (pace.begun and passes(error)):
                    raise
                await self._rest(RETRY_S)
                message = None
            if message is not None:
                yield message
                if message.ended:
                    return
                after = message.seq
            elif not pace.begun:
                yield _heartbeat(run_id, after)
            while not await self._waits.result(tenant_id, (run_id, -1 if after is None else after), pace.heartbeat_s):
                self._refuse_draining()
                yield _heartbeat(run_id, after)
            await self._rest(looked + pace.rest_s - clock())

    async def _rest(self, seconds: float) -> None:
        """Unless the process is asked to stop. Raises SERVICE_DRAINING."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._draining.wait()
        self._refuse_draining()

    def _refuse_draining(self) -> None:
        if self._draining.is_set():
            message = "the process is stopping; the run can be watched again, after the last seq that was told"
            raise refused("SERVICE_DRAINING", message, retry_after_ms=500)


class _Pace(msgspec.Struct, kw_only=True):
    """Of one stream. `begun`: something was told, from then on it is patient with a database that is away."""

    rest_s: float
    heartbeat_s: float
    begun: bool = False


def _heartbeat(run_id: str, after: int | None) -> api.WatchRunResponse:
    """Says that the stream lives. It has no `fetched_at`: nothing was read."""
    call = caller()
    metadata = common_pb2.ResponseMetadata(trace_id=call.trace_id, request_id=call.request_id)
    return api.WatchRunResponse(kind=api.WATCH_KIND_HEARTBEAT, run_id=run_id, seq=after or 0, metadata=metadata)


def _seconds(request: api.WatchRunRequest, field: str, least: int, default: int) -> float:
    given: int = getattr(request, field)
    if given and not least <= given <= 60_000:
        raise field_invalid(field, f"is between {least} and 60,000; 0 stands for {default:,}")
    return (given or default) / 1000
