"""`human_loop`: the run goes on when a case has reached the status that the step awaits (ruling E6).

The step opens a case, whose id is derived from run, step and wait. Every word about it moves it to a status, and its payload, an object, is laid over the
step's result, key by key. Payloads stay in the rows of their signals and are read once, at the end; the node's wait keeps only which signals there were, and
at most `MOST` of them, so that no case can make a run grow for ever.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ductord.engine import faults, waiting
from ductord.engine.errors import EngineError
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model import ids
from ductord.model.effects import SettleSignal
from ductord.model.enums import OnTimeout, SignalStatus, SignalVerb, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.inbox import Signal, signal_key
from ductord.model.run import Waiting
from ductord.model.specs import HumanLoopSpec

OPEN: Final = "open"
"""The status of a case that nobody has moved."""

RESOLVED: Final = "resolved"
"""The status that a word without one moves it to."""

MOST: Final = 50
"""How many words about one case count; the one that ends it always does."""


def prepare(tick: Tick, index: int) -> None:
    """There is nothing to evaluate."""


def start(tick: Tick, index: int, prepared: None) -> None:
    """Park the node and open its case."""
    spec, ref = _spec(tick, index), tick.manifest.steps[index].ref
    wait = Waiting(
        type=WaitingType.INTERACTION,
        since=tick.now,
        timeout_time=tick.after(spec.timeout_ms) if spec.timeout_ms is not None else None,
        case_id=ids.derived("case", tick.run_id, ref, tick.work.nodes[index].attempt + 1),
        case_status=OPEN,
    )
    waiting.park(tick, index, wait)


def on_signal(tick: Tick, index: int, signal: Signal) -> None:
    """Move the case. In the status that is awaited it is closed, and the step succeeds."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    if signal.verb is not SignalVerb.RESOLVE_INTERACTION:
        _ignore(tick, signal, "the step waits for its case, not for a decision")
        return
    status = signal.status or RESOLVED
    heard = (*wait.heard, signal.request_id)
    if status != spec.awaiting_status:
        if len(heard) > MOST:
            _ignore(tick, signal, f"{MOST} words about the case were said: only `{spec.awaiting_status}` ends it now")
            return
        waiting.changed(tick, index, replace(wait, case_status=status, heard=heard))
    elif not _close(tick, index, status, heard):
        return
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.APPLIED, decided=True))


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """The case took too long. An output that goes on with shows it as it stands."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    result = _result(tick, wait.heard if spec.on_timeout is OnTimeout.CONTINUE else ())
    if result is msgspec.UNSET:
        return
    message = f"the case is {wait.case_status} and not {spec.awaiting_status} within timeout_ms {spec.timeout_ms}"
    fault = Fault(code=faults.WAIT_TIMEOUT, message=message)
    try:
        waiting.on_timeout(tick, index, spec.on_timeout, fault, _output(wait, wait.case_status, result))
    except PayloadInvalid as error:
        waiting.fail(tick, index, faults.of_payload(error))


def _close(tick: Tick, index: int, status: str, heard: Iterable[str]) -> bool:
    """End the wait with what was said; False where that is still to be loaded."""
    wait, result = waiting.of(tick, index), _result(tick, heard)
    if result is msgspec.UNSET:
        return False
    try:
        waiting.succeed(tick, index, _output(wait, status, result))
    except PayloadInvalid as error:
        waiting.fail(tick, index, faults.of_payload(error))
    return True


def _result(tick: Tick, heard: Iterable[str]) -> Any:
    """All payloads in one; UNSET where some are still to be loaded, and asked for at once."""
    payloads = [tick.payload(signal_key(request_id)) for request_id in heard]
    if any(payload is msgspec.UNSET for payload in payloads):
        return msgspec.UNSET
    result: dict[str, Any] = {}
    for payload in payloads:
        result |= payload or {}  # the door lets objects and null in
    return result


def _output(wait: Waiting, status: str, result: Any) -> dict[str, Any]:
    return {"case_id": wait.case_id, "status": status, "result": result}


def _ignore(tick: Tick, signal: Signal, message: str) -> None:
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.IGNORED, message=message))


def _spec(tick: Tick, index: int) -> HumanLoopSpec:
    step = tick.manifest.steps[index]
    if step.human_loop is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is a human loop without a case")
    return step.human_loop


KIND = replace(PARKED, prepare=prepare, start=start, on_timer=on_timer, on_signal=on_signal)
