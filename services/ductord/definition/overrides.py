"""Environment overrides (L8): what VARS hold in one environment instead of the definition's defaults, for all of its versions.

They count for runs that start afterwards; a run's values are frozen with it. An override is replaced whole, never merged, and names only variables that the
draft or the newest version declares. What it says goes into no log and no audit line: values may be secret.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.db.queries import Queries
from ductord.definition import lookup, store
from ductord.definition.audit import Act
from ductord.definition.transactions import in_transaction
from ductord.engine.positions import dotted
from ductord.engine.suggest import suggestion
from ductord.model.errors import Violation
from ductord.model.jsonvalue import storable_text
from ductord.model.starting import ENVIRONMENT_PATTERN
from ductord.rpc.answers import timestamp
from ductord.rpc.errors import field_invalid, field_required, refused
from ductord.rpc.paging import page_of
from ductord.rpc.payloads import Payload, fill_payload, payload_of
from ductord.rpc.room import fitting

_TOLD: Final = 20
"""Unknown names that are told of; more are a mistake that is understood by then."""
_HEAD: Final = 1_024
"""More than an override's own fields take on the wire beside its values."""
_NAMES: Final = 1_000
_ENVIRONMENT: Final = re.compile(ENVIRONMENT_PATTERN)
_SQL: Final = Queries("ductord.definition", "overrides.sql")


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """An override as it stands. `variables`: JSON text; None: left out, for want of room."""

    environment: str
    variables: str | None
    updated_by: str
    update_time: datetime


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One page."""

    entries: Sequence[api.WorkflowEnvOverride]
    next_page_token: str
    now: datetime


async def upsert(
    pool: asyncpg.Pool, tenant_id: str, request: api.UpsertWorkflowEnvOverrideRequest, act: Act, *, max_bytes: int
) -> tuple[Override, datetime]:
    """Replace the override of an environment; as it is now, and now. `max_bytes`: of all values together.

    Raises FIELD_REQUIRED, FIELD_INVALID, `PayloadInvalid`, DEFINITION_NOT_FOUND, VARIABLE_UNKNOWN.
    """
    environment = _environment(request.environment)
    given = _variables(request, max_bytes)

    async def work(db: asyncpg.Connection, again: bool) -> tuple[Override, datetime]:
        family = await lookup.family(db, tenant_id, request.workflow_id, field="workflow_id")
        definition_id = family.definition_id
        await store.lock_family(db, tenant_id, definition_id)
        rows = await db.fetch(_SQL["declared"], tenant_id, definition_id)
        _refuse_unknown(given, [row["name"] for row in rows])
        row = await db.fetchrow(_SQL["put_override"], tenant_id, definition_id, environment, given.text, act.actor)
        names = ", ".join(given.value)
        await act.write(
            db,
            tenant_id,
            "set_env_override",
            definition_id,
            family_slug=family.family_slug,
            environment=environment,
            variables=names if len(names) <= _NAMES else f"{names[:_NAMES]}…",
        )
        return Override(**row), await store.now(db)

    return await in_transaction(pool, tenant_id, work)


async def list_page(
    pool: asyncpg.Pool, tenant_id: str, request: api.ListWorkflowEnvOverridesRequest, max_bytes: int
) -> Listed:
    """The page that the request asks for, by environment, cut where the reply would be larger than `max_bytes` (L7).

    Raises FIELD_INVALID, FIELD_REQUIRED, PAGE_TOKEN_INVALID, DEFINITION_NOT_FOUND.
    """
    page = page_of(request, tenant_id)
    after = _place(page.after)

    async def work(db: asyncpg.Connection, again: bool) -> tuple[list[Override], datetime]:
        family = await lookup.family(db, tenant_id, request.workflow_id, field="workflow_id")
        rows = await db.fetch(_SQL["list_overrides"], tenant_id, family.definition_id, after, page.fetch, max_bytes)
        return [Override(**row) for row in rows], await store.now(db)

    found, now = await in_transaction(pool, tenant_id, work)

    def entries() -> Iterator[tuple[str, api.WorkflowEnvOverride | None]]:
        for one in found:
            whole = one.variables is not None
            yield one.environment, message(one, request.payload_format, max_bytes) if whole else None

    shown, last = fitting(entries(), page.size, max_bytes)
    return Listed(entries=shown, next_page_token="" if last is None else page.next_token((last,)), now=now)


async def delete(
    pool: asyncpg.Pool, tenant_id: str, request: api.DeleteWorkflowEnvOverrideRequest, act: Act
) -> datetime:
    """Remove the override of an environment; now. Raises FIELD_REQUIRED, FIELD_INVALID, DEFINITION_NOT_FOUND, ENV_OVERRIDE_NOT_FOUND."""
    environment = _environment(request.environment)
    found = False

    async def work(db: asyncpg.Connection, again: bool) -> datetime:
        nonlocal found
        family = await lookup.family(db, tenant_id, request.workflow_id, field="workflow_id")
        definition_id = family.definition_id
        await store.lock_family(db, tenant_id, definition_id)
        if await db.fetchval(_SQL["delete_override"], tenant_id, definition_id, environment) is not None:
            found = True
            slug = family.family_slug
            await act.write(
                db, tenant_id, "delete_env_override", definition_id, family_slug=slug, environment=environment
            )
        elif not (again and found):  # else it went with the COMMIT of which nothing was heard
            raise refused(
                "ENV_OVERRIDE_NOT_FOUND",
                f"the definition has no override for the environment {environment}",
                environment=environment,
            )
        return await store.now(db)

    return await in_transaction(pool, tenant_id, work)


def message(of: Override, payload_format: int, max_bytes: int) -> api.WorkflowEnvOverride:
    """The override for an answer of at most `max_bytes`."""
    answer = api.WorkflowEnvOverride(
        environment=of.environment, updated_by=of.updated_by, update_time=timestamp(of.update_time)
    )
    fill_payload(answer, "variables", of.variables, payload_format, max_bytes=max_bytes - _HEAD)
    return answer


def _environment(name: str) -> str:
    if not name:
        raise field_required("environment")
    if not _ENVIRONMENT.fullmatch(name):
        raise field_invalid("environment", "is 1 to 64 of a-z, 0-9, _ and -, and begins with a letter or a digit")
    return name


def _variables(request: api.UpsertWorkflowEnvOverrideRequest, max_bytes: int) -> Payload:
    given = payload_of(request, "variables", max_bytes=max_bytes)
    if given is None:
        raise field_required("variables")
    if not isinstance(given.value, dict):
        raise field_invalid("variables_json", "is not a JSON object")
    return given


def _refuse_unknown(given: Payload, declared: Sequence[str]) -> None:
    known = frozenset(declared)
    unknown = [name for name in given.value if name not in known]
    if not unknown:
        return
    violations = [_unknown(name, known) for name in unknown[:_TOLD]]
    first, more = violations[0], f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
    raise refused(
        "VARIABLE_UNKNOWN",
        f"{first.message}{more}",
        violations=violations,
        field=first.path,
        variable=storable_text(unknown[0], max_chars=128),
    )


def _unknown(name: str, declared: frozenset[str]) -> Violation:
    said = "neither the draft nor the newest version declares a variable"
    text = f"{said} `{storable_text(name, max_chars=128)}`{suggestion(name, declared)}"
    return Violation(code="VARIABLE_UNKNOWN", message=text, path=dotted(("variables", name)))


def _place(after: tuple[object, ...] | None) -> str:
    match after:
        case None:
            return ""
        case (str(environment),) if _ENVIRONMENT.fullmatch(environment):
            return environment
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")
