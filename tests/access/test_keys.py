"""A tenant's keys as AdminService keeps them: what is refused, what is shown, and who is told of nothing (N1, C8, TN-01)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import admin_service_pb2 as api
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductord.db.ids import new_id
from ductord.model.keys import ADMIN, DEFINITION_READ, PLATFORM_TENANT, TASKS, TENANT_SCOPES, WORKFLOW_READ
from tests.access.world import World, list_runs
from tests.support.edges import refusal
from tests.support.keys import as_owner, bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.xdist_group("access")]

ACTIVE, EXPIRED, REVOKED = api.API_KEY_STATUS_ACTIVE, api.API_KEY_STATUS_EXPIRED, api.API_KEY_STATUS_REVOKED


class Chief:
    """Who keeps a tenant's keys."""

    def __init__(self, world: World, token: str, tenant_id: str = "") -> None:
        self._stub = AdminServiceStub(world.channel)
        self._metadata = bearer(token, tenant_id)

    async def call(self, rpc: str, **fields: Any) -> Any:
        """Any RPC of the service."""
        request = getattr(api, f"{rpc}Request")(**fields)
        return await getattr(self._stub, rpc)(request, metadata=self._metadata, timeout=60)


@pytest.fixture
async def chief(world: World, tenant: str) -> Chief:
    """Of the test's tenant."""
    return Chief(world, (await minted(world.database, tenant, ADMIN, name="chief")).token)


async def test_n1_a_key_is_made_shown_and_ended(world: World, tenant: str, chief: Chief) -> None:
    """N1: its token is in the answer that makes it and nowhere else; ending it twice is no error; every change is in the audit trail with who and why."""
    made = await chief.call(
        "CreateApiKey", name="ci", scopes=[WORKFLOW_READ, DEFINITION_READ], groups=["ops"], acts_for_others=True,
        reason="for ci", request_id="r1",
    )  # fmt: skip
    key = made.data
    assert (key.name, list(key.scopes), list(key.groups)) == ("ci", [WORKFLOW_READ, DEFINITION_READ], ["ops"])
    assert (key.created_by, key.status, key.acts_for_others) == ("key:chief", ACTIVE, True)
    assert made.token.startswith(key.token_prefix)
    assert key.token_prefix == f"dk_{tenant}.{key.key_id[:8]}"
    await list_runs(world, made.token)
    secret = made.token.rpartition(".")[2]
    shown = await chief.call("GetApiKey", key_id=key.key_id.upper())
    assert shown.data.key_id == key.key_id
    assert secret not in str(shown)
    ended = await chief.call("RevokeApiKey", key_id=key.key_id, reason="lost")
    again = await chief.call("RevokeApiKey", key_id=key.key_id, reason="again")
    assert ended.data == again.data
    assert (ended.data.status, ended.data.revoked_by) == (REVOKED, "key:chief")
    assert (await refusal(chief.call("RotateApiKey", key_id=key.key_id))).reason == "API_KEY_ENDED"
    lines = "select actor, action, target, reason, request_id, detail::text from eec_workflow_audit where tenant_id = $1 and target = $2 order by at"
    rows = [tuple(row) for row in await as_owner(world.database, lines, tenant, f"api_key:{key.key_id}")]
    assert [row[:4] for row in rows] == [
        ("key:chief", "create_api_key", f"api_key:{key.key_id}", "for ci"),
        ("key:chief", "revoke_api_key", f"api_key:{key.key_id}", "lost"),
    ]
    assert rows[0][4] == "r1"
    assert secret not in str(rows)
    stored = "select t::text from eec_workflow_api_key t where key_id = $1"
    assert secret not in str(await as_owner(world.database, stored, key.key_id))


async def test_n1_keys_are_listed_newest_first(world: World, chief: Chief) -> None:
    """Pages by place, so that none is lost or doubled; by status; a page's token is of its list alone."""
    names = [f"k{number}" for number in range(5)]
    keys = [(await chief.call("CreateApiKey", name=name, scopes=[TASKS])).data.key_id for name in names]
    await chief.call("RevokeApiKey", key_id=keys[1])
    past = "update eec_workflow_api_key set expire_time = now() - interval '1 s' where key_id = $1"
    await as_owner(world.database, past, keys[2])
    listed, token = [], ""
    while not listed or token:
        page = await chief.call("ListApiKeys", page_size=2, page_token=token)
        listed += [key.name for key in page.data]
        token = page.next_page_token
    assert listed == ["k4", "k3", "k2", "k1", "k0", "chief"]

    async def having(status: Any) -> list[str]:
        return [key.name for key in (await chief.call("ListApiKeys", status=status)).data]

    assert await having(REVOKED) == ["k1"]
    assert await having(EXPIRED) == ["k2"]
    assert await having(ACTIVE) == ["k4", "k3", "k0", "chief"]
    token = (await chief.call("ListApiKeys", page_size=1)).next_page_token
    for fields, reason in (
        ({"page_token": token, "status": ACTIVE}, "PAGE_TOKEN_INVALID"),
        ({"page_token": "x"}, "PAGE_TOKEN_INVALID"),
        ({"page_size": 1001}, "FIELD_INVALID"),
        ({"status": 9}, "FIELD_INVALID"),
    ):
        assert (await refusal(chief.call("ListApiKeys", **fields))).reason == reason


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"name": ""}, "FIELD_REQUIRED", "name"),
        ({"name": "a b"}, "FIELD_INVALID", "name"),
        ({"name": "n" * 65}, "FIELD_INVALID", "name"),
        ({"name": "dk_acme.01234567"}, "FIELD_INVALID", "name"),
        ({"scopes": []}, "FIELD_REQUIRED", "scopes"),
        ({"scopes": [ADMIN, "root"]}, "FIELD_INVALID", "scopes[1]"),
        ({"scopes": ["platform"]}, "FIELD_INVALID", "scopes[0]"),
        ({"scopes": [ADMIN, ADMIN]}, "FIELD_DUPLICATE", "scopes[1]"),
        ({"groups": [""]}, "FIELD_INVALID", "groups[0]"),
        ({"groups": ["g", "g"]}, "FIELD_DUPLICATE", "groups[1]"),
        ({"groups": ["é" * 65]}, "FIELD_INVALID", "groups[0]"),
        ({"groups": [str(n) for n in range(51)]}, "BATCH_TOO_LARGE", "groups"),
        ({"expire_time": Timestamp(seconds=1)}, "FIELD_INVALID", "expire_time"),
        ({"expire_time": Timestamp(seconds=1 << 60)}, "FIELD_INVALID", "expire_time"),
        ({"reason": "r" * 1001}, "FIELD_INVALID", "reason"),
        ({"request_id": "r" * 257}, "FIELD_INVALID", "request_id"),
    ],
)
async def test_n1_what_is_no_key_makes_none(chief: Chief, fields: dict[str, Any], reason: str, field: str) -> None:
    """Refused with its reason and field; nothing is made."""
    asked = {"name": "n", "scopes": [ADMIN]} | fields
    told = await refusal(chief.call("CreateApiKey", **asked))
    assert (told.reason, told.metadata["field"]) == (reason, field)
    assert len((await chief.call("ListApiKeys")).data) == 1


async def test_n1_names_are_one_keys_each(chief: Chief) -> None:
    """A name is free again when its key is revoked, and not when its time is over."""
    first = (await chief.call("CreateApiKey", name="app", scopes=[TASKS])).data
    taken = await refusal(chief.call("CreateApiKey", name="app", scopes=[TASKS]))
    assert (taken.code, taken.reason, taken.metadata) == (
        "ALREADY_EXISTS",
        "API_KEY_NAME_TAKEN",
        {"key_id": first.key_id},
    )
    await chief.call("RevokeApiKey", key_id=first.key_id)
    second = (await chief.call("CreateApiKey", name="app", scopes=[TASKS])).data
    assert second.key_id != first.key_id
    for overlap_seconds in (-1, 90 * 86_400 + 1):
        told = await refusal(chief.call("RotateApiKey", key_id=second.key_id, overlap_seconds=overlap_seconds))
        assert (told.reason, told.metadata["field"]) == ("FIELD_INVALID", "overlap_seconds")
    end = datetime.now(UTC) + timedelta(minutes=1)
    brief = (await chief.call("CreateApiKey", name="brief", scopes=[TASKS], expire_time=end)).data
    turned = await chief.call("RotateApiKey", key_id=brief.key_id, overlap_seconds=86_400)
    assert turned.replaced.expire_time == brief.expire_time, "an end that it had earlier stays"
    assert not turned.data.HasField("expire_time")


async def test_n1_a_tenant_has_a_thousand_keys(world: World, tenant: str, chief: Chief) -> None:
    """The limit counts what is neither revoked nor replaced, so that a rotation is always possible."""
    fill = (
        "insert into eec_workflow_api_key (tenant_id, key_id, name, secret_hash, scopes, created_by)"
        " select $1, gen_random_uuid(), 'n' || i, sha256(i::text::bytea), '{admin}', 'x' from generate_series(1, 998) i"
    )
    await as_owner(world.database, fill, tenant)
    last = (await chief.call("CreateApiKey", name="last", scopes=[TASKS])).data
    full = await refusal(chief.call("CreateApiKey", name="more", scopes=[TASKS]))
    assert (full.code, full.reason, full.metadata) == ("RESOURCE_EXHAUSTED", "TOO_MANY_API_KEYS", {"limit": "1000"})
    turned = await chief.call("RotateApiKey", key_id=last.key_id)
    await chief.call("RevokeApiKey", key_id=turned.data.key_id)
    await chief.call("CreateApiKey", name="more", scopes=[TASKS])


async def test_tn01_a_foreign_key_is_none(world: World, tenant: str, chief: Chief) -> None:
    """TN-01: another tenant's id, a random one and no id at all are the same; nor can a tenant's chief make keys of the platform."""
    theirs = await minted(world.database, f"{tenant}-x")
    for rpc in ("GetApiKey", "RotateApiKey", "RevokeApiKey"):
        told = [await refusal(chief.call(rpc, key_id=key_id)) for key_id in (theirs.key.key_id, new_id(), "x")]
        assert {(each.code, each.reason, each.message) for each in told} == {
            ("NOT_FOUND", "API_KEY_NOT_FOUND", "there is no such key")
        }
        assert (await refusal(chief.call(rpc))).reason == "FIELD_REQUIRED"
    await list_runs(world, theirs.token)
    platform = await minted(world.database, PLATFORM_TENANT)
    assert (await refusal(Chief(world, platform.token).call("ListApiKeys"))).reason == "TENANT_REQUIRED"
    assert (await refusal(Chief(world, platform.token, PLATFORM_TENANT).call("ListApiKeys"))).reason == "TENANT_INVALID"
    for_them = Chief(world, platform.token, tenant)
    made = await for_them.call("CreateApiKey", name="first", scopes=list(TENANT_SCOPES))
    assert made.token.startswith(f"dk_{tenant}.")
    assert made.data.created_by == platform.key.created_by.replace("test", f"key:{platform.key.name}")
