"""Recording reports and renewing leases: typed functions over the statements that change a held lease.

First writer wins and the database judges (ruling A4). A batch is one statement; what it does not take is told apart by a second one, so that the
common case costs one round trip. A report that the database cannot store fails its own attempt, never the batch.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec

from ductord.db.pool import OnRetry, retrying
from ductord.dispatch.leases import SQL
from ductord.dispatch.reports import KeyedReport, refused_payload
from ductord.dispatch.token import LeaseKey
from ductord.model.enums import Outcome
from ductord.model.errors import PayloadInvalid


class Verdict(StrEnum):
    """What became of a report."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It says again what was accepted before."""
    TIMED_OUT = "timed_out"
    """It came after the attempt's deadline and before the sweep: the attempt is `timed_out`, the report is kept as stale (A3)."""
    STALE = "stale"
    """The lease is somebody else's or the attempt is closed; the first such report is kept (A4, RT-02)."""


class Settled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one report. `report` is what was really recorded. `ran_ms`: from lease to report, for an accepted one."""

    verdict: Verdict
    report: KeyedReport
    ran_ms: int | None = None


class Recorded(NamedTuple):
    """The answers to a batch of reports, one each in no particular order, and the database time."""

    settled: list[Settled]
    now: datetime


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat; `details` is checked JSON text."""

    number: int
    key: LeaseKey
    details: str | None = None


_COLUMNS: Final = 15


class Outcomes:
    """The statements over one pool."""

    def __init__(self, pool: asyncpg.Pool, *, lease_ms: int, on_retry: OnRetry | None = None) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._lease_ms = lease_ms

    async def complete(self, reports: Sequence[KeyedReport]) -> Recorded:
        """Record reports and wake their runs, in one transaction."""
        ordered = sorted(reports, key=lambda report: report.key)
        try:
            settled, now = await self._accept(ordered)
        except asyncpg.DataError as error:
            return await self._without_culprit(ordered, error)
        done = {each.report.number for each in settled}
        rest = [report for report in ordered if report.number not in done]
        if rest:
            late, settle_time = await self._settle(rest)
            settled += late
            now = settle_time or now
        return Recorded(settled, now)

    async def heartbeat(self, beats: Sequence[Beat]) -> tuple[dict[int, bool], datetime]:
        """Renew leases (A5): number → whether the worker is to stop, and the database time. A number that is missing has lost its lease."""
        latest: dict[LeaseKey, str | None] = {}
        # An update takes a row once: beats of one lease in one batch are one beat, with the last details.
        for beat in beats:
            latest[beat.key] = beat.details if beat.details is not None else latest.get(beat.key)
        keys = sorted(latest)
        columns = [list(column) for column in zip(*((n, *key, latest[key]) for n, key in enumerate(keys)), strict=True)]
        found = await self._fetch("heartbeat", *(columns or [[] for _ in range(9)]), self._lease_ms)
        held = {keys[row["number"]]: row["cancel"] for row in found}
        answers = {beat.number: held[beat.key] for beat in beats if beat.key in held}
        return answers, found[0]["now"] if found else await self._now()

    async def _accept(self, reports: Sequence[KeyedReport]) -> tuple[list[Settled], datetime]:
        rows = [
            (*key, r.outcome.value, r.output, r.output_size, r.output_hash, r.error_code, r.error_message, r.non_retryable or None,
             r.retry_after_ms)
            for key, r in ((each.key, each.report) for each in reports)
        ]  # fmt: skip
        columns = [_column(values) for values in zip(*rows, strict=True)] or [[] for _ in range(_COLUMNS)]
        head, *accepted = await self._fetch("complete", *columns)
        return [_accepted(reports[place - 1], outcome, ran_ms) for place, outcome, ran_ms, _ in accepted], head["now"]

    async def _settle(self, reports: Sequence[KeyedReport]) -> tuple[list[Settled], datetime | None]:
        rows = [
            (r.number, *r.key, r.report.outcome.value, r.report.output, r.report.output_hash, r.report.error_code, r.report.error_message)
            for r in reports
        ]  # fmt: skip
        columns = [list(column) for column in zip(*rows, strict=True)]
        found = await self._fetch("settle", *columns)
        repeated = {row["number"] for row in found if row["repeated"]}
        verdicts = [Verdict.REPEATED if report.number in repeated else Verdict.STALE for report in reports]
        settled = [Settled(verdict=verdict, report=report) for verdict, report in zip(verdicts, reports, strict=True)]
        return settled, found[0]["now"] if found else None

    async def _without_culprit(self, reports: Sequence[KeyedReport], error: asyncpg.DataError) -> Recorded:
        """The checks let something through that Postgres does not take: halve the batch until it stands alone, and fail its attempt."""
        if len(reports) > 1:
            middle = len(reports) // 2
            left, _ = await self.complete(reports[:middle])
            right, now = await self.complete(reports[middle:])
            return Recorded(left + right, now)
        refusal = PayloadInvalid("not_json", "output", f"output cannot be stored (SQLSTATE {error.sqlstate})")
        return await self.complete([msgspec.structs.replace(reports[0], report=refused_payload(refusal))])

    async def _fetch(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, which is its own transaction, again where it failed for a passing reason: first writer wins, also against itself."""
        rows: list[asyncpg.Record] = await retrying(
            lambda: self._pool.fetch(SQL[name], *arguments), on_retry=self._on_retry
        )
        return rows

    async def _now(self) -> datetime:
        now: datetime = await self._pool.fetchval(SQL["now"])
        return now


def _column(values: Sequence[Any]) -> Sequence[Any]:
    """What is null throughout costs nothing when it is left out."""
    return [] if values.count(None) == len(values) else values


def _accepted(report: KeyedReport, outcome: str, ran_ms: int | None) -> Settled:
    verdict = Verdict.ACCEPTED if outcome == report.report.outcome else Verdict.TIMED_OUT
    return Settled(verdict=verdict, report=report, ran_ms=ran_ms)


def outcome_counted(settled: Settled) -> str:
    """The label under which a report is counted: its outcome where it counted, else why it did not."""
    if settled.verdict is Verdict.ACCEPTED:
        return settled.report.report.outcome.value
    return Outcome.TIMED_OUT.value if settled.verdict is Verdict.TIMED_OUT else settled.verdict.value
