"""`event_set`: the run goes on when a set of external events that carry one key is complete (ruling E4).

What completes it is its policy. `all_required`, `any` and `quorum` count requirements: the first event that meets one counts for it, further ones change
nothing. `count` and `until_timeout` count events: each once, however many requirements it meets. Once it is complete, or its time is over, it never ends a
second time: what comes later is put away.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace

from ductord.engine import events_wait, faults, waiting
from ductord.engine.errors import EngineError
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.effects import Subscription, TakeReceipts
from ductord.model.enums import CompletionPolicy, OnTimeout, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.events import EventsReceived
from ductord.model.fault import Fault
from ductord.model.inbox import Receipt
from ductord.model.run import Received, Waiting
from ductord.model.specs import EventSetSpec

TIMEOUT: Final = "timeout"
"""`satisfied_by` of a set that its time-out ended by `continue`."""
MAX_EVENTS: Final = 10_000
"""The most events that a set holds: as many as `count` may ask for. A set that collects more fails, rather than leaving some out silently."""

_BY_REQUIREMENT: Final = frozenset({CompletionPolicy.ALL_REQUIRED, CompletionPolicy.ANY, CompletionPolicy.QUORUM})


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The key, and one pattern per requirement."""

    correlation_key: str
    subscriptions: tuple[Subscription, ...]


def prepare(tick: Tick, index: int) -> _Prepared:
    """Evaluate the key and the names. Raises `ExpressionError`, also with the code `wait_invalid`."""
    spec = _spec(tick, index)
    key = events_wait.correlation_key(tick, spec.correlation_key)
    patterns = tuple(
        Subscription(
            event_name=events_wait.event_name(tick, requirement.event_name),
            correlation_key=key,
            requirement=requirement.name,
            filter=requirement.filter.source if requirement.filter is not None else "",
        )
        for requirement in spec.requirements
    )
    return _Prepared(correlation_key=key, subscriptions=patterns)


def start(tick: Tick, index: int, prepared: _Prepared) -> None:
    """Park the node. Its time runs from here, whatever comes."""
    spec = _spec(tick, index)
    names = {pattern.event_name for pattern in prepared.subscriptions}
    wait = Waiting(
        type=WaitingType.EVENT_SET,
        since=tick.now,
        timeout_time=tick.after(spec.timeout_ms) if spec.timeout_ms is not None else None,
        event_name=names.pop() if len(names) == 1 else "",
        correlation_key=prepared.correlation_key,
    )
    waiting.park(tick, index, wait, prepared.subscriptions)


def on_receipts(tick: Tick, index: int, receipts: Sequence[Receipt]) -> None:
    """Events have come, in their order: those that count are kept until the set is complete."""
    spec, before = _spec(tick, index), waiting.of(tick, index).received
    tally = _Tally(spec, before)
    if tally.complete:
        return  # Its end waits for payloads in this very tick.
    new: list[Received] = []
    for _, same in groupby(receipts, key=_event):
        new += tally.counted(same)
        if tally.complete or tally.full:
            break
    step, attempt = tick.manifest.steps[index], tick.work.nodes[index].attempt
    ids = tuple(dict.fromkeys(receipt.event_id for receipt in receipts))
    tick.do(TakeReceipts(step_ref=step.ref, attempt=attempt, event_ids=ids))
    if new:
        tick.emit(EventsReceived(step_ref=step.ref, received=tuple(new)))
    if tally.complete:
        _succeed(tick, index, spec.completion_policy)
    elif tally.full:
        message = f"more than {MAX_EVENTS:,} events came before the time-out"
        waiting.fail(tick, index, Fault(code=faults.EVENT_SET_FULL, message=message))


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """The time is over: a set that collects until then has what it has, any other one follows its `on_timeout`."""
    spec = _spec(tick, index)
    tally = _Tally(spec, waiting.of(tick, index).received)
    if tally.complete:
        return  # Its end waits for payloads in this very tick.
    if tally.enough:
        _succeed(tick, index, spec.completion_policy)
    elif spec.on_timeout is OnTimeout.CONTINUE:
        _succeed(tick, index, TIMEOUT)
    else:
        message = f"the set was not complete within timeout_ms {spec.timeout_ms}: {tally.stand}"
        waiting.on_timeout(tick, index, spec.on_timeout, Fault(code=faults.WAIT_TIMEOUT, message=message), None)


class _Tally:
    """What a set has, against what its policy asks for."""

    def __init__(self, spec: EventSetSpec, received: Iterable[Received]) -> None:
        self._spec = spec
        self._by_requirement = spec.completion_policy in _BY_REQUIREMENT
        self._events = set[tuple[str, str]]()
        self._met = set[str]()
        for one in received:
            self._add(one)

    def counted(self, receipts: Iterable[Receipt]) -> list[Received]:
        """Of the receipts of one event those that count. It is counted as a whole: it may meet several requirements."""
        known = frozenset(self._met)
        new: list[Received] = []
        for receipt in receipts:
            old = receipt.requirement in known if self._by_requirement else _event(receipt) in self._events
            if not old:
                new.append(events_wait.received(receipt))
        for one in new:
            self._add(one)
        return new

    @property
    def complete(self) -> bool:
        """Whether nothing more has to come."""
        match self._spec.completion_policy:
            case CompletionPolicy.ALL_REQUIRED:
                return len(self._met) == len(self._spec.requirements)
            case CompletionPolicy.ANY:
                return bool(self._met)
            case CompletionPolicy.QUORUM:
                return len(self._met) >= self._spec.quorum
            case CompletionPolicy.COUNT:
                return len(self._events) >= self._spec.count
            case CompletionPolicy.UNTIL_TIMEOUT:
                return False

    @property
    def enough(self) -> bool:
        """Whether the set is complete now that its time is over."""
        return self._spec.completion_policy is CompletionPolicy.UNTIL_TIMEOUT and len(self._events) >= self._spec.min

    @property
    def full(self) -> bool:
        """Whether the set holds more than it can."""
        return len(self._events) > MAX_EVENTS

    @property
    def stand(self) -> str:
        """How far the set has come, in words."""
        match self._spec.completion_policy:
            case CompletionPolicy.COUNT:
                return f"{len(self._events)} of {self._spec.count} events"
            case CompletionPolicy.UNTIL_TIMEOUT:
                return f"{len(self._events)} of at least {self._spec.min} events"
            case CompletionPolicy.QUORUM:
                return f"{len(self._met)} of {self._spec.quorum} requirements"
            case CompletionPolicy.ANY:
                return "no event"
            case CompletionPolicy.ALL_REQUIRED:
                missing = [r.name for r in self._spec.requirements if r.name not in self._met]
                return f"missing {', '.join(missing)}"

    def _add(self, one: Received) -> None:
        self._events.add((one.event_name, one.event_id))
        self._met.add(one.requirement)


def _succeed(tick: Tick, index: int, satisfied_by: str) -> None:
    events = [events_wait.shown(tick, index, received) for received in waiting.of(tick, index).received]
    if tick.missing_payloads:
        return
    try:
        waiting.succeed(tick, index, {"satisfied_by": satisfied_by, "events": events})
    except PayloadInvalid as error:
        waiting.fail(tick, index, faults.of_payload(error))


def _event(receipt: Receipt) -> tuple[str, str]:
    return receipt.event_name, receipt.event_id


def _spec(tick: Tick, index: int) -> EventSetSpec:
    step = tick.manifest.steps[index]
    if step.event_set is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} waits for no events")
    return step.event_set


KIND = replace(PARKED, prepare=prepare, start=start, on_timer=on_timer, on_receipts=on_receipts)
