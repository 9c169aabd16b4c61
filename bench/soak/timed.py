"""Calls at fixed moments, whether the ones before have been answered or not (an open loop), each timed from the moment when it was due.

So a stall is seen by every call that was due in it, and not only by the one that was on its way.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import grpc


class Times:
    """Seconds by call, with the moment since the begin when each was due; failures by call and word."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.failures: dict[str, int] = defaultdict(int)

    async def call(self, name: str, due: float, work: Awaitable[Any]) -> None:
        """Await and count one call."""
        try:
            await work
        except (grpc.RpcError, AssertionError, TimeoutError) as error:
            word = error.code().name if isinstance(error, grpc.aio.AioRpcError) else f"{type(error).__name__}: {error}"
            self.failures[f"{name}: {word}"[:200]] += 1
            return
        self.taken[name].append((due - self.begin, time.perf_counter() - due))

    def figures(self) -> dict[str, dict[str, Any]]:
        """By call: how many, p50, p99 and the longest in ms, and p99 of either half of the time."""
        end = time.perf_counter() - self.begin
        return {
            name: {
                "calls": len(pairs),
                "p50": percentile([taken for _, taken in pairs], 0.5),
                "p99": percentile([taken for _, taken in pairs], 0.99),
                "max": percentile([taken for _, taken in pairs], 1.0),
                "p99_first_half": percentile([taken for at, taken in pairs if at < end / 2], 0.99),
                "p99_second_half": percentile([taken for at, taken in pairs if at >= end / 2], 0.99),
            }
            for name, pairs in sorted(self.taken.items())
        }


def percentile(seconds: list[float], share: float) -> float:
    """In milliseconds; 0 of nothing."""
    ordered = sorted(seconds)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2) if ordered else 0.0


async def at_rate(times: Times, name: str, per_s: float, until: float, call: Callable[[int], Awaitable[Any]]) -> None:
    """Make a call every 1/`per_s` seconds until the moment `until` (of time.perf_counter), then await those on their way."""
    under_way: set[asyncio.Task[None]] = set()
    number, begin = 0, time.perf_counter()
    while (due := begin + number / per_s) < until:
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        task = asyncio.create_task(times.call(name, due, call(number)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        number += 1
    if under_way:
        await asyncio.wait(under_way, timeout=60)
