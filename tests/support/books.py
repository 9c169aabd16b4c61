"""The books by SQL: what trigger and dispatch would write, for tests of the coordinator alone, and what anybody may read of a run.

Writes go in as the owner, with the very columns that the services' statements set.
"""

import json
from typing import Any

import asyncpg

from ductord.db.ids import new_id
from ductord.engine.evolve import fold
from ductord.model import control as controls
from ductord.model import events, stored
from ductord.model import manifest as manifests
from ductord.model.control import ControlBody
from ductord.model.enums import EdgeType, NodeStatus, StepType, Verb
from ductord.model.inbox import Signal
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Edge, Manifest, Step
from ductord.model.run import Run
from ductord.model.specs import ActionSpec
from tests.support.fan_books import fans_are_counted

TENANT = "t"


def chain(length: int, **settings: Any) -> Manifest:
    """A manifest of `length` noop steps s0 → s1 → …; `settings` go to every step."""
    steps = tuple(
        Step(
            ref=f"s{i}",
            type=StepType.ACTION,
            incoming=(i - 1,) if i else (),
            outgoing=(i,) if i < length - 1 else (),
            action=ActionSpec(action="noop:noop"),
            **settings,
        )
        for i in range(length)
    )
    edges = tuple(Edge(source=i, target=i + 1, type=EdgeType.SUCCESS) for i in range(length - 1))
    return Manifest(
        format_version=FORMAT_VERSION,
        engine_level=ENGINE_LEVEL,
        family_slug="chain",
        steps=steps,
        edges=edges,
        entrypoints=(0,),
    )


class Books:
    """The tables of one test database, over one owner connection."""

    def __init__(self, owner: asyncpg.Connection) -> None:
        self.owner = owner
        self._manifests: dict[str, Manifest] = {}

    async def publish(
        self,
        manifest: Manifest,
        *,
        slug: str = "chain",
        tenant: str = TENANT,
        text: str | None = None,
        format_version: int = FORMAT_VERSION,
    ) -> str:
        """A published version; its version id. `text`: what is stored instead of the manifest."""
        definition_id, version_id = new_id(), new_id()
        await self.owner.execute(
            "insert into eec_workflow_definition (tenant_id, definition_id, family_slug, latest_version) values ($1, $2, $3, 1)",
            tenant, definition_id, f"{slug}-{definition_id[:8]}-{definition_id[-6:]}",
        )  # fmt: skip
        await self.owner.execute(
            "insert into eec_workflow_version (tenant_id, version_id, definition_id, version, document, manifest, manifest_hash, format_version,"
            " engine_level, draft_revision) values ($1, $2, $3, 1, '{}', $4, 'hash', $5, $6, 1)",
            tenant, version_id, definition_id, text or manifests.encode(manifest), format_version, ENGINE_LEVEL,
        )  # fmt: skip
        self._manifests[version_id] = manifest
        return version_id

    async def release(self, manifest: Manifest, *, tenant: str = TENANT) -> str:
        """The next version of the manifest's own family; its version id."""
        version_id = new_id()
        await self.owner.execute(
            "insert into eec_workflow_definition (tenant_id, definition_id, family_slug) select $1, $2, $3"
            " where not exists (select from eec_workflow_definition where tenant_id = $1 and family_slug = $3)",
            tenant, new_id(), manifest.family_slug,
        )  # fmt: skip
        await self.owner.execute(
            "with family as (update eec_workflow_definition set latest_version = latest_version + 1 where tenant_id = $1 and family_slug = $2"
            " returning definition_id, latest_version)"
            " insert into eec_workflow_version (tenant_id, version_id, definition_id, version, document, manifest, manifest_hash, format_version,"
            " engine_level, draft_revision) select $1, $3, definition_id, latest_version, '{}', $4, 'hash', $5, $6, 1 from family",
            tenant, manifest.family_slug, version_id, manifests.encode(manifest), FORMAT_VERSION, ENGINE_LEVEL,
        )  # fmt: skip
        self._manifests[version_id] = manifest
        return version_id

    async def archive(self, family_slug: str, version: int) -> None:
        """Retire a version of a family."""
        await self.owner.execute(
            "update eec_workflow_version set status = 'archived', archive_time = eec_now() where version = $2 and definition_id ="
            " (select definition_id from eec_workflow_definition where family_slug = $1)",
            family_slug,
            version,
        )

    async def compiled(self, run_id: str) -> Manifest:
        """What a run runs."""
        version_id = "select version_id::text from eec_workflow_run_start where run_id = $1"
        return self._manifests[await self.owner.fetchval(version_id, run_id)]

    async def start(
        self,
        version_id: str,
        *,
        tenant: str = TENANT,
        input_: str = "{}",
        wake: bool = True,
        subject: tuple[str, str] = ("", ""),
        run_id: str | None = None,
        actor: str | None = None,
    ) -> str:
        """A run start and its wake-up, as trigger writes them; the run id."""
        run_id = run_id or new_id()
        await self.owner.execute(
            "insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, input,"
            " root_run_id, journey_id, subject_type, subject_id)"
            " select $1, $2, coalesce(v.definition_id, $3), $3, coalesce(v.version, 1), coalesce(d.family_slug, 'chain'), coalesce(v.definition_id, $3), $4,"
            " $2, $2, $5, $6 from (select) x left join eec_workflow_version v on v.tenant_id = $1 and v.version_id = $3"
            " left join eec_workflow_definition d on d.tenant_id = $1 and d.definition_id = v.definition_id",
            tenant, run_id, version_id, input_, *subject,
        )  # fmt: skip
        if actor is not None:
            await self.owner.execute("update eec_workflow_run_start set actor = $2 where run_id = $1", run_id, actor)
        if wake:
            await self.owner.execute(
                "insert into eec_workflow_wakeup (tenant_id, run_id, begins) values ($1, $2, true)", tenant, run_id
            )
        return run_id

    async def wake(self, run_id: str, *, tenant: str = TENANT) -> None:
        """One more wake-up."""
        await self.owner.execute("insert into eec_workflow_wakeup (tenant_id, run_id) values ($1, $2)", tenant, run_id)

    async def control(
        self,
        run_id: str,
        verb: Verb,
        *,
        request_id: str = "",
        step_ref: str = "",
        body: ControlBody | None = None,
        tenant: str = TENANT,
        wake: bool = True,
    ) -> str:
        """An operator's intent and its wake-up, as run_control writes them; the request id, by default the verb's name."""
        request_id = request_id or verb.value
        await self.owner.execute(
            "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, step_ref, body, body_hash, reason, actor, call_id)"
            " values ($1, $2, $3, $4, $5, $6, 'hash', 'because', 'somebody', 'call')",
            tenant, run_id, request_id, verb, step_ref, controls.encode(body or ControlBody()),
        )  # fmt: skip
        if wake:
            await self.wake(run_id, tenant=tenant)
        return request_id

    async def signal(
        self, run_id: str, signal: Signal, payload: Any = None, *, tenant: str = TENANT, wake: bool = True
    ) -> None:
        """Somebody's word to a step and its wake-up, as signals writes them."""
        added = await self.owner.execute(
            "insert into eec_workflow_signal (tenant_id, run_id, request_id, verb, step_ref, payload, case_status, actor, approver_id, groups, comment,"
            " body_hash, call_id, create_time) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'hash', 'call', $12) on conflict do nothing",
            tenant, run_id, signal.request_id, signal.verb, signal.step_ref, json.dumps(payload), signal.status, signal.actor, signal.approver_id,
            list(signal.groups), signal.comment, signal.create_time,
        )  # fmt: skip
        if wake and added == "INSERT 0 1":
            await self.wake(run_id, tenant=tenant)

    async def operation(self, run_id: str, request_id: str) -> asyncpg.Record:
        """What became of a control: (status, code, message, result)."""
        return await self.owner.fetchrow(
            "select status, outcome_code as code, outcome_message as message, result::text, settle_time from eec_workflow_intent"
            " where run_id = $1 and request_id = $2",
            run_id,
            request_id,
        )

    async def trail(self, run_id: str) -> list[tuple[str, str, str]]:
        """The run's audit trail: (actor, action, outcome), oldest first."""
        rows = await self.owner.fetch(
            "select actor, action, outcome from eec_workflow_audit where target = $1 order by at, audit_id",
            f"run:{run_id}",
        )
        return [tuple(row) for row in rows]

    async def report(
        self,
        run_id: str | None = None,
        *,
        outcome: str = "succeeded",
        output: str | None = "{}",
        code: str | None = None,
        wake: bool = True,
    ) -> int:
        """Report every open attempt (of one run), as dispatch does; how many."""
        count: int = await self.owner.fetchval(
            """
            with reported as (
                update eec_workflow_step_attempt
                set report_time = eec_now(), outcome = $2, output = case when $2 = 'succeeded' then ($3::text)::json end,
                    output_size = length($3::text), output_hash = 'h',
                    error_code = $4, error_message = $4, start_time = coalesce(start_time, eec_now()), lease_secret = coalesce(lease_secret, 'x')
                where status = 'open' and report_time is null and due_time <= eec_now() and ($1::uuid is null or run_id = $1)
                returning tenant_id, run_id),
            woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from reported where $5)
            select count(*) from reported
            """,
            run_id, outcome, output, code, wake,
        )  # fmt: skip
        return count

    async def status(self, run_id: str) -> str:
        """Status of a run, `pending` without a row."""
        status: str | None = await self.owner.fetchval("select status from eec_workflow_run where run_id = $1", run_id)
        return status or "pending"

    async def open_runs(self) -> int:
        """How many runs have not ended."""
        count: int = await self.owner.fetchval(
            "select count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id) where r.end_time is null"
        )
        return count

    async def run(self, run_id: str) -> Run:
        """The stored run."""
        row = await self.owner.fetchrow(
            "select version_id::text, run_id::text, status, record_version, node_states::text, edge_states, run_state::text, has_errors, start_time,"
            " end_time from eec_workflow_run where run_id = $1",
            run_id,
        )
        columns = dict(row)
        return stored.decode_run(self._manifests[columns.pop("version_id")], **columns)

    async def folded(self, run_id: str) -> Run:
        """The run as its history says: every transition folded."""
        version_id = await self.owner.fetchval(
            "select version_id::text from eec_workflow_run_start where run_id = $1", run_id
        )
        rows = await self.owner.fetch(
            "select seq, at, events::text from eec_workflow_transition where run_id = $1 order by seq", run_id
        )
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)), "transitions without gaps"
        return fold(self._manifests[version_id], run_id, [(row["at"], events.decode(row["events"])) for row in rows])

    async def history(self, run_id: str) -> list[tuple[events.Event, ...]]:
        """The events of every transition."""
        rows = await self.owner.fetch(
            "select events::text from eec_workflow_transition where run_id = $1 order by seq", run_id
        )
        return [events.decode(row["events"]) for row in rows]

    async def settled(self, run_id: str) -> Run:
        """The stored run, proved equal to its folded history, all nodes terminal when it is (law: folding rebuilds the run). What has a column or a row of its
        own says the same as the run."""
        run = await self.run(run_id)
        assert run == await self.folded(run_id)
        row = await self.owner.fetchrow(
            "select compensation_status, close_reason, continued_to_run_id::text, held, merged_into_run_id::text from eec_workflow_run"
            " where run_id = $1",
            run_id,
        )
        assert tuple(row) == (
            run.saga.status,
            run.close_reason,
            run.continued_to_run_id or None,
            run.held,
            run.merged_into_run_id or None,
        )
        ledger = await self.owner.fetch(
            "select step_ref, kind, block, number, status, attempt, source_attempt from eec_workflow_compensation where run_id = $1 order by position",
            run_id,
        )
        assert [tuple(entry) for entry in ledger] == [
            (e.step_ref, e.kind, e.block, e.number, e.status, e.attempt, e.source_attempt) for e in run.saga.plan
        ]
        if any(node.fan is not None for node in run.nodes):
            await fans_are_counted(self.owner, await self.compiled(run_id), run)
        if run.status.terminal:
            assert all(node.status.terminal for node in run.nodes)
            assert all(node.status is not NodeStatus.WAITING for node in run.nodes)
        return run
