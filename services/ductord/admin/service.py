"""The admin service as a deployable: AdminService over gRPC. What it writes counts for every call that begins after its answer."""

from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import admin_service_pb2 as api
from ductor.workflow.v1 import admin_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.admin.api_keys import ApiKeys
from ductord.db.ids import new_id
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import PROBES, OnRetry, open_pool, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.rpc.answers import response_metadata, timestamp_or_none
from ductord.rpc.bounds import bounded, reasoned
from ductord.rpc.caller import caller
from ductord.rpc.errors import field_invalid, field_required, refused
from ductord.rpc.host import Scope, Service

MAX_RELEASES: Final = 100
MAX_RELEASE_BYTES: Final = 128
_MODES: Final = {"off": api.RELEASE_MODE_OFF, "required": api.RELEASE_MODE_REQUIRED}
_NAMES: Final = {number: name for name, number in _MODES.items()}
_q: Final = Queries("ductord.admin")


class Servicer(rpc.AdminServiceServicer):
    """The RPCs."""

    def __init__(self, pool: asyncpg.Pool, on_retry: OnRetry) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._keys = ApiKeys(pool, on_retry)

    async def GetReleasePolicy(  # noqa: N802  # the contract's name
        self, request: api.GetReleasePolicyRequest, context: Any
    ) -> api.GetReleasePolicyResponse:
        """The tenant's policy; off where none was set (T4)."""
        call = caller()

        async def look() -> asyncpg.Record:
            async with tenant_transaction(self._pool, call.tenant) as db:
                return await db.fetchrow(_q["release_policy"], call.tenant)

        row = await retrying(look, on_retry=self._on_retry)
        return api.GetReleasePolicyResponse(data=_policy(row), metadata=response_metadata(row["now"]))

    async def SetReleasePolicy(  # noqa: N802
        self, request: api.SetReleasePolicyRequest, context: Any
    ) -> api.SetReleasePolicyResponse:
        """Replace it (T4). Raises FIELD_REQUIRED, FIELD_INVALID, FIELD_DUPLICATE, BATCH_TOO_LARGE."""
        call = caller()
        mode, releases = _asked(request)
        reason = reasoned("reason", request.reason)
        audit_id = new_id()

        async def write() -> asyncpg.Record:
            async with tenant_transaction(self._pool, call.tenant) as db:
                return await db.fetchrow(
                    _q["set_release_policy"],
                    call.tenant,
                    mode,
                    releases,
                    call.actor,
                    audit_id,
                    reason,
                    request.request_id or call.request_id,
                )

        row = await retrying(write, on_retry=self._on_retry)
        return api.SetReleasePolicyResponse(data=_policy(row), metadata=response_metadata(row["now"]))

    async def CreateApiKey(self, request: api.CreateApiKeyRequest, context: Any) -> api.CreateApiKeyResponse:  # noqa: N802
        """Make a credential (N1)."""
        return await self._keys.create(request)

    async def GetApiKey(self, request: api.GetApiKeyRequest, context: Any) -> api.GetApiKeyResponse:  # noqa: N802
        """Read one, without its token."""
        return await self._keys.get(request)

    async def ListApiKeys(self, request: api.ListApiKeysRequest, context: Any) -> api.ListApiKeysResponse:  # noqa: N802
        """List them, newest first."""
        return await self._keys.list(request)

    async def RotateApiKey(self, request: api.RotateApiKeyRequest, context: Any) -> api.RotateApiKeyResponse:  # noqa: N802
        """Replace one by another of the same name."""
        return await self._keys.rotate(request)

    async def RevokeApiKey(self, request: api.RevokeApiKeyRequest, context: Any) -> api.RevokeApiKeyResponse:  # noqa: N802
        """End one for good."""
        return await self._keys.revoke(request)


def _asked(request: api.SetReleasePolicyRequest) -> tuple[str, list[str]]:
    if request.mode == api.RELEASE_MODE_UNSPECIFIED:
        raise field_required("mode")
    bounded("request_id", request.request_id, 256)
    releases = list(request.live_release_ids)
    field = "live_release_ids"
    if len(releases) > MAX_RELEASES:
        message = f"{field} has {len(releases)} releases, the limit is {MAX_RELEASES}"
        raise refused("BATCH_TOO_LARGE", message, field=field, limit=MAX_RELEASES)
    for index, release in enumerate(releases):
        bounded(f"{field}[{index}]", release, MAX_RELEASE_BYTES)
        if not release:
            raise field_invalid(f"{field}[{index}]", "is empty")
        if release in releases[:index]:
            raise refused("FIELD_DUPLICATE", f"{field}[{index}] stands twice in the request", field=f"{field}[{index}]")
    if request.mode == api.RELEASE_MODE_REQUIRED and not releases:
        raise field_invalid(
            field, "names at least one release while the mode is required: else nobody could start a run"
        )
    return _NAMES[request.mode], releases


def _policy(row: asyncpg.Record) -> api.ReleasePolicy:
    return api.ReleasePolicy(
        mode=_MODES[row["mode"] or "off"],
        live_release_ids=row["live_release_ids"] or (),
        update_time=timestamp_or_none(row["update_time"]),
        updated_by=row["updated_by"] or "",
    )


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs."""
    settings = scope.settings
    scope.translate(refusal_of)
    options = settings.pool("admin")
    pool = await patient(lambda: open_pool(**options, settings=PROBES), settings.database_start_wait_ms)
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    scope.rpcs(rpc.add_AdminServiceServicer_to_server, Servicer(pool, scope.retried))


SERVICE = Service(name="admin", start=start)
