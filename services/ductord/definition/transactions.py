"""One transaction of a tenant's, repeated whole when it failed for a passing reason."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from ductord.db.pool import retrying, tenant_transaction

T = TypeVar("T")


async def in_transaction(
    pool: asyncpg.Pool, tenant_id: str, work: Callable[[asyncpg.Connection, bool], Awaitable[T]]
) -> T:
    """`work(db, again)` in one transaction. `again`: an earlier try failed, and as the outcome of a lost COMMIT is unknown its work may be done.

    Work that writes looks for its own earlier effect first when `again` is set (PG-01).
    """
    again = False

    async def attempt() -> T:
        async with tenant_transaction(pool, tenant_id) as db:
            return await work(db, again)

    def failed(error: BaseException) -> None:
        nonlocal again
        again = True

    return await retrying(attempt, on_retry=failed)
