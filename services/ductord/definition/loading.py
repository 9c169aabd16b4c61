"""A directory of definition files → published versions (D5).

It speaks to the definition service by the generated stubs, like any other client. Only what changed is published, judged by the manifest's hash
against the family's newest version, so that replicas that load the same directory at once publish once. A file that is broken is reported and
the others load. It never deletes a definition whose file is gone, and never revives a version that somebody archived.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import grpc
import msgspec

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductor.workflow.v1.common_pb2 import PAYLOAD_FORMAT_JSON
from ductord.definition import convert
from ductord.definition.audit import MAX_REASON
from ductord.definition.files import File, read_files
from ductord.model.errors import Refusal, Violation
from ductord.rpc.channels import outgoing
from ductord.rpc.credentials import Sign, unsigned
from ductord.rpc.errors import refusal_from

if TYPE_CHECKING:
    from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceAsyncStub as Stub

CALL_S: Final = 60.0
RACE_TRIES: Final = 5
"""How often a file starts again because somebody else edited or published its family meanwhile."""

Action = Literal["published", "unchanged", "archived", "failed"]
Turn = Callable[[], Awaitable["Loaded"]]

_RACES: Final = frozenset(
    {"DRAFT_REVISION_MISMATCH", "PUBLISH_CONFLICT", "FAMILY_SLUG_TAKEN", "DRAFT_NOT_FOUND", "TRANSACTION_CONFLICT"}
)
_ABOUT_A_FILE: Final = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"})
"""Codes that say something of one file. Every other (no service, no permission) ends the loading."""
_ABOUT_THE_CALLER: Final = frozenset({"TENANT_REQUIRED", "TENANT_INVALID"})


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file. `path` is relative to the directory.

    `archived`: the newest version has this very content and somebody archived it, so it was left alone. `failed`: `message` says why, `violations`
    where. `overwrote_draft`: the draft held edits that were never published, and the file replaced them.
    """

    path: str
    action: Action
    family_slug: str = ""
    version: int = 0
    manifest_hash: str = ""
    overwrote_draft: bool = False
    message: str = ""
    violations: tuple[Violation, ...] = ()


async def load_directory(
    folder: Path,
    tenant_id: str | None,
    stub: "Stub",
    *,
    reason: str = "loaded from a directory",
    sign: Sign = unsigned,
    told: Callable[[Loaded], None] = lambda loaded: None,
) -> list[Loaded]:
    """Publish what changed in the directory, file by file in order of path; what became of each. `told` hears of each at once.

    `tenant_id` None: the one whose key `sign` gives. `reason` goes to the audit trail (C8) together with the file's path. Raises `Refusal` when the
    service cannot be reached or refuses the caller, OSError when the directory cannot be read.
    """
    results = []
    for turn in await turns(folder, tenant_id, stub, reason=reason, sign=sign):
        results.append(await turn())
        told(results[-1])
    return results


async def load_file(file: File, tenant_id: str | None, stub: "Stub", *, reason: str, sign: Sign) -> Loaded:
    """Publish one file's definition if it changed. Raises as `load_directory`."""
    return await _Loader(tenant_id, stub, reason, sign).load(file)


async def turns(
    folder: Path, tenant_id: str | None, stub: "Stub", *, reason: str, sign: Sign = unsigned
) -> Sequence[Turn]:
    """The files of the directory as a piece of work each, to be done in order; doing one again is harmless. Raises OSError."""
    loader = _Loader(tenant_id, stub, reason, sign)
    return [functools.partial(loader.load, file) for file in await asyncio.to_thread(read_files, folder)]


class _Loader:
    """Loads files for one tenant."""

    def __init__(self, tenant_id: str | None, stub: "Stub", reason: str, sign: Sign) -> None:
        self._tenant_id = tenant_id
        self._stub = stub
        self._reason = reason
        self._sign = sign

    async def load(self, file: File) -> Loaded:
        """One file. Raises `Refusal` for what is not about this file."""
        if file.definition is None:
            return _failed(file, file.message, file.violations)
        for _ in range(RACE_TRIES):
            try:
                return await self._load(file)
            except Refusal as refusal:
                if refusal.reason in _RACES:
                    continue
                if refusal.code not in _ABOUT_A_FILE or refusal.reason in _ABOUT_THE_CALLER:
                    raise
                return _failed(file, refusal.message, refusal.violations)
        return _failed(file, f"the family {file.family_slug} is edited or published by somebody else again and again")

    async def _load(self, file: File) -> Loaded:
        wanted = await self._validated(api.ValidateWorkflowDefinitionRequest(document=file.text))
        if not wanted.valid:
            return _failed(file, "the definition is not valid", [_violation(v) for v in wanted.violations])
        # The draft before the version: a publish in between then shows in the version, or moves the draft's revision on.
        draft = await self._first(file.family_slug, pb.DEFINITION_STATUS_DRAFT)
        newest = await self._newest(file.family_slug)
        if newest is not None and newest.manifest_hash == wanted.manifest_hash:
            archived = newest.status == pb.DEFINITION_STATUS_ARCHIVED
            return _loaded(file, "archived" if archived else "unchanged", newest.version, newest.manifest_hash)
        overwrites = False
        if draft is not None:
            held = await self._validated(api.ValidateWorkflowDefinitionRequest(id=draft.definition_id))
            overwrites = held.manifest_hash not in (wanted.manifest_hash, newest.manifest_hash if newest else None)
        published = await self._published(file, *await self._drafted(file, draft))
        loaded = _loaded(file, "published", published.version, published.manifest_hash)
        return msgspec.structs.replace(loaded, overwrote_draft=overwrites)

    async def _newest(self, family_slug: str) -> pb.WorkflowDefinitionSummary | None:
        """The version with the highest number, archived or not."""
        of_each = [
            await self._first(family_slug, status)
            for status in (pb.DEFINITION_STATUS_PUBLISHED, pb.DEFINITION_STATUS_ARCHIVED)
        ]
        return max((entry for entry in of_each if entry is not None), key=lambda entry: entry.version, default=None)

    async def _first(
        self, family_slug: str, status: pb.DefinitionStatus.ValueType
    ) -> pb.WorkflowDefinitionSummary | None:
        request = api.ListWorkflowDefinitionsRequest(family_slug=family_slug, status=status, page_size=1)
        listed: api.ListWorkflowDefinitionsResponse = await self._send(self._stub.ListWorkflowDefinitions, request)
        return listed.data[0] if listed.data else None

    async def _drafted(self, file: File, draft: pb.WorkflowDefinitionSummary | None) -> tuple[str, int]:
        """Make the file's definition the draft; the definition id and the revision."""
        answer: api.CreateWorkflowDefinitionResponse | api.UpdateWorkflowDraftResponse
        if draft is None:
            create = api.CreateWorkflowDefinitionRequest(payload_format=PAYLOAD_FORMAT_JSON)
            convert.fill(create, file.definition)
            answer = await self._send(self._stub.CreateWorkflowDefinition, create)
        else:
            update = api.UpdateWorkflowDraftRequest(
                id=draft.definition_id,
                expected_draft_revision=draft.draft_revision,
                payload_format=PAYLOAD_FORMAT_JSON,
            )
            convert.fill(update.operations.add().replace.definition, file.definition)
            answer = await self._send(self._stub.UpdateWorkflowDraft, update)
        return answer.data.definition_id, answer.data.draft_revision

    async def _published(self, file: File, definition_id: str, revision: int) -> pb.WorkflowDefinitionDetail:
        request = api.PublishWorkflowDefinitionRequest(
            id=definition_id,
            expected_draft_revision=revision,
            payload_format=PAYLOAD_FORMAT_JSON,
            reason=f"{self._reason}: {file.path}"[:MAX_REASON],
        )
        answer: api.PublishWorkflowDefinitionResponse = await self._send(self._stub.PublishWorkflowDefinition, request)
        return answer.published

    async def _validated(self, request: api.ValidateWorkflowDefinitionRequest) -> pb.WorkflowDefinitionValidation:
        answer: api.ValidateWorkflowDefinitionResponse = await self._send(
            self._stub.ValidateWorkflowDefinition, request
        )
        return answer.data

    async def _send(self, method: Any, request: Any) -> Any:
        metadata = (*outgoing(tenant_id=self._tenant_id), *self._sign())
        try:
            return await method(request, metadata=metadata, timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            raise refusal_from(error) from None


def _loaded(file: File, action: Action, version: int, manifest_hash: str) -> Loaded:
    return Loaded(
        path=file.path, action=action, family_slug=file.family_slug, version=version, manifest_hash=manifest_hash
    )


def _failed(file: File, message: str, violations: Sequence[Violation] = ()) -> Loaded:
    return Loaded(
        path=file.path,
        action="failed",
        family_slug=file.family_slug,
        message=message,
        violations=tuple(violations),
    )


def _violation(of: pb.DefinitionViolation) -> Violation:
    return Violation(
        code=of.code,
        message=of.message,
        path=of.path,
        line=of.line if of.HasField("line") else None,
        column=of.column if of.HasField("column") else None,
        step_ref=of.step_ref if of.HasField("step_ref") else None,
    )
