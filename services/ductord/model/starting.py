"""How runs start besides by hand: what a trigger says, what started a run, and the identities that make a start happen once. Pure data."""

from datetime import UTC, datetime
from typing import Any, Final

from ductord.model.enums import Tier
from ductord.model.ids import derived
from ductord.model.specs import Expression, Template, Value

OVERLAP_POLICIES: Final = ("skip", "allow_all")
"""What a schedule may do while an earlier run of it is active; the first is the default."""
DEFAULT_CATCHUP_MS: Final = 600_000
MIN_CATCHUP_MS: Final = 1_000
"""A window shorter than a coordinator takes to come to a time would lose times in good health."""
MAX_BACKFILL: Final = 1_000
"""How many times one BackfillSchedule may fire."""
MAX_COUNTED: Final = 10_000
"""How far the times of one gap are counted."""
OWN_SCHEDULE: Final = "schedule"
"""The trigger id of a definition's own `schedule`."""
ENVIRONMENT_PATTERN: Final = r"^([a-z0-9][a-z0-9_-]{0,63})?$"
"""The name of an environment, or nothing."""


class ScheduleSpec(Value, frozen=True, kw_only=True):
    """A timetable with every default resolved (T2)."""

    cron_expression: str
    timezone: str = "UTC"
    catchup_window_ms: int = DEFAULT_CATCHUP_MS
    overlap_policy: str = OVERLAP_POLICIES[0]


class TriggerSpec(Value, frozen=True, kw_only=True):
    """A trigger of type `event` (`patterns`) or `schedule` (`schedule`). `filter` reads EVENT and VARS; `input` reads EVENT and VARS, or of a schedule
    TRIGGER and VARS; None: the payload of the event, or `{}`. `tier` None: the definition's."""

    id: str
    patterns: tuple[str, ...] = ()
    filter: Expression | None = None
    schedule: ScheduleSpec | None = None
    input: Template | None = None
    tier: Tier | None = None


class EventOrigin(Value, frozen=True, kw_only=True):
    """The event that started a run. `payload` is left out where the run's input is the same value."""

    name: str
    id: str
    correlation_key: str
    time: datetime
    payload: Any = None
    payload_is_input: bool = False


class Origin(Value, frozen=True, kw_only=True):
    """What started a run: nothing set says by hand, or by its parent where it has one. `nominal_time`: of the timetable, or when it was fired by hand."""

    trigger_id: str = ""
    schedule_id: str = ""
    nominal_time: datetime | None = None
    event: EventOrigin | None = None

    @property
    def type(self) -> str:
        """`schedule`, `event`, or `manual`, which a child is too."""
        if self.schedule_id:
            return "schedule"
        return "event" if self.event is not None else "manual"


def schedule_id(definition_id: str, trigger_id: str) -> str:
    """The same over all versions of the definition."""
    return derived("schedule", definition_id, trigger_id)


def fired_run_id(schedule: str, nominal_time: datetime) -> str:
    """The run of a time of a timetable, whoever fires it: the watch, a backfill, twice (T2)."""
    return derived("fire", schedule, nominal_time.astimezone(UTC).isoformat())


def asked_run_id(schedule: str, request_id: str) -> str:
    """The run of a fire by hand."""
    return derived("fire", "request", schedule, request_id)


def event_run_id(definition_id: str, trigger_id: str, event_name: str, event_id: str) -> str:
    """The run of an event and a trigger (T3). An event's id is the producer's within its name, so the name is part of it."""
    return derived("event", definition_id, trigger_id, event_name, event_id)


def patterns_of(event_name: str, *, wildcards: bool) -> tuple[str, ...]:
    """The patterns that match a name: itself, and with wildcards `a.b.*` for whatever begins with `a.b.` and has more. A pattern that ends in `.*` is never
    taken literally."""
    literal = () if event_name.endswith(".*") else (event_name,)
    if not wildcards:
        return literal
    dots = [place for place, letter in enumerate(event_name[:-1]) if letter == "."]
    return (*literal, *(f"{event_name[:place]}.*" for place in dots))
