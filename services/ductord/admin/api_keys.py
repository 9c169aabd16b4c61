"""A tenant's API keys as AdminService shows and keeps them (N1): the requests judged, one transaction, the answer. How a key is made is `access.minting`'s.

A token is in the answer that makes it and nowhere else. It never says of another tenant's key more than of one that does not exist.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import asyncpg

from ductor.workflow.v1 import admin_service_pb2 as api
from ductord.access import drafts, minting
from ductord.access.kept import Key, key_of
from ductord.access.minting import By
from ductord.db.pool import OnRetry, in_tenant_transaction
from ductord.db.queries import Queries
from ductord.model.ids import canonical
from ductord.rpc.answers import response_metadata, time_of, timestamp, timestamp_or_none
from ductord.rpc.bounds import bounded, reasoned
from ductord.rpc.caller import caller
from ductord.rpc.errors import field_required, refused
from ductord.rpc.paging import page_of

_STATUS: Final = {
    "active": api.API_KEY_STATUS_ACTIVE,
    "expired": api.API_KEY_STATUS_EXPIRED,
    "revoked": api.API_KEY_STATUS_REVOKED,
}
_WORDS: Final = {number: word for word, number in _STATUS.items()}
_q: Final = Queries("ductord.admin")

T = TypeVar("T")


class ApiKeys:
    """The keys of the caller's tenant."""

    def __init__(self, pool: asyncpg.Pool, on_retry: OnRetry) -> None:
        self._pool = pool
        self._on_retry = on_retry

    async def create(self, request: api.CreateApiKeyRequest) -> api.CreateApiKeyResponse:
        """Make one. Raises FIELD_REQUIRED, FIELD_INVALID, FIELD_DUPLICATE, BATCH_TOO_LARGE, API_KEY_NAME_TAKEN, TOO_MANY_API_KEYS."""
        by = _by(request)
        draft = drafts.drafted(
            caller().tenant,
            name=request.name,
            scopes=request.scopes,
            groups=request.groups,
            acts_for_others=request.acts_for_others,
            expire_time=_expire_time(request),
        )
        minted = await self._in_transaction(lambda db: minting.make(db, draft, by))
        metadata = response_metadata(minted.key.now)
        return api.CreateApiKeyResponse(data=shown(minted.key), token=minted.token, metadata=metadata)

    async def get(self, request: api.GetApiKeyRequest) -> api.GetApiKeyResponse:
        """Read one. Raises FIELD_REQUIRED, API_KEY_NOT_FOUND."""
        tenant_id, key_id = caller().tenant, _key_id(request)
        key = await self._in_transaction(lambda db: minting.find(db, tenant_id, key_id))
        return api.GetApiKeyResponse(data=shown(key), metadata=response_metadata(key.now))

    async def list(self, request: api.ListApiKeysRequest) -> api.ListApiKeysResponse:
        """A page of them, newest first. Raises FIELD_INVALID, PAGE_TOKEN_INVALID."""
        tenant_id = caller().tenant
        page = page_of(request, tenant_id)
        time, key_id = _place(page.after)
        word = _WORDS.get(request.status, "")

        async def look(db: asyncpg.Connection) -> tuple[datetime, list[Key]]:
            now = await db.fetchval("select eec_now()")
            rows = await db.fetch(_q["list_keys"], tenant_id, word, time, key_id, page.fetch)
            return now, [key_of(row) for row in rows]

        now, keys = await self._in_transaction(look)
        told = keys[: page.size]
        more = len(keys) > page.size
        token = page.next_token((told[-1].create_time, told[-1].key_id)) if more else ""
        data = [shown(key) for key in told]
        return api.ListApiKeysResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def rotate(self, request: api.RotateApiKeyRequest) -> api.RotateApiKeyResponse:
        """Replace one. Raises FIELD_REQUIRED, FIELD_INVALID, API_KEY_NOT_FOUND, API_KEY_ENDED."""
        by, tenant_id, key_id = _by(request), caller().tenant, _key_id(request)
        overlap_s = request.overlap_seconds if request.HasField("overlap_seconds") else minting.OVERLAP_S
        minting.refuse_overlap(overlap_s)
        expire_time = _expire_time(request)
        token = drafts.new_token(tenant_id)

        async def turn(db: asyncpg.Connection) -> minting.Minted:
            return await minting.rotate(
                db, tenant_id, key_id, by, token=token, overlap_s=overlap_s, expire_time=expire_time
            )

        minted = await self._in_transaction(turn)
        replaced = None if minted.replaced is None else shown(minted.replaced)
        return api.RotateApiKeyResponse(
            data=shown(minted.key), token=minted.token, replaced=replaced, metadata=response_metadata(minted.key.now)
        )

    async def revoke(self, request: api.RevokeApiKeyRequest) -> api.RevokeApiKeyResponse:
        """End one for good. Raises FIELD_REQUIRED, FIELD_INVALID, API_KEY_NOT_FOUND."""
        by, tenant_id, key_id = _by(request), caller().tenant, _key_id(request)
        key = await self._in_transaction(lambda db: minting.revoke(db, tenant_id, key_id, by))
        return api.RevokeApiKeyResponse(data=shown(key), metadata=response_metadata(key.now))

    async def _in_transaction(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        return await in_tenant_transaction(self._pool, caller().tenant, work, on_retry=self._on_retry)


def shown(key: Key) -> api.ApiKey:
    """A key as the contract shows it."""
    return api.ApiKey(
        key_id=key.key_id,
        name=key.name,
        token_prefix=key.prefix,
        scopes=key.scopes,
        groups=key.groups,
        acts_for_others=key.acts_for_others,
        status=_STATUS[key.status],
        create_time=timestamp(key.create_time),
        created_by=key.created_by,
        expire_time=timestamp_or_none(key.expire_time),
        revoke_time=timestamp_or_none(key.revoke_time),
        revoked_by=key.revoked_by,
        rotated_from=key.rotated_from,
        rotated_to=key.rotated_to,
        last_use_time=timestamp_or_none(key.last_use_time),
    )


def _by(request: Any) -> By:
    """Who asks, why, under which name. Raises FIELD_INVALID."""
    call = caller()
    bounded("request_id", request.request_id, 256)
    reason = reasoned("reason", request.reason)
    return By(actor=call.actor, reason=reason, request_id=request.request_id or call.request_id)


def _key_id(request: Any) -> str:
    key_id: str = request.key_id
    if not key_id:
        raise field_required("key_id")
    return key_id


def _expire_time(request: Any) -> datetime | None:
    return time_of(request.expire_time, "expire_time") if request.HasField("expire_time") else None


def _place(after: tuple[Any, ...] | None) -> tuple[datetime | None, str | None]:
    match after:
        case None:
            return None, None
        case (datetime(tzinfo=zone) as time, str(key_id)) if zone is not None and canonical(key_id):
            return time, key_id
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")
