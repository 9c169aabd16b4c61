"""`ductor audit list`, and the audit trail of one run: who did what, and why (C8)."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.output import compact, print_json, status_text, table
from ductord.cli.runs import EVERYTHING, EXACT
from ductord.cli.words import local, plain

_AGO = re.compile(r"([1-9]\d{0,8})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


async def listing(
    connection: Connection, *, about: str, action: str, actor: str, since: str, limit: int, as_json: bool
) -> int:
    """The tenant's trail, newest first."""
    request = api.ListAuditRequest(target=about, action=action, actor=actor, payload_format=EXACT)
    if since:
        request.created_after.CopyFrom(time_of(since, "--since"))
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListAuditResponse:
            page = api.ListAuditRequest()
            page.CopyFrom(request)
            page.page_token, page.page_size = token, size
            return await client.call(client.runs.ListAudit, page)

        trail(await pages(fetch, limit), as_json, targets=True)
    return DONE


async def of_run(client: Client, run_id: str) -> Sequence[model.AuditEntry]:
    """The whole trail of a run, oldest first."""

    async def fetch(token: str, size: int) -> api.GetRunAuditResponse:
        request = api.GetRunAuditRequest(run_id=run_id, page_token=token, page_size=size, payload_format=EXACT)
        return await client.call(client.runs.GetRunAudit, request)

    return await pages(fetch, EVERYTHING)


def trail(found: Sequence[model.AuditEntry], as_json: bool, *, targets: bool = False) -> None:
    """Lines of the trail. `targets`: they are about more than one thing."""
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
        return
    columns = ("TIME", "WHO", "DID", *(("TO",) if targets else ()), "OUTCOME", "REASON", "REQUEST", "DETAIL")
    table(columns, [_row(entry, targets) for entry in found])


def time_of(text: str, option: str) -> Timestamp:
    """`90s`, `15m`, `2h`, `7d` before now, or an RFC 3339 time. Raises `CommandFailed`."""
    stamp = Timestamp()
    try:
        stamp.FromDatetime(_when(text))
    except (ValueError, OverflowError):
        message = f"{option} {text!r} is neither a length such as 15m, 2h or 7d nor a time such as 2026-01-31T12:00:00Z"
        raise CommandFailed(message, code=MISUSED) from None
    return stamp


def _when(text: str) -> datetime:
    ago = _AGO.fullmatch(text)
    if ago is None:
        return datetime.fromisoformat(text).astimezone(UTC)
    return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})


def _row(entry: model.AuditEntry, targets: bool) -> list[str | Text]:
    detail = plain(entry)["detail"]
    return [
        local(entry.audit_time),
        entry.actor,
        entry.action,
        *([entry.target] if targets else []),
        status_text(entry.outcome),
        entry.reason,
        entry.request_id,
        compact(detail) if detail else "",
    ]
