"""Credentials as values: scopes, and the form of a token. Nothing here knows a secret's owner or compares one.

A token is `dk_<tenant>.<key id, 32 hexadecimal digits>.<secret>`: it names its tenant, so that the row behind it is found with its tenant like every other. The
secret is 32 random bytes in base64url. Tokens of the platform's own keys begin with `dk_*.`.
"""

import re
from typing import Final

import msgspec

DEFINITION_READ: Final = "workflow_definition:read"
DEFINITION_WRITE: Final = "workflow_definition:write"
WORKFLOW_READ: Final = "workflow:read"
WORKFLOW_WRITE: Final = "workflow:write"
RUN_WRITE: Final = "workflow_run:write"
EVENTS_PUBLISH: Final = "workflow_events:publish"
TASKS: Final = "worker:tasks"
ADMIN: Final = "admin"

TENANT_SCOPES: Final = (
    DEFINITION_READ,
    DEFINITION_WRITE,
    WORKFLOW_READ,
    WORKFLOW_WRITE,
    RUN_WRITE,
    EVENTS_PUBLISH,
    TASKS,
    ADMIN,
)
"""What a tenant's key may carry."""
PLATFORM_SCOPES: Final = (TASKS, ADMIN)
"""What a key of the platform may carry, and does for every tenant: our own worker's, and that of who makes tenants' first keys."""

PLATFORM_TENANT: Final = "*"
"""Whose the platform's keys are: no possible id of a tenant (ruling L2)."""

TOKEN_BEGIN: Final = "dk_"
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN: Final = re.compile(r"dk_([A-Za-z0-9_-]{1,64}|\*)\.([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token taken apart; whether it is good is not said by its form. `repr` keeps the secret to itself."""

    tenant_id: str
    key_id: str
    secret: str

    @property
    def text(self) -> str:
        """As callers give it."""
        return f"{self.prefix}{self.key_id[8:]}.{self.secret}"

    @property
    def prefix(self) -> str:
        """What may be shown of it: tenant and the begin of the key's id."""
        return f"dk_{self.tenant_id}.{self.key_id[:8]}"

    def __repr__(self) -> str:
        return f"Token({self.prefix}…)"


def parse_token(text: str) -> Token | None:
    """The parts of `dk_acme.0198….x3…`; None for what has not the form of a token."""
    match = _TOKEN.fullmatch(text)
    return Token(tenant_id=match[1], key_id=match[2], secret=match[3]) if match else None
