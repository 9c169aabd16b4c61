"""What a database error means to a caller, and how long a start waits for a database. SQLSTATEs are judged here and nowhere else.

Nothing of a statement or of the server's message reaches a caller (contract, «Errors»).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg

from ductord.model.errors import Refusal

T = TypeVar("T")

RETRY_AFTER_MS: Final = 1_000

_CONFLICT: Final = ("40001", "40P01", "55P03", "25P02")
_OUTAGE_CLASSES: Final = ("08", "53", "57P")
_OUTAGE: Final = ("25006", "57014")
"""A standby that was a primary a moment ago; a statement that hit its time limit."""


def is_outage(error: BaseException) -> bool:
    """Whether the database cannot be reached, is overloaded or is failing over: it passes, and nothing is wrong with the call."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_OUTAGE_CLASSES) or state in _OUTAGE
    if isinstance(error, asyncpg.InternalClientError):
        return True  # asyncpg's own confusion about a connection that was lost between two of its messages
    if isinstance(error, asyncpg.InterfaceError):
        # The client's words for a lost connection; its words for a wrong argument are a ValueError too.
        return not isinstance(error, ValueError)
    return isinstance(error, OSError | TimeoutError)


def passes(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is tried again: an outage, or rows that were contended."""
    return is_outage(error) or _conflicts(error)


def _conflicts(error: BaseException) -> bool:
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _CONFLICT


def refusal_of(error: BaseException) -> Refusal | None:
    """UNAVAILABLE for an outage, ABORTED for rows that stayed contended; None for everything that nobody expected."""
    if _conflicts(error):
        return Refusal(
            "ABORTED", "TRANSACTION_CONFLICT", "the rows that the call needed stayed contended", retry_after_ms=100
        )
    if is_outage(error):
        return Refusal(
            "UNAVAILABLE",
            "DATABASE_UNAVAILABLE",
            "the database cannot be reached or is overloaded; the call may be repeated",
            retry_after_ms=RETRY_AFTER_MS,
        )
    return None


async def answers(pool: asyncpg.Pool, *, writes: bool = True) -> None:
    """Returns when the pool gets an answer from the database: the check behind readiness.

    With `writes` a server that only reads is none: who is connected to one after a fail-over looks healthy and does nothing (PG-01).
    """
    read_only = await pool.fetchval("select current_setting('transaction_read_only')") == "on"
    if writes and read_only:
        raise asyncpg.ReadOnlySQLTransactionError("the server takes no writes")


async def patient(
    open_: Callable[[], Awaitable[T]], wait_ms: int, on_retry: Callable[[BaseException], None] = lambda error: None
) -> T:
    """`open_()`, again while the database cannot be reached, for at most `wait_ms`. What waiting cannot cure (a wrong password) is raised at once."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    delay = 0.1
    while True:
        try:
            return await open_()
        except Exception as error:
            if not is_outage(error) or loop.time() + delay > deadline:
                raise
            on_retry(error)
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))
        delay = min(delay * 2, 2.0)
