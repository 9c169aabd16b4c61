"""`ductor workflow load`, `publish`, `archive`: definitions on their way to a server, through the same RPCs as everybody's.

Files are loaded by the same code as at boot (`definition.loading`): the server judges and hashes, only what changed is published.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.cli.client import Client, Connection, connected
from ductord.cli.ending import DONE, FAILED, CommandFailed
from ductord.cli.output import print_json, say, show
from ductord.cli.texts import Text, is_file, read, told
from ductord.cli.words import plain
from ductord.definition.files import File
from ductord.definition.loading import Loaded, load_directory, load_file
from ductord.engine.document import read_document

EXACT = common.PAYLOAD_FORMAT_JSON


async def load(connection: Connection, paths: Sequence[Path], *, as_json: bool) -> int:
    """Publish every definition that differs from its current version; 1 if any file could not be loaded."""
    results: list[Loaded] = []
    async with connected(connection) as client:
        for path in paths:

            def hear(loaded: Loaded, folder: Path = path) -> None:
                if not as_json:
                    _tell(str(folder / loaded.path), loaded)

            if path.is_dir():
                results += await load_directory(
                    path, client.tenant, client.definitions, reason="ductor workflow load", sign=client.sign, told=hear
                )
            else:
                loaded = await _load_file(client, read(str(path)))
                results.append(loaded)
                if not as_json:
                    _tell(str(path), loaded)
    if as_json:
        print_json({"data": [msgspec.to_builtins(one) for one in results]})
    elif not results:
        raise CommandFailed("there is no definition file (.yaml, .yml, .json) in the given folders")
    return FAILED if any(one.action == "failed" for one in results) else DONE


async def publish(connection: Connection, what: str, *, reason: str, as_json: bool) -> int:
    """Publish a file, or the draft that stands on the server."""
    async with connected(connection) as client:
        if is_file(what):
            loaded = await _load_file(client, read(what), reason)
            if as_json:
                print_json(msgspec.to_builtins(loaded))
            else:
                _tell(what, loaded)
            return DONE if loaded.action in ("published", "unchanged") else FAILED
        request = api.PublishWorkflowDefinitionRequest(
            id=await client.definition_id(what), reason=reason, payload_format=EXACT
        )
        answer = await client.call(client.definitions.PublishWorkflowDefinition, request)
    if as_json:
        print_json(plain(answer))
        return DONE
    for warning in answer.warnings:
        say(f"warning: {warning.path}: {warning.message} [{warning.code}]", "yellow")
    show(f"{answer.published.family_slug} v{answer.published.version} published")
    return DONE


async def archive(connection: Connection, name: str, *, reason: str, as_json: bool) -> int:
    """Retire a version."""
    async with connected(connection) as client:
        request = api.ArchiveWorkflowDefinitionRequest(
            id=await client.definition_id(name), reason=reason, payload_format=EXACT
        )
        answer = await client.call(client.definitions.ArchiveWorkflowDefinition, request)
    if as_json:
        print_json(plain(answer))
    else:
        show(f"{answer.data.family_slug} v{answer.data.version} archived")
    return DONE


async def _load_file(client: Client, text: Text, reason: str = "") -> Loaded:
    found = read_document(text.content, door=text.door)
    slug = found.definition.get("family_slug") if found.definition else None
    file = File(
        path=text.name,
        text=text.content,
        family_slug=slug if isinstance(slug, str) else "",
        definition=None if found.violations else found.definition,
        message="is not a workflow definition",
        violations=found.violations,
    )
    return await load_file(
        file, client.tenant, client.definitions, reason=reason or "ductor workflow publish", sign=client.sign
    )


def _tell(name: str, loaded: Loaded) -> None:
    """What became of a file: good news on standard output, the rest beside it."""
    title = f"{loaded.family_slug} v{loaded.version}"
    match loaded.action:
        case "published":
            show(f"{title} published")
            if loaded.overwrote_draft:
                say("  the draft held edits that were never published; the file replaced them", "yellow")
        case "unchanged":
            show(f"{title} unchanged", "dim")
        case "archived":
            say(f"{name}: {title} has this very content and was archived; it stays so", "yellow")
            say(f"  → `ductor workflow publish {loaded.family_slug}` publishes the draft as a new version", "yellow")
        case "failed":
            told(name, loaded.violations, sys.stderr)
            say(f"{name}: {loaded.message}", "bold red")
