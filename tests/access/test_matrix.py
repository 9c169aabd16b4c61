"""Every RPC of the contract × every bad credential, over gRPC, REST and Connect; how many calls that were is told at the end of the test run.

The RPCs come from the descriptors, their scopes from the one table (`rpc.permissions`), so that none can be forgotten (TN-01).
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor

from ductord.model.keys import TENANT_SCOPES
from ductord.rpc.permissions import PERMISSIONS
from tests.access.world import ROUTES, RPCS, World, path_of, request_of, suite
from tests.conftest import Cluster
from tests.support.keys import as_owner, bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("access")]

RPC_COUNT = 71
"""Of the contract, today: one that is added is counted here, and has a line in the table of scopes."""
INVALID = ("UNAUTHENTICATED", "CREDENTIAL_INVALID", 401)


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the tenant `acme`. `only`, `without`: by scope, with that one alone and with all others."""

    good: str
    other: str
    expired: str
    revoked: str
    only: dict[str, str]
    without: dict[str, str]


Kind = tuple[Callable[[Keys, str], tuple[tuple[str, str], ...]], tuple[str, str, int]]
"""The metadata of a call to an RPC that asks for a scope, and (code, reason, HTTP status) of its answer."""

KINDS: dict[str, Kind] = {
    "no key": (
        lambda keys, scope: (("x-tenant-id", "acme"), ("x-ductor-scope", "platform")),
        ("UNAUTHENTICATED", "CREDENTIAL_REQUIRED", 401),
    ),
    "garbage": (lambda keys, scope: bearer("dk_acme.nonsense"), INVALID),
    "no bearer": (lambda keys, scope: (("authorization", f"Basic {keys.good}"),), INVALID),
    "unknown": (lambda keys, scope: bearer(f"dk_acme.{'0' * 32}.{'A' * 43}"), INVALID),
    "wrong secret": (lambda keys, scope: bearer(keys.good.rpartition(".")[0] + "." + "A" * 43), INVALID),
    "another tenant's": (lambda keys, scope: bearer(keys.good.replace("dk_acme.", "dk_other.")), INVALID),
    "expired": (lambda keys, scope: bearer(keys.expired), INVALID),
    "revoked": (lambda keys, scope: bearer(keys.revoked), INVALID),
    "foreign tenant": (lambda keys, scope: bearer(keys.good, "other"), ("PERMISSION_DENIED", "TENANT_MISMATCH", 403)),
    "wrong scope": (lambda keys, scope: bearer(keys.without[scope]), ("PERMISSION_DENIED", "PERMISSION_MISSING", 403)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(postgres: Cluster) -> AsyncIterator[World]:
    """The suite, which takes any number of bad keys."""
    with postgres.database() as database:
        async with suite(database, key_attempts=1_000_000) as running:
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keys(world: World) -> Keys:
    """The keys."""

    async def key(*scopes: str, tenant: str = "acme") -> str:
        return (await minted(world.database, tenant, *scopes)).token

    expired = await minted(world.database, "acme")
    revoked = await minted(world.database, "acme")
    past = "update eec_workflow_api_key set expire_time = now() - interval '1 second' where key_id = $1"
    await as_owner(world.database, past, expired.key.key_id)
    over = "update eec_workflow_api_key set revoke_time = now() where key_id = $1"
    await as_owner(world.database, over, revoked.key.key_id)
    return Keys(
        good=await key(),
        other=await key(tenant="other"),
        expired=expired.token,
        revoked=revoked.token,
        only={scope: await key(scope) for scope in TENANT_SCOPES},
        without={scope: await key(*(each for each in TENANT_SCOPES if each != scope)) for scope in TENANT_SCOPES},
    )


def scope_of(rpc: MethodDescriptor) -> str:
    """What the table says."""
    return PERMISSIONS[path_of(rpc)[1:]]


async def test_n1_every_rpc_has_one_scope() -> None:
    """The table is the contract, no more and no less."""
    assert {path_of(rpc)[1:] for rpc in RPCS} == set(PERMISSIONS)
    assert len(PERMISSIONS) == RPC_COUNT
    assert set(PERMISSIONS.values()) == set(TENANT_SCOPES), "a scope that no RPC asks for"


async def test_n1_the_scope_that_the_table_names_is_enough(world: World, keys: Keys) -> None:
    """With that scope alone an empty request gets as far as being judged itself: what the matrix sees is the credential's doing."""
    for rpc in RPCS:
        answer = await world.call(rpc, request_of(rpc), bearer(keys.only[scope_of(rpc)]))
        assert answer.code not in ("UNAUTHENTICATED", "PERMISSION_DENIED", "INTERNAL"), f"{rpc.name}: {answer}"


@pytest.mark.parametrize("kind", KINDS)
async def test_n1_grpc_refuses_every_bad_credential(
    world: World, keys: Keys, kind: str, record_property: Callable[[str, Any], None]
) -> None:
    """N1, TN-01: coded, with nothing in the answer that depends on what exists; before the request, which is empty here, is judged."""
    metadata, (code, reason, _) = KINDS[kind]
    bodies = set()
    for rpc in RPCS:
        scope = scope_of(rpc)
        answer = await world.call(rpc, request_of(rpc), metadata(keys, scope))
        assert (answer.code, answer.reason) == (code, reason), f"{rpc.name}: {answer}"
        assert answer.details == ({"permission": scope} if kind == "wrong scope" else {})
        bodies.add(answer.body)
    assert len(bodies) == (len(TENANT_SCOPES) if kind == "wrong scope" else 1), "the same answer from every RPC"
    record_property("calls with a bad credential refused, gRPC", len(RPCS))


@pytest.mark.parametrize("kind", KINDS)
async def test_n1_rest_refuses_every_bad_credential(
    world: World, keys: Keys, kind: str, record_property: Callable[[str, Any], None]
) -> None:
    """The same over every path of the REST side: 401 names the scheme."""
    metadata, (code, reason, http) = KINDS[kind]
    for route in ROUTES:
        path = "/".join("x" if part.startswith("{") else part for part in _parts(route.template))
        headers = dict(metadata(keys, scope_of(route.rpc)))
        response = await world.http.request(route.http_method, path, headers=headers)
        error = response.json()["error"]
        [info] = [detail for detail in error["details"] if "reason" in detail]
        assert (response.status_code, error["status"], info["reason"]) == (http, code, reason), route.template
        assert response.headers.get("www-authenticate") == ("Bearer" if http == 401 else None)
    record_property("calls with a bad credential refused, REST", len(ROUTES))


@pytest.mark.parametrize("kind", KINDS)
async def test_n1_connect_refuses_every_bad_credential(
    world: World, keys: Keys, kind: str, record_property: Callable[[str, Any], None]
) -> None:
    """The same over Connect."""
    metadata, (code, _, http) = KINDS[kind]
    for rpc in RPCS:
        headers = {"content-type": "application/json", **dict(metadata(keys, scope_of(rpc)))}
        if rpc.server_streaming:
            headers["content-type"] = "application/connect+json"
            response = await world.http.post(path_of(rpc), content=b"\0\0\0\0\2{}", headers=headers)
            assert f'"code":"{code.lower()}"' in response.text.replace(" ", ""), response.text
            continue
        response = await world.http.post(path_of(rpc), content=b"{}", headers=headers)
        assert (response.status_code, response.json()["code"]) == (http, code.lower()), rpc.name
        assert response.headers.get("www-authenticate") == ("Bearer" if http == 401 else None)
    record_property("calls with a bad credential refused, Connect", len(RPCS))


def _parts(template: str) -> list[str]:
    """A path's segments, with a verb as one of its last."""
    path, colon, verb = template.partition(":")
    parts = path.split("/")
    parts[-1] = ("x" if parts[-1].startswith("{") else parts[-1]) + colon + verb
    return parts
