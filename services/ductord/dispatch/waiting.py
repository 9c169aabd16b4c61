"""The one place where polls wait for tasks. Many waiting pollers cost the database as little as one.

Polls with equal filters form a group and are served in turn; one empty claim answers for the whole group. The loop looks for a group when a poll
arrives, when a NOTIFY hints, when a task that was seen comes due, and at the latest after the poll interval: hints only shorten the wait. It is the
only caller of `claim`. A lease whose poller went away before the reply left is given back: its secret was never told.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import Claim, LeasedTask, Leases, Poll

MANY: Final = 16
"""With more groups than this at once, one statement first asks which of them have work at all."""
CONTENDED_S: Final = 0.005
QUIET_S: Final = 0.02
"""How long after a claim that took all there was a poll waits for a hint before it looks. A worker polls again in the same moment in which it begins what it
got: that look was always in vain, and competed with the report for the processor."""
LAST_LOOK_S: Final = 5.0
"""How much longer than it asked for a poll may take when its first look is late (the database is away)."""

_log = logging.getLogger("ductor.dispatch")


class _Waiter:
    """One waiting call. `uncertain`: its last claim failed in a way that may have leased tasks under its poll id."""

    __slots__ = ("answer", "claiming", "expired", "looked", "poll", "uncertain")

    def __init__(self, poll: Poll) -> None:
        self.poll = poll
        self.answer: asyncio.Future[list[LeasedTask]] = asyncio.get_running_loop().create_future()
        self.looked: datetime | None = None
        """When the queue was last looked at for it, by database time."""
        self.claiming = False
        self.expired = False
        self.uncertain = False

    def settle(self, tasks: list[LeasedTask]) -> bool:
        """Answer; False when the caller is gone."""
        if self.answer.done():
            return False
        self.answer.set_result(tasks)
        return True


class Taken(NamedTuple):
    """The answer to a poll; `looked`: the database time of the last look at the queue, None when there was none."""

    tasks: list[LeasedTask]
    looked: datetime | None


class _Group:
    __slots__ = ("look_at", "quiet_until", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[_Waiter] = deque()
        self.look_at = 0.0
        """When the loop looks for this group next, by the event loop's clock."""
        self.quiet_until = 0.0
        """Until when there can be nothing that no hint would tell of."""


class Waiting:
    """All polls that wait in this process, and the turn of the loop that serves them. `wake` ends the loop's rest."""

    def __init__(self, leases: Leases, *, interval_ms: int, quiet_s: float = QUIET_S) -> None:
        self._leases = leases
        self._quiet_s = quiet_s
        self._interval_s = interval_ms / 1000
        self._groups: dict[Filter, _Group] = {}
        self._orphans: list[LeasedTask] = []
        self.closed = False
        """Whether the process drains: who waited was answered, a new poll is refused."""
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return sum(len(group.waiters) for group in self._groups.values())

    async def take(self, poll: Poll, wait_s: float) -> Taken:
        """Tasks for the poll, as soon as there are any; none after `wait_s`. At least one look is taken, also with `wait_s` 0."""
        waiter = _Waiter(poll)
        answer = waiter.answer
        group = self._groups.setdefault(poll.wanted, _Group())
        group.waiters.append(waiter)
        group.look_at = min(group.look_at, group.quiet_until) if wait_s > self._quiet_s else 0.0
        self.wake()
        try:
            await asyncio.wait([answer], timeout=wait_s)
            if not answer.done():
                waiter.expired = True
                if waiter.claiming or waiter.looked is None:
                    await asyncio.wait([answer], timeout=LAST_LOOK_S)
        except asyncio.CancelledError:
            if answer.done():
                self._orphan(answer.result())
            raise
        finally:
            with contextlib.suppress(ValueError):
                group.waiters.remove(waiter)
            answer.cancel()  # does nothing to an answer; tasks that a claim still brings are given back
        return Taken([] if answer.cancelled() else answer.result(), waiter.looked)

    def hint(self) -> None:
        """Somebody says that tasks were queued: look for every group."""
        for group in self._groups.values():
            group.look_at = group.quiet_until = 0.0
        self.wake()

    async def drain(self) -> None:
        """Answer every waiting poll with nothing and give back what no poller took."""
        self.closed = True
        for group in self._groups.values():
            for waiter in group.waiters:
                if not waiter.claiming:
                    waiter.settle([])
        await self._return_orphans()

    async def turn(self) -> float | None:
        """Serve the groups whose time has come; seconds until the next one's."""
        await self._return_orphans()
        now = _clock()
        for wanted in [w for w, group in self._groups.items() if not group.waiters and group.quiet_until <= now]:
            del self._groups[wanted]
        ready = [wanted for wanted, group in self._groups.items() if group.look_at <= now]
        for wanted in await self._worth_a_claim(ready):
            await self._serve(self._groups[wanted])
        if not self._groups:
            return None
        return max(min(group.look_at for group in self._groups.values()) - _clock(), 0.0)

    async def _worth_a_claim(self, filters: list[Filter]) -> list[Filter]:
        if len(filters) <= MANY:
            return filters
        for wanted in filters:
            self._groups[wanted].look_at = _clock() + self._interval_s
        with_work, now = await self._leases.due(filters)
        for number, wanted in enumerate(filters):
            if number not in with_work:
                self._nothing_for(self._groups[wanted], self._interval_s, now)
        return [wanted for number, wanted in enumerate(filters) if number in with_work]

    async def _serve(self, group: _Group) -> None:
        """Claim for those who wait in the group, in the order of their arrival. Who comes meanwhile waits for the next turn: other groups have theirs first."""
        for waiter in list(group.waiters):
            if waiter.answer.done():
                continue
            # Before the claim looks: a hint that comes while it does must not be overwritten.
            now = _clock()
            group.look_at, group.quiet_until = now + self._interval_s, now + self._quiet_s
            claim = await self._claim(waiter)
            waiter.looked = claim.now
            if not claim.tasks:
                self._nothing_for(group, self._rest_s(claim), claim.now)
                return
            if not waiter.settle(claim.tasks):
                self._orphan(claim.tasks)
            if not claim.emptied:
                group.quiet_until = 0.0
        group.look_at = group.quiet_until

    async def _claim(self, waiter: _Waiter) -> Claim:
        waiter.claiming = True
        try:
            claim = await self._leases.redeliver(waiter.poll) if waiter.uncertain else None
            claim = claim or await self._leases.claim(waiter.poll)
        except BaseException:
            waiter.uncertain = True
            raise
        finally:
            waiter.claiming = False
        waiter.uncertain = False
        return claim

    def _rest_s(self, claim: Claim) -> float:
        if claim.contended:
            return CONTENDED_S
        if claim.next_due_ms is None:
            return self._interval_s
        return min(claim.next_due_ms / 1000 + 0.001, self._interval_s)

    def _nothing_for(self, group: _Group, rest_s: float, now: datetime) -> None:
        for waiter in group.waiters:
            waiter.looked = now
            if waiter.expired or self.closed:
                waiter.settle([])
        group.look_at = min(group.look_at, _clock() + rest_s)

    def _orphan(self, tasks: list[LeasedTask]) -> None:
        self._orphans += tasks
        self.wake()

    async def _return_orphans(self) -> None:
        orphans, self._orphans = self._orphans, []
        if not orphans:
            return
        try:
            count = await self._leases.give_back(orphans)
        except BaseException:
            self._orphans += orphans
            raise
        _log.info("gave back %d tasks whose poller went away before the reply", count)
        for group in self._groups.values():
            group.look_at = group.quiet_until = 0.0


def _clock() -> float:
    return asyncio.get_running_loop().time()
