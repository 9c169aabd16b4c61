"""PG-03: NOTIFY carries nothing. However long a run's names are, no payload can abort a transaction, and many writers at once are not in each other's way."""

import asyncio
import signal
from collections import Counter
from typing import Any

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from tests.chaos.books import assert_whole
from tests.support.api import Api, chain
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

CHANNELS = ("ductor_wakeup", "ductor_task", "ductor_run")
COORDINATORS = ("coordinator0", "coordinator1")
WRITERS = 64


async def test_pg_03_long_names_and_many_writers(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """PG-03: 64 starts at once of a run whose every name is as long as it may be; what is longer is refused and writes nothing."""
    heard: Counter[tuple[str, str]] = Counter()
    for channel in CHANNELS:
        await owner.add_listener(channel, lambda _c, _p, name, payload: heard.update([(name, payload)]))
    tree = chain("f" * 128, 2)
    for step, ref in zip(tree["steps"], ("a" * 128, "b" * 128), strict=True):
        step["ref"] = ref
    tree["edges"] = [{"source_ref": "a" * 128, "target_ref": "b" * 128, "type": "success"}]
    tree["checkpoints"] = [{"name": "c" * 128, "step_refs": ["a" * 128]}]
    definition_id = await api.publish(tree)

    def start(number: int, **fields: Any) -> triggers.TriggerWorkflowRequest:
        names: dict[str, Any] = {
            "subject_type": "s" * 64,
            "subject_id": "ü" * 128,
            "idempotency_key": f"{number:0256}",
            **fields,
        }
        return triggers.TriggerWorkflowRequest(
            definition_id=definition_id, input_json='{"text": "%s"}' % ("x" * 9000), **names
        )

    for fields in ({"subject_id": "x" * 4096}, {"idempotency_key": "k" * 4096}):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await api.triggers.TriggerWorkflow(start(0, **fields), metadata=api.metadata, timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for name in COORDINATORS:  # they have all of it before them when they go on
        stack[name].signal(signal.SIGSTOP)
    try:
        answers = await asyncio.gather(
            *(api.triggers.TriggerWorkflow(start(n), metadata=api.metadata, timeout=60) for n in range(WRITERS))
        )
    finally:
        for name in COORDINATORS:
            stack[name].signal(signal.SIGCONT)
    assert len({answer.run_id for answer in answers}) == WRITERS
    await api.until_ended()
    assert await assert_whole(owner, tenant=dict(api.metadata)["x-tenant-id"]) == {"completed": WRITERS}
    assert {name for name, _ in heard} == set(CHANNELS)
    assert {payload for _, payload in heard} == {""}
    # Ticks and reports hint once per transaction, not once per run: of 64 runs of two steps there are fewer hints than tasks.
    assert heard["ductor_task", ""] < 2 * WRITERS
