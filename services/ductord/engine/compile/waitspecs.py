"""Steps that wait in their form in the manifest: texts judged in their place, defaults resolved."""

from sys import intern
from typing import Final

import msgspec

from ductord.engine.compile.texts import UNSOUND, Reachable, Reader, Texts
from ductord.engine.expressions import Site
from ductord.engine.positions import Path
from ductord.model.authored.waits import Approval, Digest, EventSet, HumanLoop, Race, Wait
from ductord.model.definition import StepDefinition
from ductord.model.enums import CompletionPolicy, DigestMode, OnTimeout, RaceLosers, StepType
from ductord.model.specs import (
    ApprovalSpec,
    DigestSpec,
    EventPattern,
    EventSetSpec,
    HumanLoopSpec,
    RaceSpec,
    Requirement,
    Template,
    WaitSpec,
)

WAITING: Final = frozenset(
    {StepType.WAIT, StepType.APPROVAL, StepType.HUMAN_LOOP, StepType.RACE, StepType.EVENT_SET, StepType.DIGEST}
)
"""The types that the third level of behaviour brought."""


class Specs(msgspec.Struct, frozen=True, kw_only=True):
    """The object of one step; the others are None."""

    wait: WaitSpec | None = None
    approval: ApprovalSpec | None = None
    human_loop: HumanLoopSpec | None = None
    race: RaceSpec | None = None
    event_set: EventSetSpec | None = None
    digest: DigestSpec | None = None


def compiled(written: StepDefinition, path: Path, texts: Texts, before: Reachable) -> Specs:
    """The manifest's form of what a step says about its own type. `before`: the refs of its ancestors."""
    reader = Reader(texts, before)
    match written.type:
        case StepType.WAIT if written.wait is not None:
            return Specs(wait=_wait(written.wait, (*path, "wait"), reader))
        case StepType.APPROVAL:
            return Specs(approval=_approval(written.approval or Approval()))
        case StepType.HUMAN_LOOP if written.human_loop is not None:
            return Specs(human_loop=_human_loop(written.human_loop))
        case StepType.RACE:
            return Specs(race=RaceSpec(losers=(written.race or Race()).losers or RaceLosers.CANCEL))
        case StepType.EVENT_SET if written.event_set is not None:
            return Specs(event_set=_event_set(written.event_set, (*path, "event_set"), reader))
        case StepType.DIGEST if written.digest is not None:
            return Specs(digest=_digest(written.digest, (*path, "digest"), reader))
    return Specs()


def _wait(written: Wait, path: Path, read: Reader) -> WaitSpec:
    event = written.event
    pattern = None
    if event is not None:
        here = (*path, "event")
        pattern = EventPattern(
            event_name=read.template(event.event_name, (*here, "event_name")) or Template(),
            correlation_key=read.value(event.correlation_key, (*here, "correlation_key")),
        )
    return WaitSpec(
        duration=read.template(written.duration, (*path, "duration")),
        timestamp=read.template(written.timestamp, (*path, "timestamp")),
        cron=written.cron or "",
        timezone=_same(written.timezone, "UTC"),
        until=read.condition(written.until_expr, (*path, "until_expr")),
        event=pattern,
        signal=written.signal or "",
        timeout_ms=written.timeout_ms,
        on_timeout=_on_timeout(written.on_timeout),
    )


def _approval(written: Approval) -> ApprovalSpec:
    return ApprovalSpec(
        timeout_ms=written.timeout_ms,
        on_timeout=_on_timeout(written.on_timeout),
        required=written.required or 1,
        groups=tuple(written.groups or ()),
        allow_self=written.allow_self is not False,
    )


def _human_loop(written: HumanLoop) -> HumanLoopSpec:
    return HumanLoopSpec(
        case_type=written.case_type,
        awaiting_status=_same(written.awaiting_status, "resolved"),
        timeout_ms=written.timeout_ms,
        on_timeout=_on_timeout(written.on_timeout),
    )


def _event_set(written: EventSet, path: Path, read: Reader) -> EventSetSpec:
    requirements = []
    for number, requirement in enumerate(written.requirements):
        here = (*path, "requirements", number)
        requirements.append(
            Requirement(
                name=requirement.name,
                event_name=read.template(requirement.event_name, (*here, "event_name")) or Template(),
                filter=read.condition(requirement.filter, (*here, "filter"), Site.EVENT_WAIT),
            )
        )
    return EventSetSpec(
        correlation_key=read.value(written.correlation_key, (*path, "correlation_key")) or UNSOUND,
        requirements=tuple(requirements),
        completion_policy=written.completion_policy or CompletionPolicy.ALL_REQUIRED,
        quorum=written.quorum or 0,
        count=written.count or 0,
        min=written.min or 0,
        timeout_ms=written.timeout_ms,
        on_timeout=_on_timeout(written.on_timeout),
    )


def _digest(written: Digest, path: Path, read: Reader) -> DigestSpec:
    return DigestSpec(
        digest_key=read.value(written.digest_key, (*path, "digest_key")) or UNSOUND,
        mode=written.mode or DigestMode.REGULAR,
        window_ms=written.window_ms or 0,
        look_back_ms=written.look_back_ms or 0,
        cron=written.cron or "",
        timezone=_same(written.timezone, "UTC"),
        max_events=written.max_events or 0,
        dedupe_key=read.value(written.dedupe_key, (*path, "dedupe_key")),
    )


def _on_timeout(written: str | None) -> OnTimeout:
    return OnTimeout(written) if written is not None else OnTimeout.FAIL


def _same(written: str | None, default: str) -> str:
    """A default that is written out is the default: it is left out of the manifest only as the same object."""
    return intern(written or default)
