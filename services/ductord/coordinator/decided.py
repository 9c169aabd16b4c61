"""A decision on its way to the database."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ductord.coordinator.loaded import Loaded
from ductord.model.decision import Decision
from ductord.model.effects import CloseAttempt, Effect, ForwardControl, QueueTask, SettleControl, TakeReceipts
from ductord.model.enums import RunStatus
from ductord.model.events import RunEnded
from ductord.model.fan_effects import CloseItems, StartChildren, TickAgain
from ductord.model.inbox import AttemptReport


class Decided(msgspec.Struct, kw_only=True):
    """A loaded run with its decision. `traceparent`: the trace context that its tasks carry.

    What follows from these is worked out once. `key`: (tenant id, run id). `kinds`: the classes of its effects. `unheard`: verdicts over attempts that nobody
    has reported on; only these can be overtaken by a worker. `ignored`: reports that the decision passed over.
    """

    loaded: Loaded
    decision: Decision
    traceparent: str = ""
    key: tuple[str, str] = ("", "")
    kinds: frozenset[type[Effect]] = frozenset()
    unheard: list[CloseAttempt] = []
    ignored: list[AttemptReport] = []

    def __post_init__(self) -> None:
        start = self.loaded.known.start
        self.key = start.tenant_id, start.run_id
        self.kinds = frozenset(map(type, self.decision.effects))
        closes = [e for e in self.decision.effects if type(e) is CloseAttempt]
        reports = self.loaded.inbox.reports
        if len(closes) != len(reports) or not all(map(_same, closes, reports)):
            closed, reported = {attempt_key(e) for e in closes}, {attempt_key(report) for report in reports}
            self.unheard = [e for e in closes if attempt_key(e) not in reported]
            self.ignored = [report for report in reports if attempt_key(report) not in closed]

    @property
    def was(self) -> RunStatus:
        """The status that the decision was made for."""
        run = self.loaded.known.run
        return RunStatus.PENDING if run is None else run.status

    @property
    def tasks(self) -> int:
        """How many tasks it queues."""
        return sum(type(effect) is QueueTask for effect in self.decision.effects) if QueueTask in self.kinds else 0

    @property
    def born(self) -> int:
        """How many child runs it gives birth to."""
        if StartChildren not in self.kinds:
            return 0
        return sum(len(effect.births) for effect in self.decision.effects if isinstance(effect, StartChildren))

    @property
    def sweeping(self) -> bool:
        """Whether it closes children without naming them: any report on one of them overtakes it."""
        return CloseItems in self.kinds

    @property
    def unfinished(self) -> bool:
        """True when the run has to be looked at again at once: it has received more than this tick was shown, or more reports or ends of children, it has
        children to begin, or it has controls that this tick was not shown, or that it left although it changed the run. (A run that is about to go on as a
        successor keeps some until its end, C6.)"""
        if self.loaded.beyond or TickAgain in self.kinds:
            return True
        if self.loaded.crowded and TakeReceipts in self.kinds:
            return True
        controls, run = self.loaded.inbox.controls, self.decision.run
        if not controls or run is None:
            return self.loaded.more
        continuing = not run.status.terminal and run.stop is not None and run.stop.continuation is not None
        settled = {e.request_id for e in self.decision.effects if isinstance(e, SettleControl | ForwardControl)}
        return self.loaded.more or (not continuing and any(c.request_id not in settled for c in controls))

    @property
    def ended(self) -> bool:
        """True when the run reaches its end in this tick."""
        run = self.decision.run
        if run is None or not run.status.terminal:
            return False
        return not self.was.terminal or any(isinstance(event, RunEnded) for event in self.decision.events)

    @property
    def reopened(self) -> bool:
        """True when a redrive takes the run up again in this tick."""
        return self.decision.run is not None and not self.decision.run.status.terminal and self.was.terminal


Effects = dict[type[Effect], list[tuple[Decided, Any]]]
"""The effects of a batch by class, each with the decision that it is of."""


def by_class(decided: Iterable[Decided]) -> Effects:
    """Sort the effects of decisions by class, in the order of the decisions."""
    of: Effects = {}
    for d in decided:
        for effect in d.decision.effects:
            of.setdefault(type(effect), []).append((d, effect))
    return of


def ids(pairs: Iterable[tuple[Decided, Any]]) -> tuple[list[str], list[str]]:
    """(tenant, run) columns."""
    keys = [d.key for d, _ in pairs]
    return [tenant for tenant, _ in keys], [run for _, run in keys]


def sparse(values: list[Any], default: Any = None) -> list[Any]:
    """A column of which the statement takes a null for `default`: empty where nothing else is in it, since `unnest` pads with nulls and asyncpg takes up to
    half a microsecond for an element."""
    return [] if values.count(default) == len(values) else values


def _same(close: CloseAttempt, report: AttemptReport) -> bool:
    """Whether a verdict is over the attempt that was reported on."""
    return (
        close.attempt == report.attempt
        and close.step_ref == report.step_ref
        and close.item_index == report.item_index
        and close.kind is report.kind
    )


def attempt_key(effect: Any) -> tuple[str, int, str, int]:
    """(step_ref, item_index, kind, attempt) of an effect or report that names an attempt."""
    return effect.step_ref, effect.item_index, effect.kind, effect.attempt
