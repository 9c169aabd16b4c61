"""Whether a login is one that row-level security holds. It is the second wall between tenants (ruling N1), and a superuser walks through it."""

import asyncpg

_LOGIN = """
select r.rolname, r.rolsuper or r.rolbypassrls as unbound,
       coalesce(pg_has_role(r.oid, to_regrole('ductor_' || $1)::oid, 'usage'), false) as entitled
from pg_roles r where r.rolname = current_user
"""


async def unfit(connection: asyncpg.Connection, role: str) -> str | None:
    """Why the login of `connection` must not serve as `ductor_<role>`; None when it is that role or a member of it, and no more."""
    login = await connection.fetchrow(_LOGIN, role)
    if login["unbound"]:
        return f"{login['rolname']} is a superuser or bypasses row-level security: tenants would not be kept apart"
    if not login["entitled"]:
        return f"{login['rolname']} has not the rights of ductor_{role}"
    return None
