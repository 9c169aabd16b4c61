"""OB-01, dispatch's part: what is counted, and that labels stay few whatever callers send."""

from tests.dispatch.client import Client, failure
from tests.dispatch.conftest import Dispatching
from tests.support.queue import Queue

TOLD = {"ready": 2.0, "delayed": 0.0, "leased": 1.0}


def _series(client: Client, name: str) -> dict[str, float]:
    """Label text → value of one metric."""
    found = {}
    for line in client.host.metrics.exposition().decode().splitlines():
        if line.startswith((f"{name}{{", f"{name} ")):
            labels, _, value = line.rpartition(" ")
            found[labels.removeprefix(name)] = float(value)
    return found


async def test_tasks_reports_and_queues_are_counted(dispatching: Dispatching, queue: Queue) -> None:
    """Tiers, results, states of queues; a tenant, a run or an action is no label."""
    async with dispatching(sweep_ms=50) as client:
        await queue.put(3, tier="bulk", due_in_ms=-30_000)
        await queue.put(1)
        tasks = await client.poll(2)
        assert [task.tier for task in tasks] == [2, 3]  # the more urgent first
        await client.complete(failure(tasks[0], "A"), failure(tasks[0], "B"))
        await client.beat(*tasks)
        assert sum(_series(client, "ductor_leased_tasks_total").values()) == 2
        assert _series(client, "ductor_task_reports_total") == {'{result="failed"}': 1, '{result="stale"}': 1}
        assert _series(client, "ductor_task_heartbeats_total") == {'{result="lease_lost"}': 1, '{result="continue"}': 1}

        async def told() -> bool:
            bulk = {k: v for k, v in _series(client, "ductor_queue_tasks").items() if 'tier="bulk"' in k}
            return bulk == {f'{{queue="default",state="{s}",tier="bulk"}}': n for s, n in TOLD.items()}

        # What waits and what is leased are counted one after the other: a look in whose midst the poll fell counts its task twice.
        await queue.wait_for(told)
        assert _series(client, "ductor_queue_oldest_seconds")['{queue="default",tier="bulk"}'] >= 30
        assert "acme" not in client.host.metrics.exposition().decode()


async def test_many_queues_are_few_series(dispatching: Dispatching, queue: Queue) -> None:
    """Beyond the cap queues are added up as `other`."""
    for n in range(70):
        await queue.put(1, queue=f"q{n}", notify=False)
    async with dispatching(sweep_ms=50) as client:

        async def told() -> bool:
            return bool(_series(client, "ductor_queue_tasks"))

        await queue.wait_for(told)
        ready = {k: v for k, v in _series(client, "ductor_queue_tasks").items() if 'state="ready"' in k}
    assert len(ready) == 51
    assert ready['{queue="other",state="ready",tier="standard"}'] == 20
