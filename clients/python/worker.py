"""A worker in Python: actions of your own on the engine's worker, which polls, beats, reports and drains."""

import asyncio
import os
import time
from typing import Any

from ductord.rpc.config import Settings
from ductord.rpc.host import serve
from ductord.worker.context import ActionContext, ActionError
from ductord.worker.service import service

TOLD_S = 0.02
"""How often the sleeper tells how far it is: a heartbeat carries what it was told last."""


def echo(args: Any, context: ActionContext) -> Any:
    """Answers its args."""
    return args


async def sleep(args: Any, context: ActionContext) -> Any:
    """Sleeps until it has slept `ms` in all, goes on where an attempt before it was, and says whom it slept for."""
    resumed_at = (context.previous_details or {}).get("slept_ms", 0)
    begin = time.monotonic()
    while (slept := resumed_at + (time.monotonic() - begin) * 1000) < args["ms"]:
        context.progress({"slept_ms": round(slept)})
        await asyncio.sleep(min(TOLD_S, (args["ms"] - slept) / 1000))
    return {
        "slept_ms": round(slept),
        "resumed_at_ms": resumed_at,
        "tenant_id": context.tenant_id,
        "run_id": context.run_id,
        "step_ref": context.step_ref,
        "item_index": context.item_index,
        "attempt": context.attempt,
        "idempotency_key": context.idempotency_key,
    }


def fail(args: Any, context: ActionContext) -> Any:
    """Fails as its args say."""
    if context.attempt > args.get("times", context.attempt):
        return {"attempt": context.attempt}
    raise ActionError(
        args.get("code", "UNKNOWN"),
        args.get("message", ""),
        non_retryable=args.get("non_retryable", False),
        retry_after_ms=args.get("retry_after_ms"),
    )


def bad_output(args: Any, context: ActionContext) -> Any:
    """Answers what is no JSON. The worker does not let it out: it reports the failure itself."""
    return float("nan")


actions = {
    "conformance:echo": echo,
    "conformance:sleep": sleep,
    "conformance:fail": fail,
    "conformance:bad_output": bad_output,
}

if __name__ == "__main__":
    settings = Settings.load(
        dispatch_target=os.environ["DUCTOR_TARGET"],
        worker_queues=os.environ["DUCTOR_QUEUE"],
        grpc_address="127.0.0.1:0",
        http_address="off",
    )
    asyncio.run(serve([service(actions)], settings))
