"""`ductor audit list`, and the audit trail of one run: who did what, and why (C8)."""

from collections.abc import Sequence

from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected, pages
from ductord.cli.ending import DONE
from ductord.cli.output import compact, print_json, status_text, table
from ductord.cli.runs import EVERYTHING, EXACT
from ductord.cli.words import local, plain, time_of


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
