"""ExportRun: everything that the decisions about a run were taken from, as the lines of a `model.recording.Recording`, page by page.

Lines come in a fixed order (the run, its transitions, attempts, controls, signals, received events, child runs and what they ran, outputs of other runs), each
section in the order of its key, and a token says which line was the last. What stands in a JSON column is passed on as it is: nothing is parsed, no digit is
lost, and a run of a newer release can be exported too. Facts are read after the transitions that were decided from them, so a run that goes on meanwhile is
recorded whole, up to some transition.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.db.queries import Queries
from ductord.model.control import Control
from ductord.model.enums import CheckpointStatus, OperationStatus, Outcome, RunStatus, SignalVerb, TaskKind, Verb
from ductord.model.fan import Workflow
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import Receipt, Signal
from ductord.model.jsonvalue import dumps, parse
from ductord.model.recording import (
    FORMAT,
    AttemptLine,
    ChildLine,
    ControlLine,
    Line,
    ReceiptLine,
    RunLine,
    SignalLine,
    SourceLine,
    TransitionLine,
    WorkflowLine,
    encode_line,
)
from ductord.model.run import RunStart
from ductord.model.starting import Origin
from ductord.reads.runs import expect_run
from ductord.rpc.config import Settings
from ductord.rpc.paging import Key, Page

_CHUNK: Final = 500
"""Rows read at a time."""
_CHUNK_BYTES: Final = 4 << 20
"""And about so many bytes of payloads."""
_q: Final = Queries("ductord.reads", "export.sql")
_START: Final = (
    "run_id", "definition_id", "version_id", "version", "family_slug", "create_time", "subject_type", "subject_id", "tier", "traceparent", "root_run_id",
    "parent_run_id", "nesting_depth", "journey_id", "actor", "continued_from_run_id", "reset_from_run_id", "reset_from_seq",
    "environment",
)  # fmt: skip

_origins: Final = msgspec.json.Decoder(Origin)

_Place = tuple[Key, ...]
"""The section of a line and its key in it."""
_BEGIN: Final[_Place] = (-1,)


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one kind. `first`: the key before every key. `rows`: some rows after a key, none when there are no more."""

    statement: str
    key: tuple[str, ...]
    first: _Place
    line: Callable[[asyncpg.Record], Line]

    async def rows(self, db: asyncpg.Connection, tenant_id: str, run_id: str, after: _Place) -> list[asyncpg.Record]:
        """The next rows of the section; empty at its end."""
        found: list[asyncpg.Record] = await db.fetch(
            _q[self.statement], tenant_id, run_id, *after, _CHUNK_BYTES, _CHUNK
        )
        return found


async def export_run(
    db: asyncpg.Connection, tenant_id: str, run_id: str, page: Page, settings: Settings
) -> tuple[str, str]:
    """One page of the recording and the next page's token. Raises RUN_NOT_FOUND."""
    await expect_run(db, tenant_id, run_id)
    written = 0
    place = _BEGIN
    if page.after is not None:
        *before, skip = page.after
        place, written = tuple(before), int(str(skip))
    texts: list[str] = []
    room = settings.reply_max_bytes
    async for at, line in _lines(db, tenant_id, run_id, place, settings):
        text = line[written:]
        size = len(text.encode())
        if size > room and texts:
            return "".join(texts), page.next_token((*place, 0))
        if size > room:  # larger than a page: it goes on in the next
            part = text[: max(room // 4, 1)]
            return part, page.next_token((*place, written + len(part)))
        texts.append(text)
        room -= size
        place, written = at, 0
    return "".join(texts), ""


async def _lines(
    db: asyncpg.Connection, tenant_id: str, run_id: str, after: _Place, settings: Settings
) -> AsyncIterator[tuple[_Place, str]]:
    """The lines after a place, each with its own."""
    begin = int(str(after[0]))
    if after == _BEGIN:
        row = await db.fetchrow(_q["export_run"], tenant_id, run_id)
        yield (0,), encode_line(_run_line(row, tenant_id, settings))
    for number, section in enumerate(_SECTIONS, start=1):
        if begin > number:
            continue
        key: _Place = after[1:] if begin == number else section.first
        while rows := await section.rows(db, tenant_id, run_id, key):
            for row in rows:
                key = tuple(row[name] for name in section.key)
                yield (number, *key), encode_line(section.line(row))


def _run_line(row: asyncpg.Record, tenant_id: str, settings: Settings) -> RunLine:
    start: dict[str, Any] = {name: row[name] for name in _START}
    start |= {
        name: _raw(row[name]) for name in ("labels", "context", "inverses", "overrides", "preserved", "variables")
    }
    start["origin"] = _origin(row)
    start["payload"] = _raw(row["input"])
    return RunLine(
        format=FORMAT,
        manifest=_raw(row["manifest"]),
        start=RunStart(tenant_id=tenant_id, **start),
        limits=settings.engine_limits,
    )


def _origin(row: asyncpg.Record) -> Origin:
    origin = _origins.decode(row["origin"])
    if origin.event is None or row["event_payload"] is None:
        return origin
    return replace(origin, event=replace(origin.event, payload=_raw(row["event_payload"])))


def _transition(row: asyncpg.Record) -> Line:
    return TransitionLine(seq=row["seq"], at=row["at"], events=_raw(row["events"]))


def _attempt(row: asyncpg.Record) -> Line:
    late = row["stale_outcome"] == Outcome.SUCCEEDED
    return AttemptLine(
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        idempotency_key=row["idempotency_key"],
        kind=TaskKind(row["kind"]),
        item_index=row["item_index"],
        start_time=row["start_time"],
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        report_time=row["report_time"],
        output=_raw(row["output"]),
        reference=_reference(row, "output") if row["outcome"] == Outcome.SUCCEEDED else None,
        fault=Fault(code=row["error_code"], message=row["error_message"] or "") if row["error_code"] else None,
        non_retryable=row["non_retryable"],
        retry_after_ms=row["retry_after_ms"],
        late_time=row["stale_time"] if late else None,
        late_output=_raw(row["stale_output"]) if late else None,
        late_reference=_reference(row, "stale") if late else None,
        item=_raw(row["item_state"]),
    )


def _reference(row: Mapping[str, Any], what: str) -> OutputRef:
    return OutputRef(attempt=row["attempt"], size=row[f"{what}_size"] or 0, hash=row[f"{what}_hash"] or "")


def _control(row: asyncpg.Record) -> Line:
    control = Control(
        request_id=row["request_id"],
        verb=Verb(row["verb"]),
        create_time=row["create_time"],
        actor=row["actor"],
        reason=row["reason"],
        step_ref=row["step_ref"],
        body=_raw(row["body"]),
    )
    return ControlLine(control=control, status=OperationStatus(row["status"]), settle_time=row["settle_time"])


def _signal(row: asyncpg.Record) -> Line:
    signal = Signal(
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
    return SignalLine(signal=signal, number=row["number"], payload=_raw(row["payload"]), seq=row["seq"] or 0)


def _receipt(row: asyncpg.Record) -> Line:
    receipt = Receipt(
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        event_id=row["event_id"],
        event_name=row["event_name"],
        time=row["receive_time"],
        requirement=row["requirement"],
    )
    return ReceiptLine(receipt=receipt, payload=_raw(row["payload"]), seq=row["seq"] or 0)


def _child(row: asyncpg.Record) -> Line:
    return ChildLine(
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        item_index=row["item_index"],
        run_id=row["run_id"],
        first_run_id=row["first_run_id"],
        time=row["end_time"],
        status=RunStatus(row["status"]) if row["status"] else None,
        checkpoint=CheckpointStatus(row["checkpoint_status"]) if row["checkpoint_status"] else None,
        fault=Fault(code=row["error_code"], message=row["error_message"]) if row["error_code"] else None,
        output=_raw(row["output"]),
        size=row["size"] or 0,
    )


def _workflow(row: asyncpg.Record) -> Line:
    workflow = Workflow(
        definition_id=row["definition_id"],
        version_id=row["version_id"],
        version=row["version"],
        tier=row["tier"],
        input_schema=_raw(row["input_schema"]),
    )
    return WorkflowLine(
        family_slug=row["family_slug"],
        workflow=workflow,
        create_time=row["publish_time"],
        archive_time=row["archive_time"],
    )


def _source(row: asyncpg.Record) -> Line:
    return SourceLine(
        run_id=row["run_id"],
        step_ref=row["step_ref"],
        attempt=row["attempt"],
        item_index=row["item_index"],
        output=_raw(row["output"]),
    )


def _raw(text: str | None) -> Any:
    """A JSON text to be passed on as it stands, on one line."""
    if text is None:
        return None
    if "\n" in text or "\r" in text:
        text = dumps(parse(text, max_bytes=None))
    return msgspec.Raw(text.encode())


_SECTIONS: Final = (
    _Section(statement="export_transitions", key=("seq",), first=(0,), line=_transition),
    _Section(
        statement="export_attempts",
        key=("step_ref", "item_index", "kind", "attempt"),
        first=("", -(1 << 31), "", 0),
        line=_attempt,
    ),
    _Section(statement="export_controls", key=("request_id",), first=("",), line=_control),
    _Section(statement="export_signals", key=("number",), first=(0,), line=_signal),
    _Section(
        statement="export_receipts",
        key=("step_ref", "attempt", "event_name", "event_id", "requirement"),
        first=("", 0, "", "", ""),
        line=_receipt,
    ),
    _Section(
        statement="export_children",
        key=("step_ref", "attempt", "item_index"),
        first=("", 0, -(1 << 31)),
        line=_child,
    ),
    _Section(statement="export_workflows", key=("family_slug", "version"), first=("", 0), line=_workflow),
    _Section(
        statement="export_sources",
        key=("run_id", "step_ref", "item_index", "attempt"),
        first=("", "", -(1 << 31), 0),
        line=_source,
    ),
)
