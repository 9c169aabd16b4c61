"""The commit's part about records: what became of controls and signals, the compensation ledger, the audit trail (rulings C1, C7, C8,
E1)."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import asyncpg
import msgspec
import orjson

from ductord.coordinator.decided import Decided, Effects, ids
from ductord.db.queries import Queries
from ductord.engine.graph import graph_of
from ductord.model.effects import ForwardControl, MoveSignals, RecordAudit, RecordInverse, SettleControl, SettleSignal
from ductord.model.enums import CompensationBlock, OperationStatus, SignalStatus
from ductord.model.ids import derived
from ductord.model.manifest import Manifest
from ductord.model.run import Inverse

SQL = Queries("ductord.coordinator", "records.sql")

_FORWARDED = "forwarded to the successor"


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the audit trail about something that the engine did by itself."""

    tenant_id: str
    run_id: str
    audit_id: str
    action: str
    detail: dict[str, Any]


async def write_records(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """Settle and forward controls and signals, and write the ledger and the trail."""
    settles = list(of.get(SettleControl, ()))
    if forwards := of.get(ForwardControl):
        await connection.execute(
            SQL["forward_controls"],
            *ids(forwards),
            [e.request_id for _, e in forwards],
            [e.run_id for _, e in forwards],
        )
        settles += [(d, _settled_by_forwarding(e)) for d, e in forwards]
    if settles:
        await connection.execute(
            SQL["settle_controls"],
            *ids(settles),
            [e.request_id for _, e in settles],
            [derived("audit", "control", d.key[1], e.request_id) for d, e in settles],
            [e.status for _, e in settles],
            [e.code for _, e in settles],
            [e.message for _, e in settles],
            [orjson.dumps(e.result).decode() for _, e in settles],
            now,
        )
    await _write_signals(connection, of, now)
    lines = [_audit_line(d, e) for d, e in of.get(RecordAudit, ())]
    if inverses := list(_last(of.get(RecordInverse, ()))):
        await _write_ledger(connection, inverses, now)
        lines += [_inverse_line(d, e) for d, e in inverses if e.entry.status.settled]
    if lines:
        await connection.execute(
            SQL["insert_audit"],
            [line.tenant_id for line in lines],
            [line.audit_id for line in lines],
            [line.action for line in lines],
            [f"run:{line.run_id}" for line in lines],
            ["" for _ in lines],
            [orjson.dumps(line.detail).decode() for line in lines],
            now,
        )


async def _write_signals(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    settles: list[tuple[Decided, SettleSignal]] = list(of.get(SettleSignal, ()))
    if moves := [(d, e.run_id, request_id) for d, e in of.get(MoveSignals, ()) for request_id in e.request_ids]:
        await connection.execute(
            SQL["forward_signals"],
            *ids((d, None) for d, _, _ in moves),
            [request_id for _, _, request_id in moves],
            [run_id for _, run_id, _ in moves],
        )
        settles += [
            (d, SettleSignal(request_id=request_id, status=SignalStatus.APPLIED, message=_FORWARDED))
            for d, _, request_id in moves
        ]
    if settles:
        await connection.execute(
            SQL["settle_signals"],
            *ids(settles),
            [e.request_id for _, e in settles],
            [derived("audit", "signal", d.key[1], e.request_id) for d, e in settles],
            [e.status for _, e in settles],
            [e.message for _, e in settles],
            [e.decided for _, e in settles],
            now,
        )


def _settled_by_forwarding(effect: ForwardControl) -> SettleControl:
    return SettleControl(
        request_id=effect.request_id,
        status=OperationStatus.APPLIED,
        message=_FORWARDED,
        result={"forwarded_to_run_id": effect.run_id},
    )


def _last(pairs: Iterable[tuple[Decided, RecordInverse]]) -> Iterable[tuple[Decided, RecordInverse]]:
    """The last word per position: an update takes a row once."""
    return {(d.key, e.position): (d, e) for d, e in pairs}.values()


async def _write_ledger(
    connection: asyncpg.Connection, inverses: list[tuple[Decided, RecordInverse]], now: datetime
) -> None:
    entries = [e.entry for _, e in inverses]
    await connection.execute(
        SQL["record_inverses"],
        *ids(inverses),
        [e.position for _, e in inverses],
        [d.loaded.known.start.family_slug for d, _ in inverses],
        [entry.step_ref for entry in entries],
        [entry.item_index for entry in entries],
        [entry.kind for entry in entries],
        [entry.block for entry in entries],
        [entry.number for entry in entries],
        [_action(d, e.entry) for d, e in inverses],
        [entry.status for entry in entries],
        [entry.attempt for entry in entries],
        [entry.source_attempt for entry in entries],
        [entry.source_run_id or None for entry in entries],
        [entry.fault.code if entry.fault else "" for entry in entries],
        [entry.fault.message if entry.fault else "" for entry in entries],
        now,
    )


def _action(d: Decided, entry: Inverse) -> str:
    assert d.loaded.compiled is not None
    return action_of(d.loaded.compiled.manifest, entry)


def action_of(manifest: Manifest, entry: Inverse) -> str:
    """The action of a ledger's entry; empty where the manifest has none (an entry that only says that a person must look)."""
    index = graph_of(manifest).index.get(entry.step_ref)
    blocks = manifest.steps[index].compensation if index is not None else None
    if blocks is None:
        return ""
    actions = {
        CompensationBlock.ON_FAILURE: blocks.on_failure,
        CompensationBlock.ON_CANCEL: blocks.on_cancel,
        CompensationBlock.FINALLY: blocks.final,
    }[entry.block]
    return actions[entry.number].action if entry.number < len(actions) else ""


def _audit_line(d: Decided, effect: RecordAudit) -> _Line:
    detail = {"message": effect.message} if effect.message else {}
    if effect.fault is not None:
        detail |= {"code": effect.fault.code, "error": effect.fault.message}
    tenant_id, run_id = d.key
    audit_id = derived("audit", "engine", run_id, effect.key)
    return _Line(tenant_id=tenant_id, run_id=run_id, audit_id=audit_id, action=effect.action, detail=detail)


def _inverse_line(d: Decided, effect: RecordInverse) -> _Line:
    tenant_id, run_id = d.key
    entry, run = effect.entry, d.decision.run
    detail: dict[str, Any] = {
        "position": effect.position,
        "step_ref": entry.step_ref,
        "block": entry.block,
        "action": _action(d, entry),
        "attempt": entry.attempt,
    }
    if entry.item_index >= 0:
        detail["item_index"] = entry.item_index
    if entry.fault is not None:
        detail |= {"code": entry.fault.code, "message": entry.fault.message}
    # An entry may be settled again, after a person had it tried anew: each time is a line of its own.
    seq = run.seq if run is not None else 0
    return _Line(
        tenant_id=tenant_id,
        run_id=run_id,
        audit_id=derived("audit", "inverse", run_id, effect.position, seq),
        action=f"compensation_{entry.status}",
        detail=detail,
    )
