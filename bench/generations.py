"""A loop of generations: one run that is continued as new a thousand times, asked for through the API.

What a generation costs must not depend on how many came before: time, CPU of the coordinator and memory are compared between the first and the last hundred.
"""

import asyncio
import statistics
import time
from typing import Any

from bench.load import TENANT, pids
from bench.usage import cpu_seconds, memory_mb
from ductor.workflow.v1 import workflow_run_control_service_pb2 as control
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as control_grpc
from ductor.workflow.v1 import workflow_service_pb2 as reads
from tests.support.api import Api
from tests.support.stack import Stack

SHARE = 100
"""How many generations at the beginning and at the end are compared."""


async def loop(stack: Stack, *, generations: int) -> dict[str, Any]:
    """Milliseconds per generation, coordinator CPU per generation and memory, at the beginning and at the end."""
    waits = {"ref": "wait", "type": "action", "action": "noop:noop", "queue": "nobody"}
    async with Api(stack["edges"].target, TENANT) as api:
        definition_id = await api.publish({"family_slug": "generations", "steps": [waits]})
        (run_id,) = await api.start_many(definition_id, 1)
        await _until_open(api, run_id)
        stub = control_grpc.WorkflowRunControlServiceStub(api.channel)
        times: list[float] = []
        used: list[float] = []
        memory: list[float] = []
        for number in range(generations):
            if number in (SHARE // 2, generations - SHARE, generations - 1):
                memory.append(memory_mb(pids(stack))["coordinator0"])
            if number in (0, SHARE, generations - SHARE):
                used.append(cpu_seconds(pids(stack))["coordinator0"])
            begin = time.perf_counter()
            run_id = await _continue(api, stub, run_id, number)
            times.append((time.perf_counter() - begin) * 1000)
        used.append(cpu_seconds(pids(stack))["coordinator0"])
        await stub.TerminateRun(control.TerminateRunRequest(run_id=run_id), metadata=api.metadata, timeout=30)
    first, last = statistics.median(times[:SHARE]), statistics.median(times[-SHARE:])
    cpu = [(used[1] - used[0]) / SHARE * 1e3, (used[3] - used[2]) / SHARE * 1e3]
    return {
        "generations": generations,
        "ms_first_100": round(first, 2),
        "ms_last_100": round(last, 2),
        "time_growth": round(last / first, 2),
        "coordinator_cpu_ms_first_100": round(cpu[0], 2),
        "coordinator_cpu_ms_last_100": round(cpu[1], 2),
        "cpu_growth": round(cpu[1] / cpu[0], 2),
        "coordinator_memory_mb": [round(value, 1) for value in memory],
    }


async def _continue(api: Api, stub: Any, run_id: str, number: int) -> str:
    """One generation: ask, wait until the successor has been taken up; its run id."""
    seed = f'{{"generation": {number + 1}}}'
    request = control.ContinueAsNewRunRequest(run_id=run_id, request_id=f"g{number}", seed_run_context_json=seed)
    asked = await stub.ContinueAsNewRun(request, metadata=api.metadata, timeout=30)
    wait = control.WaitOperationRequest(run_id=run_id, request_id=asked.request_id)
    operation = (await stub.WaitOperation(wait, metadata=api.metadata, timeout=60)).data
    assert operation.status == 2, operation
    await _until_open(api, asked.new_run_id)
    return str(asked.new_run_id)


async def _until_open(api: Api, run_id: str) -> None:
    while True:
        answer = await api.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=api.metadata, timeout=30)
        if answer.data.summary.HasField("start_time"):
            return
        await asyncio.sleep(0.002)
