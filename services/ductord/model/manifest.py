"""The compiled manifest: a published version in the form that the engine runs.

A manifest is pure data: expression *sources* and what each reads, steps in Kahn order, edges by index. It is stored as JSON, hashed
(SHA-256 over canonical JSON) and never mutated. Compiled CEL programs are not in it: every process compiles a manifest's sources once.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ductord.model.enums import (
    CompletionPolicy,
    DigestMode,
    EdgeType,
    FailPolicy,
    FailurePolicy,
    Join,
    OnError,
    OnTimeout,
    RaceLosers,
    StepType,
    Tier,
)

FORMAT_VERSION = 1
"""Version of this JSON shape. A coordinator leaves runs of a newer format alone."""

ENGINE_LEVEL = 3
"""Level of behaviour that this engine has. A manifest says which level it needs: the lowest that runs it rightly, so that it keeps its hash when the
engine learns more. 1: graphs of actions. 2: compensation and continuing as new. 3: steps that wait, and races."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of manifest values: absent fields have their default, so adding one keeps old hashes."""


class Expression(_Value, frozen=True, kw_only=True):
    """A CEL source and what it reads: root names (`TRIGGER`, `VARS`, `RUN`, `CONTEXT`, `OUTPUT` …) and step refs (ruling L3)."""

    source: str
    names: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class Template(_Value, frozen=True, kw_only=True):
    """A JSON tree whose strings may hold `${{ … }}`, and the union of what its expressions read. `static`: it holds none."""

    tree: Any = None
    static: bool = True
    names: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class RetryPolicy(_Value, frozen=True, kw_only=True):
    """Ruling A1. `max_attempts` counts the first; `backoff_ms` is constant unless `coefficient` is given."""

    max_attempts: int = 1
    backoff_ms: int = 0
    coefficient: float = 1.0
    max_backoff_ms: int = 3_600_000
    jitter: bool = False
    retry_on: tuple[str, ...] = ()
    non_retryable: tuple[str, ...] = ()


class ActionSpec(_Value, frozen=True, kw_only=True):
    """What an `action` step does: the action's name and the args to render for it."""

    action: str
    args: Template = Template()


class Timeouts(_Value, frozen=True, kw_only=True):
    """Ruling A3, in milliseconds; None: no limit."""

    timeout_ms: int | None = None
    total_timeout_ms: int | None = None
    queue_timeout_ms: int | None = None
    heartbeat_timeout_ms: int | None = None


INVERSE_RETRY = RetryPolicy(max_attempts=3, backoff_ms=1_000, coefficient=2.0, max_backoff_ms=60_000)
INVERSE_TIMEOUT_MS = 300_000
"""An inverse action is tried harder than a step by default, and has a time limit in any case (field case SA-04)."""


class InverseSpec(_Value, frozen=True, kw_only=True):
    """One inverse or final action with its defaults resolved (ruling C7). `args` may read OUTPUT, the owner's output."""

    action: str
    args: Template = Template()
    retry: RetryPolicy = INVERSE_RETRY
    timeout_ms: int = INVERSE_TIMEOUT_MS
    queue: str = "default"


class Compensation(_Value, frozen=True, kw_only=True):
    """The saga blocks of a step (spec: Saga): what undoes it when the run fails or is cancelled, and what always runs last."""

    on_failure: tuple[InverseSpec, ...] = ()
    on_cancel: tuple[InverseSpec, ...] = ()
    final: tuple[InverseSpec, ...] = ()
    failure_policy: FailurePolicy = FailurePolicy.MANUAL_REPAIR

    @property
    def actions(self) -> tuple[InverseSpec, ...]:
        """Those of all blocks."""
        return (*self.on_failure, *self.on_cancel, *self.final)


class EventPattern(_Value, frozen=True, kw_only=True):
    """Which external event a step waits for: its name, and the key that it must carry (None: any)."""

    event_name: Template
    correlation_key: Expression | None = None


class WaitSpec(_Value, frozen=True, kw_only=True):
    """What a `wait` step waits for: exactly one of `duration` (ISO 8601, or `500ms`, `2h`), `timestamp` (RFC 3339), `cron` with its zone, `until`
    (re-evaluated when the run changes and every `interval_ms`), `event`, or a `signal` by name. `timeout_ms` bounds the wait."""

    duration: Template | None = None
    timestamp: Template | None = None
    cron: str = ""
    timezone: str = "UTC"
    until: Expression | None = None
    interval_ms: int = 60_000
    event: EventPattern | None = None
    signal: str = ""
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


class ApprovalSpec(_Value, frozen=True, kw_only=True):
    """Ruling E2. `required`: how many different people must approve. `groups`: who may (empty: anybody). `allow_self`: the one who started the run may too."""

    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL
    required: int = 1
    groups: tuple[str, ...] = ()
    allow_self: bool = True


class HumanLoopSpec(_Value, frozen=True, kw_only=True):
    """Ruling E6: a case of this type is open until it reaches `awaiting_status`."""

    case_type: str
    awaiting_status: str = "resolved"
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


class RaceSpec(_Value, frozen=True, kw_only=True):
    """Ruling G7."""

    losers: RaceLosers = RaceLosers.CANCEL


class Requirement(_Value, frozen=True, kw_only=True):
    """One event that a set waits for: its name, and a bool over EVENT."""

    name: str
    event_name: Template
    filter: Expression | None = None


class EventSetSpec(_Value, frozen=True, kw_only=True):
    """Ruling E4. `quorum`, `count`, `min`: the numbers of the policies that are named so."""

    correlation_key: Expression
    requirements: tuple[Requirement, ...]
    completion_policy: CompletionPolicy = CompletionPolicy.ALL_REQUIRED
    quorum: int = 0
    count: int = 0
    min: int = 0
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


class DigestSpec(_Value, frozen=True, kw_only=True):
    """Ruling E5."""

    digest_key: Expression
    mode: DigestMode = DigestMode.REGULAR
    window_ms: int = 0
    look_back_ms: int = 0
    cron: str = ""
    timezone: str = "UTC"
    max_events: int = 0
    dedupe_key: Expression | None = None


class Step(_Value, frozen=True, kw_only=True):
    """One step with every default resolved. `incoming`/`outgoing` are edge indexes; `action` is set for type `action`."""

    ref: str
    type: StepType
    title: str = ""
    run_if: Expression | None = None
    join: Join = Join.ALL
    on_error: OnError = OnError.FAIL
    result_expr: Expression | None = None
    retry: RetryPolicy = RetryPolicy()
    timeout_ms: int | None = None
    total_timeout_ms: int | None = None
    queue_timeout_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    max_lost: int = 5
    queue: str = "default"
    incoming: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    action: ActionSpec | None = None
    compensation: Compensation | None = None
    wait: WaitSpec | None = None
    approval: ApprovalSpec | None = None
    human_loop: HumanLoopSpec | None = None
    race: RaceSpec | None = None
    event_set: EventSetSpec | None = None
    digest: DigestSpec | None = None

    def texts(self) -> Iterator[Expression | Template]:
        """What the step reads to begin and while it waits. Not `result_expr`, which is read when it ends, and no event filters, which see EVENT alone."""
        texts: list[Expression | Template | None] = [self.run_if]
        if self.action is not None:
            texts.append(self.action.args)
        if self.wait is not None:
            texts += [self.wait.duration, self.wait.timestamp, self.wait.until]
            texts += [self.wait.event.event_name, self.wait.event.correlation_key] if self.wait.event else []
        if self.event_set is not None:
            texts.append(self.event_set.correlation_key)
            texts += [requirement.event_name for requirement in self.event_set.requirements]
        if self.digest is not None:
            texts += [self.digest.digest_key, self.digest.dedupe_key]
        return (text for text in texts if text is not None)


class Edge(_Value, frozen=True, kw_only=True):
    """An edge by step index. `order` and `default` matter inside a choice group (ruling G6)."""

    source: int
    target: int
    type: EdgeType
    condition: Expression | None = None
    choice_group: str | None = None
    order: int = 0
    default: bool = False


class Checkpoint(_Value, frozen=True, kw_only=True):
    """A named progress marker over step indexes (ruling G9)."""

    name: str
    steps: tuple[int, ...]


class Manifest(_Value, frozen=True, kw_only=True, weakref=True):
    """A compiled definition. `steps` are in Kahn order, `entrypoints` the indexes without incoming edges, in that order."""

    format_version: int
    engine_level: int
    family_slug: str
    title: str = ""
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...] = ()
    entrypoints: tuple[int, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    response_checkpoint: str | None = None
    output: Template | None = None
    variables: dict[str, Any] = {}
    fail_policy: FailPolicy = FailPolicy.FAIL_FAST
    run_timeout_ms: int | None = None
    tier: Tier = Tier.STANDARD
    auto_continue: bool = False
    """Ruling C6: the hard tier of the history's length may continue the run as new."""
    manual_start: bool = True
    """Ruling D4: False when the definition declares triggers and none of them is `manual`."""
    input_schema: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> str:
    """The manifest as JSON text (not canonical: hash with `engine.compile`)."""
    return _encoder.encode(manifest).decode()


def decode(text: str | bytes) -> Manifest:
    """The manifest of a stored JSON text. Raises `msgspec.ValidationError` for a shape of another format version."""
    return _decoder.decode(text)
