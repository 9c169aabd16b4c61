"""A signal becomes durable: one short transaction that looks up its name, judges the step as it stands, and inserts signal and wake-up (E1).

The answers come in this order: an unknown run or step is NOT_FOUND; a known request id is accepted; a step that has been resolved is accepted, and the
signal changes nothing; a run that has ended is refused. The tick judges again, since the run may move on before it comes. Nothing here waits for a
coordinator. The transaction may be repeated as a whole: the name is made before it, so a commit whose outcome was unknown is found again.
"""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.runs import Row, Versions
from ductord.engine.signals import cut_off
from ductord.engine.steps.approval import approver_of, own
from ductord.model.enums import NodeStatus, SignalVerb, SkipReason, StepType
from ductord.model.errors import Refusal
from ductord.model.manifest import Step
from ductord.model.run import Node, Run
from ductord.rpc.caller import Caller
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.runs import run_not_found, step_of
from ductord.signals.asked import Word

MAX_KEPT: Final = 100
"""Signals of one run that no step has consumed (E1)."""
_OUR_NAMES: Final = ("key:", "event:", "schedule:", "system:")
"""How actors begin that are no people."""

_q: Final = Queries("ductord.signals")


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells, in which call (C8). `approver_id`: in whose name. `groups`: those that the caller's credential names. `objection`: why the caller may not name
    whom the body names; empty if it may."""

    tenant_id: str
    actor: str
    call_id: str
    approver_id: str
    groups: tuple[str, ...] = ()
    objection: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that is durable: `kept`, `repeated`, or `ignored` as its step has been resolved. `now` is the database's time of the look."""

    result: str
    now: datetime


async def tell(pool: asyncpg.Pool, versions: Versions, who: Who, word: Word, on_retry: OnRetry | None = None) -> Told:
    """Record a signal, or find it recorded.

    Raises RUN_NOT_FOUND, STEP_NOT_FOUND, REQUEST_MISMATCH, SIGNAL_UNSUITED, FIELD_INVALID, RUN_TERMINAL, APPROVER_NOT_ALLOWED, TOO_MANY_SIGNALS.
    """

    async def attempt() -> Told:
        async with tenant_transaction(pool, who.tenant_id) as db:
            await db.execute(_q["lock_signals"], word.run_id)
            row = await db.fetchrow(_q["load_for_signal"], who.tenant_id, word.run_id, word.request_id)
            if row is None:
                raise run_not_found()
            manifest, run = await versions.run(db, who.tenant_id, word.run_id, row)
            index, step = step_of(manifest, word.step_ref)
            if _known(row, who, word):
                return Told(result="repeated", now=row["now"])
            _refuse_unsuited(step, word)
            values = _values(who, word)
            if run is not None and run.nodes and resolved(run, run.nodes[index]):
                await db.execute(_q["insert_ignored"], *values, "the step had ended")
                return Told(result="ignored", now=row["now"])
            if run is not None and run.status.terminal:
                raise _terminal(run)
            _refuse_stranger(step, who, word, row["actor"])
            if row["kept"] >= MAX_KEPT:
                message = f"the run keeps {row['kept']} signals that no step has consumed yet; try again when some are"
                raise refused("TOO_MANY_SIGNALS", message, retry_after_ms=1_000, limit=MAX_KEPT)
            await db.execute(_q["insert_kept"], *values, word.payload.text)
            return Told(result="kept", now=row["now"])

    return await retrying(attempt, on_retry=on_retry)


def told_by(call: Caller, word: Word) -> Who:
    """Who tells. With authentication off the body says in whose name; else it is the caller, who may name others where its key says so, no keys (E2)."""
    name, objection = word.approver_id, ""
    if call.authenticated:
        if name in ("", call.actor):
            name = call.actor
        elif not call.acts_for_others:
            objection = "the key speaks in its own name only: name nobody, or use a key that acts for others"
        elif name.strip().casefold().startswith(_OUR_NAMES):
            objection = (
                f"a key that acts for others names people, whose names do not begin with {', '.join(_OUR_NAMES)}"
            )
    return Who(
        tenant_id=call.tenant,
        actor=call.actor,
        call_id=call.request_id,
        approver_id=call.actor if objection else name,
        groups=call.groups,
        objection=objection,
    )


def resolved(run: Run, node: Node) -> bool:
    """Whether nothing that a step is told can matter any more, in a run that goes on or has ended. A step that only the stop of its run has cut off, or that a
    run which has ended never came to, was not resolved: what it is told goes on to a successor, or its teller has to hear that the run has ended."""
    if not node.status.terminal or (run.stop is not None and cut_off(node)):
        return False
    if run.status.terminal and node.status is NodeStatus.SKIPPED:
        return node.skip_reason is SkipReason.TIMEOUT
    return not run.status.terminal or node.status is not NodeStatus.CANCELLED


def _known(row: Row, who: Who, word: Word) -> bool:
    if row["known_verb"] is None:
        return False
    # Two who say the same are two all the same.
    if row["known_hash"] != word.body_hash or row["known_actor"] != who.actor:
        message = "the request_id was used on this run for another signal; give every signal a request_id of its own"
        raise refused("REQUEST_MISMATCH", message, request_id=word.request_id, verb=row["known_verb"])
    return True


def _refuse_unsuited(step: Step, word: Word) -> None:
    resolves = word.verb is SignalVerb.RESOLVE_INTERACTION
    suited = _takes_resolutions(step) if resolves else step.type is StepType.APPROVAL
    if not suited:
        what = "waits for no interaction" if resolves else f"is no approval: nobody can {word.verb} it"
        message = f"the step {step.ref} {what}"
        raise refused("SIGNAL_UNSUITED", message, step_ref=step.ref, step_type=step.type.value)
    if step.type is StepType.HUMAN_LOOP and not isinstance(word.payload.value, dict | None):
        raise field_invalid("payload", "is a JSON object: it is merged into the step's result")


def _takes_resolutions(step: Step) -> bool:
    return step.type is StepType.HUMAN_LOOP or (step.wait is not None and bool(step.wait.signal))


def _refuse_stranger(step: Step, who: Who, word: Word, starter: str) -> None:
    """E2: who may decide. Groups are those of a credential, so nobody is known to be in one while authentication is off."""
    if who.objection:
        raise refused("APPROVER_NOT_ALLOWED", who.objection, step_ref=step.ref)
    if word.verb is SignalVerb.RESOLVE_INTERACTION or step.approval is None:
        return
    groups = step.approval.groups
    if groups and not set(groups) & set(who.groups):
        message = f"the step {step.ref} is decided by members of certain groups, and the caller is not known to be one"
        raise refused("APPROVER_NOT_ALLOWED", message, step_ref=step.ref)
    if objection := own(step.approval, word.verb, approver_of(who.actor, who.approver_id), starter):
        raise refused("APPROVER_NOT_ALLOWED", f"the step {step.ref}: {objection}", step_ref=step.ref)


def _terminal(run: Run) -> Refusal:
    if not run.continued_to_run_id:
        return refused("RUN_TERMINAL", f"the run has ended: it is {run.status}", status=run.status.value)
    message = f"the run has been continued as {run.continued_to_run_id}"
    return refused("RUN_TERMINAL", message, status=run.status.value, continued_to_run_id=run.continued_to_run_id)


def _values(who: Who, word: Word) -> tuple[object, ...]:
    return (
        who.tenant_id,
        word.run_id,
        word.request_id,
        word.verb,
        word.step_ref,
        word.status,
        who.actor,
        who.approver_id,
        list(who.groups),
        word.comment,
        word.body_hash,
        who.call_id,
    )
