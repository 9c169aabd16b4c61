"""`core:sleep`: takes its time, for trials of time-outs, cancelling and drains. It holds a worker's slot: to wait for long is not a worker's work."""

import asyncio
from typing import Any

from ductord.worker.context import ActionContext


async def sleep(args: Any, context: ActionContext) -> Any:
    """Waits `ms` milliseconds and returns {}."""
    await asyncio.sleep(args["ms"] / 1000)
    return {}
