"""Steps that wait, judged: what stands together in a type's own object, and around such a step (rulings E2 to E6, G7, A3).

Judges words and what can be known before a run; a duration or a time with `${{ }}` in it is judged when the step begins.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from ductord.engine import moments, templates
from ductord.engine.compile.findings import Findings
from ductord.engine.compile.network import Network
from ductord.engine.compile.timing import judge_cron, judge_zone
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.model.authored.waits import Digest, EventSet, Wait
from ductord.model.enums import CompletionPolicy, DigestMode, StepType
from ductord.model.jsonvalue import MAX_KEY_BYTES

WAITS_FOR: Final = ("duration", "timestamp", "cron", "until_expr", "event", "signal")
"""Exactly one of these says what a wait step waits for."""

_NUMBER_OF: Final = {
    CompletionPolicy.QUORUM: "quorum",
    CompletionPolicy.COUNT: "count",
    CompletionPolicy.UNTIL_TIMEOUT: "min",
}
_OF_MODE: Final[Mapping[DigestMode, tuple[str, ...]]] = {
    DigestMode.REGULAR: ("window_ms",),
    DigestMode.BACKOFF: ("window_ms", "look_back_ms"),
    DigestMode.TIMED: ("cron",),
}


def judge_waits(network: Network, findings: Findings) -> None:
    """Report every breach by a step of a type that this release can run."""
    for position, step in enumerate(network.steps):
        if step.type not in SUPPORTED:
            continue
        path: Path = ("steps", network.numbers[position])
        if step.wait is not None and step.type == StepType.WAIT:
            _judge_wait(step.wait, (*path, "wait"), findings)
        if step.event_set is not None and step.type == StepType.EVENT_SET:
            _judge_event_set(step.event_set, (*path, "event_set"), findings)
        if step.type == StepType.DIGEST:
            if step.digest is not None:
                _judge_digest(step.digest, (*path, "digest"), findings)
            _judge_beside_digest(network, position, path, findings)
        if step.type == StepType.RACE:
            _judge_race(network, position, path, findings)
        for name in ("wait", "approval", "human_loop", "event_set"):
            _warn_of_time(getattr(step, name) if step.type == name else None, (*path, name), findings)


def _judge_wait(wait: Wait, path: Path, findings: Findings) -> None:
    given = [name for name in WAITS_FOR if getattr(wait, name) is not None]
    if not given:
        message = f"a wait needs one of {', '.join(WAITS_FOR)}"
        findings.add("MISSING_FIELD", message, path, on_key=True)
    for name in given[1:]:
        message = f"a wait is for one thing: it has `{given[0]}` already"
        findings.add("FIELDS_EXCLUSIVE", message, (*path, name), on_key=True)
    for name, parse in (("duration", moments.duration), ("timestamp", moments.instant)):
        text = getattr(wait, name)
        if text is not None and templates.is_static(text):
            try:
                parse(text)
            except moments.MomentInvalid as invalid:
                findings.add("WAIT_INVALID", f"`{text[:64]}` {invalid}", (*path, name))
    _judge_cron(wait.cron, wait.timezone, path, findings)
    event = wait.event
    if event is not None:
        _judge_event_name(event.event_name, (*path, "event", "event_name"), findings)


def _judge_cron(cron: str | None, zone: str | None, path: Path, findings: Findings) -> None:
    if zone is not None and cron is None:
        findings.add("FIELD_NOT_APPLICABLE", "`timezone` is about `cron`", (*path, "timezone"), on_key=True)
    else:
        judge_zone(zone, (*path, "timezone"), findings)
    if cron is not None:
        judge_cron(cron, (*path, "cron"), findings)


def _judge_event_name(name: str, path: Path, findings: Findings) -> None:
    if templates.is_static(name) and len(name.encode()) > MAX_KEY_BYTES:
        findings.add("INVALID_LENGTH", "`event_name` is too long, maximum is 256 bytes", path)


def _judge_event_set(written: EventSet, path: Path, findings: Findings) -> None:
    first: dict[str, int] = {}
    for number, requirement in enumerate(written.requirements):
        here = (*path, "requirements", number)
        if requirement.name in first:
            message = (
                f"requirement `{requirement.name}` is given twice, first by requirements[{first[requirement.name]}]"
            )
            findings.add("DUPLICATE_REQUIREMENT", message, (*here, "name"))
        first.setdefault(requirement.name, number)
        _judge_event_name(requirement.event_name, (*here, "event_name"), findings)
    policy = written.completion_policy or CompletionPolicy.ALL_REQUIRED
    for owner, name in _NUMBER_OF.items():
        value = getattr(written, name)
        if value is not None and policy is not owner:
            message = f"`{name}` says something under `completion_policy: {owner}` only"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
        elif value is None and policy is owner and owner is not CompletionPolicy.UNTIL_TIMEOUT:
            message = f"`completion_policy: {policy}` needs its `{name}`"
            findings.add("MISSING_FIELD", message, (*path, name))
    if policy is CompletionPolicy.QUORUM and (written.quorum or 0) > len(written.requirements):
        message = f"`quorum` is more than the set's {len(written.requirements)} requirements: it is never met"
        findings.add("OUT_OF_RANGE", message, (*path, "quorum"))
    if policy is CompletionPolicy.UNTIL_TIMEOUT and written.timeout_ms is None:
        findings.add("MISSING_FIELD", f"`completion_policy: {policy}` needs a `timeout_ms`", (*path, "timeout_ms"))


def _judge_digest(written: Digest, path: Path, findings: Findings) -> None:
    mode = written.mode or DigestMode.REGULAR
    for name in ("window_ms", "look_back_ms", "cron"):
        value = getattr(written, name)
        if value is None and name in _OF_MODE[mode]:
            findings.add("MISSING_FIELD", f"`mode: {mode}` needs its `{name}`", (*path, name))
        elif value is not None and name not in _OF_MODE[mode]:
            message = f"`{name}` says nothing under `mode: {mode}`"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
    _judge_cron(written.cron, written.timezone, path, findings)


def _judge_beside_digest(network: Network, position: int, path: Path, findings: Findings) -> None:
    """Ruling E5: a run that was merged ends at its digest, so nothing of it may go on beside it."""
    if network.cyclic:
        return
    digest = network.steps[position].ref
    before = network.ancestors(position)
    beside = [
        step.ref
        for other, step in enumerate(network.steps)
        if other != position and step.ref not in before and digest not in network.ancestors(other)
    ]
    if beside:
        more = f" and {len(beside) - 1} more" if len(beside) > 1 else ""
        message = f"step `{beside[0]}`{more} neither leads to digest `{digest}` nor follows it: runs that are merged would leave it behind"
        findings.add("DIGEST_NOT_ALONE", message, (*path, "ref"))


def _judge_race(network: Network, position: int, path: Path, findings: Findings) -> None:
    step = network.steps[position]
    runners = {link.source for link in network.incoming[position]}
    if len(runners) < 2:
        message = f"race `{step.ref}` has {len(runners) or 'no'} predecessor{'' if len(runners) == 1 else 's'}: it needs two and more"
        findings.add("RACE_TOO_FEW", message, (*path, "ref"))
    if step.join is not None:
        message = "`join` says nothing on a race: it runs when the first of its predecessors succeeds"
        findings.add("FIELD_NOT_APPLICABLE", message, (*path, "join"), on_key=True)


def _warn_of_time(part: BaseModel | None, path: Path, findings: Findings) -> None:
    if part is not None and getattr(part, "on_timeout", None) is not None and getattr(part, "timeout_ms", None) is None:
        message = "`on_timeout` has no effect without `timeout_ms`"
        findings.add("TIMEOUT_UNUSED", message, (*path, "on_timeout"), warning=True, on_key=True)
