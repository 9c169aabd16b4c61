"""`digest`: runs that carry one key are collected, and one of them goes on with the events of all (ruling E5).

The step asks to join and is told its place by the commit, which alone sees the other runs: it passes alone, or leads a window and goes on when that has
closed, or follows and is merged. Whatever else ends the wait takes the arrival back, so that its event is in no window any more.
"""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ductord.engine import exits, faults, moments, waiting
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.canonical import canonical
from ductord.model.effects import CloseDigest, FlushDigest, JoinDigest, LeaveDigest, TakeDigest
from ductord.model.enums import DigestMode, DigestPlace, Outcome, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.inbox import Arrival, DigestFact
from ductord.model.jsonvalue import MAX_KEY_BYTES
from ductord.model.run import Waiting
from ductord.model.specs import DigestSpec, Expression


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, as canonical JSON; of mode timed the tick that ends a window."""

    key: str
    dedupe: str
    tick_time: datetime | None


def prepare(tick: Tick, index: int) -> _Prepared:
    """Evaluate the keys. Raises `ExpressionError`, also with the code `wait_invalid`."""
    spec = _spec(tick, index)
    key = _key(tick, spec.digest_key)
    if not key:
        raise ExpressionError(
            spec.digest_key.source, "its value is null and cannot be a digest key", code=faults.WAIT_INVALID
        )
    return _Prepared(
        key=key,
        dedupe=_key(tick, spec.dedupe_key) if spec.dedupe_key is not None else "",
        tick_time=_tick_time(tick, spec) if spec.mode is DigestMode.TIMED else None,
    )


def start(tick: Tick, index: int, prepared: _Prepared) -> None:
    """Park the node and ask to join: this is when the run arrives, however long it has waited before (DG-03)."""
    spec = _spec(tick, index)
    waiting.park(tick, index, Waiting(type=WaitingType.DIGEST, since=tick.now))
    tick.do(
        JoinDigest(
            step_ref=tick.manifest.steps[index].ref,
            attempt=tick.work.nodes[index].attempt,
            key=prepared.key,
            mode=spec.mode,
            window_ms=spec.window_ms,
            look_back_ms=spec.look_back_ms,
            tick_time=prepared.tick_time,
            max_events=spec.max_events,
            dedupe=prepared.dedupe,
        )
    )


def on_digest(tick: Tick, index: int, fact: DigestFact) -> None:
    """The run has a place, or another one than before."""
    match fact.place:
        case DigestPlace.PASSES | DigestPlace.CLOSED:
            _go_on(tick, index, fact)
        case DigestPlace.LEADS | DigestPlace.FOLLOWS:
            leads = fact.place is DigestPlace.LEADS
            wait = waiting.of(tick, index)
            due = fact.due_time if leads else None
            after = replace(wait, window_id=fact.window_id, leads=leads, due_time=due)
            waiting.changed(tick, index, after)
        case DigestPlace.MERGED:
            raise AssertionError("a merged run ends as a whole")


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """The time of the window that the run leads is over: nobody joins it any more, and the commit tells who has."""
    step, attempt, wait = tick.manifest.steps[index], tick.work.nodes[index].attempt, waiting.of(tick, index)
    closed = any(
        fact.place is DigestPlace.CLOSED and (fact.step_ref, fact.attempt) == (step.ref, attempt)
        for fact in tick.inbox.digests
    )
    if wait.leads and not closed:
        tick.do(CloseDigest(step_ref=step.ref, attempt=attempt, window_id=wait.window_id))


def drop(tick: Tick, index: int, outcome: Outcome) -> None:
    """The wait ends at once, and the arrival is taken back; not that of a run that was merged."""
    _leave(tick, index)


def reset(tick: Tick, index: int) -> None:
    """The wait ends and its arrival is taken back; the node is about to arrive anew."""
    _leave(tick, index)


def _go_on(tick: Tick, index: int, fact: DigestFact) -> None:
    step = tick.manifest.steps[index]
    limit = tick.limits.aggregate_max_bytes
    if sum(arrival.size for arrival in fact.arrivals) > limit:
        _too_large(tick, index)
        return
    events = [_shown(tick, arrival) for arrival in fact.arrivals]
    if tick.missing_payloads:
        return
    if fact.place is DigestPlace.CLOSED:
        tick.do(FlushDigest(step_ref=step.ref, attempt=fact.attempt, window_id=fact.window_id))
    try:
        waiting.succeed(tick, index, {"count": len(events), "events": events})
    except PayloadInvalid:
        _too_large(tick, index)


def _shown(tick: Tick, arrival: Arrival) -> dict[str, Any]:
    payload = tick.payload(arrival.key)
    return {"run_id": arrival.run_id, "payload": payload, "arrived_at": moments.written(arrival.time)}


def _too_large(tick: Tick, index: int) -> None:
    """More than an output can carry (L7). The run takes its own event out of the window by its failure, and the next one leads: nobody else's is lost by it."""
    limit = tick.limits.aggregate_max_bytes
    tick.effects = [effect for effect in tick.effects if not isinstance(effect, FlushDigest)]
    _leave(tick, index)
    message = f"output is larger than the {limit:,} bytes that it may have"
    exits.fail(tick, index, Fault(code=faults.PAYLOAD_TOO_LARGE, message=message))


def _leave(tick: Tick, index: int) -> None:
    ref, attempt = tick.manifest.steps[index].ref, tick.work.nodes[index].attempt
    waiting.leave(tick, index)
    if TakeDigest(step_ref=ref, attempt=attempt, place=DigestPlace.MERGED) in tick.effects:
        return
    joined = [e for e in tick.effects if isinstance(e, JoinDigest) and (e.step_ref, e.attempt) == (ref, attempt)]
    if joined:
        tick.effects = [e for e in tick.effects if e not in joined]
    else:
        tick.do(LeaveDigest(step_ref=ref, attempt=attempt))


def _tick_time(tick: Tick, spec: DigestSpec) -> datetime:
    try:
        return moments.next_tick(spec.cron, spec.timezone, tick.now)
    except moments.MomentInvalid as error:
        raise ExpressionError(spec.cron, str(error), code=faults.WAIT_INVALID) from None


def _key(tick: Tick, expression: Expression) -> str:
    """The canonical JSON text of the value; empty for null. Raises `ExpressionError`."""
    value = tick.programs.value(expression, bindings(tick, expression))
    if value is None:
        return ""
    text = canonical(value)
    if len(text) > MAX_KEY_BYTES:
        message = f"its value is longer than {MAX_KEY_BYTES} bytes and cannot be a key"
        raise ExpressionError(expression.source, message, code=faults.WAIT_INVALID)
    return text.decode()


def _spec(tick: Tick, index: int) -> DigestSpec:
    step = tick.manifest.steps[index]
    if step.digest is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is no digest")
    return step.digest


KIND = replace(PARKED, prepare=prepare, start=start, drop=drop, reset=reset, on_timer=on_timer, on_digest=on_digest)
