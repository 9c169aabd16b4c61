"""What the outside world has told runs: signals, receipts of external events, and their payloads, and those of a digest's arrivals, where a tick asks for
them. Reads only.

Rare: whether a run has any came along with its row. Payloads stay where they are until `decide` names them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from ductord.coordinator.facts import SQL, Facts, Keys
from ductord.coordinator.loaded import Loaded
from ductord.model.enums import NodeStatus, SignalVerb
from ductord.model.inbox import Arrival, Receipt, Signal, receipt_key, signal_key

_SIGNALS = 1_000
"""Far more than the door lets in for one run (E1)."""
_RECEIPTS = 10_000
"""How many events of one run a tick is shown."""

Payloads = dict[str, dict[str, Any]]
"""By run id and name of the payload."""

_Event = tuple[str, str, datetime]  # name, id, when it was received


async def load_signals(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add the signals that no step has consumed; the time of the newest."""
    rows = await connection.fetch(SQL["load_signals"], *keys, _SIGNALS)
    for row in rows:
        facts[row["run_id"]].signals.append(
            Signal(
                request_id=row["request_id"],
                verb=SignalVerb(row["verb"]),
                step_ref=row["step_ref"],
                create_time=row["create_time"],
                actor=row["actor"],
                approver_id=row["approver_id"],
                groups=tuple(row["groups"]),
                comment=row["comment"],
                status=row["case_status"],
            )
        )
    return [row["create_time"] for row in rows[-1:]]


async def load_receipts(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add the events that were received and not applied; the time of the newest."""
    rows = await connection.fetch(SQL["load_receipts"], *keys, _RECEIPTS)
    for row in rows:
        found = facts[row["run_id"]]
        found.crowded = found.crowded or row["last"]
        found.receipts.append(
            Receipt(
                step_ref=row["step_ref"],
                attempt=row["attempt"],
                event_id=row["event_id"],
                event_name=row["event_name"],
                time=row["receive_time"],
                requirement=row["requirement"],
            )
        )
    return [row["receive_time"] for row in rows[-1:]]


async def load_payloads(connection: asyncpg.Connection, wanted: Sequence[tuple[Loaded, frozenset[str]]]) -> Payloads:
    """The payloads of signals and events that ticks ask for by name. One whose row is gone is null."""
    payloads: Payloads = {loaded.known.start.run_id: dict.fromkeys(names) for loaded, names in wanted}
    said = [(x, request_id) for x, names in wanted for request_id in _signals(x) if signal_key(request_id) in names]
    heard = [(x, name, event) for x, names in wanted for name, event in _events(x).items() if name in names]
    if arrived := [(x, arrival) for x, names in wanted for arrival in _arrivals(x) if arrival.key in names]:
        runs = list({(loaded.known.start.tenant_id, arrival.run_id) for loaded, arrival in arrived})
        rows = await connection.fetch(SQL["load_inputs"], [tenant for tenant, _ in runs], [run for _, run in runs])
        inputs = {row["run_id"]: _value(row["input"]) for row in rows}
        for loaded, arrival in arrived:
            payloads[loaded.known.start.run_id][arrival.key] = inputs.get(arrival.run_id)
    if said:
        rows = await connection.fetch(
            SQL["load_signal_payloads"],
            [loaded.known.start.tenant_id for loaded, _ in said],
            [loaded.known.start.run_id for loaded, _ in said],
            [request_id for _, request_id in said],
        )
        texts = {(row["run_id"], row["request_id"]): row["payload"] for row in rows}
        for loaded, request_id in said:
            run_id = loaded.known.start.run_id
            payloads[run_id][signal_key(request_id)] = _value(texts.get((run_id, request_id)))
    if heard:
        places = list({(loaded.known.start.tenant_id, *event) for loaded, _, event in heard})
        rows = await connection.fetch(SQL["load_event_payloads"], *map(list, zip(*places, strict=True)))
        values = {tuple(row)[:4]: _value(row["payload"]) for row in rows}
        for loaded, name, event in heard:
            start = loaded.known.start
            payloads[start.run_id][name] = values.get((start.tenant_id, *event))
    return payloads


def _signals(loaded: Loaded) -> set[str]:
    """The signals whose payloads a tick of this run may ask for: those that it is shown, and those that moved a case which is still open."""
    nodes = loaded.known.run.nodes if loaded.known.run is not None else ()
    moved = (request_id for node in nodes if node.waiting is not None for request_id in node.waiting.heard)
    return {signal.request_id for signal in loaded.inbox.signals}.union(moved)


def _arrivals(loaded: Loaded) -> list[Arrival]:
    """The arrivals whose events a tick of this run may ask for."""
    return [arrival for fact in loaded.inbox.digests for arrival in fact.arrivals]


def _events(loaded: Loaded) -> dict[str, _Event]:
    """The events whose payloads a tick of this run may ask for: those that it is shown, and those that count for a wait already."""
    events = {receipt.key: (receipt.event_name, receipt.event_id, receipt.time) for receipt in loaded.inbox.receipts}
    run, compiled = loaded.known.run, loaded.compiled
    if run is not None and compiled is not None:
        for step, node in zip(compiled.manifest.steps, run.nodes, strict=True):
            if node.status is not NodeStatus.WAITING or node.waiting is None:
                continue
            for received in node.waiting.received:
                name = receipt_key(step.ref, node.attempt, received.event_name, received.event_id)
                events[name] = (received.event_name, received.event_id, received.time)
    return events


def _value(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
