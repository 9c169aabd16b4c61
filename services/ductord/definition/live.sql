-- What of a definition starts runs by itself (D3): the timetables and event triggers of its newest version. All of this runs in the transaction of a publish or an
-- archiving, behind the family's lock: two of them never write side by side. Only the firing of a schedule, its pause and its resume do; they lock the one row.

-- name: lock_schedules
-- All that the definition ever had, in one order, as they stand: a fire in between moves next_time, a pause takes it away.
with known as (
    select schedule_id, cron_expression, timezone, next_time, pause_time is not null as paused
    from eec_workflow_schedule where tenant_id = $1 and definition_id = $2 order by schedule_id for update
)
select schedule_id::text, cron_expression, timezone, next_time, paused from known;

-- name: put_schedules
-- A pause stays, and with it everything that was counted; what broke the row is taken to be mended.
--   $1 tenant  $2 definition  $3 family  $4 version id  $5 version  $6 schedule ids  $7 trigger ids  $8 to $11 cron, time zone, window, overlap  $12 next times
with written as (
    insert into eec_workflow_schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,
                                       catchup_window_ms, overlap_policy, next_time)
    select $1, x.schedule_id, $2, $3, x.trigger_id, $4, $5, x.cron_expression, x.timezone, x.catchup_window_ms, x.overlap_policy, x.next_time
    from unnest($6::uuid[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::timestamptz[])
         as x(schedule_id, trigger_id, cron_expression, timezone, catchup_window_ms, overlap_policy, next_time)
    order by x.schedule_id
    on conflict (tenant_id, schedule_id) do update
    set live = true, family_slug = excluded.family_slug, version_id = excluded.version_id, version = excluded.version,
        cron_expression = excluded.cron_expression, timezone = excluded.timezone, catchup_window_ms = excluded.catchup_window_ms,
        overlap_policy = excluded.overlap_policy, next_time = excluded.next_time, error_code = '', error_message = '', update_time = eec_now()
    returning next_time
)
select case when exists (select from written where next_time is not null) then eec_notify('ductor_schedule') end;

-- name: put_event_triggers
--   $1 tenant  $2 definition  $3 family  $4 version id  $5 version  $6 patterns  $7 trigger ids  $8 filters
insert into eec_workflow_event_trigger (tenant_id, pattern, definition_id, trigger_id, family_slug, version_id, version, filter)
select $1, x.pattern, $2, x.trigger_id, $3, $4, $5, x.filter
from unnest($6::text[], $7::text[], $8::text[]) as x(pattern, trigger_id, filter)
order by x.pattern, x.trigger_id
on conflict (tenant_id, pattern, definition_id, trigger_id) do update
set family_slug = excluded.family_slug, version_id = excluded.version_id, version = excluded.version, filter = excluded.filter;

-- name: retire_others
-- What is not of version $3, and all of it where $3 is null. A schedule's row stays, with what it counted; it comes back when a version has its trigger again.
with gone as (
    delete from eec_workflow_event_trigger where tenant_id = $1 and definition_id = $2 and version_id is distinct from $3
)
update eec_workflow_schedule set live = false, next_time = null, update_time = eec_now()
where tenant_id = $1 and definition_id = $2 and live and version_id is distinct from $3;
