"""What dispatch counts, under labels with few values (OB-01): tiers, results, and queues through a cap. Tenants, runs and actions are never labels.

And what it tells the log of single tasks: a report that came too late, and at debug who was given what. The ids are those of the run.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final

from ductord.dispatch.leases import LeasedTask
from ductord.dispatch.outcomes import Settled, Verdict, outcome_counted
from ductord.dispatch.queues import QueueState
from ductord.dispatch.token import LeaseKey
from ductord.rpc.metrics import Cap, Metrics

_QUEUES: Final = 50
_LATE: Final = (Verdict.STALE, Verdict.TIMED_OUT)

_log: Final = logging.getLogger("ductor.dispatch")


class Measures:
    """Dispatch's metrics of a process. Gauges of queues tell of the whole database: replicas show the same numbers, take their maximum."""

    def __init__(self, metrics: Metrics, waiting: Callable[[], int]) -> None:
        # Looking a series up costs as much as counting: those with few labels are kept.
        self._leased = cache(metrics.counter("ductor_leased_tasks", "Tasks leased to workers.", ("tier",)).labels)
        self._waited = cache(
            metrics.histogram(
                "ductor_task_wait_seconds", "Time that tasks were due before they were leased.", ("tier",)
            ).labels
        )
        self._reports = cache(
            metrics.counter("ductor_task_reports", "Reports of workers, by what became of them.", ("result",)).labels
        )
        self._ran = metrics.histogram("ductor_task_run_seconds", "Time from lease to accepted report.")
        self._beats = metrics.counter("ductor_task_heartbeats", "Heartbeats of tasks, by answer.", ("result",))
        metrics.gauge("ductor_waiting_polls", "Polls that wait for tasks in this process.").set_function(waiting)
        self._tasks = metrics.snapshot(
            "ductor_queue_tasks", "Tasks per queue and tier; counts are bounded.", ("queue", "tier", "state")
        )
        self._age = metrics.snapshot(
            "ductor_queue_oldest_seconds", "How long the oldest ready task has been due.", ("queue", "tier")
        )
        self._queue = Cap(_QUEUES)

    def leased(self, tasks: Sequence[LeasedTask]) -> None:
        """Tasks went to a worker."""
        waited: dict[str, list[float]] = {}
        for task in tasks:
            waited.setdefault(task.tier, []).append(max(task.waited_ms, 0) / 1000)
        for tier, seconds in waited.items():
            self._leased(tier).inc(len(seconds))
            self._waited(tier).observe_all(seconds)
        if _log.isEnabledFor(logging.DEBUG):
            for task in tasks:
                fields = {"trace_id": task.traceparent[3:35], "action": task.action, "queue": task.queue}
                _log.debug("a task was leased", extra=_ids(task.key) | fields)

    def reported(self, settled: Sequence[Settled]) -> None:
        """Reports were judged."""
        for result, count in Counter(map(outcome_counted, settled)).items():
            self._reports(result).inc(count)
        self._ran.observe_all([each.ran_ms / 1000 for each in settled if each.ran_ms is not None])
        for each in settled:
            if each.verdict in _LATE:
                # The trace of the call is the worker's own, not the run's: better none than another's.
                _log.info("a report came too late and changes nothing", extra=_ids(each.report.key) | {"trace_id": ""})

    def beaten(self, results: Iterable[str]) -> None:
        """Heartbeats were answered."""
        for result in results:
            self._beats.labels(result).inc()

    def queues(self, states: Iterable[QueueState], now: float) -> None:
        """Replace the gauges; `now` is the database time in Unix seconds. Queues beyond the cap are added up as `other`."""
        tasks: dict[tuple[str, ...], float] = {}
        ages: dict[tuple[str, ...], float] = {}
        for state in states:
            queue = self._queue(state.queue)
            for name, count in (("ready", state.ready), ("delayed", state.delayed), ("leased", state.leased)):
                label = (queue, state.tier, name)
                tasks[label] = tasks.get(label, 0) + count
            if state.oldest is not None:
                age = max(now - state.oldest.timestamp(), 0.0)
                ages[queue, state.tier] = max(ages.get((queue, state.tier), 0.0), age)
        self._tasks.replace(tasks)
        self._age.replace(ages)


def _ids(key: LeaseKey) -> dict[str, object]:
    return {
        "tenant_id": key.tenant_id,
        "run_id": key.run_id,
        "step_ref": key.step_ref,
        "item_index": key.item_index if key.item_index >= 0 else None,
        "attempt": key.attempt,
    }
