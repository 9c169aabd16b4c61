"""Who may do what: every table × role × privilege, tried for real; and that another tenant's rows are invisible (rulings N1, architecture: The picture).

The matrix below is written by hand on purpose: it says what the architecture says, not what roles.sql says.
"""

import asyncpg
import pytest

from tests.conftest import Database

ROLES = ("definition", "trigger", "run_control", "signals", "reads", "admin", "coordinator", "dispatch")
T = "eec_workflow_"

SELECT = {
    "definition": {"definition", "draft", "version", "schedule", "event_trigger", "env_override"},
    "trigger": {
        "definition",
        "version",
        "run_start",
        "run",
        "checkpoint",
        "step_attempt",
        "event_trigger",
        "env_override",
        "release_policy",
        "schedule",
        "schedule_fire",
    },
    "run_control": {
        "version",
        "run_start",
        "run",
        "transition",
        "step_attempt",
        "timer",
        "quarantine",
        "compensation",
        "signal",
        "digest",
        "intent",
        "child",
        "item_page",
    },
    "signals": {
        "version",
        "run_start",
        "run",
        "signal",
        "wait",
        "event",
        "receipt",
        "event_trigger",
        "env_override",
    },
    "reads": {
        "definition",
        "version",
        "run_start",
        "run_label",
        "run",
        "wakeup",
        "transition",
        "step_attempt",
        "timer",
        "checkpoint",
        "quarantine",
        "audit",
        "intent",
        "compensation",
        "signal",
        "wait",
        "event",
        "receipt",
        "digest",
        "digest_arrival",
        "child",
        "item_page",
        "schedule",
        "schedule_fire",
        "event_trigger",
    },
    "coordinator": {
        "definition",
        "version",
        "run_start",
        "run_label",
        "run",
        "transition",
        "step_attempt",
        "timer",
        "checkpoint",
        "quarantine",
        "wakeup",
        "intent",
        "compensation",
        "signal",
        "wait",
        "event",
        "receipt",
        "digest",
        "digest_arrival",
        "digest_last",
        "child",
        "item_page",
        "env_override",
        "schedule",
        "schedule_fire",
    },
    "dispatch": {"step_attempt"},
    "admin": {"release_policy"},
}
for _role in ROLES:
    if _role != "coordinator":  # it serves no RPC but health
        SELECT[_role].add("api_key")
INSERT = {
    "definition": {"definition", "draft", "version", "audit", "schedule", "event_trigger", "env_override"},
    "trigger": {"run_start", "run_label", "wakeup", "audit", "schedule_fire"},
    "run_control": {"intent", "wakeup", "audit"},
    "signals": {"signal", "event", "receipt", "wakeup", "run_start", "audit"},
    "reads": {"audit"},
    "admin": {"release_policy", "audit", "api_key"},
    "coordinator": {
        "run_start",
        "run_label",
        "run",
        "transition",
        "step_attempt",
        "timer",
        "checkpoint",
        "quarantine",
        "wakeup",
        "audit",
        "intent",
        "compensation",
        "signal",
        "wait",
        "receipt",
        "digest",
        "digest_arrival",
        "digest_last",
        "child",
        "item_page",
        "schedule_fire",
    },
    "dispatch": {"wakeup", "audit"},
}
DELETE = {
    "definition": {"draft", "event_trigger", "env_override"},
    "trigger": set[str](),
    "run_control": set[str](),
    "signals": set[str](),
    "reads": set[str](),
    "admin": set[str](),
    "coordinator": {"timer", "quarantine", "wakeup", "checkpoint", "event"},
    "dispatch": set[str](),
}
ALL = None
LEASE_AND_RESULT = {
    "lease_secret", "worker_id", "poll_id", "start_time", "lease_expire_time", "deadline_time", "heartbeat_time", "heartbeat_details", "check_time",
    "outcome", "report_time", "output", "output_size", "output_hash", "error_code", "error_message", "non_retryable", "retry_after_ms",
    "stale_outcome", "stale_time", "stale_output", "stale_error_code", "stale_error_message",
}  # fmt: skip
UPDATE: dict[str, dict[str, set[str] | None]] = {
    "definition": {
        "definition": ALL,
        "draft": ALL,
        "version": {"status", "archive_time"},
        "event_trigger": ALL,
        "env_override": ALL,
        "schedule": {
            "live",
            "version_id",
            "version",
            "cron_expression",
            "timezone",
            "catchup_window_ms",
            "overlap_policy",
            "next_time",
            "family_slug",
            "error_code",
            "error_message",
            "update_time",
        },
    },
    "trigger": {
        "schedule": {
            "next_time",
            "last_time",
            "last_run_id",
            "started_count",
            "skipped_count",
            "failed_count",
            "dropped_count",
            "error_code",
            "error_message",
            "paused_by",
            "pause_reason",
            "pause_time",
            "update_time",
        },
        "schedule_fire": ALL,
    },
    "run_control": {},
    "signals": {"wait": {"open_time"}},
    "reads": {},
    "admin": {"release_policy": ALL, "api_key": ALL},
    "coordinator": {
        "run": ALL,
        "timer": ALL,
        "quarantine": ALL,
        "wakeup": {"due_time"},
        "step_attempt": {
            "status",
            "end_time",
            "cancel_requested_time",
            "outcome",
            "report_time",
            "error_code",
            "error_message",
            "check_time",
            "due_time",
            "queue_deadline",
            "held_due_time",
            "late_judged_time",
        },
        "intent": {"status", "settle_time", "outcome_code", "outcome_message", "result"},
        "compensation": ALL,
        "signal": {"status", "settle_time", "outcome_message"},
        "wait": {"close_time"},
        "receipt": {"applied_time"},
        "digest": {"leader_run_id", "close_time", "flush_time"},
        "digest_arrival": {"place", "told_time", "leave_time"},
        "digest_last": {"last_time"},
        "child": {
            "child_run_id",
            "sync",
            "detached",
            "end_time",
            "status",
            "checkpoint_status",
            "error_code",
            "error_message",
            "applied_time",
        },
        "schedule": {
            "next_time",
            "last_time",
            "last_run_id",
            "started_count",
            "skipped_count",
            "failed_count",
            "missed_count",
            "error_code",
            "error_message",
            "update_time",
        },
        "schedule_fire": ALL,
    },
    "dispatch": {"step_attempt": LEASE_AND_RESULT},
}
for _role in ROLES:
    if _role not in ("coordinator", "admin"):
        UPDATE[_role]["api_key"] = {"last_use_time"}


async def _columns(connection: asyncpg.Connection) -> dict[str, list[str]]:
    rows = await connection.fetch(
        "select table_name, array_agg(column_name::text order by ordinal_position) as columns from information_schema.columns "
        "where table_name like 'eec\\_workflow\\_%' group by table_name"
    )
    return {row["table_name"].removeprefix(T): row["columns"] for row in rows}


async def _denied(connection: asyncpg.Connection, sql: str) -> bool:
    """True when the statement is «permission denied», False when it was let through (whatever else it then met)."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(sql)
    except asyncpg.InsufficientPrivilegeError as error:
        # A row that row-level security refuses is of the same class: the privilege itself was there.
        return "row-level security" not in str(error)
    except asyncpg.PostgresError:
        return False
    finally:
        await transaction.rollback()
    return False


@pytest.mark.parametrize("role", ROLES)
async def test_table_role_privilege_matrix(database: Database, role: str) -> None:
    """Connected as the service's own login, each table and column takes just the writes of the matrix."""
    owner = await asyncpg.connect(database.owner)
    connection = await asyncpg.connect(database.dsn(role))
    try:
        tables = await _columns(owner)
        assert len(tables) >= 12
        wrong = []
        for table, columns in tables.items():
            tries = {
                f"select 1 from {T}{table} limit 0": table in SELECT[role],
                f"insert into {T}{table} default values": table in INSERT[role],
                f"delete from {T}{table}": table in DELETE[role],
                f"truncate {T}{table}": False,
                f"alter table {T}{table} disable row level security": False,
            }
            allowed = UPDATE[role].get(table, set())
            for column in columns:
                tries[f"update {T}{table} set {column} = default"] = allowed is ALL or column in allowed
            for sql, may in tries.items():
                if await _denied(connection, sql) == may:
                    wrong.append(f"{'should be allowed' if may else 'should be denied'}: {sql}")
        assert not wrong, wrong
        assert not await connection.fetchval(
            "select rolsuper or rolbypassrls or rolcreaterole from pg_roles where rolname = current_user"
        )
    finally:
        await connection.close()
        await owner.close()


@pytest.mark.parametrize("role", [role for role in ROLES if SELECT[role]])
async def test_another_tenants_rows_are_invisible(database: Database, role: str) -> None:
    """TN-01, second wall: an edge role sees its transaction's tenant only, none without one; coordinator and dispatch serve all tenants."""
    owner = await asyncpg.connect(database.owner)
    connection = await asyncpg.connect(database.dsn(role))
    try:
        for tenant in ("a", "b"):
            await _one_of_each(owner, tenant)
        for table in SELECT[role]:
            async with connection.transaction():
                everybody = await connection.fetchval(f"select count(*) from {T}{table}")
                await connection.execute("select set_config('ductor.tenant_id', 'a', true)")
                mine = await connection.fetch(f"select tenant_id from {T}{table}")
            if role in ("coordinator", "dispatch"):
                assert everybody == 2, table
            else:
                assert everybody == 0, table
                assert [row["tenant_id"] for row in mine] == ["a"], table
    finally:
        await connection.close()
        await owner.close()


async def test_an_edge_role_cannot_write_for_another_tenant(database: Database) -> None:
    """A row for tenant b from a session of tenant a violates the policy; nothing is written."""
    connection = await asyncpg.connect(database.dsn("trigger"))
    try:
        await connection.execute("select set_config('ductor.tenant_id', 'a', false)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(f"insert into {T}wakeup (tenant_id, run_id) values ('b', gen_random_uuid())")
    finally:
        await connection.close()


async def _one_of_each(owner: asyncpg.Connection, tenant: str) -> None:
    await owner.execute(
        f"""
        with ids as (select gen_random_uuid() as d, gen_random_uuid() as v, gen_random_uuid() as r, '{tenant}' as t),
        a as (insert into {T}definition (tenant_id, definition_id, family_slug) select t, d, 's' from ids),
        b as (insert into {T}draft (tenant_id, definition_id, document) select t, d, '{{}}' from ids),
        c as (insert into {T}version (tenant_id, version_id, definition_id, version, document, manifest, manifest_hash, format_version, engine_level,
                                      draft_revision) select t, v, d, 1, '{{}}', '{{}}', '', 1, 1, 1 from ids),
        e as (insert into {T}audit (tenant_id, audit_id, actor, action, target) select t, v, 'x', 'publish', 'y' from ids),
        f as (insert into {T}run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, root_run_id, journey_id)
              select t, r, d, v, 1, 's', d, r, r from ids),
        m as (insert into {T}run_label (tenant_id, label, create_time, run_id) select t, 'order:1', now(), r from ids),
        g as (insert into {T}run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time)
              select t, r, 'running', 1, v, 1, 1, now(), now() from ids),
        h as (insert into {T}transition (tenant_id, run_id, seq, at, events) select t, r, 1, now(), '[]' from ids),
        i as (insert into {T}step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time)
              select t, r, 'a', 1, 'standard', 'default', 'noop:noop', '{{}}', 'k', now(), now() from ids),
        j as (insert into {T}timer (tenant_id, run_id, kind, due_time) select t, r, 'run_timeout', now() from ids),
        k as (insert into {T}wakeup (tenant_id, run_id) select t, r from ids),
        n as (insert into {T}intent (tenant_id, run_id, request_id, verb, body_hash, actor) select t, r, 'q', 'pause', '', 'x' from ids),
        o as (insert into {T}compensation (tenant_id, run_id, position, family_slug, step_ref, kind, block, number, action, status, create_time, update_time)
              select t, r, 0, 's', 'a', 'finally', 'finally', 0, 'noop:noop', 'owed', now(), now() from ids),
        p as (insert into {T}signal (tenant_id, run_id, request_id, verb, step_ref, actor, body_hash) select t, r, 'q', 'approve', 'a', 'x', '' from ids),
        q as (insert into {T}wait (tenant_id, run_id, step_ref, attempt, event_name, open_time) select t, r, 'a', 1, 'e', now() from ids),
        s as (insert into {T}event (tenant_id, event_name, event_id, correlation_key, payload, publish_time, dedupe_until)
              select t, 'e', 'i', '', 'null', now(), now() from ids),
        u as (insert into {T}receipt (tenant_id, run_id, step_ref, attempt, event_name, event_id, receive_time) select t, r, 'a', 1, 'e', 'i', now() from ids),
        w as (insert into {T}digest (tenant_id, window_id, family_slug, step_ref, key, leader_run_id, mode, open_time, due_time)
              select t, v, 's', 'a', '1', r, 'regular', now(), now() from ids),
        x as (insert into {T}digest_arrival (tenant_id, run_id, step_ref, attempt, window_id, arrive_time, place)
              select t, r, 'a', 1, v, now(), 'leads' from ids),
        y as (insert into {T}digest_last (tenant_id, family_slug, step_ref, key, last_time) select t, 's', 'a', '1', now() from ids),
        z as (insert into {T}child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, close_policy, create_time)
              select t, r, 'a', 0, 1, v, v, true, 'abandon', now() from ids),
        aa as (insert into {T}item_page (tenant_id, run_id, step_ref, attempt, page, items) select t, r, 'a', 1, 0, '[]' from ids),
        ab as (insert into {T}schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,
                                        catchup_window_ms, overlap_policy) select t, r, d, 's', 'schedule', v, 1, '@hourly', 'UTC', 600000, 'skip' from ids),
        ac as (insert into {T}schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source)
               select t, r, now(), 'fire', 'skipped', 'timetable' from ids),
        ad as (insert into {T}event_trigger (tenant_id, pattern, definition_id, trigger_id, family_slug, version_id, version)
               select t, 'e', d, 'e', 's', v, 1 from ids),
        ae as (insert into {T}env_override (tenant_id, definition_id, environment, variables) select t, d, '', '{{}}' from ids),
        ag as (insert into {T}api_key (tenant_id, key_id, name, secret_hash, scopes, created_by)
               select t, v, 'k', sha256('x'), array['admin'], 'x' from ids),
        af as (insert into {T}release_policy (tenant_id, mode) select t, 'off' from ids),
        l as (insert into {T}checkpoint (tenant_id, run_id, name, status, at) select t, r, 'c', 'reached', now() from ids)
        insert into {T}quarantine (tenant_id, run_id, error, ticks, since, retry_time) select t, r, '', 1, now(), now() from ids
        """
    )
