"""Steps of a stop, none of which may hold up the others; and a start that a stop may overtake. It knows no service and no order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

HURRY_S = 0.5
"""What a step of the stop still gets when its time is up or a second signal came."""

_log = logging.getLogger("ductor.host")

T = TypeVar("T")


async def bounded(
    what: str,
    work: Awaitable[None],
    limit_s: float,
    *,
    hurry: asyncio.Event,
    cut: Callable[[], None] | None = None,
) -> None:
    """Await one step of the stop; a step that raises, hangs or meets a second signal does not keep the others from their turn.

    `hurry` is set by a second signal. `cut` is how to end the step early where cancelling it would leave something behind.
    """
    task = asyncio.ensure_future(work)
    hurried = asyncio.create_task(hurry.wait())
    try:
        await asyncio.wait([task, hurried], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
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
        hurried.cancel()


async def unless(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
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
