"""The commit's part about child runs: they are born, attached, told what to do, let go, and tell of their ends (rulings F5, C3 to C6).

Everything hangs on the versioned update of the run that decided it, in one transaction with it: no child without its parent's knowledge, and none that is
born after its parent was stopped (SW-01). A control goes one level down; the tick that applies it sends the next.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import asyncpg

from ductord.coordinator.decided import Decided, Effects, ids
from ductord.db.queries import Queries
from ductord.model.effects import Effect, SettleControl
from ductord.model.enums import RunStatus, Verb
from ductord.model.fan_effects import (
    AttachChildren,
    CloseChildren,
    ControlChildren,
    DetachChildren,
    PassChildOn,
    StartChildren,
    TakeChildren,
    TellCheckpoint,
    TellParent,
)
from ductord.model.fanout import ClosePolicy
from ductord.model.ids import control_id

SQL = Queries("ductord.coordinator", "children.sql")

_TELLING: Final = (TellCheckpoint, TellParent, PassChildOn)
_LEAVING: Final = (ControlChildren, DetachChildren, CloseChildren)
_EVERY_ATTEMPT: Final = 2**31 - 1
_CLOSED_BY: Final = {ClosePolicy.REQUEST_CANCEL: Verb.CANCEL, ClosePolicy.TERMINATE: Verb.TERMINATE}


async def write_children(connection: asyncpg.Connection, of: Effects, now: datetime) -> bool:
    """All effects about child runs, in this order: born, attached, controlled, let go, closed with their parent, telling, taken. Whether runs may have been
    woken."""
    kinds = (StartChildren, AttachChildren, *_LEAVING, *_TELLING, TakeChildren)
    if not any(kind in of for kind in kinds):
        return False
    if attached := of.get(AttachChildren):
        await _lock_attached(connection, attached)
    await _lock(connection, of)
    if births := of.get(StartChildren):
        await _start(connection, births, now)
    if attached:
        await _attach(connection, attached, now)
    await _leave(connection, of, now)
    await _tell(connection, of, now)
    if taken := [(d, run_id) for d, e in of.get(TakeChildren, ()) for run_id in e.run_ids]:
        await connection.execute(SQL["take_children"], *ids(taken), [run_id for _, run_id in taken], now)
    return True


async def _lock(connection: asyncpg.Connection, of: Effects) -> None:
    telling = [pair for kind in _TELLING for pair in of.get(kind, ())]
    leaving = {
        d.key: (d, None)
        for kind in (DetachChildren, CloseChildren)
        for d, e in of.get(kind, ())
        if isinstance(e, DetachChildren) or e.continued_to_run_id
    }
    if telling or leaving:
        await connection.execute(SQL["lock_children"], *ids(telling), *ids(leaving.values()))


async def _start(connection: asyncpg.Connection, births: list[tuple[Decided, StartChildren]], now: datetime) -> None:
    born = [(d, e, birth) for d, e in births for birth in e.births]
    await connection.execute(
        SQL["start_children"],
        *ids((d, None) for d, _, _ in born),
        [e.step_ref for _, e, _ in born],
        [birth.item_index for _, _, birth in born],
        [e.attempt for _, e, _ in born],
        [birth.run_id for _, _, birth in born],
        [birth.input_json for _, _, birth in born],
        [birth.due_time for _, _, birth in born],
        [e.family_slug for _, e, _ in born],
        [e.definition_id for _, e, _ in born],
        [e.version_id for _, e, _ in born],
        [e.version for _, e, _ in born],
        [e.tier for _, e, _ in born],
        [e.sync for _, e, _ in born],
        [e.checkpoint for _, e, _ in born],
        [e.close_policy for _, e, _ in born],
        now,
        [d.traceparent for d, _, _ in born],
    )


async def _lock_attached(connection: asyncpg.Connection, attached: list[tuple[Decided, AttachChildren]]) -> None:
    # Those that are to be redriven tell of their end again if they refuse.
    if runs := [(d.key[0], run_id) for d, e in attached if not e.redrive for _, run_id in e.children]:
        await connection.execute(SQL["lock_attached"], [tenant for tenant, _ in runs], [run_id for _, run_id in runs])


async def _attach(
    connection: asyncpg.Connection, attached: list[tuple[Decided, AttachChildren]], now: datetime
) -> None:
    rows = [(d, e, index, run_id) for d, e in attached for index, run_id in e.children]
    due_times = {
        (d.key, e.step_ref, index): due
        for d, e in attached
        if e.due_times
        for (index, _), due in zip(e.children, e.due_times, strict=True)
    }
    if not rows:
        return
    await connection.execute(
        SQL["attach_children"],
        *ids((d, None) for d, _, _, _ in rows),
        [e.step_ref for _, e, _, _ in rows],
        [index for _, _, index, _ in rows],
        [e.attempt for _, e, _, _ in rows],
        [run_id for _, _, _, run_id in rows],
        [e.from_run_id or d.key[1] for d, e, _, _ in rows],
        [e.checkpoint for _, e, _, _ in rows],
        [e.close_policy for _, e, _, _ in rows],
        now,
    )
    if asked := [(d, e, index, run_id) for d, e, index, run_id in rows if e.redrive]:
        await connection.execute(
            SQL["insert_controls"],
            [d.key[0] for d, _, _, _ in asked],
            [run_id for _, _, _, run_id in asked],
            [control_id(d.key[1], e.step_ref, Verb.REDRIVE, e.request_id) for d, e, _, _ in asked],
            [Verb.REDRIVE for _ in asked],
            ["its parent run is redriven" for _ in asked],
            [f"run:{d.key[1]}" for d, _, _, _ in asked],
            now,
            [due_times.get((d.key, e.step_ref, index)) for d, e, index, _ in asked],
        )
    if rest := [(d, e, index) for d, e, index, _ in rows if not e.redrive]:
        await connection.execute(
            SQL["tell_ended"],
            *ids((d, None) for d, _, _ in rest),
            [e.step_ref for _, e, _ in rest],
            [index for _, _, index in rest],
            [e.attempt for _, e, _ in rest],
            now,
        )


async def _leave(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """Controls to nodes' children first; then what is let go; what then is left is closed with its parent."""
    await _control(
        connection,
        [
            (d, (e.step_ref, _born_later(d, e), "", control_id(d.key[1], e.step_ref, e.verb, e.key), e.verb, e.reason))
            for d, e in of.get(ControlChildren, ())
        ],
        now,
    )
    if detached := of.get(DetachChildren):
        await connection.execute(
            SQL["detach_children"],
            *ids(detached),
            [e.step_ref for _, e in detached],
            [_born_later(d, e) for d, e in detached],
        )
    closes: list[tuple[Decided, CloseChildren]] = of.get(CloseChildren, [])
    if handed := [(d, e) for d, e in closes if e.continued_to_run_id]:
        await connection.execute(SQL["hand_over_children"], *ids(handed), [e.continued_to_run_id for _, e in handed])
    await _control(connection, [(d, row) for d, e in closes for row in _closing(d, e)], now)


async def _control(
    connection: asyncpg.Connection, controls: list[tuple[Decided, tuple[Any, ...]]], now: datetime
) -> None:
    if controls:
        columns = [list(column) for column in zip(*(row for _, row in controls), strict=True)]
        await connection.execute(SQL["control_children"], *ids(controls), *columns, now)


def _closing(d: Decided, effect: CloseChildren) -> Iterable[tuple[Any, ...]]:
    """What the end of a run sends to its open children, by their close policy."""
    seq = d.decision.run.seq if d.decision.run is not None else 0
    for policy, verb in _CLOSED_BY.items():
        if effect.status is RunStatus.TIMED_OUT and policy is ClosePolicy.REQUEST_CANCEL:
            continue
        request_id = control_id(d.key[1], "", verb, f"close:{seq}")
        yield "", _EVERY_ATTEMPT, policy, request_id, verb, f"its parent run ended: {effect.status}"


def _born_later(d: Decided, effect: ControlChildren | DetachChildren) -> int:
    """The attempt of the node from which on children are left alone: those that the same decision gives birth to or attaches after this effect."""
    effects: Iterable[Effect] = iter(d.decision.effects)
    for other in effects:
        if other is effect:
            break
    later = (
        other.attempt
        for other in effects
        if isinstance(other, StartChildren | AttachChildren) and other.step_ref == effect.step_ref
    )
    return min(later, default=_EVERY_ATTEMPT)


async def _tell(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    if checkpoints := of.get(TellCheckpoint):
        await connection.execute(
            SQL["tell_checkpoints"],
            *ids(checkpoints),
            [e.name for _, e in checkpoints],
            [e.status for _, e in checkpoints],
            now,
        )
    if ends := of.get(TellParent):
        settled = of.get(SettleControl, [])
        await connection.execute(
            SQL["tell_parents"],
            *ids(ends),
            [e.status for _, e in ends],
            [e.fault.code if e.fault else "" for _, e in ends],
            [e.fault.message if e.fault else "" for _, e in ends],
            now,
            [d.key[1] for d, _ in settled],
            [e.request_id for _, e in settled],
        )
    if passed := of.get(PassChildOn):
        await connection.execute(SQL["pass_children_on"], *ids(passed), [e.run_id for _, e in passed])
