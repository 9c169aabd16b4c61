-- What operators see and do of schedules (T2). Every row is found with its tenant. Whoever changes a schedule holds its row: the coordinator that fires it, a
-- publish and an operator come one after the other.

-- name: schedule
select s.tenant_id, s.schedule_id::text, s.definition_id::text, s.family_slug, s.trigger_id, s.live, s.version_id::text, s.version, s.cron_expression, s.timezone,
       s.catchup_window_ms, s.overlap_policy, s.next_time, s.last_time, s.last_run_id::text, s.started_count, s.skipped_count, s.failed_count, s.missed_count,
       s.dropped_count, s.error_code, s.error_message, s.paused_by, s.pause_reason, s.pause_time, s.create_time, eec_now() as now
from eec_workflow_schedule s where s.tenant_id = $1 and s.schedule_id = $2;

-- name: hold
-- The row is the caller's to the end of its transaction. What it says, and the time, are read behind this: a statement's time is when it began to wait.
select 1 from eec_workflow_schedule s where s.tenant_id = $1 and s.schedule_id = $2 for no key update;

-- name: schedules
-- A page of all. $2 and $3 a status and the last row seen; without a status all but the retired ones.
select s.tenant_id, s.schedule_id::text, s.definition_id::text, s.family_slug, s.trigger_id, s.live, s.version_id::text, s.version, s.cron_expression, s.timezone,
       s.catchup_window_ms, s.overlap_policy, s.next_time, s.last_time, s.last_run_id::text, s.started_count, s.skipped_count, s.failed_count, s.missed_count,
       s.dropped_count, s.error_code, s.error_message, s.paused_by, s.pause_reason, s.pause_time, s.create_time
from eec_workflow_schedule s
where s.tenant_id = $1 and (s.family_slug, s.trigger_id, s.schedule_id) > ($3, $4, $5::uuid)
  and case $2 when '' then s.live when 'retired' then not s.live when 'paused' then s.live and s.pause_time is not null
              when 'active' then s.next_time is not null else s.live and s.pause_time is null and s.next_time is null end
order by s.family_slug, s.trigger_id, s.schedule_id limit $6;

-- name: schedules_of
-- A page of those of one family ($7) or one definition ($8, by its id or that of a version), which are few.
with mine as materialized (
    select s.* from eec_workflow_schedule s
    where $8::uuid is not null and s.tenant_id = $1
      and s.definition_id in (select $8::uuid union all select v.definition_id from eec_workflow_version v where v.tenant_id = $1 and v.version_id = $8)
      and ($7 = '' or s.family_slug = $7)
    union all
    select s.* from eec_workflow_schedule s where $8::uuid is null and s.tenant_id = $1 and s.family_slug = $7
)
select s.tenant_id, s.schedule_id::text, s.definition_id::text, s.family_slug, s.trigger_id, s.live, s.version_id::text, s.version, s.cron_expression, s.timezone,
       s.catchup_window_ms, s.overlap_policy, s.next_time, s.last_time, s.last_run_id::text, s.started_count, s.skipped_count, s.failed_count, s.missed_count,
       s.dropped_count, s.error_code, s.error_message, s.paused_by, s.pause_reason, s.pause_time, s.create_time
from mine s
where (s.family_slug, s.trigger_id, s.schedule_id) > ($3, $4, $5::uuid)
  and case $2 when '' then s.live when 'retired' then not s.live when 'paused' then s.live and s.pause_time is not null
              when 'active' then s.next_time is not null else s.live and s.pause_time is null and s.next_time is null end
order by s.family_slug, s.trigger_id, s.schedule_id limit $6;

-- name: fires
-- A page of what became of the times of a schedule, newest first. A fire and a gap may stand at one time.
select f.nominal_time, f.kind, f.outcome, f.source, f.run_id::text, f.count, f.until_time, f.error_code, f.error_message, f.create_time
from eec_workflow_schedule_fire f
where f.tenant_id = $1 and f.schedule_id = $2 and (f.nominal_time, f.kind) < ($4, $5) and ($3 = '' or f.outcome = $3)
order by f.nominal_time desc, f.kind desc limit $6;

-- name: fires_passed
-- A page of the times that came to one thing other than a run: in years of a timetable there may be few.
select f.nominal_time, f.kind, f.outcome, f.source, f.run_id::text, f.count, f.until_time, f.error_code, f.error_message, f.create_time
from eec_workflow_schedule_fire f
where f.tenant_id = $1 and f.schedule_id = $2 and (f.nominal_time, f.kind) < ($4, $5) and f.outcome = $3 and f.outcome <> 'started'
order by f.nominal_time desc, f.kind desc limit $6;

-- name: fire_asked
-- The fire by hand of a request.
select f.nominal_time, f.kind, f.outcome, f.source, f.run_id::text, f.count, f.until_time, f.error_code, f.error_message, f.create_time
from eec_workflow_schedule_fire f where f.tenant_id = $1 and f.schedule_id = $2 and f.request_id = $3 and f.request_id <> '';

-- name: pause
-- What was due and had not fired is dropped with it, as one gap: $6 first, $7 last, $8 how many; null for none.
with gap as (
    insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source, until_time, count)
    select $1, $2, $6, 'gap', 'dropped', 'timetable', $7, $8::int where $6::timestamptz is not null
    on conflict do nothing returning count
)
update eec_workflow_schedule
set pause_time = $3, paused_by = $4, pause_reason = $5, next_time = null, last_time = coalesce($7, last_time),
    dropped_count = dropped_count + coalesce((select count from gap), 0), update_time = eec_now()
where tenant_id = $1 and schedule_id = $2;

-- name: resume
-- What fell due meanwhile is one gap. $3 the next time, or null with the reason why there is none ($4, $5).
with gap as (
    insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source, until_time, count)
    select $1, $2, $6, 'gap', 'dropped', 'timetable', $7, $8::int where $6::timestamptz is not null
    on conflict do nothing returning count
),
changed as (
    update eec_workflow_schedule
    set pause_time = null, paused_by = '', pause_reason = '', next_time = $3, error_code = $4, error_message = $5, last_time = coalesce($7, last_time),
        dropped_count = dropped_count + coalesce((select count from gap), 0), update_time = eec_now()
    where tenant_id = $1 and schedule_id = $2
    returning 1
)
select eec_notify('ductor_schedule') from changed;

-- name: insert_audit
-- In the transaction that does it, so that what is written down has happened (C8). It is there already where an earlier try was committed unheard.
insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, reason, request_id, outcome, detail)
values ($1, $2, $3, $4, 'schedule:' || $5::uuid::text, $6, $7, 'applied', $8::jsonb)
on conflict do nothing;

-- name: event_triggers
-- A page of all patterns, in their order.
select t.pattern, t.definition_id::text, t.trigger_id, t.family_slug, t.version, t.filter, eec_now() as now
from eec_workflow_event_trigger t
where t.tenant_id = $1 and (t.pattern, t.definition_id, t.trigger_id) > ($2, $3::uuid, $4)
order by t.pattern, t.definition_id, t.trigger_id limit $5;

-- name: event_triggers_matching
-- A page of those with one of the patterns ($6) that match an event's name, as a publish looks them up; of one definition ($7) where it is named.
select t.pattern, t.definition_id::text, t.trigger_id, t.family_slug, t.version, t.filter, eec_now() as now
from eec_workflow_event_trigger t
where t.tenant_id = $1 and t.pattern = any($6::text[]) and (t.pattern, t.definition_id, t.trigger_id) > ($2, $3::uuid, $4)
  and ($7::uuid is null
       or t.definition_id in (select $7::uuid union all select v.definition_id from eec_workflow_version v where v.tenant_id = $1 and v.version_id = $7))
order by t.pattern, t.definition_id, t.trigger_id limit $5;

-- name: event_triggers_of
-- A page of those of one definition, by its id or that of a version.
select t.pattern, t.definition_id::text, t.trigger_id, t.family_slug, t.version, t.filter, eec_now() as now
from eec_workflow_event_trigger t
where t.tenant_id = $1
  and t.definition_id in (select $6::uuid union all select v.definition_id from eec_workflow_version v where v.tenant_id = $1 and v.version_id = $6)
  and (t.pattern, t.definition_id, t.trigger_id) > ($2, $3::uuid, $4)
order by t.pattern, t.definition_id, t.trigger_id limit $5;

-- name: now
select eec_now();
