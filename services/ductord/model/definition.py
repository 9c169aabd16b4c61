"""The one JSON model of a definition (ruling L1): YAML, JSON, proto and SDK are doors to it.

It says what an author may *write*: names, types, ranges. What the words mean together (dangling edges, expressions, rulings G4, L9) is
judged by `engine.compile`, which also refuses by name what this build cannot do yet. Every field of the contract is sayable, so that a
definition for a later build is told `FEATURE_NOT_SUPPORTED` and never «unknown field». A field that is null counts as not written.
A step type keeps its own fields in an object that is named like it; only those of `action` stand on the step itself. This model never fills in
behaviour: defaults are resolved in the manifest, and an absent field stays absent when the definition is written again.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ductord.model.enums import (
    CompletionPolicy,
    DigestMode,
    EdgeType,
    FailPolicy,
    FailurePolicy,
    Join,
    OnError,
    RaceLosers,
    Tier,
)

DOCUMENT_TYPE: Final = "workflow_definition"
STEP_REF_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"
FAMILY_SLUG_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,127}$"
VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
ACTION_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9_.-]{1,128}|(\.[A-Za-z0-9_-]{1,64}){2,4})$"
CODE_PATTERN: Final = r"^[A-Za-z0-9_.:-]{1,128}$"
MAX_DURATION_MS: Final = (1 << 31) - 1
"""24.8 days: what the contract's int32 carries, so that no door can say more than another."""
MAX_ATTEMPTS: Final = 10_000
MAX_INVERSES: Final = 20
"""Actions of one block of a compensation: they run one after the other."""
MAX_REQUIREMENTS: Final = 100
"""Of one event set: each is a subscription, and all their events stand in one output."""

StepRef = Annotated[str, Field(pattern=STEP_REF_PATTERN)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Code = Annotated[str, Field(pattern=CODE_PATTERN)]
Cel = Annotated[str, Field(min_length=1, description="A bare CEL expression.")]
DelayMs = Annotated[int, Field(ge=0, le=MAX_DURATION_MS)]
TimeoutMs = Annotated[int, Field(ge=1, le=MAX_DURATION_MS)]
EventName = Annotated[
    str, Field(min_length=1, max_length=4_096, description="Name of an external event; may hold ${{ CEL }}.")
]
Cron = Annotated[str, Field(min_length=1, max_length=256, description="minute hour day-of-month month day-of-week.")]
Zone = Annotated[str, Field(min_length=1, max_length=64, description="IANA time zone; UTC by default.")]
Patience = Annotated[TimeoutMs, Field(description="The longest wait.")]
AfterWait = Annotated[
    Literal["fail", "skip", "continue"], Field(description="What the time-out does; `fail` by default.")
]
AfterApproval = Annotated[
    Literal["fail", "approve", "skip"], Field(description="What the time-out does; `fail` by default.")
]


class _Part(BaseModel):
    """Strict: a number is not a string and `1` is not true, whatever the door (YM-01)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CompensatingAction(_Part):
    """One inverse or final action of a step (ruling C7)."""

    action: Annotated[str, Field(pattern=ACTION_PATTERN, description="`provider:action`.")]
    args: Annotated[dict[str, Any], Field(description="JSON; strings may hold ${{ CEL }} over OUTPUT too.")] | None = (
        None
    )
    retry_max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS, description="Counts the first.")] | None = None
    retry_backoff_ms: Annotated[DelayMs, Field(description="Doubles with each retry.")] | None = None
    timeout_ms: Annotated[TimeoutMs, Field(description="Of one attempt.")] | None = None
    queue: Annotated[Name, Field(description="Queue that a worker polls; the step's own by default.")] | None = None


CompensatingActions = Annotated[list[CompensatingAction], Field(max_length=MAX_INVERSES)]


class Compensation(_Part):
    """What undoes a step when the run fails or is cancelled, and what always runs last (ruling C7)."""

    on_failure: (
        Annotated[CompensatingActions, Field(description="Undo the step when the run fails or times out.")] | None
    ) = None
    on_cancel: Annotated[CompensatingActions, Field(description="Undo it when the run is cancelled.")] | None = None
    final: Annotated[
        Annotated[CompensatingActions, Field(description="Run last, whatever the end of the run.")] | None,
        Field(alias="finally"),
    ] = None
    failure_policy: (
        Annotated[FailurePolicy, Field(strict=False, description="What a failed action here leads to.")] | None
    ) = None


class EventPattern(_Part):
    """The external event that a wait step waits for (ruling E3)."""

    event_name: EventName
    correlation_key: (
        Annotated[Cel, Field(description="CEL; the key that the event must carry. Without it any.")] | None
    ) = None


class Wait(_Part):
    """What a `wait` step waits for: exactly one of the first six, `cron` with its `timezone`."""

    duration: (
        Annotated[str, Field(min_length=1, description="ISO 8601, or as in 500ms, 90s, 2h, 7d; may hold ${{ CEL }}.")]
        | None
    ) = None
    timestamp: Annotated[str, Field(min_length=1, description="RFC 3339; may hold ${{ CEL }}.")] | None = None
    cron: Annotated[Cron, Field(description="Until its next tick.")] | None = None
    until_expr: Annotated[Cel, Field(description="CEL; until it is true.")] | None = None
    event: EventPattern | None = None
    signal: Annotated[Name, Field(description="Until an interaction with the step is resolved.")] | None = None
    timezone: Zone | None = None
    timeout_ms: Patience | None = None
    on_timeout: AfterWait | None = None


class Approval(_Part):
    """How an `approval` step is decided (ruling E2)."""

    timeout_ms: Patience | None = None
    on_timeout: AfterApproval | None = None
    required: Annotated[int, Field(ge=1, le=100, description="How many people must approve.")] | None = None
    groups: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=256)]],
            Field(max_length=100, description="An approver is in one of them."),
        ]
        | None
    ) = None
    allow_self: (
        Annotated[bool, Field(description="Whether the starter of the run may approve; true by default.")] | None
    ) = None


class HumanLoop(_Part):
    """The case that a `human_loop` step opens (ruling E6)."""

    case_type: Name
    awaiting_status: Annotated[Name, Field(description="What ends the wait; `resolved` by default.")] | None = None
    timeout_ms: Patience | None = None
    on_timeout: AfterWait | None = None


class Race(_Part):
    """A `race` step: the first of its predecessors to succeed wins (ruling G7)."""

    losers: Annotated[RaceLosers, Field(strict=False, description="What becomes of the others.")] | None = None


class EventRequirement(_Part):
    """One event that an event set waits for."""

    name: Name
    event_name: EventName
    filter: Annotated[Cel, Field(description="CEL over EVENT; the event counts when it is true.")] | None = None


class EventSet(_Part):
    """The events that an `event_set` step waits for (ruling E4)."""

    correlation_key: Annotated[Cel, Field(description="CEL; the key that the events must carry.")]
    requirements: Annotated[list[EventRequirement], Field(min_length=1, max_length=MAX_REQUIREMENTS)]
    completion_policy: Annotated[CompletionPolicy, Field(strict=False)] | None = None
    quorum: (
        Annotated[int, Field(ge=1, le=MAX_REQUIREMENTS, description="How many requirements must be met.")] | None
    ) = None
    count: Annotated[int, Field(ge=1, le=10_000, description="How many events must come.")] | None = None
    min: Annotated[int, Field(ge=0, le=10_000, description="How many must have come at the time-out.")] | None = None
    timeout_ms: Patience | None = None
    on_timeout: AfterWait | None = None


class Digest(_Part):
    """How a `digest` step collects its arrivals (ruling E5)."""

    digest_key: Annotated[Cel, Field(description="CEL; arrivals of the same value are collected together.")]
    mode: Annotated[DigestMode, Field(strict=False)] | None = None
    window_ms: Annotated[TimeoutMs, Field(description="Length of a window.")] | None = None
    look_back_ms: Annotated[TimeoutMs, Field(description="How far back `backoff` looks.")] | None = None
    cron: Annotated[Cron, Field(description="When `timed` lets its arrivals go.")] | None = None
    timezone: Zone | None = None
    max_events: Annotated[int, Field(ge=1, le=10_000, description="How many end a window early.")] | None = None
    dedupe_key: Annotated[Cel, Field(description="CEL; an arrival of the same value counts once.")] | None = None


class StepDefinition(_Part):
    """One step: the fields common to all types, those of type `action`, and the object of each other type."""

    ref: Annotated[StepRef, Field(description="Unique name of the step; edges and expressions use it.")]
    type: Annotated[str, Field(min_length=1, max_length=64, description="Kind of the step.")]
    title: Annotated[str, Field(max_length=256)] | None = None
    run_if: Annotated[Cel, Field(description="CEL; the step is skipped when it is false.")] | None = None
    join: Annotated[Join, Field(strict=False, description="When a step with several predecessors runs.")] | None = None
    on_error: (
        Annotated[OnError, Field(strict=False, description="Whether a failure of this step stops the run.")] | None
    ) = None
    result_expr: (
        Annotated[Cel, Field(description="CEL over OUTPUT; decides between the true and the false edges.")] | None
    ) = None
    retry_max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS, description="Counts the first.")] | None = None
    retry_backoff_ms: DelayMs | None = None
    retry_backoff_coefficient: Annotated[float, Field(ge=1, le=1_000)] | None = None
    retry_max_backoff_ms: DelayMs | None = None
    retry_jitter: bool | None = None
    retry_on: Annotated[list[Code], Field(max_length=100)] | None = None
    non_retryable: Annotated[list[Code], Field(max_length=100)] | None = None
    timeout_ms: Annotated[TimeoutMs, Field(description="Of one attempt.")] | None = None
    total_timeout_ms: Annotated[TimeoutMs, Field(description="Across attempts.")] | None = None
    queue_timeout_ms: Annotated[TimeoutMs, Field(description="Waiting for a worker.")] | None = None
    heartbeat_timeout_ms: Annotated[TimeoutMs, Field(description="Silence of a worker.")] | None = None
    max_lost: Annotated[int, Field(ge=0, le=1_000, description="Lost attempts that are forgiven.")] | None = None
    queue: Annotated[Name, Field(description="Queue that a worker polls; remote workers bring the action.")] | None = (
        None
    )
    action: Annotated[str, Field(pattern=ACTION_PATTERN, description="`provider:action`.")] | None = None
    args: Annotated[dict[str, Any], Field(description="JSON; strings may hold ${{ CEL }}.")] | None = None
    connection_ref: Annotated[str, Field(min_length=1)] | None = None
    connection_ref_mode: Annotated[str, Field(max_length=64)] | None = None
    compensation: Compensation | None = None
    wait: Wait | None = None
    approval: Approval | None = None
    human_loop: HumanLoop | None = None
    race: Race | None = None
    event_set: EventSet | None = None
    digest: Digest | None = None


class EdgeDefinition(_Part):
    """From one step to another, taken on one outcome of the source."""

    source_ref: StepRef
    target_ref: StepRef
    type: Annotated[EdgeType, Field(strict=False)]
    condition: Annotated[Cel, Field(description="CEL; the edge is dead when it is false.")] | None = None
    choice_group: Name | None = None
    order: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None
    default: bool | None = None


class CheckpointDefinition(_Part):
    """A named progress marker over steps."""

    name: Name
    step_refs: Annotated[list[StepRef], Field(min_length=1)]


class ScheduleDefinition(_Part):
    """When a schedule trigger fires (rulings T2)."""

    cron_expression: Annotated[str, Field(min_length=1, max_length=256)]
    timezone: Annotated[str, Field(max_length=64)] | None = None
    catchup_window_ms: DelayMs | None = None
    overlap_policy: Annotated[str, Field(max_length=64)] | None = None


class TriggerDefinition(_Part):
    """How runs start."""

    id: Name
    type: Literal["manual", "event", "schedule"]
    patterns: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = None
    filter: Cel | None = None
    input: Any | None = None
    schedule: ScheduleDefinition | None = None
    tier: Annotated[Tier, Field(strict=False)] | None = None


class Definition(_Part):
    """The body of a workflow definition."""

    family_slug: Annotated[str, Field(pattern=FAMILY_SLUG_PATTERN, description="Names the family for good.")]
    title: Annotated[str, Field(max_length=256)] | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=100)] | None = None
    variables: (
        Annotated[
            dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], Any], Field(description="Defaults of VARS, by name.")
        ]
        | None
    ) = None
    input_schema: Annotated[dict[str, Any], Field(description="JSON Schema of a trigger's input.")] | None = None
    output: Annotated[Any, Field(description="Output of the run; strings may hold ${{ CEL }}.")] = None
    steps: Annotated[list[StepDefinition], Field(min_length=1)]
    edges: list[EdgeDefinition] | None = None
    triggers: list[TriggerDefinition] | None = None
    checkpoints: list[CheckpointDefinition] | None = None
    response_checkpoint: Name | None = None
    fail_policy: Annotated[FailPolicy, Field(strict=False)] | None = None
    run_timeout_ms: TimeoutMs | None = None
    tier: Annotated[Tier, Field(strict=False)] | None = None
    auto_continue: bool | None = None
    schedule: ScheduleDefinition | None = None


class Document(_Part):
    """The envelope that files and the API carry."""

    type: Literal["workflow_definition"]
    definition: Definition


TYPE_OBJECTS: Final = ("wait", "approval", "human_loop", "race", "event_set", "digest")
"""The fields of a step that are named like the type that they belong to."""

PARTS: Final[Mapping[type[BaseModel], Mapping[str, type[BaseModel]]]] = {
    Definition: {
        "steps": StepDefinition,
        "edges": EdgeDefinition,
        "triggers": TriggerDefinition,
        "checkpoints": CheckpointDefinition,
        "schedule": ScheduleDefinition,
    },
    StepDefinition: {
        "compensation": Compensation,
        "wait": Wait,
        "approval": Approval,
        "human_loop": HumanLoop,
        "race": Race,
        "event_set": EventSet,
        "digest": Digest,
    },
    TriggerDefinition: {"schedule": ScheduleDefinition},
    Compensation: {"on_failure": CompensatingAction, "on_cancel": CompensatingAction, "finally": CompensatingAction},
    Wait: {"event": EventPattern},
    EventSet: {"requirements": EventRequirement},
}
"""The fields of a part that hold parts again, alone or in a list, by the names that they are written with."""
