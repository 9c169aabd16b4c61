"""Definitions with event triggers: the rows that a publish and an archiving leave, written by the definition service's own code, and those of an override."""

from typing import Any

import asyncpg
import orjson
from msgspec.structs import replace

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.definition.live import retire
from ductord.model import manifest as manifests
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression, Template
from ductord.model.starting import TriggerSpec
from tests.support.books import TENANT, chain
from tests.support.edges import Catalogue


def on(*patterns: str, id_: str = "on", filter_: str = "", input_: Any = None, **fields: Any) -> TriggerSpec:
    """An event trigger."""
    names = ("EVENT", "VARS")
    return TriggerSpec(
        id=id_,
        patterns=patterns,
        filter=Expression(source=filter_, names=names) if filter_ else None,
        input=None if input_ is None else Template(tree=input_, static=False, names=names),
        **fields,
    )


class Live:
    """Publishes, archives and overrides; looks at the runs that were born."""

    def __init__(self, owner: asyncpg.Connection) -> None:
        self.owner = owner
        self.catalogue = Catalogue(owner)

    async def define(self, *triggers: TriggerSpec, slug: str = "order", tenant: str = TENANT, **fields: Any) -> str:
        """A definition with one version; its id."""
        definition_id = await self.catalogue.define(slug, tenant=tenant)
        await self.publish(definition_id, *triggers, slug=slug, tenant=tenant, **fields)
        return definition_id

    async def publish(
        self,
        definition_id: str,
        *triggers: TriggerSpec,
        slug: str = "order",
        tenant: str = TENANT,
        manifest: Manifest | None = None,
        **fields: Any,
    ) -> str:
        """The next version, whose triggers replace those of the last in the same transaction; its version id. `fields`: of the manifest."""
        manifest = replace(manifest or chain(1), family_slug=slug, triggers=triggers, **fields)
        async with self.owner.transaction():
            return await self.catalogue.publish(definition_id, manifest, tenant=tenant)

    async def archive(self, definition_id: str, *, tenant: str = TENANT) -> None:
        """Retire the newest version."""
        async with self.owner.transaction():
            await self.owner.execute(
                "update eec_workflow_version v set status = 'archived' from eec_workflow_definition d"
                " where d.definition_id = $1 and v.definition_id = $1 and v.version = d.latest_version",
                definition_id,
            )
            await retire(self.owner, tenant, definition_id)

    async def override(self, definition_id: str, environment: str, variables: Any, *, tenant: str = TENANT) -> None:
        """Set what VARS hold in an environment."""
        await self.owner.execute(
            "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables) values ($1, $2, $3, $4)"
            " on conflict (tenant_id, definition_id, environment) do update set variables = excluded.variables",
            tenant, definition_id, environment, orjson.dumps(variables).decode(),
        )  # fmt: skip

    async def multiply(self, count: int) -> None:
        """So many further definitions that are as the one that there is."""
        await self.owner.execute(
            "with family as (insert into eec_workflow_definition (tenant_id, definition_id, family_slug, latest_version)"
            " select tenant_id, gen_random_uuid(), family_slug || n, 1 from eec_workflow_definition, generate_series(1, $1::int) n returning *),"
            " made as (insert into eec_workflow_version (tenant_id, version_id, definition_id, version, document, manifest, manifest_hash, format_version,"
            " engine_level, draft_revision) select f.tenant_id, gen_random_uuid(), f.definition_id, 1, '{}', v.manifest, 'hash', 1, 1, 1"
            " from eec_workflow_version v, family f returning *)"
            " insert into eec_workflow_event_trigger (tenant_id, pattern, definition_id, trigger_id, family_slug, version_id, version)"
            " select t.tenant_id, t.pattern, m.definition_id, t.trigger_id, t.family_slug, m.version_id, 1 from eec_workflow_event_trigger t, made m",
            count,
        )

    async def runs(self, definition_id: str | None = None) -> list[dict[str, Any]]:
        """The runs of a definition, or all, in the order of their events; payloads parsed."""
        rows = await self.owner.fetch(
            "select run_id::text, definition_id::text, version_id::text, version, family_slug, given_definition_id::text, root_run_id::text,"
            " journey_id::text, input::text, tier, origin::text, coalesce(event_payload, 'null')::text as event_payload,"
            " variables::text, environment, traceparent, actor"
            " from eec_workflow_run_start where $1::uuid is null or definition_id = $1 order by origin -> 'event' ->> 'id', run_id",
            definition_id,
        )
        payloads = ("input", "origin", "event_payload", "variables")
        return [{k: orjson.loads(v) if k in payloads else v for k, v in dict(row).items()} for row in rows]

    async def wakeups(self, run_id: str) -> list[bool]:
        """Of a run's wake-ups whether each begins it."""
        rows = await self.owner.fetch("select begins from eec_workflow_wakeup where run_id = $1", run_id)
        return [row["begins"] for row in rows]


def unreadable(manifest: Manifest) -> str:
    """The text of a manifest that no service of this release reads."""
    tree = orjson.loads(manifests.encode(manifest))
    tree["triggers"] = [{**trigger, "from_the_future": 1} for trigger in tree["triggers"]]
    return orjson.dumps(tree).decode()


def refusals(answer: api.PublishEventResponse) -> dict[str, str]:
    """Of an answer: trigger → why it started no run."""
    return {trigger.trigger_id: trigger.code for trigger in answer.refused_triggers}
