"""The memory of the fair queue: where each filter's rotation stands, so that fairness holds over many small polls as within a large one.

One claim orders its own tasks in SQL; this carries the two things that the next claim must know: how far each tier has come in virtual time (start-
time fair queueing with the weights 8:3:1) and which tenant of a tier was served last. Losing it (a restart) costs one unfair turn and nothing else.
It never touches a row and knows no clock.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from ductord.model.enums import Tier

TIERS: Final = (Tier.CRITICAL, Tier.STANDARD, Tier.BULK)
"""In the order of the claim statement's arrays."""
WEIGHTS: Final = (8, 3, 1)

EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATE_COMMIT: Final = timedelta(seconds=5)
"""How long after its due time a task may become visible and still be found at once: ticks commit well within it."""
FULL_LOOK: Final = timedelta(seconds=5)
"""How often a claim looks from the very beginning."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What a poll may get. Pollers with equal filters share a rotation and wait together. `tenant_id` None: all tenants (N2)."""

    tenant_id: str | None
    queues: tuple[str, ...]
    actions: tuple[str, ...]


class Rotation:
    """One filter's state, read before a claim and advanced after it."""

    __slots__ = ("_full_time", "_mark", "_seen_time", "cursors", "passes")

    def __init__(self) -> None:
        self.passes = [0.0] * len(TIERS)
        """Virtual time that each tier has been served, lowest first to be served."""
        self.cursors = [""] * len(TIERS)
        """The tenant after which each tier's next turn begins."""
        self._mark = EVER
        self._full_time = EVER
        self._seen_time = EVER

    @property
    def mark(self) -> datetime:
        """The due time from which the next claim looks. Now and then from the very beginning, for what was committed long after it came due."""
        return self._mark if self._seen_time - self._full_time < FULL_LOOK else EVER

    def looked(self, *, mark: datetime, front: datetime, cut: bool, now: datetime) -> None:
        """Account for a look from `mark` at database time `now`: nothing is left between `mark` and `front`, unless the walk was `cut`."""
        self._seen_time = now
        begin = front - LATE_COMMIT
        if mark == EVER:
            # What came to light late moves the mark back, so that the rest of it is taken at once too.
            self._full_time = EVER if cut else now
            self._mark = begin
        elif not cut:
            self._mark = max(self._mark, begin)

    def look_everywhere(self) -> None:
        """Tasks came back that had been taken: the next claim looks from the very beginning."""
        self._full_time = EVER

    def advance(
        self,
        *,
        served: Sequence[int],
        backlogged: Collection[str],
        last_served: Sequence[str | None],
        horizons: Sequence[str | None],
    ) -> None:
        """Account for a claim: tasks `served` per tier, the tiers that had any, the tenant served last and the horizon of a cut walk per tier."""
        now = 0.0
        for tier, count in enumerate(served):
            if count:
                now = max(now, self.passes[tier] + (count - 1) / WEIGHTS[tier])
                self.passes[tier] += count / WEIGHTS[tier]
            # A walk that was cut with nothing to take goes on behind its horizon, else it would see the same tenants for ever.
            self.cursors[tier] = last_served[tier] or horizons[tier] or self.cursors[tier]
        for tier, name in enumerate(TIERS):
            if name not in backlogged:
                # Who had no work saved nothing up: it joins at the present time.
                self.passes[tier] = max(self.passes[tier], now)
        start = min(self.passes)
        self.passes = [each - start for each in self.passes]


class Rotations:
    """The rotations of the filters seen lately, at most `limit`; a forgotten one begins anew."""

    def __init__(self, limit: int = 1_000) -> None:
        self._limit = limit
        self._known: OrderedDict[Filter, Rotation] = OrderedDict()

    def of(self, wanted: Filter) -> Rotation:
        """The rotation of a filter."""
        rotation = self._known.get(wanted)
        if rotation is None:
            rotation = self._known[wanted] = Rotation()
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        self._known.move_to_end(wanted)
        return rotation

    def look_everywhere(self) -> None:
        """For all filters, as `Rotation.look_everywhere`."""
        for rotation in self._known.values():
            rotation.look_everywhere()
