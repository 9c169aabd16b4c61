-- The statements of the schedules' loop. A schedule is dealt with by whoever has its row; nobody waits for it.

-- name: look
-- The time, whether a schedule is due ($1: as below), and the seconds until the next one is: all that an idle turn asks.
select eec_now() as now,
       exists (select from eec_workflow_schedule d where d.next_time <= eec_now() and d.next_time >= coalesce($1::timestamptz, '-infinity')) as due,
       (select extract(epoch from s.next_time - eec_now())::float8 from eec_workflow_schedule s where s.next_time > eec_now() order by s.next_time limit 1) as next_s;

-- name: claim
-- Schedules that are due at $5, tenants in turn, of each the one that is most late first: whose schedules are always late, since their inputs are dear, takes a
-- share of the places. More are looked at than are taken, and what another coordinator holds is passed over. $2: what was due before has been seen to; a long
-- snapshot elsewhere keeps the entries of all times that ever were in the index, and no look walks through them (PG-05). Those of versions that a newer engine
-- published are left to a newer coordinator. What is locked is judged again: it may have been fired since it was looked at.
with seen as materialized (
    select s.tenant_id, s.schedule_id, s.next_time from eec_workflow_schedule s
    left join eec_workflow_version v on v.tenant_id = s.tenant_id and v.version_id = s.version_id
    where s.next_time <= $5 and s.next_time >= coalesce($2::timestamptz, '-infinity')
      and coalesce(v.format_version, 0) <= $3 and coalesce(v.engine_level, 0) <= $4
    order by s.next_time limit 10 * $1::int
),
placed as materialized (
    select n.*, row_number() over (partition by n.tenant_id order by n.next_time) as turn from seen n order by turn, n.next_time
)
select d.* from placed p
cross join lateral (
    select s.tenant_id, s.schedule_id::text, s.definition_id::text, s.family_slug, s.trigger_id, s.version_id::text, s.version, s.cron_expression, s.timezone,
           s.catchup_window_ms, s.overlap_policy, s.next_time
    from eec_workflow_schedule s
    left join eec_workflow_version v on v.tenant_id = s.tenant_id and v.version_id = s.version_id
    where s.tenant_id = p.tenant_id and s.schedule_id = p.schedule_id and s.next_time <= $5
      and coalesce(v.format_version, 0) <= $3 and coalesce(v.engine_level, 0) <= $4
    for update of s skip locked offset 0
) d
limit $1;

-- name: claim_given
-- The same of one, which a turn of many could not deal with.
select s.tenant_id, s.schedule_id::text, s.definition_id::text, s.family_slug, s.trigger_id, s.version_id::text, s.version, s.cron_expression, s.timezone,
       s.catchup_window_ms, s.overlap_policy, s.next_time
from eec_workflow_schedule s
where s.tenant_id = $1 and s.schedule_id = $2 and s.next_time <= $3
for update of s skip locked;

-- name: next_due
-- The seconds until the next schedule is due that was not at $1; one that fell due since then is behind by now.
select extract(epoch from s.next_time - eec_now())::float8 as next_s from eec_workflow_schedule s where s.next_time > $1 order by s.next_time limit 1;

-- name: started_within
-- How many times of a span have started a run, by a backfill that came to them earlier.
select x.place, f.started
from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::timestamptz[]) with ordinality as x(tenant_id, schedule_id, first_time, last_time, place)
cross join lateral (
    select count(*)::int as started from eec_workflow_schedule_fire o
    where o.tenant_id = x.tenant_id and o.schedule_id = x.schedule_id and o.nominal_time >= x.first_time and o.nominal_time <= x.last_time
      and o.kind = 'fire' and o.outcome = 'started' and o.source <> 'manual'
) f;

-- name: write_gaps
-- Times that were past the window, as one row. A clock that was set back may come to the first of them twice: the longer row counts.
insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source, count, until_time)
select x.tenant_id, x.schedule_id, x.first_time, 'gap', 'missed', 'timetable', x.count, x.last_time
from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::int[]) as x(tenant_id, schedule_id, first_time, last_time, count)
on conflict (tenant_id, schedule_id, nominal_time, kind) do update
set count = greatest(eec_workflow_schedule_fire.count, excluded.count), until_time = greatest(eec_workflow_schedule_fire.until_time, excluded.until_time);

-- name: move
-- Where the schedules stand now: the first time that has not been dealt with, and the last that has.
update eec_workflow_schedule s
set next_time = x.next_time, last_time = coalesce(x.last_time, s.last_time), missed_count = s.missed_count + x.missed, update_time = eec_now()
from unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::int[]) as x(tenant_id, schedule_id, next_time, last_time, missed)
where s.tenant_id = x.tenant_id and s.schedule_id = x.schedule_id;

-- name: break
-- A schedule whose next time cannot be dealt with fires no more; the next publish mends it. $5: what it stood at, so that one that was published meanwhile stays.
update eec_workflow_schedule set next_time = null, error_code = $3, error_message = $4, update_time = eec_now()
where tenant_id = $1 and schedule_id = $2 and next_time = $5;

-- name: broken
-- How many schedules are broken, up to $1.
select count(*)::int from (select from eec_workflow_schedule where live and next_time is null and pause_time is null limit $1) b;

-- name: end_fires
-- A page of fires whose runs nobody has seen end: those whose run, and all that continued it, has ended are marked so, whatever the overlap policy; else a schedule
-- that never asks would leave them all to the first that does.
with recursive page as materialized (
    select f.tenant_id, f.schedule_id, f.nominal_time, coalesce(f.tail_run_id, f.run_id) as run_id, f.xmin as mark from eec_workflow_schedule_fire f
    where f.outcome = 'started' and f.end_time is null and (f.tenant_id, f.schedule_id, f.nominal_time) > ($1, $2::uuid, $3::timestamptz)
    order by f.tenant_id, f.schedule_id, f.nominal_time limit $4
),
chain as (
    select p.tenant_id, p.schedule_id, p.nominal_time, p.mark, p.run_id, 0 as links, r.end_time, r.continued_to_run_id
    from page p
    left join lateral (select end_time, continued_to_run_id from eec_workflow_run where tenant_id = p.tenant_id and run_id = p.run_id offset 0) r on true
    union all
    select c.tenant_id, c.schedule_id, c.nominal_time, c.mark, c.continued_to_run_id, c.links + 1, r.end_time, r.continued_to_run_id
    from chain c
    left join lateral (select end_time, continued_to_run_id from eec_workflow_run where tenant_id = c.tenant_id and run_id = c.continued_to_run_id offset 0) r on true
    where c.end_time is not null and c.continued_to_run_id is not null
),
tails as materialized (
    select distinct on (tenant_id, schedule_id, nominal_time) * from chain order by tenant_id, schedule_id, nominal_time, links desc
),
free as materialized (
    select t.* from tails t
    join eec_workflow_schedule_fire f on f.tenant_id = t.tenant_id and f.schedule_id = t.schedule_id and f.nominal_time = t.nominal_time and f.kind = 'fire'
    where (t.end_time is not null or t.links > 0) and f.xmin = t.mark  -- else it was written since the look: its run may have been redriven
    for update of f skip locked
),
noted as (
    update eec_workflow_schedule_fire f set end_time = t.end_time, tail_run_id = case when t.links > 0 then t.run_id else f.tail_run_id end
    from free t
    where f.tenant_id = t.tenant_id and f.schedule_id = t.schedule_id and f.nominal_time = t.nominal_time and f.kind = 'fire' and f.end_time is null
)
select tenant_id, schedule_id::text, nominal_time, (select count(*)::int from page) as seen
from page order by tenant_id desc, schedule_id desc, nominal_time desc limit 1;
