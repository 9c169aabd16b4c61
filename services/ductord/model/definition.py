"""The one JSON model of a definition (ruling L1): YAML, JSON, proto and SDK are doors to it.

It says what an author may *write*: names, types, ranges. What the words mean together (dangling edges, expressions, rulings G4, L9) is
judged by `engine.compile`, which also refuses by name what this build cannot do yet. Every field of the contract is sayable, so that a
definition for a later build is told `FEATURE_NOT_SUPPORTED` and never «unknown field». A field that is null counts as not written.
A step type keeps its own fields in an object that is named like it; only those of `action` stand on the step itself. This model never fills in
behaviour: defaults are resolved in the manifest, and an absent field stays absent when the definition is written again.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from ductord.model.authored.compensation import CompensatingAction, Compensation
from ductord.model.authored.fans import Dataflow, ForEach, Gather, Scatter, Subworkflow, WorkflowReference
from ductord.model.authored.waits import (
    Approval,
    Digest,
    EventPattern,
    EventRequirement,
    EventSet,
    HumanLoop,
    Race,
    Wait,
)
from ductord.model.authored.words import (
    ACTION_PATTERN,
    FAMILY_SLUG_PATTERN,
    MAX_ATTEMPTS,
    MAX_DURATION_MS,
    VARIABLE_PATTERN,
    Cel,
    Code,
    DelayMs,
    Name,
    Part,
    StepRef,
    TimeoutMs,
)
from ductord.model.enums import EdgeType, FailPolicy, Join, OnError, Tier
from ductord.model.starting import MIN_CATCHUP_MS, OVERLAP_POLICIES

DOCUMENT_TYPE: Final = "workflow_definition"
MAX_TRIGGERS: Final = 100
MAX_PATTERNS: Final = 100
"""Of one trigger."""


class StepDefinition(Part):
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
    scatter: Scatter | None = None
    gather: Gather | None = None
    for_each: ForEach | None = None
    dataflow: Dataflow | None = None
    subworkflow: Subworkflow | None = None


class EdgeDefinition(Part):
    """From one step to another, taken on one outcome of the source."""

    source_ref: StepRef
    target_ref: StepRef
    type: Annotated[EdgeType, Field(strict=False)]
    condition: Annotated[Cel, Field(description="CEL; the edge is dead when it is false.")] | None = None
    choice_group: Name | None = None
    order: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None
    default: bool | None = None


class CheckpointDefinition(Part):
    """A named progress marker over steps."""

    name: Name
    step_refs: Annotated[list[StepRef], Field(min_length=1)]


class ScheduleDefinition(Part):
    """When a schedule fires (ruling T2). What `compile` judges with a code of its own has its bounds here for editors alone."""

    cron_expression: Annotated[
        str,
        Field(
            max_length=256,
            description="Five fields: minute hour day-of-month month day-of-week. Day-of-month and day-of-week combine by OR if neither begins with a star.",
        ),
    ]
    timezone: (
        Annotated[str, Field(max_length=64, description="IANA time zone of the expression; UTC by default.")] | None
    ) = None
    catchup_window_ms: (
        Annotated[
            int,
            Field(
                description="How late a time may be fired after an outage; older ones are missed. 600,000 by default.",
                json_schema_extra={"minimum": MIN_CATCHUP_MS, "maximum": MAX_DURATION_MS},
            ),
        ]
        | None
    ) = None
    overlap_policy: (
        Annotated[
            str,
            Field(
                description="What happens at a time at which an earlier run is active; `skip` by default.",
                json_schema_extra={"enum": list(OVERLAP_POLICIES)},
            ),
        ]
        | None
    ) = None


class TriggerDefinition(Part):
    """How runs start (rulings T2, T3)."""

    id: Name
    type: Literal["manual", "event", "schedule"]
    patterns: (
        Annotated[
            list[Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 256})]],
            Field(
                min_length=1,
                max_length=MAX_PATTERNS,
                description="Names of events; `a.b.*` stands for all that begin with `a.b.`, where wildcards are switched on.",
            ),
        ]
        | None
    ) = None
    filter: (
        Annotated[Cel, Field(description="CEL over EVENT and VARS; an event for which it is not true starts nothing.")]
        | None
    ) = None
    input: (
        Annotated[
            Any,
            Field(
                description="Input of the run; strings may hold ${{ CEL }} over VARS and EVENT, or TRIGGER of a schedule."
            ),
        ]
        | None
    ) = None
    schedule: ScheduleDefinition | None = None
    tier: Annotated[Tier, Field(strict=False, description="Instead of the definition's.")] | None = None


class Definition(Part):
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
    triggers: Annotated[list[TriggerDefinition], Field(max_length=MAX_TRIGGERS)] | None = None
    checkpoints: list[CheckpointDefinition] | None = None
    response_checkpoint: Name | None = None
    fail_policy: Annotated[FailPolicy, Field(strict=False)] | None = None
    run_timeout_ms: TimeoutMs | None = None
    tier: Annotated[Tier, Field(strict=False)] | None = None
    auto_continue: bool | None = None
    schedule: ScheduleDefinition | None = None


class Document(Part):
    """The envelope that files and the API carry."""

    type: Literal["workflow_definition"]
    definition: Definition


TYPE_OBJECTS: Final = (
    "wait",
    "approval",
    "human_loop",
    "race",
    "event_set",
    "digest",
    "scatter",
    "gather",
    "for_each",
    "dataflow",
    "subworkflow",
)
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
        "scatter": Scatter,
        "gather": Gather,
        "for_each": ForEach,
        "dataflow": Dataflow,
        "subworkflow": Subworkflow,
    },
    TriggerDefinition: {"schedule": ScheduleDefinition},
    Compensation: {"on_failure": CompensatingAction, "on_cancel": CompensatingAction, "finally": CompensatingAction},
    Wait: {"event": EventPattern},
    EventSet: {"requirements": EventRequirement},
    Scatter: {"workflow": WorkflowReference},
    ForEach: {"workflow": WorkflowReference},
    Subworkflow: {"workflow": WorkflowReference},
}
"""The fields of a part that hold parts again, alone or in a list, by the names that they are written with."""
