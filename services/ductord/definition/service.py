"""The definition service as a deployable: WorkflowDefinitionService over gRPC, and the definitions directory at boot (D5).

A method reads its request, lets `drafts`, `versions`, `listing` or `lookup` do the work in a tenant's transaction, and writes the answer. What is
wrong with a request or a definition is found before anything is written.
"""

from datetime import datetime
from typing import Any

import asyncpg

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductor.workflow.v1 import workflow_definition_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import open_pool
from ductord.definition import boot, convert, drafts, edits, listing, lookup, overrides, render, store, versions
from ductord.definition.audit import act_of
from ductord.definition.judging import Judge, Verdict
from ductord.definition.store import Draft, Version
from ductord.definition.transactions import in_transaction
from ductord.model.errors import Refusal
from ductord.model.jsonvalue import JSON
from ductord.rpc.answers import response_metadata
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_required
from ductord.rpc.host import Scope, Service


class Servicer(rpc.WorkflowDefinitionServiceServicer):
    """The RPCs, in the order of the contract."""

    def __init__(self, pool: asyncpg.Pool, judge: Judge, settings: Settings) -> None:
        self._pool = pool
        self._judge = judge
        self._payload_bytes = settings.payload_max_bytes
        self._reply_bytes = settings.reply_max_bytes

    async def CreateWorkflowDefinition(  # noqa: N802  # the contract's name
        self, request: api.CreateWorkflowDefinitionRequest, context: Any
    ) -> api.CreateWorkflowDefinitionResponse:
        """A new family's draft, or a reopened one (D1)."""
        if not request.family_slug:
            raise field_required("family_slug")
        document = convert.tree_of(request, without=("payload_format",))
        verdict = await self._admitted(document)
        draft = await drafts.create(self._pool, caller().tenant, document)
        if draft.document != document:  # reopened
            verdict = await self._judge.judge(draft.document, hashed=False)
        return api.CreateWorkflowDefinitionResponse(
            data=render.draft(draft, request.payload_format),
            warnings=render.violations(verdict.told),
            metadata=response_metadata(draft.now),
        )

    async def GetWorkflowDefinition(  # noqa: N802
        self, request: api.GetWorkflowDefinitionRequest, context: Any
    ) -> api.GetWorkflowDefinitionResponse:
        """A draft or a version (D1)."""
        tenant_id = caller().tenant

        async def read(db: asyncpg.Connection, again: bool) -> Draft | Version:
            family = await lookup.family(db, tenant_id, request.id)
            published = request.view == pb.DEFINITION_VIEW_PUBLISHED
            return await lookup.named(db, tenant_id, family, published=published)

        found = await in_transaction(self._pool, tenant_id, read)
        return api.GetWorkflowDefinitionResponse(
            data=render.draft_or_version(found, request.payload_format), metadata=response_metadata(found.now)
        )

    async def ListWorkflowDefinitions(  # noqa: N802
        self, request: api.ListWorkflowDefinitionsRequest, context: Any
    ) -> api.ListWorkflowDefinitionsResponse:
        """A page of drafts and versions."""
        page = await listing.list_page(self._pool, caller().tenant, request, self._reply_bytes)
        return api.ListWorkflowDefinitionsResponse(
            data=page.entries,
            next_page_token=page.next_page_token,
            metadata=response_metadata(page.now or await self._now()),
        )

    async def UpdateWorkflowDraft(  # noqa: N802
        self, request: api.UpdateWorkflowDraftRequest, context: Any
    ) -> api.UpdateWorkflowDraftResponse:
        """The operations in order, all or none."""
        tenant_id = caller().tenant
        edit = edits.edit_of(request)
        known = await in_transaction(
            self._pool, tenant_id, lambda db, _: lookup.editable_draft(db, tenant_id, request.id)
        )
        drafts.expect(edit.expected_draft_revision, known.draft_revision)
        document = edits.edited(known.document, edit)
        verdict = await self._admitted(document)
        draft = await drafts.replace(self._pool, tenant_id, known, document)
        return api.UpdateWorkflowDraftResponse(
            data=render.draft(draft, request.payload_format),
            warnings=render.violations(verdict.told),
            metadata=response_metadata(draft.now),
        )

    async def DeleteWorkflowDraft(  # noqa: N802
        self, request: api.DeleteWorkflowDraftRequest, context: Any
    ) -> api.DeleteWorkflowDraftResponse:
        """The draft goes, the family stays (D1)."""
        call = caller()
        expected = request.expected_draft_revision if request.HasField("expected_draft_revision") else None
        await drafts.delete(self._pool, call.tenant, request.id, expected, act_of(call, request.reason))
        return api.DeleteWorkflowDraftResponse(metadata=response_metadata(await self._now()))

    async def PublishWorkflowDefinition(  # noqa: N802
        self, request: api.PublishWorkflowDefinitionRequest, context: Any
    ) -> api.PublishWorkflowDefinitionResponse:
        """The next version, and a fresh draft (D2)."""
        call = caller()
        expected = request.expected_draft_revision if request.HasField("expected_draft_revision") else None
        act = act_of(call, request.reason)
        published = await versions.publish(self._pool, call.tenant, request.id, expected, act, self._judge)
        return api.PublishWorkflowDefinitionResponse(
            published=render.version(published.version, request.payload_format),
            draft=render.draft(published.draft, request.payload_format),
            warnings=render.violations(published.warnings),
            metadata=response_metadata(published.draft.now),
        )

    async def ArchiveWorkflowDefinition(  # noqa: N802
        self, request: api.ArchiveWorkflowDefinitionRequest, context: Any
    ) -> api.ArchiveWorkflowDefinitionResponse:
        """A version retires (D3)."""
        call = caller()
        version = await versions.archive(self._pool, call.tenant, request.id, act_of(call, request.reason))
        return api.ArchiveWorkflowDefinitionResponse(
            data=render.version(version, request.payload_format), metadata=response_metadata(version.now)
        )

    async def DuplicateWorkflowDefinition(  # noqa: N802
        self, request: api.DuplicateWorkflowDefinitionRequest, context: Any
    ) -> api.DuplicateWorkflowDefinitionResponse:
        """A copy under a new family."""
        tenant_id = caller().tenant
        if not request.family_slug:
            raise field_required("family_slug")
        title = request.title if request.HasField("title") else None

        async def read(db: asyncpg.Connection, again: bool) -> JSON:
            return (await lookup.copied(db, tenant_id, request.id)).document

        copy = drafts.copy_of(await in_transaction(self._pool, tenant_id, read), request.family_slug, title)
        verdict = await self._admitted(copy)
        draft = await drafts.create(self._pool, tenant_id, copy, reopen=False)
        return api.DuplicateWorkflowDefinitionResponse(
            data=render.draft(draft, request.payload_format),
            warnings=render.violations(verdict.told),
            metadata=response_metadata(draft.now),
        )

    async def ValidateWorkflowDefinition(  # noqa: N802
        self, request: api.ValidateWorkflowDefinitionRequest, context: Any
    ) -> api.ValidateWorkflowDefinitionResponse:
        """Everything that a publish would refuse; writes nothing."""
        verdict = await self._verdict(request)
        return api.ValidateWorkflowDefinitionResponse(
            data=pb.WorkflowDefinitionValidation(
                valid=verdict.valid,
                violations=render.violations(verdict.violations),
                warnings=render.violations(verdict.warnings),
                manifest_hash=verdict.manifest_hash,
            ),
            metadata=response_metadata(await self._now()),
        )

    async def UpsertWorkflowEnvOverride(  # noqa: N802
        self, request: api.UpsertWorkflowEnvOverrideRequest, context: Any
    ) -> api.UpsertWorkflowEnvOverrideResponse:
        """What VARS hold in an environment, all of it (L8)."""
        call = caller()
        act = act_of(call, request.reason)
        override, now = await overrides.upsert(self._pool, call.tenant, request, act, max_bytes=self._payload_bytes)
        return api.UpsertWorkflowEnvOverrideResponse(
            data=overrides.message(override, request.payload_format, self._reply_bytes),
            metadata=response_metadata(now),
        )

    async def ListWorkflowEnvOverrides(  # noqa: N802
        self, request: api.ListWorkflowEnvOverridesRequest, context: Any
    ) -> api.ListWorkflowEnvOverridesResponse:
        """A page of a definition's overrides."""
        page = await overrides.list_page(self._pool, caller().tenant, request, self._reply_bytes)
        return api.ListWorkflowEnvOverridesResponse(
            data=page.entries, next_page_token=page.next_page_token, metadata=response_metadata(page.now)
        )

    async def DeleteWorkflowEnvOverride(  # noqa: N802
        self, request: api.DeleteWorkflowEnvOverrideRequest, context: Any
    ) -> api.DeleteWorkflowEnvOverrideResponse:
        """The environment has the definition's defaults again."""
        call = caller()
        now = await overrides.delete(self._pool, call.tenant, request, act_of(call, request.reason))
        return api.DeleteWorkflowEnvOverrideResponse(metadata=response_metadata(now))

    async def ExportWorkflowDefinition(  # noqa: N802
        self, request: api.ExportWorkflowDefinitionRequest, context: Any
    ) -> api.ExportWorkflowDefinitionResponse:
        """The definition as a file; the current version unless the draft is asked for."""
        tenant_id = caller().tenant

        async def read(db: asyncpg.Connection, again: bool) -> Draft | Version:
            family = await lookup.family_or_slug(db, tenant_id, request.id)
            published = request.view != pb.DEFINITION_VIEW_DRAFT
            return await lookup.named(db, tenant_id, family, published=published)

        found = await in_transaction(self._pool, tenant_id, read)
        return api.ExportWorkflowDefinitionResponse(data=render.export(found), metadata=response_metadata(found.now))

    async def _verdict(self, request: api.ValidateWorkflowDefinitionRequest) -> Verdict:
        match request.WhichOneof("source"):
            case "definition":
                return await self._judge.judge(convert.tree_of(request.definition, root="definition"))
            case "document":
                return await self._judge.judge_text(request.document)
            case "id":
                tenant_id = caller().tenant

                async def read(db: asyncpg.Connection, again: bool) -> JSON:
                    family = await lookup.family(db, tenant_id, request.id)
                    return (await lookup.named(db, tenant_id, family, published=False)).document

                return await self._judge.judge(await in_transaction(self._pool, tenant_id, read))
            case _:
                raise field_required("definition")

    async def _admitted(self, document: JSON) -> Verdict:
        """The verdict over a document that may be a draft."""
        verdict = await self._judge.judge(document, hashed=False)
        verdict.refuse_draft()
        return verdict

    async def _now(self) -> datetime:
        return await in_transaction(self._pool, caller().tenant, lambda db, _: store.now(db))


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs, and the loading of the definitions directory where one is configured."""
    settings = scope.settings
    scope.translate(lambda error: error if isinstance(error, Refusal) else refusal_of(error))
    pool = await patient(lambda: open_pool(**settings.pool("definition")), settings.database_start_wait_ms)
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    judge = Judge(max_bytes=settings.payload_max_bytes, wildcards=settings.events_wildcards_enabled)
    scope.at_stop(judge.close)
    scope.rpcs(rpc.add_WorkflowDefinitionServiceServicer_to_server, Servicer(pool, judge, settings))
    boot.register(scope)


SERVICE = Service(name="definition", start=start)
