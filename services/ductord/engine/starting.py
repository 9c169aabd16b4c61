"""What is known of a run before it exists: the variables of its environment, whether an event passes a trigger's filter, and the input of the run (rulings
L8, T2, T3).

Asked by whoever lets an event or a time start runs; nothing of it is in a run's history but its result, the run's birth. A text that fails concerns its own
trigger alone: it raises, and what that means is the caller's to say.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ductord.engine import moments
from ductord.engine.expressions import Bindings, filled, holds, one_decision
from ductord.engine.filters import event_seen
from ductord.model.inbox import External
from ductord.model.jsonvalue import JSON
from ductord.model.starting import Origin, TriggerSpec


def resolved(defaults: Mapping[str, JSON], overlay: Mapping[str, JSON]) -> dict[str, JSON]:
    """VARS: what the definition declares, overlaid by what the environment says of it (L8). What it says of names that are not declared is nothing."""
    return {name: overlay.get(name, value) for name, value in defaults.items()}


def told(origin: Origin) -> dict[str, JSON]:
    """What TRIGGER holds of the trigger that started a run. `id` is null by hand, `scheduled_time` of all but schedules."""
    time = origin.nominal_time
    return {
        "type": origin.type,
        "id": origin.trigger_id or None,
        "scheduled_time": None if time is None else moments.written(time),
    }


def schedule_input(spec: TriggerSpec, variables: Mapping[str, JSON], nominal_time: datetime) -> JSON:
    """The input of the run that a schedule trigger starts for a time. `variables`: as `resolved` gives them. Without a template it is `{}`. Raises
    `ExpressionError`."""
    if spec.input is None:
        return {}
    trigger: dict[str, Any] = {
        "type": "schedule",
        "id": spec.id,
        "scheduled_time": moments.written(nominal_time),
    }
    with one_decision():
        return filled(spec.input, Bindings(trigger=trigger, variables=variables))


def lets_in(spec: TriggerSpec, variables: Mapping[str, JSON], event: External) -> bool:
    """Whether the event passes the filter of an event trigger; one without a filter lets all in. Raises `ExpressionError`."""
    if spec.filter is None:
        return True
    with one_decision():
        return holds(spec.filter.source, Bindings(event=event_seen(event), variables=variables))


def event_input(spec: TriggerSpec, variables: Mapping[str, JSON], event: External) -> JSON:
    """The input of the run that an event trigger starts: without a template it is the event's payload itself. Raises `ExpressionError`."""
    if spec.input is None:
        return event.payload
    with one_decision():
        return filled(spec.input, Bindings(event=event_seen(event), variables=variables))
