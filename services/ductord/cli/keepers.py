"""Who keeps API keys: AdminService, or the code behind it over a database login of ours, for keys that no service can give.

Over the database it does what AdminService does, by the same code, with admin's login: whoever has that login decides who may call.
"""

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import asyncpg

from ductor.workflow.v1 import admin_service_pb2 as api
from ductord.admin.api_keys import ApiKeys
from ductord.cli.client import Client, Connection, connected
from ductord.cli.configured import configured, misconfigured
from ductord.cli.ending import CommandFailed
from ductord.cli.serving import refuse_pending
from ductord.db.pool import open_pool
from ductord.model.keys import PLATFORM_TENANT
from ductord.rpc import caller as who
from ductord.rpc.config import ConfigurationRefused


class Keeper(Protocol):
    """Who keeps keys: AdminService, or the code behind it over a database login of ours."""

    async def create(self, request: api.CreateApiKeyRequest) -> api.CreateApiKeyResponse: ...
    async def get(self, request: api.GetApiKeyRequest) -> api.GetApiKeyResponse: ...
    async def list(self, request: api.ListApiKeysRequest) -> api.ListApiKeysResponse: ...
    async def rotate(self, request: api.RotateApiKeyRequest) -> api.RotateApiKeyResponse: ...
    async def revoke(self, request: api.RevokeApiKeyRequest) -> api.RevokeApiKeyResponse: ...


class _Service:
    """AdminService as a keeper."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, request: api.CreateApiKeyRequest) -> api.CreateApiKeyResponse:
        return await self._client.call(self._client.admin.CreateApiKey, request)

    async def get(self, request: api.GetApiKeyRequest) -> api.GetApiKeyResponse:
        return await self._client.call(self._client.admin.GetApiKey, request)

    async def list(self, request: api.ListApiKeysRequest) -> api.ListApiKeysResponse:
        return await self._client.call(self._client.admin.ListApiKeys, request)

    async def rotate(self, request: api.RotateApiKeyRequest) -> api.RotateApiKeyResponse:
        return await self._client.call(self._client.admin.RotateApiKey, request)

    async def revoke(self, request: api.RevokeApiKeyRequest) -> api.RevokeApiKeyResponse:
        return await self._client.call(self._client.admin.RevokeApiKey, request)


@asynccontextmanager
async def keeping(connection: Connection, *, platform: bool) -> AsyncIterator[Keeper]:
    """The keeper of a tenant's keys, or of the platform's, which are kept over the database only."""
    if platform:
        async with over_database(PLATFORM_TENANT) as keeper:
            yield keeper
    else:
        async with connected(connection) as client:
            yield _Service(client)


@asynccontextmanager
async def over_database(tenant_id: str) -> AsyncIterator[Keeper]:
    """The keeper of a tenant's keys over admin's database login. Raises `CommandFailed` for a login or a database that will not do."""
    settings = configured()
    try:
        options = settings.pool("admin")
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None
    await refuse_pending("admin", settings)
    options["min_size"] = options["max_size"] = 1
    pool = await open_pool(**options)
    try:
        token = who.set_caller(_as_caller(tenant_id))
        try:
            yield ApiKeys(pool, on_retry=lambda error: None)
        except (asyncpg.PostgresError, OSError) as error:
            raise CommandFailed(f"the database refuses: {error}") from None
        finally:
            who.reset_caller(token)
    finally:
        await pool.close()


def _as_caller(tenant_id: str) -> who.Caller:
    """Who the audit trail says it was: the person at this machine, as far as it knows them."""
    try:
        person = getpass.getuser()
    except (KeyError, OSError):
        person = str(os.getuid())
    request_id = who.new_request_id()
    return who.Caller(tenant_id=tenant_id, actor=f"cli:{person}", request_id=request_id, trace_id="", traceparent="")
