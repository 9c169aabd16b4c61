"""Triggers and the definition's own schedule, judged and compiled (rulings T2, T3, D4; field cases TC-04, TC-05).

Judges words: whether wildcards are switched on is not known here. Its own schedule makes a definition no other for callers: only declared triggers say
whether it may be started by hand.
"""

from collections.abc import Mapping
from sys import intern
from typing import Any, Final

from ductord.engine import templates
from ductord.engine.compile.findings import Findings
from ductord.engine.compile.shape import Shaped
from ductord.engine.compile.texts import Texts
from ductord.engine.compile.timing import judge_cron, judge_zone
from ductord.engine.expressions import Site
from ductord.engine.positions import Path
from ductord.engine.suggest import suggestion
from ductord.model.authored.words import MAX_DURATION_MS
from ductord.model.definition import Definition, ScheduleDefinition, TriggerDefinition
from ductord.model.jsonvalue import MAX_KEY_BYTES
from ductord.model.specs import Template
from ductord.model.starting import (
    DEFAULT_CATCHUP_MS,
    MIN_CATCHUP_MS,
    OVERLAP_POLICIES,
    OWN_SCHEDULE,
    ScheduleSpec,
    TriggerSpec,
)

FIELDS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "manual": (),
    "event": ("patterns", "filter", "input", "tier"),
    "schedule": ("schedule", "input", "tier"),
}
"""What a trigger of a type may say beside its id."""
MUST_SAY: Final[Mapping[str, str]] = {"event": "patterns", "schedule": "schedule"}
"""What it must say."""

_CRON_RULE: Final = "; its fields are minute hour day-of-month month day-of-week, and the two kinds of days combine by OR if neither begins with a star"
_OF_SOME: Final = tuple(dict.fromkeys(name for names in FIELDS_OF.values() for name in names))
_NOWHERE: Final[frozenset[str]] = frozenset()


def judge_triggers(tree: Mapping[str, Any], definition: Definition, shaped: Shaped, findings: Findings) -> None:
    """Report every breach. `tree`: the definition as written, which still holds what had a fault."""
    for number, trigger in zip(shaped.numbers["triggers"], definition.triggers or (), strict=True):
        path: Path = ("triggers", number)
        _judge_fields(trigger, tree["triggers"][number], path, findings)
        if trigger.type == "event":
            _judge_patterns(trigger.patterns, (*path, "patterns"), findings)
        if trigger.type == "schedule" and trigger.schedule is not None:
            _judge_schedule(trigger.schedule, (*path, "schedule"), findings)
        if trigger.id == OWN_SCHEDULE and tree.get("schedule") is not None:
            message = f"`{OWN_SCHEDULE}` is the id of the definition's own `schedule`"
            findings.add("DUPLICATE_TRIGGER_ID", message, (*path, "id"))
    if definition.schedule is not None:
        _judge_schedule(definition.schedule, ("schedule",), findings)


def compiled(definition: Definition, shaped: Shaped, texts: Texts) -> tuple[TriggerSpec, ...]:
    """The triggers that start runs by themselves, with every default resolved and their texts judged; the definition's own schedule comes last."""
    specs = [
        _compiled(trigger, ("triggers", number), texts)
        for number, trigger in zip(shaped.numbers["triggers"], definition.triggers or (), strict=True)
        if trigger.type != "manual"
    ]
    if definition.schedule is not None:
        specs.append(TriggerSpec(id=OWN_SCHEDULE, schedule=_schedule(definition.schedule)))
    return tuple(specs)


def _compiled(trigger: TriggerDefinition, path: Path, texts: Texts) -> TriggerSpec:
    of_event = trigger.type == "event"
    rendered: Template | None = None
    if trigger.input is not None:
        site = Site.EVENT if of_event else Site.SCHEDULE
        rendered = texts.template(trigger.input, (*path, "input"), _no_steps, site)
    if not of_event:
        written = trigger.schedule
        return TriggerSpec(
            id=trigger.id, schedule=None if written is None else _schedule(written), input=rendered, tier=trigger.tier
        )
    return TriggerSpec(
        id=trigger.id,
        patterns=tuple(trigger.patterns or ()),
        filter=texts.condition(trigger.filter, (*path, "filter"), _no_steps, Site.EVENT),
        input=rendered,
        tier=trigger.tier,
    )


def _schedule(written: ScheduleDefinition) -> ScheduleSpec:
    window = written.catchup_window_ms
    # a default that is written out is the default: it is left out of the manifest only as the same object
    return ScheduleSpec(
        cron_expression=written.cron_expression,
        timezone=intern(written.timezone or "UTC"),
        catchup_window_ms=DEFAULT_CATCHUP_MS if window in (None, DEFAULT_CATCHUP_MS) else window,
        overlap_policy=intern(written.overlap_policy or OVERLAP_POLICIES[0]),
    )


def _no_steps() -> frozenset[str]:
    """Before a run exists there is no step to read."""
    return _NOWHERE


def _judge_fields(trigger: TriggerDefinition, written: Mapping[str, Any], path: Path, findings: Findings) -> None:
    for name in _OF_SOME:
        if getattr(trigger, name) is not None and name not in FIELDS_OF[trigger.type]:
            owners = " and ".join(f"`{kind}`" for kind, names in FIELDS_OF.items() if name in names)
            message = f"`{name}` belongs to triggers of type {owners}"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
    missing = MUST_SAY.get(trigger.type)
    if missing is not None and written.get(missing) is None:
        findings.add("MISSING_FIELD", f"a trigger of type `{trigger.type}` needs its `{missing}`", (*path, missing))


def _judge_patterns(patterns: list[str] | None, path: Path, findings: Findings) -> None:
    first: dict[str, int] = {}
    for number, pattern in enumerate(patterns or ()):
        fault = _fault_of(pattern)
        if pattern in first:
            fault = f"is given twice, first by patterns[{first[pattern]}]"
        if fault:
            findings.add("EVENT_PATTERN_INVALID", f"`{pattern[:64]}` {fault}", (*path, number))
        first.setdefault(pattern, number)


def _fault_of(pattern: str) -> str:
    """What is wrong with a pattern; nothing with one that is right."""
    if not pattern:
        return "is no name of an event: it is empty"
    if len(pattern.encode()) > MAX_KEY_BYTES:
        return f"is longer than the name of an event may be, which is {MAX_KEY_BYTES} bytes"
    if templates.OPEN in pattern:
        return "is no template: a pattern is data"
    if "*" in pattern.removesuffix(".*") or pattern == ".*":
        return "is no pattern: a star stands for the rest of a name, behind its last dot, as in `invoice.*`"
    return ""


def _judge_schedule(written: ScheduleDefinition, path: Path, findings: Findings) -> None:
    judge_cron(written.cron_expression, (*path, "cron_expression"), findings, rule=_CRON_RULE)
    judge_zone(written.timezone, (*path, "timezone"), findings)
    window = written.catchup_window_ms
    if window is not None and not MIN_CATCHUP_MS <= window <= MAX_DURATION_MS:
        message = f"`catchup_window_ms` is from {MIN_CATCHUP_MS:,} to {MAX_DURATION_MS:,}"
        findings.add("CATCHUP_WINDOW_INVALID", message, (*path, "catchup_window_ms"))
    policy = written.overlap_policy
    if policy is not None and policy not in OVERLAP_POLICIES:
        words = " or ".join(f"`{word}`" for word in OVERLAP_POLICIES)
        message = f"`{policy[:64]}` is no overlap policy: it is {words}{suggestion(policy, OVERLAP_POLICIES)}"
        findings.add("INVALID_OVERLAP_POLICY", message, (*path, "overlap_policy"))
