-- The statements of fires, in the transaction of whoever holds the rows of the schedules. Arrays: however many fires, each runs once.

-- name: overrides
-- What VARS hold instead of the defaults in environment $3, of definitions $2 (L8).
select definition_id::text, variables::text from eec_workflow_env_override
where tenant_id = $1 and definition_id = any ($2::uuid[]) and environment = $3;

-- name: fired
-- What has become of times before, by the key that makes a time fire once (T2).
select x.place, f.*
from unnest($2::uuid[], $3::timestamptz[]) with ordinality as x(schedule_id, nominal_time, place)
cross join lateral (
    select o.outcome, o.run_id::text, o.error_code, o.error_message from eec_workflow_schedule_fire o
    where o.tenant_id = $1 and o.schedule_id = x.schedule_id and o.nominal_time = x.nominal_time and o.kind = 'fire' offset 0
) f;

-- name: asked_before
select nominal_time, outcome, run_id::text, error_code, error_message from eec_workflow_schedule_fire
where tenant_id = $1 and schedule_id = $2 and request_id = $3;

-- name: active
-- Of each schedule, whether one of its $3 newest runs that nobody has seen end is active, and how many such there were. A run that went on as another has ended when
-- the last of them has; one without a row is still to begin. What was seen is written down: that a run has ended, and how far it went on, so that neither is
-- looked at again; but not in a row that was written since the look: its run may have been redriven.
with recursive open as materialized (
    select f.* from unnest($2::uuid[]) as s(schedule_id)
    cross join lateral (
        select o.schedule_id, o.nominal_time, coalesce(o.tail_run_id, o.run_id) as run_id, o.xmin as mark from eec_workflow_schedule_fire o
        where o.tenant_id = $1 and o.schedule_id = s.schedule_id and o.outcome = 'started' and o.end_time is null
        order by o.nominal_time desc limit $3
    ) f
),
chain as (
    select o.schedule_id, o.nominal_time, o.mark, o.run_id, 0 as links, r.end_time, r.continued_to_run_id
    from open o
    left join lateral (select end_time, continued_to_run_id from eec_workflow_run where tenant_id = $1 and run_id = o.run_id offset 0) r on true
    union all
    select c.schedule_id, c.nominal_time, c.mark, c.continued_to_run_id, c.links + 1, r.end_time, r.continued_to_run_id
    from chain c
    left join lateral (select end_time, continued_to_run_id from eec_workflow_run where tenant_id = $1 and run_id = c.continued_to_run_id offset 0) r on true
    where c.end_time is not null and c.continued_to_run_id is not null
),
tails as materialized (select distinct on (schedule_id, nominal_time) * from chain order by schedule_id, nominal_time, links desc),
noted as (
    update eec_workflow_schedule_fire f set end_time = t.end_time, tail_run_id = case when t.links > 0 then t.run_id else f.tail_run_id end
    from tails t
    where f.tenant_id = $1 and f.schedule_id = t.schedule_id and f.nominal_time = t.nominal_time and f.kind = 'fire' and (t.end_time is not null or t.links > 0)
      and f.xmin = t.mark
)
select schedule_id::text, bool_or(end_time is null) as active, count(*)::int as seen from tails group by schedule_id;

-- name: write_fires
-- What became of times. One that started a run stays as it is; one that came to nothing may be replaced by a backfill.
insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source, request_id, run_id, error_code, error_message)
select $1, x.schedule_id, x.nominal_time, 'fire', x.outcome, x.source, x.request_id, nullif(x.run_id, '')::uuid, x.error_code, x.error_message
from unnest($2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
     as x(schedule_id, nominal_time, outcome, source, request_id, run_id, error_code, error_message)
on conflict (tenant_id, schedule_id, nominal_time, kind) do update
set outcome = excluded.outcome, source = excluded.source, request_id = excluded.request_id, run_id = excluded.run_id, error_code = excluded.error_code,
    error_message = excluded.error_message, create_time = eec_now(), end_time = null
where eec_workflow_schedule_fire.outcome <> 'started';

-- name: count_fires
-- The counters of schedules, the run started last, and why the last time that was not skipped could start none. A broken one goes on saying why it is.
update eec_workflow_schedule s
set started_count = s.started_count + x.started, skipped_count = s.skipped_count + x.skipped, failed_count = s.failed_count + x.failed,
    last_run_id = coalesce(nullif(x.last_run_id, '')::uuid, s.last_run_id),
    error_code = case when x.started + x.failed > 0 and coalesce(s.next_time, s.pause_time) is not null then x.error_code else s.error_code end,
    error_message = case when x.started + x.failed > 0 and coalesce(s.next_time, s.pause_time) is not null then x.error_message else s.error_message end,
    update_time = eec_now()
from unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[])
     as x(schedule_id, started, skipped, failed, last_run_id, error_code, error_message)
where s.tenant_id = $1 and s.schedule_id = x.schedule_id;
