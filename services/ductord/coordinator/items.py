"""The commit's part about inline children as a whole: frozen collections, asking all of a step to stop, closing all of a step, why one failed (rulings F1, F2).

What a single attempt of a child is, `attempts` writes. A step has up to 10,000 of them: nothing here names them one by one.
"""

from datetime import datetime

import asyncpg

from ductord.coordinator.decided import Decided, Effects, ids
from ductord.db.queries import Queries
from ductord.model.fan_effects import CancelItems, CloseItems, RecordItemFault, RecordItems

SQL = Queries("ductord.coordinator", "items.sql")


async def close_items(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """Verdicts over all open children of a step, and requests to stop: before anything new is queued for it."""
    if closes := of.get(CloseItems):
        await connection.execute(
            SQL["close_items"], *ids(closes), [e.step_ref for _, e in closes], [e.status for _, e in closes], now
        )
    if cancels := of.get(CancelItems):
        await connection.execute(SQL["cancel_items"], *ids(cancels), [e.step_ref for _, e in cancels], now)


async def record_items(connection: asyncpg.Connection, of: Effects, now: datetime) -> None:
    """Frozen collections, and what children failed of: after the verdicts over their attempts."""
    pages: list[tuple[Decided, RecordItems, int, str]] = [
        (d, e, number, text) for d, e in of.get(RecordItems, ()) for number, text in enumerate(e.pages)
    ]
    if pages:
        await connection.execute(
            SQL["record_items"],
            *ids((d, None) for d, _, _, _ in pages),
            [e.step_ref for _, e, _, _ in pages],
            [e.attempt for _, e, _, _ in pages],
            [number for _, _, number, _ in pages],
            [text for _, _, _, text in pages],
        )
    # The last word per row: an upsert takes one once.
    faults: list[tuple[Decided, RecordItemFault]] = of.get(RecordItemFault, [])
    if faults:
        faults = list({(d.key, e.step_ref, e.item_index, e.attempt): (d, e) for d, e in faults}.values())
        await connection.execute(
            SQL["record_item_faults"],
            *ids(faults),
            [e.step_ref for _, e in faults],
            [e.item_index for _, e in faults],
            [e.attempt for _, e in faults],
            [d.loaded.known.start.tier for d, _ in faults],
            [e.fault.code for _, e in faults],
            [e.fault.message for _, e in faults],
            now,
            [d.traceparent for d, _ in faults],
        )
