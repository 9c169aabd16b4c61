"""`approval`: the run goes on when people have decided (ruling E2).

The first committed decision wins: one reject, the last of the approvals that are required, or the time-out, which acts in the name of `system:timeout`.
Whatever is said later finds the step ended and is recorded as ignored; so is the word of somebody who may not decide, or has approved before. An approval
that is required beside others is kept in the node's wait, by who gave it; what it said beside that is not, but for the last one's.
"""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ductord.engine import exits, faults, moments, waiting
from ductord.engine.errors import EngineError
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.effects import RecordAudit, SettleSignal
from ductord.model.enums import OnTimeout, SignalStatus, SignalVerb, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.inbox import Signal
from ductord.model.jsonvalue import storable_text
from ductord.model.run import Vote, Waiting
from ductord.model.specs import ApprovalSpec

APPROVED: Final = "approved"
REJECTED: Final = "rejected"
BY_TIMEOUT: Final = "system:timeout"
"""In whose name a time-out approves."""

NOBODY: Final = "anonymous"
"""The actor of a call that nobody authenticated: its body says who decides."""


def prepare(tick: Tick, index: int) -> None:
    """There is nothing to evaluate."""


def start(tick: Tick, index: int, prepared: None) -> None:
    """Park the node until somebody decides."""
    spec = _spec(tick, index)
    timeout_time = tick.after(spec.timeout_ms) if spec.timeout_ms is not None else None
    waiting.park(tick, index, Waiting(type=WaitingType.APPROVAL, since=tick.now, timeout_time=timeout_time))


def on_signal(tick: Tick, index: int, signal: Signal) -> None:
    """Count a word: it decides, it is one of the approvals that are required, or it changes nothing."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    who = approver_of(signal.actor, signal.approver_id)
    objection = _objection(spec, wait, signal, who) or own(spec, signal.verb, who, tick.inbox.start.actor)
    if objection:
        tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.IGNORED, message=objection))
        return
    if signal.verb is SignalVerb.APPROVE and len(wait.votes) + 1 < spec.required:
        vote = Vote(approver_id=who, request_id=signal.request_id, time=signal.create_time)
        waiting.changed(tick, index, replace(wait, votes=(*wait.votes, vote)))
    else:
        payload = tick.payload(signal.key)
        if payload is msgspec.UNSET:
            return
        decision = APPROVED if signal.verb is SignalVerb.APPROVE else REJECTED
        _decide(tick, index, _output(decision, who, signal.create_time, signal.comment, payload))
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.APPLIED, decided=True))


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """Nobody decided in time: the policy does, and the books say so."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    ref, attempt = tick.manifest.steps[index].ref, tick.work.nodes[index].attempt
    so_far = f"{len(wait.votes)} of {spec.required} approved" if wait.votes else "nobody decided"
    message = f"{so_far} within timeout_ms {spec.timeout_ms}"
    note = f"step {ref}: {message}, so on_timeout {spec.on_timeout} acts"
    tick.do(RecordAudit(key=f"approval_timeout:{ref}:{attempt}", action="approval_timeout", message=note))
    if spec.on_timeout is OnTimeout.APPROVE:
        _decide(tick, index, _output(APPROVED, BY_TIMEOUT, wait.timeout_time or tick.now))
    else:
        waiting.on_timeout(tick, index, spec.on_timeout, Fault(code=faults.APPROVAL_TIMEOUT, message=message), None)


def approver_of(actor: str, approver_id: str) -> str:
    """Who decides: in whose name it was said, else the caller. Whether the caller may name somebody is judged where it is said (`signals.telling`)."""
    return approver_id or actor


def _objection(spec: ApprovalSpec, wait: Waiting, signal: Signal, who: str) -> str:
    """Why this word does not count; empty if it does."""
    if signal.verb not in (SignalVerb.APPROVE, SignalVerb.REJECT):
        return "the step waits to be approved or rejected"
    if spec.groups and not set(spec.groups) & set(signal.groups):
        return storable_text(f"{who} is in none of the groups that may decide")
    if signal.verb is SignalVerb.APPROVE and any(vote.approver_id == who for vote in wait.votes):
        return storable_text(f"{who} has approved before")
    return ""


def own(spec: ApprovalSpec, verb: SignalVerb, who: str, starter: str) -> str:
    """Why this is not theirs to approve (`allow_self: false`); empty if it is. Who does not say who they are may be just the one who started the run. A
    reject is open to everybody: one may think better of what one has asked for."""
    if spec.allow_self or verb is not SignalVerb.APPROVE or who not in (starter, NOBODY):
        return ""
    if who == NOBODY:
        return "whoever started the run must not approve it, so who approves has to say who they are"
    return storable_text(f"{who} started the run and must not approve it")


def _output(decision: str, who: str, at: datetime, comment: str = "", payload: Any = None) -> dict[str, Any]:
    return {
        "decision": decision,
        "approver_id": who,
        "comment": comment,
        "payload": payload,
        "decided_at": moments.written(at),
    }


def _decide(tick: Tick, index: int, output: dict[str, Any]) -> None:
    try:
        if output["decision"] == APPROVED:
            waiting.succeed(tick, index, output)
            return
        reference = waiting.make(tick, index, output)
    except PayloadInvalid as error:
        waiting.fail(tick, index, faults.of_payload(error))
        return
    waiting.leave(tick, index)
    message = storable_text(f"rejected by {output['approver_id']}")
    exits.reject(tick, index, Fault(code=faults.APPROVAL_REJECTED, message=message), reference)


def _spec(tick: Tick, index: int) -> ApprovalSpec:
    step = tick.manifest.steps[index]
    if step.approval is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is an approval without an approval")
    return step.approval


KIND = replace(PARKED, prepare=prepare, start=start, on_timer=on_timer, on_signal=on_signal)
