"""What an author writes about steps that wait, and races (rulings E2 to E6, G7): one object per type, named like it."""

from typing import Annotated, Final, Literal

from pydantic import Field

from ductord.model.authored.words import Cel, Name, Part, TimeoutMs
from ductord.model.enums import CompletionPolicy, DigestMode, RaceLosers

MAX_REQUIREMENTS: Final = 100
"""Of one event set: each is a subscription, and all their events stand in one output."""

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


class EventPattern(Part):
    """The external event that a wait step waits for (ruling E3)."""

    event_name: EventName
    correlation_key: (
        Annotated[Cel, Field(description="CEL; the key that the event must carry. Without it any.")] | None
    ) = None


class Wait(Part):
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


class Approval(Part):
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


class HumanLoop(Part):
    """The case that a `human_loop` step opens (ruling E6)."""

    case_type: Name
    awaiting_status: Annotated[Name, Field(description="What ends the wait; `resolved` by default.")] | None = None
    timeout_ms: Patience | None = None
    on_timeout: AfterWait | None = None


class Race(Part):
    """A `race` step: the first of its predecessors to succeed wins (ruling G7)."""

    losers: Annotated[RaceLosers, Field(strict=False, description="What becomes of the others.")] | None = None


class EventRequirement(Part):
    """One event that an event set waits for."""

    name: Name
    event_name: EventName
    filter: Annotated[Cel, Field(description="CEL over EVENT; the event counts when it is true.")] | None = None


class EventSet(Part):
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


class Digest(Part):
    """How a `digest` step collects its arrivals (ruling E5)."""

    digest_key: Annotated[Cel, Field(description="CEL; arrivals of the same value are collected together.")]
    mode: Annotated[DigestMode, Field(strict=False)] | None = None
    window_ms: Annotated[TimeoutMs, Field(description="Length of a window.")] | None = None
    look_back_ms: Annotated[TimeoutMs, Field(description="How far back `backoff` looks.")] | None = None
    cron: Annotated[Cron, Field(description="When `timed` lets its arrivals go.")] | None = None
    timezone: Zone | None = None
    max_events: Annotated[int, Field(ge=1, le=10_000, description="How many end a window early.")] | None = None
    dedupe_key: Annotated[Cel, Field(description="CEL; an arrival of the same value counts once.")] | None = None
