"""The world of a story: what a scenario file can do to a run and see of it, whoever keeps the rows.

Two worlds exist: one in memory around `decide`, one of rows in a real Postgres behind the real coordinator and dispatch. They must answer
alike, to the letter of the transcript. A story has one definition that it is about, and those that children run; mostly one run, and its children; workers
that live until the story says otherwise, and a clock that starts at START and moves only by `advance`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from ductord.model.control import Control
from ductord.model.effects import Subscription
from ductord.model.enums import CheckpointStatus, OperationStatus, RunStatus, SignalStatus, TimerKind
from ductord.model.events import Event
from ductord.model.fanout import ClosePolicy
from ductord.model.inbox import Signal
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.support.naming import Target

START = datetime(2030, 1, 1, tzinfo=UTC)
"""The instant at which every story begins."""

LEASE_MS = 15_000
"""How long a lease lives without a heartbeat (A4)."""

HEARTBEAT_MS = 5_000
"""How often living workers beat while the clock advances (A4)."""


RUN_ID = "00000000-0000-7000-8000-000000000001"
"""The first run of every story, in every world: jitter and the ids of successors are derived from it."""


def run_id_of(number: int) -> str:
    """The run that a story triggers as its first, second …"""
    return f"{RUN_ID[:-12]}{number:012x}"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the history."""

    seq: int
    at: datetime
    events: tuple[Event, ...]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a control."""

    request_id: str
    status: OperationStatus
    code: str = ""
    message: str = ""
    result: Mapping[str, str] = {}


class SettledSignal(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a signal."""

    request_id: str
    status: SignalStatus
    message: str = ""


class Born(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the story's run gave birth to. `reset_from_seq` 0: a successor."""

    run_id: str
    context: Any = None
    reset_from_seq: int = 0


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is a child of a node of the story's run. `attempt`: of the node. `run_id`, `status`: the child as it stands now. `told`: its end, or what was
    waited for, has been told to the parent; `applied`: and the parent has gone by it."""

    step_ref: str
    item_index: int
    attempt: int
    run_id: str
    status: RunStatus
    sync: bool = True
    checkpoint: str = ""
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL
    detached: bool = False
    told: bool = False
    applied: bool = False


class Cascaded(msgspec.Struct, frozen=True, kw_only=True):
    """A control that a parent sent to the story's run."""

    request_id: str
    verb: str
    parent_run_id: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is handed with a lease. `step_ref` is the task's name (`task_name`). `details`: the heartbeat details of the attempt before (A5)."""

    step_ref: str
    attempt: int
    action: str
    input: Any
    idempotency_key: str
    details: Any = None


class OpenTask(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt without a verdict. `step_ref` is the task's name. `state`: `held` until due_time, `on hold` by an operator, `queued`, `leased`, `reported`;
    `asked`: its worker is asked to stop."""

    step_ref: str
    attempt: int
    state: str
    due_time: datetime
    asked: bool = False


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A durable timer."""

    kind: TimerKind
    step_ref: str
    due_time: datetime


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """An open wait for external events."""

    step_ref: str
    attempt: int
    pattern: Subscription


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a story can look at. `run` None: no tick has taken it up. `checkpoints`: name → status and outputs by ref, of those that are
    decided. `result`: the run's output with its references followed; `has_result` False: there is none. `born`: runs that it gave birth to, in order.
    `listening`: open waits by step, attempt and requirement. `kept`: signals that nobody has consumed, oldest first. `receipts`: how many events were
    received and not applied, by step ref. `children`: those of the latest attempt of each node, by step and index."""

    run: Run | None
    refs: tuple[str, ...]
    tasks: tuple[OpenTask, ...] = ()
    timers: tuple[Timer, ...] = ()
    checkpoints: Mapping[str, tuple[CheckpointStatus, Mapping[str, Any]]] = {}
    has_result: bool = False
    result: Any = None
    born: tuple[Born, ...] = ()
    listening: tuple[Listening, ...] = ()
    kept: tuple[Signal, ...] = ()
    receipts: Mapping[str, int] = {}
    children: tuple[Child, ...] = ()


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's success."""

    output: Any = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's failure. `code` empty: the worker gave none."""

    code: str = "UNKNOWN"
    message: str = ""
    non_retryable: bool = False
    retry_after_ms: int | None = None


class World(Protocol):
    """What the verbs of a story are made of. Times are milliseconds; a step ref in the workers' verbs is a task's name."""

    @property
    def run_id(self) -> str:
        """The run that the story is about just now."""

    async def limits(self, **changed: int) -> None:
        """Change the engine's limits for the rest of the story."""

    async def control(self, control: Control) -> None:
        """An operator's intent for the run is accepted; the next tick judges it."""

    async def settled(self) -> list[Settled]:
        """The controls of the run that were settled since the last call, in the order of their creation."""

    async def signal(self, signal: Signal, payload: Any) -> str:
        """Somebody tells a step something: `ok`, or `RUN_TERMINAL`."""

    async def settled_signals(self) -> list[SettledSignal]:
        """The signals of the run that were settled since the last call, in the order in which they came."""

    async def publish(self, name: str, key: str, event_id: str, payload: Any, ttl_ms: int) -> tuple[int, bool]:
        """Publish an external event; how many waits it matched, and whether it was a duplicate."""

    async def follow(self) -> None:
        """Turn to the run that was born last: a successor or a reset run."""

    async def define(self, definition: dict[str, Any]) -> None:
        """Publish the next version of a family: a definition that compiles (the body of the envelope)."""

    async def archive(self, family_slug: str, version: int) -> None:
        """Archive a version."""

    async def trigger(
        self, payload: Any, subject_type: str, subject_id: str, actor: str, family_slug: str = ""
    ) -> None:
        """Start a run of a family's newest version (empty: of the first that was defined), and turn to it. `payload` None: the trigger came without input."""

    async def turn(self, run_id: str) -> None:
        """Turn to another run of the story."""

    async def definition(self) -> Manifest:
        """What the run runs, compiled."""

    async def parent(self) -> str:
        """Whose child the run is; empty: nobody's."""

    async def children(self) -> list[Child]:
        """The children of the run, of the latest attempt of each node per index, by step and index."""

    async def cascaded(self) -> list[Cascaded]:
        """The controls that parents sent to the run, oldest first."""

    async def tick(self) -> list[Transition]:
        """Report what is overdue and wake what is due, then tick until the run has nothing more to do; the new transitions."""

    async def lease(self, wanted: Target | None) -> list[Task]:
        """Hand the due tasks that are meant (None: all of the run) to a worker each, in order of step, child and attempt."""

    async def complete(self, step_ref: str, attempt: int, report: Success | Failure) -> str:
        """A worker reports: `ok` or `LEASE_LOST`."""

    async def release(self, step_ref: str, attempt: int) -> str:
        """A worker that is shutting down gives a task back: `ok` or `LEASE_LOST`."""

    async def beat(self, step_ref: str, attempt: int, details: Any) -> str:
        """A worker beats, with details (progress) or with None: `continue`, `cancel` or `LEASE_LOST`."""

    async def die(self, step_ref: str, attempt: int) -> None:
        """The worker of this attempt is gone without a word."""

    async def advance(self, ms: int) -> None:
        """Let time pass. Living workers beat (without details) while it does; nothing else happens by itself."""

    async def now(self) -> datetime:
        """The world's time."""

    async def show(self) -> Snapshot:
        """What there is to see."""
