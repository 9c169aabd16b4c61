"""Prometheus metrics whose number of series is bounded (OB-01).

Names begin with `ductor_`. Labels hold only what has few values: a method, a code, a loop. Run ids, refs, keys and error texts never are labels;
a tenant, a queue or a family goes through a `Cap`. Gauges over things that come and go are a `Snapshot`, replaced as a whole, so that what is
gone vanishes.
"""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter and histogram, which says when the process started

OTHER = "other"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

M = TypeVar("M")


class Cap:
    """At most `limit` values of a label; whoever comes later is `other`. A value keeps its name for the life of the process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


class Snapshot(Collector):
    """Gauges that are replaced as a whole: `replace({("default", "bulk"): 3})`. The caller caps what is not bounded by itself."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._values: Mapping[tuple[str, ...], float] = {}

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """These and no others."""
        self._values = dict(values)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Histogram(prometheus_client.Histogram):
    """As its base, and takes many observations at once."""

    def observe_all(self, values: Iterable[float]) -> None:
        """Observe each of them. The cost follows how many different ones there are: what comes in batches has waited and run alike."""
        for value, count in Tally(values).items():
            self._sum.inc(value * count)
            self._buckets[bisect_left(self._upper_bounds, value)].inc(count)


class Metrics:
    """The metrics of a process. Asking again for a name gives the same metric, so that two services of a process may share one."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._known: dict[str, object] = {}
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """A counter; `_total` is appended to its name."""
        return self._once(Counter, name, lambda: Counter(name, text, labels, registry=self._registry))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """A gauge over things that never go."""
        return self._once(Gauge, name, lambda: Gauge(name, text, labels, registry=self._registry))

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A histogram, of seconds by default. One series per bucket and label set: labels must be few."""
        return self._once(
            Histogram, name, lambda: Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        )

    def snapshot(self, name: str, text: str, labels: Sequence[str]) -> Snapshot:
        """Gauges over things that come and go."""

        def make() -> Snapshot:
            snapshot = Snapshot(name, text, labels)
            self._registry.register(snapshot)
            return snapshot

        return self._once(Snapshot, name, make)

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self._registry)

    def _once(self, kind: type[M], name: str, make: Callable[[], M]) -> M:
        metric = self._known.get(name)
        if metric is None:
            metric = self._known[name] = make()
        if not isinstance(metric, kind):
            raise TypeError(f"{name} is already a {type(metric).__name__}")
        return metric
