"""`ductor workflow load`, `publish`, `archive`: definitions on their way to a server, through the same RPCs as everybody's.

The server judges and hashes; a file is read here only to become a message, and its violations are told with file, line and column.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ductor.workflow.v1 import common_pb2 as common
from ductor.workflow.v1 import definition_pb2 as model
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.cli.client import Client, Connection, connected
from ductord.cli.documents import filled
from ductord.cli.ending import DONE, FAILED, CommandFailed, tell_refusal
from ductord.cli.output import print_json, say, show
from ductord.cli.texts import Text, is_file, read, told
from ductord.cli.words import plain
from ductord.model.errors import Refusal, Violation

EXACT = common.PAYLOAD_FORMAT_JSON


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file: `published`, `drafted`, `unchanged` or `failed`."""

    file: str
    outcome: str
    family_slug: str = ""
    version: int | None = None
    violations: tuple[Violation, ...] = ()
    error: str = ""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has under a slug: the draft, and the newest version where it is published."""

    definition_id: str = ""
    draft_revision: int | None = None
    current: model.WorkflowDefinitionSummary | None = None


async def load(connection: Connection, paths: Sequence[Path], *, draft: bool, as_json: bool) -> int:
    """Publish (or only draft) every definition that differs from its current version; 1 if any file could not be loaded."""
    files = definition_files(paths)
    async with connected(connection) as client:
        loaded = []
        for file in files:
            loaded.append(await _load(client, file, draft=draft, as_json=as_json))
    if as_json:
        print_json({"data": [msgspec.to_builtins(one) for one in loaded]})
    return FAILED if any(one.outcome == "failed" for one in loaded) else DONE


async def publish(connection: Connection, what: str, *, reason: str, as_json: bool) -> int:
    """Publish a file, or the draft that stands on the server."""
    async with connected(connection) as client:
        if is_file(what):
            text = read(what)
            validation = await judged(client, text)
            if not validation.valid:
                told(text, _violations(validation.violations), as_json=as_json)
                return FAILED
            definition_id, revision = await put(client, tree_of(text))
        else:
            definition_id, revision = await client.definition_id(what), None
        answer = await _publish(client, definition_id, revision, reason)
    if as_json:
        print_json(plain(answer))
        return DONE
    for warning in answer.warnings:
        say(f"warning: {warning.path}: {warning.message} [{warning.code}]", "yellow")
    show(f"{answer.published.family_slug} v{answer.published.version} published, {answer.published.id}")
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


def definition_files(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and the YAML and JSON files of the folders, whole trees, in name order. Raises `CommandFailed` for what is not there."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(f for f in path.rglob("*") if f.suffix in (".yaml", ".yml", ".json") and f.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise CommandFailed(f"{path}: no such file or folder")
    if not files:
        raise CommandFailed("there is no definition file (.yaml, .yml, .json) in the given folders")
    return files


async def judged(client: Client, text: Text) -> model.WorkflowDefinitionValidation:
    """The server's judgement of a file, without anything being written."""
    request = api.ValidateWorkflowDefinitionRequest(document=text.content)
    return (await client.call(client.definitions.ValidateWorkflowDefinition, request)).data


def tree_of(text: Text) -> dict[str, Any]:
    """The definition in a file. Raises `CommandFailed` when there is none."""
    from ductord.engine.document import read_document

    found = read_document(text.content, door=text.door)
    if found.definition is None or found.violations:
        raise CommandFailed(f"{text.name} holds no definition that can be sent")
    return found.definition


async def put(client: Client, tree: dict[str, Any]) -> tuple[str, int]:
    """Make `tree` the draft of its family: (definition id, revision). The draft is the one that was read, or the write is refused."""
    found = await family(client, tree["family_slug"])
    if not found.definition_id:
        request = filled(api.CreateWorkflowDefinitionRequest(payload_format=EXACT), tree)
        created = await client.call(client.definitions.CreateWorkflowDefinition, request)
        return created.data.id, created.data.draft_revision
    revision = found.draft_revision
    if revision is None:
        reopen = api.CreateWorkflowDefinitionRequest(family_slug=tree["family_slug"], payload_format=EXACT)
        revision = (await client.call(client.definitions.CreateWorkflowDefinition, reopen)).data.draft_revision
    update = api.UpdateWorkflowDraftRequest(
        id=found.definition_id, expected_draft_revision=revision, payload_format=EXACT
    )
    filled(update.operations.add().replace.definition, tree)
    updated = await client.call(client.definitions.UpdateWorkflowDraft, update)
    return updated.data.definition_id, updated.data.draft_revision


async def family(client: Client, slug: str) -> Family:
    """What the server has under `slug`."""
    request = api.ListWorkflowDefinitionsRequest(family_slug=slug, page_size=1_000)
    entries = (await client.call(client.definitions.ListWorkflowDefinitions, request)).data
    if not entries:
        return Family()
    drafts = [e for e in entries if e.status == model.DEFINITION_STATUS_DRAFT]
    versions = [e for e in entries if e.status != model.DEFINITION_STATUS_DRAFT]
    newest = max(versions, key=lambda e: e.version, default=None)
    return Family(
        definition_id=entries[0].definition_id,
        draft_revision=drafts[0].draft_revision if drafts else None,
        current=newest if newest is not None and newest.status == model.DEFINITION_STATUS_PUBLISHED else None,
    )


async def _load(client: Client, file: Path, *, draft: bool, as_json: bool) -> Loaded:
    text = read(str(file))
    try:
        validation = await judged(client, text)
        if not validation.valid:
            violations = _violations(validation.violations)
            if not as_json:
                told(text, violations)
            return Loaded(file=text.name, outcome="failed", violations=violations)
        tree = tree_of(text)
        loaded = await _loaded(client, text, tree, validation.manifest_hash, draft=draft)
    except Refusal as refusal:
        if refusal.code in ("UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED"):
            raise  # the next file would fare no better
        if not as_json:
            say(f"{text.name}:", "bold")
            tell_refusal(refusal)
        return Loaded(file=text.name, outcome="failed", error=f"{refusal.reason}: {refusal.message}")
    if not as_json:
        show(
            f"{loaded.outcome:<9}  {loaded.family_slug}{'' if loaded.version is None else f' v{loaded.version}'}  {text.name}"
        )
    return loaded


async def _loaded(client: Client, text: Text, tree: dict[str, Any], manifest_hash: str, *, draft: bool) -> Loaded:
    slug = tree["family_slug"]
    if draft:
        await put(client, tree)
        return Loaded(file=text.name, outcome="drafted", family_slug=slug)
    current = (await family(client, slug)).current
    if current is not None and current.manifest_hash == manifest_hash:
        return Loaded(file=text.name, outcome="unchanged", family_slug=slug, version=current.version)
    definition_id, revision = await put(client, tree)
    answer = await _publish(client, definition_id, revision, f"loaded from {text.name}")
    return Loaded(file=text.name, outcome="published", family_slug=slug, version=answer.published.version)


async def _publish(
    client: Client, definition_id: str, revision: int | None, reason: str
) -> api.PublishWorkflowDefinitionResponse:
    request = api.PublishWorkflowDefinitionRequest(
        id=definition_id, expected_draft_revision=revision, reason=reason[:1_000], payload_format=EXACT
    )
    return await client.call(client.definitions.PublishWorkflowDefinition, request)


def _violations(found: Iterable[model.DefinitionViolation]) -> tuple[Violation, ...]:
    return tuple(
        Violation(
            code=v.code,
            message=v.message,
            path=v.path,
            line=v.line if v.HasField("line") else None,
            column=v.column if v.HasField("column") else None,
            step_ref=v.step_ref if v.HasField("step_ref") else None,
        )
        for v in found
    )
