"""What the parts of a manifest say: expressions, templates, policies, and what each type of step does. Pure data, as in `model.manifest`."""

from typing import Any

import msgspec

from ductord.model.enums import CompletionPolicy, DigestMode, FailurePolicy, OnTimeout, RaceLosers


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of manifest values: absent fields have their default, so adding one keeps old hashes."""


class Expression(Value, frozen=True, kw_only=True):
    """A CEL source and what it reads: root names (`TRIGGER`, `VARS`, `RUN`, `CONTEXT`, `OUTPUT` …) and step refs (ruling L3)."""

    source: str
    names: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class Template(Value, frozen=True, kw_only=True):
    """A JSON tree whose strings may hold `${{ … }}`, and the union of what its expressions read. `static`: it holds none."""

    tree: Any = None
    static: bool = True
    names: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class RetryPolicy(Value, frozen=True, kw_only=True):
    """Ruling A1. `max_attempts` counts the first; `backoff_ms` is constant unless `coefficient` is given."""

    max_attempts: int = 1
    backoff_ms: int = 0
    coefficient: float = 1.0
    max_backoff_ms: int = 3_600_000
    jitter: bool = False
    retry_on: tuple[str, ...] = ()
    non_retryable: tuple[str, ...] = ()


class ActionSpec(Value, frozen=True, kw_only=True):
    """What an `action` step does: the action's name and the args to render for it."""

    action: str
    args: Template = Template()


class Timeouts(Value, frozen=True, kw_only=True):
    """Ruling A3, in milliseconds; None: no limit."""

    timeout_ms: int | None = None
    total_timeout_ms: int | None = None
    queue_timeout_ms: int | None = None
    heartbeat_timeout_ms: int | None = None


INVERSE_RETRY = RetryPolicy(max_attempts=3, backoff_ms=1_000, coefficient=2.0, max_backoff_ms=60_000)
INVERSE_TIMEOUT_MS = 300_000
"""An inverse action is tried harder than a step by default, and has a time limit in any case (field case SA-04)."""


class InverseSpec(Value, frozen=True, kw_only=True):
    """One inverse or final action with its defaults resolved (ruling C7). `args` may read OUTPUT, the owner's output."""

    action: str
    args: Template = Template()
    retry: RetryPolicy = INVERSE_RETRY
    timeout_ms: int = INVERSE_TIMEOUT_MS
    queue: str = "default"


class Compensation(Value, frozen=True, kw_only=True):
    """The saga blocks of a step (spec: Saga): what undoes it when the run fails or is cancelled, and what always runs last."""

    on_failure: tuple[InverseSpec, ...] = ()
    on_cancel: tuple[InverseSpec, ...] = ()
    final: tuple[InverseSpec, ...] = ()
    failure_policy: FailurePolicy = FailurePolicy.MANUAL_REPAIR

    @property
    def actions(self) -> tuple[InverseSpec, ...]:
        """Those of all blocks."""
        return (*self.on_failure, *self.on_cancel, *self.final)


class EventPattern(Value, frozen=True, kw_only=True):
    """Which external event a step waits for: its name, and the key that it must carry (None: any)."""

    event_name: Template
    correlation_key: Expression | None = None


class WaitSpec(Value, frozen=True, kw_only=True):
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


class ApprovalSpec(Value, frozen=True, kw_only=True):
    """Ruling E2. `required`: how many different people must approve. `groups`: who may (empty: anybody). `allow_self`: the one who started the run may too."""

    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL
    required: int = 1
    groups: tuple[str, ...] = ()
    allow_self: bool = True


class HumanLoopSpec(Value, frozen=True, kw_only=True):
    """Ruling E6: a case of this type is open until it reaches `awaiting_status`."""

    case_type: str
    awaiting_status: str = "resolved"
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


class RaceSpec(Value, frozen=True, kw_only=True):
    """Ruling G7."""

    losers: RaceLosers = RaceLosers.CANCEL


class Requirement(Value, frozen=True, kw_only=True):
    """One event that a set waits for: its name, and a bool over EVENT."""

    name: str
    event_name: Template
    filter: Expression | None = None


class EventSetSpec(Value, frozen=True, kw_only=True):
    """Ruling E4. `quorum`, `count`, `min`: the numbers of the policies that are named so."""

    correlation_key: Expression
    requirements: tuple[Requirement, ...]
    completion_policy: CompletionPolicy = CompletionPolicy.ALL_REQUIRED
    quorum: int = 0
    count: int = 0
    min: int = 0
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


class DigestSpec(Value, frozen=True, kw_only=True):
    """Ruling E5."""

    digest_key: Expression
    mode: DigestMode = DigestMode.REGULAR
    window_ms: int = 0
    look_back_ms: int = 0
    cron: str = ""
    timezone: str = "UTC"
    max_events: int = 0
    dedupe_key: Expression | None = None
