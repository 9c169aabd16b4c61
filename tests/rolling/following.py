"""A run followed as a person's page follows it: its stream, taken up again behind the last message, and the words that it waits for."""

import asyncio

import grpc

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductord.rpc.errors import refusal_from
from tests.rolling.caller import TRIES, Caller


async def follow(caller: Caller, run_id: str, key: str) -> int:
    """Watch a run to its end and say what it waits for. No message is missing and none comes twice, however often the stream is taken up again.

    Returns how often that was: streams that ended with their process.
    """
    after: int | None = None
    resumed = 0
    said: set[str] = set()
    in_vain = 0
    while True:
        request = reads.WatchRunRequest(run_id=run_id, after_seq=after, min_interval_ms=20)
        try:
            async for told in caller.reads.WatchRun(request, metadata=caller.metadata, timeout=120):
                in_vain = 0
                if told.kind == reads.WATCH_KIND_HEARTBEAT:
                    continue
                assert after is None or told.first_seq == after + 1, f"{run_id}: {told.first_seq} after {after}"
                after = told.seq
                for node in told.nodes:
                    if node.status == run_pb2.NODE_STATUS_WAITING and node.step_ref not in said:
                        said.add(node.step_ref)
                        await _say(caller, run_id, node.step_ref, key)
                if told.ended:
                    return resumed
            caller.failures.append(f"WatchRun: the stream of {run_id} ended without the run's end")
            return resumed
        except grpc.aio.AioRpcError as error:
            refusal = refusal_from(error)
            in_vain += 1
            if refusal.code != "UNAVAILABLE" or in_vain > TRIES:
                caller.failures.append(f"WatchRun: {refusal.code} {refusal.reason} {refusal.message}")
                raise
            resumed += 1
            await asyncio.sleep(0.1 * 2**in_vain)


async def _say(caller: Caller, run_id: str, step_ref: str, key: str) -> None:
    if step_ref == "person":
        yes = signals.ApproveStepRequest(run_id=run_id, step_ref=step_ref, request_id="yes")
        await caller.call(caller.signals.ApproveStep, yes, keyed=True)
    else:
        event = signals.PublishEventRequest(event_name="paid", correlation_key=key, event_id=key)
        answer = await caller.call(caller.signals.PublishEvent, event, keyed=True)
        assert answer.matched == 1 or answer.duplicate, f"{run_id}: {answer}"
