"""Who calls: tenant, actor, scopes and the ids of the call at hand (rulings N1, N2, N3).

With authentication off the tenant is what the metadata says and the actor is `anonymous`; there is no default tenant. Only services that serve
all tenants know the platform scope. This module looks nothing up: whether an id belongs to the tenant is the business of the query that reads it.
"""

import hmac
import os
import re
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from ductord.model.errors import Refusal
from ductord.model.keys import TENANT_SCOPES
from ductord.rpc.errors import refused

AUTHORIZATION_KEY: Final = "authorization"
TENANT_KEY: Final = "x-tenant-id"
SCOPE_KEY: Final = "x-ductor-scope"
REQUEST_ID_KEY: Final = "x-request-id"
TRACEPARENT_KEY: Final = "traceparent"
INSIDE_KEY: Final = "x-ductor-inside"
"""Metadata by which a process knows its own calls: a random text that never leaves it."""
PLATFORM: Final = "platform"
INSIDE: Final = "inside"
"""The `key_id` of a process that calls itself, in the name of a tenant that its configuration names."""

PLATFORM_SERVICES: Final = frozenset({"ductor.workflow.v1.TaskService"})
"""Services that a caller with the platform scope may use for all tenants at once."""

_TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # ruling L2
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of one RPC. `tenant_id` None: all tenants (platform scope). `traceparent` is the span of this call.

    With authentication on, `actor` is `key:<name>`, `groups` are those of the key (E2), `acts_for_others` is whether it may approve in the name of whom it
    gives, and `key_id` is the key's id; `authenticated` says so.
    """

    tenant_id: str | None
    actor: str = "anonymous"
    scopes: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    acts_for_others: bool = False
    key_id: str = ""
    request_id: str
    trace_id: str
    traceparent: str

    @property
    def authenticated(self) -> bool:
        """Whether a credential says who calls."""
        return bool(self.key_id)

    @property
    def tenant(self) -> str:
        """The tenant, for what is done in one tenant's name. Raises TENANT_REQUIRED for a caller of all tenants."""
        if self.tenant_id is None:
            raise refused("TENANT_REQUIRED", "this call is made for one tenant: name it in x-tenant-id")
        return self.tenant_id


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a credential says is calling: what an `Authenticator` answers, and what of a `Caller` does not come from the call itself."""

    tenant_id: str | None
    actor: str = "anonymous"
    scopes: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ()
    acts_for_others: bool = False
    key_id: str = ""


class Authenticator(Protocol):
    """Who calls and whether they may. `access.Keys` with `DUCTOR_AUTH=keys`; without one, `tenant_of` takes callers at their word."""

    async def identify(
        self, service: str, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Identity:
        """The caller of `service` (`ductor.workflow.v1.TaskService`) and `method`, who calls from `peer` (gRPC's form, `ipv4:127.0.0.1:5555`).

        Raises `Refusal`: CREDENTIAL_REQUIRED, CREDENTIAL_INVALID, TENANT_MISMATCH, PERMISSION_MISSING, TENANT_REQUIRED, TENANT_INVALID, TOO_MANY_ATTEMPTS,
        DATABASE_UNAVAILABLE.
        """
        ...

    async def recheck(self, identity: Identity) -> None:
        """Whether the caller of a call that goes on is still good. Raises CREDENTIAL_INVALID, DATABASE_UNAVAILABLE."""
        ...


def credential_of(authorizations: Collection[str]) -> str | None:
    """What stands behind `Bearer` in the values of `authorization`; None without any, empty for something else and for two that differ."""
    if not authorizations:
        return None
    found = set()
    for value in authorizations:
        scheme, _, credential = value.partition(" ")
        found.add(credential.strip() if scheme.lower() == "bearer" else "")
    return found.pop() if len(found) == 1 else ""


def inside_of(metadata: Iterable[tuple[str, str | bytes]], secret: str) -> Identity | None:
    """The caller, if it is this process itself: what loads definitions at boot. `secret`: the process's; empty: it does not call itself.

    Raises TENANT_INVALID.
    """
    if not secret:
        return None
    given, tenants = "", set()
    for key, value in metadata:
        if key == INSIDE_KEY:
            given = value if isinstance(value, str) else ""
        elif key == TENANT_KEY:
            tenants.add(value)
    if not given or not hmac.compare_digest(given.encode(), secret.encode()):
        return None
    tenant = tenants.pop() if len(tenants) == 1 else ""
    tenant_id = checked_tenant(tenant if isinstance(tenant, str) else "")
    return Identity(tenant_id=tenant_id, actor="system:boot", scopes=frozenset(TENANT_SCOPES), key_id=INSIDE)


_caller: ContextVar[Caller | None] = ContextVar("ductor_caller", default=None)


def caller() -> Caller:
    """Who makes the call at hand. Raises LookupError outside of an RPC."""
    current = _caller.get()
    if current is None:
        raise LookupError("no call at hand")
    return current


def caller_or_none() -> Caller | None:
    """As `caller`, None outside of an RPC (logs)."""
    return _caller.get()


set_caller = _caller.set
"""Used by the pipeline, and by the gateway for what it serves itself."""
reset_caller = _caller.reset


def tenant_of(service: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> tuple[str | None, frozenset[str]]:
    """(tenant, scopes) that the metadata of a call to `service` (`ductor.workflow.v1.TaskService`) names, authentication being off.

    A tenant beside the platform scope narrows the call to that tenant. Raises TENANT_REQUIRED, TENANT_INVALID.
    """
    tenants = set()
    platform = False
    for key, value in metadata or ():
        if key == TENANT_KEY:
            tenants.add(value)
        elif key == SCOPE_KEY and value == PLATFORM:
            platform = service in PLATFORM_SERVICES
    scopes = frozenset((PLATFORM,)) if platform else frozenset()
    if not tenants:
        if platform:
            return None, scopes
        raise refused("TENANT_REQUIRED", "name the tenant in x-tenant-id: there is no default")
    tenant = tenants.pop()
    return checked_tenant(tenant if isinstance(tenant, str) and not tenants else ""), scopes


def checked_tenant(text: str) -> str:
    """`text` if it can be a tenant's id (ruling L2). Raises TENANT_INVALID, which does not repeat it."""
    if _TENANT.fullmatch(text) is None:
        raise refused("TENANT_INVALID", "x-tenant-id is one value of 1 to 64 letters, digits, _ and -")
    return text


def request_id_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The id that a gateway gave this call, if it can be one, else a new one."""
    for key, value in metadata or ():
        if key == REQUEST_ID_KEY and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return new_request_id()


def new_request_id() -> str:
    """32 random hexadecimal digits."""
    return os.urandom(16).hex()


__all__ = [
    "INSIDE",
    "INSIDE_KEY",
    "PLATFORM",
    "PLATFORM_SERVICES",
    "Authenticator",
    "Caller",
    "Identity",
    "Refusal",
    "caller",
    "caller_or_none",
    "checked_tenant",
    "credential_of",
    "inside_of",
    "new_request_id",
    "request_id_of",
    "reset_caller",
    "set_caller",
    "tenant_of",
]
