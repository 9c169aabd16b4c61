"""`ductor compensation list`, and a run's part of the ledger wherever a run is shown (C7)."""

from collections.abc import Sequence

from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE
from ductord.cli.output import print_json, status_text, table
from ductord.cli.runs import fault_text
from ductord.cli.words import local, number, plain, word


async def listing(connection: Connection, *, status: str, workflow: str, run_id: str, limit: int, as_json: bool) -> int:
    """What is owed, or was, over runs: the entry that changed last first."""
    wanted = number(model.CompensationEntryStatus.DESCRIPTOR, status, "--status")
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListCompensationsResponse:
            request = api.ListCompensationsRequest(
                status=wanted,  # type: ignore[arg-type]
                workflow_type=workflow,
                run_id=run_id,
                page_token=token,
                page_size=size,
            )
            return await client.call(client.runs.ListCompensations, request)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
    else:
        rows = [[entry.run_id, entry.workflow_type, *_row(entry), local(entry.update_time)] for entry in found]
        table(("RUN", "WORKFLOW", *_COLUMNS, "CHANGED"), rows)
    return DONE


def ledger_table(entries: Sequence[model.CompensationEntry]) -> None:
    """The ledger of one run, in the order in which it is worked off."""
    table(_COLUMNS, [_row(entry) for entry in entries])


_COLUMNS = ("POSITION", "STEP", "LIST", "ACTION", "STATUS", "ATTEMPT", "ERROR")


def _row(entry: model.CompensationEntry) -> list[str | Text]:
    item = f"[{entry.item_index}]" if entry.HasField("item_index") else ""
    return [
        str(entry.position),
        entry.step_ref + item,
        word(model.CompensationBlock.DESCRIPTOR, entry.block),
        entry.action,
        status_text(word(model.CompensationEntryStatus.DESCRIPTOR, entry.status)),
        str(entry.attempt or ""),
        fault_text(entry.error) if entry.HasField("error") else "",
    ]
