"""Where one check takes place: a queue of its own, a definition on it, the proxy, the worker, and the runs that the check starts.

What a check finds wrong is kept as faults; it goes on where it can. `Abandoned` ends a check that cannot. Leaving the stage ends the worker and the runs and
archives the definition, whatever has happened.
"""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_definition_service_pb2 as definition_api
from ductor.workflow.v1 import workflow_run_control_service_pb2 as control_api
from ductor.workflow.v1 import workflow_service_pb2 as run_api
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_api
from ductord.cli.client import Client
from ductord.cli.conformance.document import document
from ductord.cli.conformance.process import Process
from ductord.cli.conformance.proxy import POLL, Held, Proxy
from ductord.definition import convert
from ductord.engine.document import read_document
from ductord.model.errors import Refusal

STOP_S: Final = 1.5
"""How much longer than it is told a worker may take to end, and an idle one at all."""
DRAIN_MS: Final = 3_000
PATIENCE_S: Final = 10.0
_LOOK_S: Final = 0.05
_EXACT: Final = common_pb2.PAYLOAD_FORMAT_JSON
_ENDED: Final = {
    run_pb2.RUN_STATUS_COMPLETED,
    run_pb2.RUN_STATUS_FAILED,
    run_pb2.RUN_STATUS_CANCELLED,
    run_pb2.RUN_STATUS_TIMED_OUT,
    run_pb2.RUN_STATUS_TERMINATED,
}
_DROPPED: Final = ("DUCTOR_TARGET_", "DUCTOR_DISPATCH_TARGET", "DUCTOR_API_KEY_FILE")
"""Options that our own worker would hear of: TLS, which the proxy does not speak, another target, and a key beside the one that is handed on."""

Found = TypeVar("Found")


class Abandoned(Exception):
    """The check cannot go on; its faults say why."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What is tested: the worker's command, in whose name, with which key (empty: none).

    `patience_s`: how long what should be a matter of a moment may take on a machine that has other things to do, and ten times what may be late on it;
    `start_s`: how long until the first poll.
    """

    command: Sequence[str]
    tenant: str
    api_key: str = ""
    patience_s: float = PATIENCE_S
    start_s: float = 60.0


class Stage:
    """Made by `staged`."""

    def __init__(self, trial: Trial, client: Client, proxy: Proxy, name: str) -> None:
        self.proxy = proxy
        self.clock = asyncio.get_running_loop().time
        self.queue = f"conformance-{name}-{secrets.token_hex(4)}"
        self.faults: list[str] = []
        self.processes: list[Process] = []
        self.stopping: list[float] = []
        """When workers were told to stop."""
        self.patience_s = trial.patience_s
        self.late_s = trial.patience_s / 10
        """How late what has a time of its own may be."""
        self.drain_ms = DRAIN_MS + max(int((trial.patience_s - PATIENCE_S) * 150), 0)
        """How long a worker may drain: on a machine that has other things to do a short task takes longer to end."""
        self._trial = trial
        self._client = client
        self._runs: list[str] = []
        self._definition_id = ""

    def expect(self, kept: object, fault: str) -> bool:
        """Note a fault unless `kept`."""
        if not kept and fault not in self.faults:
            self.faults.append(fault)
        return bool(kept)

    def need(self, found: Found | None, fault: str) -> Found:
        """`found`, without which the check cannot go on. Raises `Abandoned`."""
        if not self.expect(found, fault) or found is None:
            raise Abandoned
        return found

    async def seen(self, find: Callable[[], Found | None], fault: str, *, within_s: float | None = None) -> Found:
        """What `find` finds in the proxy's memory in time. Raises `Abandoned`."""
        return self.need(await self.proxy.until(find, self.patience_s if within_s is None else within_s), fault)

    async def prepare(self) -> None:
        """Publish the definition. Raises `Refusal`."""
        text = json.dumps(document(self.queue, self.queue))
        create = definition_api.CreateWorkflowDefinitionRequest(payload_format=_EXACT)
        convert.fill(create, read_document(text, door="json").definition or {})
        created = await self._client.call(self._client.definitions.CreateWorkflowDefinition, create)
        self._definition_id = created.data.definition_id
        publish = definition_api.PublishWorkflowDefinitionRequest(id=self._definition_id, payload_format=_EXACT)
        await self._client.call(self._client.definitions.PublishWorkflowDefinition, publish)

    async def clear(self) -> None:
        """End everything that was begun here."""
        for process in self.processes:
            for within_s in (STOP_S / 3, STOP_S):  # told twice, a worker gives back at once what it works on
                process.terminate()
                await process.ended(within_s)
            await process.kill()
            process.close()
        for run_id in self._runs:
            with suppress(Refusal):
                request = control_api.TerminateRunRequest(run_id=run_id, reason="the conformance has ended")
                await self._client.call(self._client.controls.TerminateRun, request)
        if self._definition_id:
            with suppress(Refusal):
                archive = definition_api.ArchiveWorkflowDefinitionRequest(id=self._definition_id)
                await self._client.call(self._client.definitions.ArchiveWorkflowDefinition, archive)

    async def worker(self, *, drain_ms: int | None = None) -> Process:
        """Start the worker and wait for its first poll. Raises `Abandoned`."""
        process = Process(self._trial.command, self._environment(self.drain_ms if drain_ms is None else drain_ms))
        polls = len(self.proxy.of(POLL))
        await process.start()
        self.processes.append(process)
        deadline = self.clock() + self._trial.start_s
        while len(self.proxy.of(POLL)) == polls:
            ended = f"the worker ended with exit code {process.code} before it had polled"
            self.need(process.code is None or None, ended)
            self.need(self.clock() < deadline or None, f"the worker did not poll within {self._trial.start_s:g} s")
            await self.proxy.until(lambda: len(self.proxy.of(POLL)) > polls, 0.2)
        return process

    def stop(self, process: Process) -> None:
        """SIGTERM."""
        self.stopping.append(self.clock())
        process.terminate()

    async def run(self, step: str, **payload: Any) -> str:
        """Start a run that takes the step; its id."""
        given = {"value": None, "ms": 0, "items": [], **payload, "step": step}
        request = trigger_api.TriggerWorkflowRequest(
            definition_id=self._definition_id,
            input_json=json.dumps(given, ensure_ascii=False),
            idempotency_key=str(uuid4()),
        )
        run_id = (await self._client.call(self._client.triggers.TriggerWorkflow, request)).run_id
        self._runs.append(run_id)
        return run_id

    async def cancel(self, run_id: str) -> None:
        """Ask a run to stop. Raises `Abandoned` when it has ended."""
        request = control_api.CancelRunRequest(run_id=run_id, request_id=str(uuid4()), reason="the conformance asks")
        try:
            await self._client.call(self._client.controls.CancelRun, request)
        except Refusal as refusal:
            if refusal.reason != "RUN_TERMINAL":
                raise
            self.expect(False, f"the run had ended before it could be cancelled: {refusal.message}")
            raise Abandoned from None

    async def ended(self, run_id: str, what: str, *, more_s: float = 0) -> str:
        """The word of the run's status once it has ended; `more_s`: how long it takes by itself. Raises `Abandoned` when it does not in time."""
        request = run_api.GetRunRequest(run_id=run_id, payload_format=_EXACT)
        begin = self.clock()
        while True:
            answer = await self._client.call(self._client.runs.GetRun, request)
            status = answer.data.summary.status
            if status in _ENDED:
                return run_pb2.RunStatus.Name(status).removeprefix("RUN_STATUS_").lower()
            if (waited := self.clock() - begin) > self.patience_s + more_s:
                self.expect(False, f"{what} had not ended after {waited:.0f} s")
                raise Abandoned
            await asyncio.sleep(_LOOK_S)

    async def step(self, run_id: str, ref: str, item_index: int | None = None) -> run_pb2.StepState:
        """The step of a run, or one of its children."""
        request = run_api.GetRunStepRequest(run_id=run_id, step_id=ref, payload_format=_EXACT, item_index=item_index)
        return (await self._client.call(self._client.runs.GetRunStep, request)).data

    async def attempts(self, run_id: str, ref: str) -> Sequence[run_pb2.Attempt]:
        """The attempts of a step, oldest first."""
        request = control_api.ListRunAttemptsRequest(run_id=run_id, step_ref=ref, payload_format=_EXACT)
        return (await self._client.call(self._client.controls.ListRunAttempts, request)).data

    async def first_outcome(self, run_id: str, ref: str) -> str:
        """The word of what became of a step's first attempt, once that is known; empty when it is not in time."""
        begin = self.clock()
        while True:
            attempts = await self.attempts(run_id, ref)
            outcome = attempts[0].outcome if attempts else run_pb2.ATTEMPT_OUTCOME_UNSPECIFIED
            if outcome != run_pb2.ATTEMPT_OUTCOME_UNSPECIFIED:
                return run_pb2.AttemptOutcome.Name(outcome).removeprefix("ATTEMPT_OUTCOME_").lower()
            if self.clock() - begin > self.patience_s:
                return ""
            await asyncio.sleep(_LOOK_S)

    def delivered(self, run_id: str, *, attempt: int = 1, item_index: int | None = None) -> Held | None:
        """What the worker was given of a run, the latest delivery of that attempt; None if nothing."""
        found = [
            held
            for held in self.proxy.held.values()
            if held.task.run_id == run_id
            and held.task.attempt == attempt
            and item_index == (held.task.item_index if held.task.HasField("item_index") else None)
        ]
        return found[-1] if found else None

    def output(self) -> str:
        """The end of what the workers printed."""
        return "\n".join(text for process in self.processes if (text := process.output()))

    def _environment(self, drain_ms: int) -> Mapping[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        given |= {
            "DUCTOR_TARGET": self.proxy.address,
            "DUCTOR_QUEUE": self.queue,
            "DUCTOR_DRAIN_MS": str(drain_ms),
        }
        given |= {"DUCTOR_TENANT_ID": self._trial.tenant} if self._trial.tenant else {}
        return given | ({"DUCTOR_API_KEY": self._trial.api_key} if self._trial.api_key else {})


@asynccontextmanager
async def staged(trial: Trial, client: Client, name: str) -> AsyncIterator[Stage]:
    """A stage while the context is open. Raises `Refusal`."""
    proxy = Proxy(client.tasks)
    await proxy.start()
    stage = Stage(trial, client, proxy, name)
    try:
        await stage.prepare()
        yield stage
    finally:
        try:
            await stage.clear()
        finally:
            await proxy.stop()
