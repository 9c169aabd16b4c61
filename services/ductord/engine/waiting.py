"""Parking: what all steps have in common that wait for the outside world (rulings A3, C2, C3, E1 to E6).

A parked node has no attempt at work: its attempt's number names the wait, and its output, if it comes to one, is stored as that attempt's row. Whatever ends
the wait removes its timers and subscriptions in the same commit. What a type of step waits for is in its file under `steps`.
"""

from hashlib import sha256
from typing import Any

from ductord.engine import exits
from ductord.engine.tick import Again, Tick
from ductord.model import jsonvalue
from ductord.model.effects import ClearTimers, CloseWait, OpenWait, RecordOutput, SetTimer, Subscription
from ductord.model.enums import OnTimeout, Outcome, SkipReason, TimerKind
from ductord.model.events import NodeParked, WaitChanged
from ductord.model.fault import Fault, OutputRef
from ductord.model.run import Waiting
from ductord.model.specs import Timeouts


def park(tick: Tick, index: int, waiting: Waiting, subscriptions: tuple[Subscription, ...] = ()) -> None:
    """The node waits from now on: its timers are set and its subscriptions are open in the same commit."""
    ref = tick.manifest.steps[index].ref
    attempt = tick.work.nodes[index].attempt + 1
    tick.emit(NodeParked(step_ref=ref, attempt=attempt, waiting=waiting))
    tick.parked.append(index)
    for kind, due_time in ((TimerKind.WAIT, waiting.due_time), (TimerKind.WAIT_TIMEOUT, waiting.timeout_time)):
        if due_time is not None:
            tick.do(SetTimer(kind=kind, step_ref=ref, due_time=due_time))
    if subscriptions:
        tick.do(OpenWait(step_ref=ref, attempt=attempt, subscriptions=subscriptions))


def changed(tick: Tick, index: int, waiting: Waiting) -> None:
    """What the node waits for has come closer; a new moment gets its timer."""
    ref, before = tick.manifest.steps[index].ref, of(tick, index)
    tick.emit(WaitChanged(step_ref=ref, waiting=waiting))
    if waiting.due_time is not None and waiting.due_time != before.due_time:
        tick.do(SetTimer(kind=TimerKind.WAIT, step_ref=ref, due_time=waiting.due_time))


def leave(tick: Tick, index: int) -> None:
    """Remove the timers and subscriptions of the node's wait. Those that were to be made in this very tick are not made."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    waiting = of(tick, index)
    kinds = (TimerKind.WAIT, TimerKind.WAIT_TIMEOUT)
    opened = [
        e for e in tick.effects if isinstance(e, OpenWait) and (e.step_ref, e.attempt) == (step.ref, node.attempt)
    ]
    timers = [e for e in tick.effects if isinstance(e, SetTimer) and e.step_ref == step.ref and e.kind in kinds]
    if opened or timers:
        tick.effects = [e for e in tick.effects if e not in opened and e not in timers]
    for kind, due_time in ((TimerKind.WAIT, waiting.due_time), (TimerKind.WAIT_TIMEOUT, waiting.timeout_time)):
        if due_time is not None:
            tick.do(ClearTimers(step_ref=step.ref, kind=kind))
    if (waiting.event_name or step.event_set is not None) and not opened:
        tick.do(CloseWait(step_ref=step.ref, attempt=node.attempt))


def succeed(tick: Tick, index: int, output: Any) -> None:
    """The wait is over and the step succeeds with this output. Raises `PayloadInvalid` for one that cannot be carried (L7)."""
    step = tick.manifest.steps[index]
    reference = make(tick, index, output)
    leave(tick, index)
    exits.succeed(tick, index, reference)
    assert reference.attempt == tick.work.nodes[index].attempt, step.ref


def make(tick: Tick, index: int, output: Any) -> OutputRef:
    """Store the output of the step and let the rest of the tick read it."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    text = jsonvalue.encode(output, root="output", max_bytes=tick.limits.aggregate_max_bytes)
    tick.do(
        RecordOutput(
            step_ref=step.ref,
            attempt=node.attempt,
            action=step.type,
            output_json=text,
            begin_time=node.waiting.since if node.waiting is not None else node.first_time or tick.now,
        )
    )
    tick.make_output(step.ref, output)
    encoded = text.encode()
    return OutputRef(attempt=node.attempt, size=len(encoded), hash=sha256(encoded).hexdigest()[:16])


def succeed_at_once(tick: Tick, index: int, output: Any) -> None:
    """A step that has no work and need not wait succeeds where it would begin, with this output."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    text = jsonvalue.encode(output, root="output", max_bytes=tick.limits.aggregate_max_bytes)
    attempt = node.attempt + 1
    tick.do(RecordOutput(step_ref=step.ref, attempt=attempt, action=step.type, output_json=text, begin_time=tick.now))
    tick.make_output(step.ref, output)
    encoded = text.encode()
    exits.succeed(tick, index, OutputRef(attempt=attempt, size=len(encoded), hash=sha256(encoded).hexdigest()[:16]))


def fail(tick: Tick, index: int, fault: Fault) -> None:
    """The wait is over and the step fails."""
    leave(tick, index)
    exits.fail(tick, index, fault)


def skip(tick: Tick, index: int) -> None:
    """The wait is over by its time-out, which skips the step: only `done` fires (E2)."""
    leave(tick, index)
    exits.skip(tick, index, SkipReason.TIMEOUT)


def on_timeout(tick: Tick, index: int, policy: OnTimeout, fault: Fault, output: Any) -> None:
    """The wait's time-out acts by its policy: `fail` with the fault, `skip`, or `continue` with the output. An approval handles `approve` itself."""
    match policy:
        case OnTimeout.SKIP:
            skip(tick, index)
        case OnTimeout.CONTINUE | OnTimeout.APPROVE:
            succeed(tick, index, output)
        case OnTimeout.FAIL:
            fail(tick, index, fault)


def of(tick: Tick, index: int) -> Waiting:
    """What the node waits for."""
    waiting = tick.work.nodes[index].waiting
    assert waiting is not None
    return waiting


# What a wait means to controls: nobody is at work, so it ends at once, and what is held is held by the tick itself (C2, C3).


def again(tick: Tick, index: int, decided: Again) -> None:
    """A wait has no further attempts."""
    raise AssertionError(f"{tick.manifest.steps[index].ref} has no attempt to repeat")


def may_report(tick: Tick, index: int) -> bool:
    """Nobody is at work."""
    return False


def ask(tick: Tick, index: int) -> None:
    """Nobody can be asked."""


def drop(tick: Tick, index: int, outcome: Outcome) -> None:
    """The wait ends at once."""
    leave(tick, index)


def hold(tick: Tick, index: int) -> None:
    """What arrives and what comes due is held by the tick."""


def release(tick: Tick, index: int) -> None:
    """What was held is applied by the tick."""


def retime(tick: Tick, index: int, before: Timeouts) -> None:
    """The time-outs of attempts do not concern a wait."""


def reset(tick: Tick, index: int) -> None:
    """The wait ends; the node is about to park anew."""
    leave(tick, index)


# Of a type that ends where it would begin.


def nothing(tick: Tick, index: int) -> None:
    """There is nothing to prepare or to put away."""


def never(tick: Tick, index: int, *_: object) -> None:
    """A step that ends at once is never begun."""
    raise AssertionError(f"{tick.manifest.steps[index].ref} ends at once")
