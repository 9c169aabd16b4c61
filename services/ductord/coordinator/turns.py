"""Whose turn it is: no tenant's dear runs hold up another tenant's (PG-06, CE-05).

A tick holds up everybody, so one that has cost enough leaves the rest of its batch to the next; what a single run may cost is bounded by `decide`.
Remembers only an order; forgetting it is always safe.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ductord.model.decision import Decision, Missing
from ductord.model.effects import Effect, QueueTask
from ductord.model.fan_effects import RecordItems, StartChildren

ENOUGH_S = 0.25
ENOUGH_BYTES = 8 << 20
"""Time of the decisions of one tick, and bytes of the inputs and collections that they store, after which the rest of the batch waits for the next
tick."""

_MANY_TENANTS = 10_000


_CARRIED: dict[type[Effect], Callable[[Any], int]] = {
    QueueTask: lambda effect: len(effect.input_json),
    StartChildren: lambda effect: sum(len(birth.input_json) for birth in effect.births),
    RecordItems: lambda effect: sum(len(page) for page in effect.pages),
}
"""How many bytes of payload the commit carries for an effect."""


class Turns:
    """When each tenant was served last, over all ticks of a coordinator."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._tick = 0

    def begin(self, tenants: Sequence[str]) -> list[int]:
        """A tick begins, with a run of each of these tenants: the places of the runs in the order in which to decide them. The first run of every
        tenant comes before the second of any; who waits longest is first."""
        if len(self._served) > _MANY_TENANTS:
            self._served.clear()
        self._tick += 1
        if len(set(tenants)) == 1:
            return list(range(len(tenants)))
        numbers: Counter[str] = Counter()
        places = []
        for place, tenant in enumerate(tenants):
            numbers[tenant] += 1
            places.append((numbers[tenant], self._served.get(tenant, 0), place))
        return [place for _, _, place in sorted(places)]

    def served(self, tenant_id: str) -> None:
        """A run of this tenant had its turn."""
        self._served[tenant_id] = self._tick


class Cost:
    """What the decisions of one tick have cost. Their time is that of the clock on the wall, since asking for the processor's takes as long as deciding a bit:
    nothing else is done between the beginning and the end of one."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._bytes = 0

    def add(self, seconds: float, answer: Decision | Missing | Exception) -> None:
        """A decision took this long and came to this."""
        self._seconds += seconds
        if type(answer) is Decision:
            for effect in answer.effects:
                carried = _CARRIED.get(type(effect))
                if carried is not None:
                    self._bytes += carried(effect)

    @property
    def enough(self) -> bool:
        """Whether it is enough for one tick."""
        return self._bytes > ENOUGH_BYTES or self._seconds > ENOUGH_S
