"""Facts: what reached runs between two ticks, loaded for a whole batch at once. Reads only, and judges nothing.

Reports are looked for at every tick, by probes of a small index. Due timers, controls and late successes are rare, as is word from outside: whether a run has
any came along with its row. Which attempts a worker has taken is asked for only where a tick may end attempts that nobody has reported on.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.coordinator.cache import LARGE_BYTES
from ductord.db.queries import Queries
from ductord.model import control as controls
from ductord.model.control import Control
from ductord.model.enums import CheckpointStatus, Outcome, RunStatus, TaskKind, TimerKind, Verb
from ductord.model.fan import Item
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import AttemptReport, ChildFact, DigestFact, LateSuccess, Receipt, Signal, TimerDue

SQL = Queries("ductord.coordinator", "facts.sql")

_CONTROLS = 100
_CONTROLS_BYTES = 8 << 20
"""How many controls of one run a tick is shown, and about how large their bodies may be together: a flood of them must not fill the memory."""

SHOWN = 1_000
"""How many reports, and how many ended children, of one run a tick is shown at most: the oldest."""

Keys = tuple[list[str], list[str]]
"""Tenant ids and run ids of the runs asked about."""


class Facts(msgspec.Struct, kw_only=True):
    """What reached one run. `reports` with the texts of their outputs; UNSET where it is large: `decide` names it if an expression reads it. `more`: it has
    more controls than a tick is shown. `crowded`: it has received more events than that."""

    reports: list[tuple[AttemptReport, str | msgspec.UnsetType | None]] = []
    timers: list[TimerDue] = []
    controls: list[Control] = []
    lates: list[LateSuccess] = []
    signals: list[Signal] = []
    receipts: list[Receipt] = []
    digests: list[DigestFact] = []
    children: list[ChildFact] = []
    more: bool = False
    crowded: bool = False
    shown_until: datetime | None = None


async def load_reports(
    connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts], most: int | None
) -> list[datetime]:
    """Add the reports of attempts, the oldest, at most `most` of a run (None: all); the time of the newest."""
    rows = await connection.fetch(SQL["load_reports"], *keys, LARGE_BYTES, most)
    for row in rows:
        found = facts[row["run_id"]]
        found.reports.append(_report(row))
        if len(found.reports) == most:
            found.shown_until = row["report_time"]
    return [row["report_time"] for row in rows[-1:]]


async def load_children(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add what became of child runs and was not applied, the oldest; the time of the newest."""
    rows = await connection.fetch(SQL["load_children"], *keys, SHOWN)
    for row in rows:
        found = facts[row["run_id"]]
        found.children.append(
            ChildFact(
                step_ref=row["step_ref"],
                attempt=row["attempt"],
                item_index=row["item_index"],
                run_id=row["child_run_id"],
                time=row["end_time"],
                status=RunStatus(row["status"]) if row["status"] else None,
                checkpoint=CheckpointStatus(row["checkpoint_status"]) if row["checkpoint_status"] else None,
                fault=Fault(code=row["error_code"], message=row["error_message"]) if row["error_code"] else None,
            )
        )
        if len(found.children) == SHOWN:
            found.shown_until = min(found.shown_until or row["end_time"], row["end_time"])
    return [row["end_time"] for row in rows[-1:]]


async def load_controls(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add the controls that nobody has settled; the time of the newest."""
    rows = await connection.fetch(SQL["load_controls"], *keys, _CONTROLS, _CONTROLS_BYTES)
    for row in rows:
        found = facts[row["run_id"]]
        found.controls.append(
            Control(
                request_id=row["request_id"],
                verb=Verb(row["verb"]),
                create_time=row["create_time"],
                actor=row["actor"],
                reason=row["reason"],
                step_ref=row["step_ref"],
                body=controls.decode(row["body"]),
            )
        )
        found.more = row["pending"] > len(found.controls)
    return [row["create_time"] for row in rows[-1:]]


async def load_lates(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts]) -> list[datetime]:
    """Add the late successes that no tick has judged; the time of the newest."""
    rows = await connection.fetch(SQL["load_lates"], *keys)
    for row in rows:
        facts[row["run_id"]].lates.append(_late(row))
    return [row["stale_time"] for row in rows[-1:]]


async def load_timers(connection: asyncpg.Connection, keys: Keys, facts: dict[str, Facts], now: datetime) -> None:
    """Add the timers that are due by `now`; of a run that is not shown all that has come, those that are due before what it is not shown."""
    until = [now if (found := facts.get(run_id)) is None else found.shown_until or now for run_id in keys[1]]
    for row in await connection.fetch(SQL["load_timers"], *keys, until):
        facts[row["run_id"]].timers.append(_timer(row))


async def load_started(connection: asyncpg.Connection, keys: Keys) -> dict[str, frozenset[str]]:
    """Refs of the steps, by run id, whose open attempt a worker has taken."""
    started: dict[str, set[str]] = defaultdict(set)
    for row in await connection.fetch(SQL["load_started"], *keys):
        started[row["run_id"]].add(row["step_ref"])
    return {run_id: frozenset(refs) for run_id, refs in started.items()}


_OUTCOMES: Final[dict[str, Outcome]] = {outcome: outcome for outcome in Outcome}
_KINDS: Final[dict[str, TaskKind]] = {kind: kind for kind in TaskKind}
"""The words of the database, looked up: calling an enum costs ten times as much, and there is a report for every step."""

_item = msgspec.json.Decoder(Item)


def keys_of(rows: Sequence[asyncpg.Record]) -> Keys:
    """The runs of these rows."""
    return [row["tenant_id"] for row in rows], [row["run_id"] for row in rows]


def _report(row: asyncpg.Record) -> tuple[AttemptReport, str | msgspec.UnsetType | None]:
    outcome = _OUTCOMES[row["outcome"]]
    report = AttemptReport(
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        outcome=outcome,
        report_time=row["report_time"],
        kind=_KINDS[row["kind"]],
        item_index=row["item_index"],
        start_time=row["start_time"],
        output=OutputRef(attempt=row["attempt"], size=row["output_size"] or 0, hash=row["output_hash"] or "")
        if outcome is Outcome.SUCCEEDED
        else None,
        fault=Fault(code=row["error_code"], message=row["error_message"] or "") if row["error_code"] else None,
        non_retryable=row["non_retryable"],
        retry_after_ms=row["retry_after_ms"],
        item=_item.decode(row["item_state"]) if row["item_state"] is not None else None,
    )
    return report, msgspec.UNSET if row["output_left"] else row["output"]


def _timer(row: asyncpg.Record) -> TimerDue:
    return TimerDue(
        kind=TimerKind(row["kind"]), due_time=row["due_time"], step_ref=row["step_ref"], item_index=row["item_index"]
    )


def _late(row: asyncpg.Record) -> LateSuccess:
    return LateSuccess(
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        idempotency_key=row["idempotency_key"],
        report_time=row["stale_time"],
        output=OutputRef(attempt=row["attempt"], size=row["output_size"] or 0, hash=row["output_hash"] or ""),
        kind=TaskKind(row["kind"]),
        item_index=row["item_index"],
    )
