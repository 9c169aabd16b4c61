"""`ductor workflow list`, `show`, `export`, `diff`: what a server has."""

import difflib
import sys
from collections.abc import Sequence
from typing import Any

from rich.text import Text as Line

from ductor.workflow.v1 import definition_pb2 as model
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.cli import checking
from ductord.cli.authoring import EXACT
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE, FAILED
from ductord.cli.output import facts, print_json, status_text, table
from ductord.cli.output import show as show_line
from ductord.cli.words import local, number, plain, word
from ductord.model.errors import Refusal

ABSENT = ("DEFINITION_NOT_FOUND", "DRAFT_NOT_FOUND", "DEFINITION_NOT_PUBLISHED", "DEFINITION_ARCHIVED")
"""Reasons for which there is nothing to compare with."""


async def listing(
    connection: Connection, *, status: str, query: str, tags: Sequence[str], slug: str, limit: int, as_json: bool
) -> int:
    """Drafts and versions, newest first."""
    request = api.ListWorkflowDefinitionsRequest(
        status=number(model.DefinitionStatus.DESCRIPTOR, status, "--status"),  # type: ignore[arg-type]
        q=query,
        tags=tags,
        family_slug=slug,
    )
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListWorkflowDefinitionsResponse:
            page = api.ListWorkflowDefinitionsRequest()
            page.CopyFrom(request)
            page.page_token, page.page_size = token, size
            return await client.call(client.definitions.ListWorkflowDefinitions, page)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
    else:
        table(("WORKFLOW", "VERSION", "STATUS", "STEPS", "UPDATED", "ID", "TITLE"), [_row(entry) for entry in found])
    return DONE


async def show(connection: Connection, name: str, *, draft: bool, as_json: bool) -> int:
    """One definition with its graph."""
    async with connected(connection) as client:
        request = api.GetWorkflowDefinitionRequest(
            id=await client.definition_id(name), view=view(draft), payload_format=EXACT
        )
        answer = await client.call(client.definitions.GetWorkflowDefinition, request)
    if as_json:
        print_json(plain(answer))
    else:
        _detail(answer.data)
    return DONE


async def export(connection: Connection, name: str, *, draft: bool, as_json: bool) -> int:
    """The YAML of a definition, as the server wrote it."""
    async with connected(connection) as client:
        request = api.ExportWorkflowDefinitionRequest(id=name, view=view(draft))
        answer = await client.call(client.definitions.ExportWorkflowDefinition, request)
    if as_json:
        print_json(plain(answer))
    else:
        sys.stdout.write(answer.data.yaml)
        sys.stdout.flush()
    return DONE


async def diff(connection: Connection, file: str, *, draft: bool, as_json: bool) -> int:
    """What publishing the file would change; 1 if anything."""
    slug, wanted = checking.canonical(file)
    async with connected(connection) as client:
        standing, name = "", "(nothing yet)"
        try:
            request = api.ExportWorkflowDefinitionRequest(id=slug, view=view(draft))
            found = (await client.call(client.definitions.ExportWorkflowDefinition, request)).data
            standing, name = found.yaml, f"{slug} {'draft' if draft else f'v{found.version}'}"
        except Refusal as refusal:
            if refusal.reason not in ABSENT:
                raise
    lines = list(difflib.unified_diff(standing.splitlines(), wanted.splitlines(), name, file, lineterm=""))
    if as_json:
        print_json({"family_slug": slug, "against": name, "changed": bool(lines), "diff": lines})
    for line in () if as_json else lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        show_line(Line(line, style=style))
    return FAILED if lines else DONE


def view(draft: bool) -> Any:
    """What a definition id or slug stands for."""
    return model.DEFINITION_VIEW_DRAFT if draft else model.DEFINITION_VIEW_PUBLISHED


def _row(entry: model.WorkflowDefinitionSummary) -> list[str | Line]:
    status = word(model.DefinitionStatus.DESCRIPTOR, entry.status)
    version = f"v{entry.version}" + (f" r{entry.draft_revision}" if status == "draft" else "")
    return [
        entry.family_slug,
        version,
        status_text(status),
        str(entry.step_count),
        local(entry.update_time),
        entry.id,
        entry.title,
    ]


def _detail(found: model.WorkflowDefinitionDetail) -> None:
    status = word(model.DefinitionStatus.DESCRIPTOR, found.status)
    facts(
        [
            ("workflow", f"{found.family_slug} v{found.version}"),
            ("status", status_text(status)),
            ("title", found.title),
            ("description", found.description),
            ("tags", " ".join(found.tags)),
            ("id", found.id),
            ("definition", found.definition_id if found.definition_id != found.id else ""),
            ("revision", str(found.draft_revision) if status == "draft" else ""),
            ("hash", found.manifest_hash),
            ("checkpoints", ", ".join(c.name for c in found.checkpoints)),
        ]
    )
    show_line("")
    tree = plain(found)
    into: dict[str, list[str]] = {}
    for edge in tree["edges"]:
        into.setdefault(edge["target_ref"], []).append(f"{edge['source_ref']} ({edge['type']})")
    table(
        ("STEP", "TYPE", "DOES", "AFTER"),
        [[s["ref"], s["type"], s.get("action", ""), ", ".join(into.get(s["ref"], ()))] for s in tree["steps"]],
    )
