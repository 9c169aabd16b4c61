"""Whose turn it is: no tenant's dear runs hold up another tenant's (PG-06, CE-05).

A tick holds up everybody, so one that has cost enough leaves the rest of its batch to the next; what a single run may cost is bounded by `decide`.
Remembers only an order; forgetting it is always safe.
"""

import time
from collections import Counter
from collections.abc import Sequence

from ductord.model.decision import Decision, Missing
from ductord.model.effects import Effect, QueueTask
from ductord.model.fan_effects import RecordItems, StartChildren

ENOUGH_S = 0.25
ENOUGH_BYTES = 8 << 20
"""Processor time of the decisions of one tick, and bytes of the inputs and collections that they store, after which the rest of the batch waits for the next
tick."""

_MANY_TENANTS = 10_000


def _carried(effect: Effect) -> int:
    """How many bytes of payload the commit carries for an effect."""
    match effect:
        case QueueTask():
            return len(effect.input_json)
        case StartChildren():
            return sum(len(birth.input_json) for birth in effect.births)
        case RecordItems():
            return sum(len(page) for page in effect.pages)
        case _:
            return 0


class Turns:
    """When each tenant was served last, over all ticks of a coordinator, and what the present tick has cost."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._tick = 0
        self._begin = 0.0
        self._bytes = 0

    def begin(self, tenants: Sequence[str]) -> list[int]:
        """A tick begins, with a run of each of these tenants: the places of the runs in the order in which to decide them. The first run of every
        tenant comes before the second of any; who waits longest is first."""
        if len(self._served) > _MANY_TENANTS:
            self._served.clear()
        self._tick += 1
        self._begin = time.thread_time()
        self._bytes = 0
        numbers: Counter[str] = Counter()
        places = []
        for place, tenant in enumerate(tenants):
            numbers[tenant] += 1
            places.append((numbers[tenant], self._served.get(tenant, 0), place))
        return [place for _, _, place in sorted(places)]

    def decided(self, tenant_id: str, answer: Decision | Missing | Exception) -> None:
        """A run of this tenant had its turn."""
        self._served[tenant_id] = self._tick
        if isinstance(answer, Decision):
            self._bytes += sum(_carried(effect) for effect in answer.effects)

    @property
    def over(self) -> bool:
        """Whether the tick has cost enough."""
        return self._bytes > ENOUGH_BYTES or time.thread_time() - self._begin > ENOUGH_S
