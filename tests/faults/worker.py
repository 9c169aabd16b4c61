"""A worker with actions that do harm, run as a process of its own: `python -m tests.faults.worker`, or with `--supervised` under a supervisor that starts
it again whenever it dies.

`test:exit` kills its process, `test:hold` holds its slot, `test:bulk` returns a lot. They are registered through the same door as anybody's actions.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from ductord.rpc.config import Settings
from ductord.worker.context import ActionContext
from ductord.worker.service import service

HOLD_MS = "FAULTS_HOLD_MS"
"""The longest that `test:hold` of this process takes: a successor may be quicker than the one that died holding."""


def exit_(args: Any, context: ActionContext) -> Any:
    """Kills the worker, as a segmentation fault would."""
    os._exit(9)


async def hold(args: Any, context: ActionContext) -> Any:
    """Holds its slot for `ms`; returns the attempt that came through."""
    await asyncio.sleep(min(args["ms"], int(os.environ.get(HOLD_MS, "86400000"))) / 1000)
    return {"attempt": context.attempt}


def bulk(args: Any, context: ActionContext) -> Any:
    """Returns `bytes` of text."""
    return "x" * args["bytes"]


SERVICE = service({"test:exit": exit_, "test:hold": hold, "test:bulk": bulk})


def work() -> None:
    """Be a worker until SIGTERM."""
    asyncio.run(SERVICE.serve(Settings.load()))


def supervise() -> None:
    """Keep one worker running. The modules are imported once, so that a new one is there in no time. SIGTERM ends both."""
    child = 0

    def end(number: int, frame: object) -> None:
        if child:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    supervise() if "--supervised" in sys.argv else work()
