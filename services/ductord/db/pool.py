"""The pool of one service, its transactions, and the one way to a tenant's rows.

`open_pool` connects as the service's role. `tenant_transaction` is the only function that opens a tenant's database session: it sets the tenant for the
transaction, which row-level security reads. What needs no answer travels with BEGIN and with COMMIT: a round trip is a good part of what a short transaction
costs. Retrying a whole transaction is `retrying`. No SQL of a service lives here.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import asyncpg

from ductord.db.outage import passes

T = TypeVar("T")
OnRetry = Callable[[BaseException], None]
"""Told of every failure that is followed by another try."""

_PIDS: Final = 1_000

PROBES: Final[Mapping[str, str]] = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
"""For a service whose statements are index probes driven by arrays: planned once (planning took longer than claiming), and never as a scan of a table
that was empty when the plan was made. Measured on a fresh database: 318 ms instead of 2 ms for a batch of 100."""

REPLAN_S: Final = 5.0
"""How old a cached plan may get where a pool was opened with it. A plan that was made while a table was nearly empty reads all of the index for every
element of an array, and is kept until the table is analysed again, a minute later. Measured after a burst of 50,000 runs: 3 s for a batch of 500 that takes
5 ms."""


CONNECT_S: Final = 10.0
STATEMENT_S: Final = 20.0
"""The longest that a statement may take. In a black hole its cancelling takes as long again: a loop's turn that fell into one ends well within
`DUCTOR_LIVENESS_MS`, so that a database's blip restarts nothing (KB-02, PG-02)."""


_LEAVING: Final[Mapping[str, str]] = {
    "idle_in_transaction_session_timeout": "20s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""How soon the server gives up on a client that is frozen or gone without a word (a paused machine, a cut cable). Until then the runs that a coordinator had
claimed are locked, and by the server's own settings that may be for ever, or two hours."""


async def open_pool(
    dsn: str,
    role: str,
    *,
    min_size: int = 1,
    max_size: int = 4,
    notify: bool = True,
    set_role: bool = False,
    settings: Mapping[str, str] | None = None,
    writes: bool = True,
    replan_s: float | None = None,
) -> asyncpg.Pool:
    """A pool for the service role `ductor_<role>`.

    `set_role`: the login of `dsn` is not that role itself (`dev`: the embedded server's owner) and changes into it. `notify` off: this
    service's statements send no NOTIFY. `settings`: further server settings of these connections, such as `PROBES`. `writes` off: a server
    that only reads (a standby) will do. `replan_s`: see `REPLAN_S`.
    """
    own = {"application_name": f"ductor-{role}", "jit": "off", "ductor.notify": "on" if notify else "off", **_LEAVING}

    async def prepare(connection: asyncpg.Connection) -> None:
        if set_role:
            await connection.execute(f"set role ductor_{role}")

    pool: asyncpg.Pool = await asyncpg.create_pool(
        dsn,
        min_size=min_size,
        max_size=max_size,
        server_settings={**own, **(settings or {})},
        timeout=CONNECT_S,
        command_timeout=STATEMENT_S,
        init=prepare,
        setup=None if replan_s is None else _replanning(replan_s),
        reset=_leave_what_cannot_write if writes else _no_reset,
    )
    return pool


def _replanning(every_s: float) -> Callable[[asyncpg.Connection], Awaitable[None]]:
    """A pool's `setup` that has a connection forget its plans, not its prepared statements, when they are older than `every_s`."""
    planned: dict[int, float] = {}

    async def setup(connection: asyncpg.Connection) -> None:
        pid, now = connection.get_server_pid(), asyncio.get_running_loop().time()
        if now - planned.setdefault(pid, now) < every_s:
            return
        if len(planned) > _PIDS:  # of connections that are long gone
            planned.clear()
        planned[pid] = now
        await connection.execute("discard plans")

    return setup


async def _no_reset(connection: asyncpg.Connection) -> None:
    """Nothing to undo: services set what they set with `set local` only. Saves a round trip per acquire."""


async def _leave_what_cannot_write(connection: asyncpg.Connection) -> None:
    """As `_no_reset`, but a server that has turned read-only (25006: a fail-over, with us on the wrong side) is looked up anew (PG-01).

    The server reports both settings by itself: no round trip.
    """
    reported = connection.get_settings()
    if "on" in (reported.in_hot_standby, reported.default_transaction_read_only):
        connection.terminate()


@asynccontextmanager
async def transaction(connection: asyncpg.Connection, *first: str, begin: str = "begin") -> AsyncIterator[list[str]]:
    """A transaction. Statements that answer nothing go along with BEGIN (`first`) and with COMMIT (those that are put into what is yielded): they take no
    parameters, and what comes from outside goes through `literal`."""
    await connection.execute("; ".join((begin, *first)))
    last: list[str] = []
    try:
        yield last
        await connection.execute("; ".join((*last, "commit")))
    except BaseException:
        if not connection.is_closed() and connection.is_in_transaction():
            await connection.execute("rollback")
        raise


def literal(text: str) -> str:
    """`text` as a constant in a statement."""
    return "'" + text.replace("'", "''") + "'"


@asynccontextmanager
async def tenant_transaction(
    pool: asyncpg.Pool, tenant_id: str, *, one_moment: bool = False
) -> AsyncIterator[asyncpg.Connection]:
    """A transaction in which row-level security shows the rows of `tenant_id` only (ruling N1). `one_moment`: it only reads, and all of its statements see
    the rows as they were at the first."""
    begin = "begin isolation level repeatable read read only" if one_moment else "begin"
    tenant = f"set local ductor.tenant_id = {literal(tenant_id)}"
    async with pool.acquire() as connection, transaction(connection, tenant, begin=begin):
        yield connection


async def retrying(attempt: Callable[[], Awaitable[T]], *, tries: int = 5, on_retry: OnRetry | None = None) -> T:
    """Run a whole transaction, again with jittered back-off when it failed for a passing reason (`outage.passes`).

    Only for transactions that are safe to repeat: those guarded by a version or a unique key.
    """
    for number in range(tries):
        try:
            return await attempt()
        except Exception as error:
            if number == tries - 1 or not passes(error):
                raise
            if on_retry is not None:
                on_retry(error)
            await asyncio.sleep(random.uniform(0.5, 1.0) * 0.05 * 2**number)
    raise AssertionError("unreachable")


async def in_tenant_transaction(
    pool: asyncpg.Pool,
    tenant_id: str,
    work: Callable[[asyncpg.Connection], Awaitable[T]],
    *,
    on_retry: OnRetry | None = None,
) -> T:
    """What `work` gives in one transaction of the tenant. It may be done again, as `retrying` says."""

    async def attempt() -> T:
        async with tenant_transaction(pool, tenant_id) as db:
            return await work(db)

    return await retrying(attempt, on_retry=on_retry)
