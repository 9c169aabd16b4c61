"""Events that start runs: what one costs must not depend on how many triggers there are.

Two tenants, one with few triggers and one with many, each for an event name of its own; all are published through the definition service, a hundred to a
definition, and the events go round all of them. The runs that they start end in their first tick. The tenants are measured in turns, so that both see the same
machine.
"""

import itertools
import statistics
from collections.abc import Mapping
from typing import Any

import asyncpg

from bench.load import TENANT
from bench.waiting import RATIO, rate, until
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals_grpc
from tests.support.api import Api
from tests.support.stack import Stack

PER_DEFINITION = 100
"""The most that a definition may have."""
_STRIDE = 7_919
"""A prime: neighbouring events go to triggers of different definitions."""


async def triggers(stack: Stack, *, few: int, many: int, count: int, rounds: int) -> dict[str, Any]:
    """Events published per second that start a run each, with `few` and with `many` triggers; `growth`: how much dearer one is with many. CPU is that of
    Postgres and of the signals service per event."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    rates: dict[int, list[tuple[float, float]]] = {few: [], many: []}
    try:
        for triggers in (few, many):
            await _publish(stack, triggers)
            await _events(stack, owner, triggers, max(count // 4, triggers // PER_DEFINITION), turn=0)
        await owner.execute("vacuum analyze eec_workflow_event_trigger, eec_workflow_version, eec_workflow_event")
        for turn in range(1, rounds + 1):
            for triggers in (few, many) if turn % 2 else (many, few):
                rates[triggers].append(await _events(stack, owner, triggers, count, turn))
    finally:
        await owner.close()
    per_s, cpu = ({number: statistics.median(pair[i] for pair in rates[number]) for number in rates} for i in (0, 1))
    return {
        "events": count,
        **{str(n): {"per_s": per_s[n], "cpu_us": cpu[n], "rates": [pair[0] for pair in rates[n]]} for n in rates},
        "growth": round(per_s[few] / per_s[many], 2),
        "cpu_growth": round(cpu[many] / cpu[few], 2),
    }


def row(figures: Mapping[str, Any]) -> tuple[str, str]:
    """What the benchmark prints of it."""
    rates = ", ".join(
        f"{number} triggers {found['per_s']:,.0f}" for number, found in figures.items() if isinstance(found, Mapping)
    )
    dearer = f"{figures['growth']} times dearer with many (promised {RATIO}), in CPU {figures['cpu_growth']}"
    return "events that start a run/s", f"{rates}; {dearer}"


def _tenant(triggers: int) -> str:
    return f"{TENANT}-{triggers}"


async def _publish(stack: Stack, triggers: int) -> None:
    """Definitions whose only step is passed over."""
    async with Api(stack["edges"].target, _tenant(triggers)) as api:
        for begin in range(0, triggers, PER_DEFINITION):
            numbers = range(begin, min(begin + PER_DEFINITION, triggers))
            await api.publish(
                {
                    "family_slug": f"started{begin}",
                    "steps": [{"ref": "s", "type": "action", "action": "noop:noop", "run_if": "false"}],
                    "triggers": [{"id": f"t{n}", "type": "event", "patterns": [f"thing{n}.happened"]} for n in numbers],
                }
            )


async def _events(stack: Stack, owner: asyncpg.Connection, triggers: int, count: int, turn: int) -> tuple[float, float]:
    """(events per second, CPU microseconds of one); all runs have ended when it returns."""
    ids = itertools.count()
    async with Api(stack["edges"].target, _tenant(triggers)) as api:
        stub = signals_grpc.WorkflowSignalServiceStub(api.channel)

        async def publish(number: int) -> None:
            name = f"thing{number * _STRIDE % triggers}.happened"
            event = signals.PublishEventRequest(
                event_name=name, event_id=f"{turn}-{next(ids)}", payload_json='{"n": 1}'
            )
            answer = await stub.PublishEvent(event, metadata=api.metadata, timeout=60)
            assert len(answer.started_run_ids) == 1, answer

        found = await rate(stack, count, publish)
    await until(owner, "select count(*) from eec_workflow_wakeup", 0)
    return found
