-- The statements of watch and net. They report silence and append wake-ups; locks are taken with `skip locked`, so a sweep waits for nobody.
-- `not exists (… offset 0)` stays a probe per row: what is looked for is nearly always there, and a join would read all of the other table.

-- name: expire_attempts
-- Silence has limits: the sweep reports, on the worker's behalf and by database time, what is overdue. First writer wins, so a result that came in time stays.
-- $2: what was due before has been seen to. A long snapshot elsewhere keeps the entries of all that was ever due in the index; no look walks through them (PG-05).
with overdue as (
    select tenant_id, run_id, step_ref, item_index, kind, attempt
    from eec_workflow_step_attempt
    where status = 'open' and report_time is null and check_time is not null and check_time <= eec_now()
      and check_time >= coalesce($2::timestamptz, '-infinity')
    order by check_time limit $1 for update skip locked
),
expired as (
    update eec_workflow_step_attempt a
    set report_time = eec_now(),
        outcome = case when a.lease_secret is null then 'queue_timed_out'
                       when a.deadline_time <= eec_now() then 'timed_out'
                       when a.heartbeat_timeout_ms is not null
                            and coalesce(a.heartbeat_time, a.start_time) + a.heartbeat_timeout_ms * interval '1 millisecond' <= eec_now()
                            then 'heartbeat_timed_out'
                       else 'lost' end
    from overdue o
    where a.tenant_id = o.tenant_id and a.run_id = o.run_id and a.step_ref = o.step_ref and a.item_index = o.item_index and a.kind = o.kind
      and a.attempt = o.attempt
    returning a.tenant_id, a.run_id, a.outcome
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from expired)
select outcome, count(*)::int as attempts from expired group by outcome;

-- name: wake_timers
-- Due timers, oldest first, wake their runs once; the tick that fires them deletes them. $2: as above.
with due as (
    select tenant_id, run_id, kind, step_ref, item_index from eec_workflow_timer
    where woken_time is null and due_time <= eec_now() and due_time >= coalesce($2::timestamptz, '-infinity')
    order by due_time limit $1 for update skip locked
),
woken as (
    update eec_workflow_timer t set woken_time = eec_now() from due d
    where t.tenant_id = d.tenant_id and t.run_id = d.run_id and t.kind = d.kind and t.step_ref = d.step_ref and t.item_index = d.item_index
    returning t.tenant_id, t.run_id
),
wakeups as (insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from woken)
select count(*)::int from woken;

-- name: next_timer
-- The time, and seconds until the next timer is due: the first entry of the index that `wake_timers` goes by, from $1 on.
select eec_now() as now, (
    select extract(epoch from t.due_time - eec_now())::float8 from eec_workflow_timer t
    where t.woken_time is null and t.due_time >= coalesce($1::timestamptz, '-infinity') order by t.due_time limit 1
) as next_s;

-- name: next_wakeup
-- Whether a wake-up of any tenant is due, and the seconds until the next one that is not: of each tenant, of begun and of new runs, the first entry, and the
-- first behind now.
with recursive tenants as (
    (select tenant_id from eec_workflow_wakeup order by tenant_id limit 1)
    union all
    select (select w.tenant_id from eec_workflow_wakeup w where w.tenant_id > t.tenant_id order by w.tenant_id limit 1)
    from tenants t where t.tenant_id is not null
)
select coalesce(bool_or(f.due), false) as due, extract(epoch from min(n.due_time) - eec_now())::float8 as next_s
from tenants t
cross join (values (false), (true)) as k(begins)
left join lateral (
    select w.due_time <= eec_now() as due from eec_workflow_wakeup w
    where w.tenant_id = t.tenant_id and w.begins = k.begins order by w.due_time limit 1
) f on true
left join lateral (
    select w.due_time from eec_workflow_wakeup w
    where w.tenant_id = t.tenant_id and w.begins = k.begins and w.due_time > eec_now() order by w.due_time limit 1
) n on true;

-- name: standing
-- For how long the oldest due wake-up of any tenant and the schedule that is most late have been waiting, in seconds, and how many runs are set aside, up to $1.
-- First entries of the indexes by which they are claimed.
with recursive tenants as (
    (select tenant_id from eec_workflow_wakeup order by tenant_id limit 1)
    union all
    select (select w.tenant_id from eec_workflow_wakeup w where w.tenant_id > t.tenant_id order by w.tenant_id limit 1)
    from tenants t where t.tenant_id is not null
),
oldest as (
    select min(f.due_time) as due_time from tenants t
    cross join (values (false), (true)) as k(begins)
    cross join lateral (
        select w.due_time from eec_workflow_wakeup w where w.tenant_id = t.tenant_id and w.begins = k.begins order by w.due_time limit 1
    ) f
)
select coalesce(greatest(extract(epoch from eec_now() - o.due_time), 0), 0)::float8 as wakeup_s,
       coalesce(greatest(extract(epoch from eec_now() - (
           select s.next_time from eec_workflow_schedule s where s.next_time is not null order by s.next_time limit 1
       )), 0), 0)::float8 as schedule_s,
       (select count(*)::int from (select from eec_workflow_quarantine limit $1) q) as quarantined
from oldest o;

-- name: sweep_reports
-- Reports that nobody woke a run for (a wake-up was lost): older than the sweep period and still not judged.
with lost as (
    select distinct a.tenant_id, a.run_id from eec_workflow_step_attempt a
    where a.status = 'open' and a.report_time is not null and a.report_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = a.run_id and (w.tenant_id = a.tenant_id) is true)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_timers
-- Timers that woke their run and are still there although no wake-up names it: the wake-up was lost. (A run that is set aside has one, in the future; what a
-- pause of the run or of the step holds waits for a resume, C2.)
with lost as (
    select t.tenant_id, t.run_id, t.kind, t.step_ref, t.item_index from eec_workflow_timer t
    where t.woken_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = t.run_id and (w.tenant_id = t.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_run r where r.tenant_id = t.tenant_id and r.run_id = t.run_id and r.held and t.kind not in ('run_timeout', 'node_grace')
                        and (r.status = 'paused' or r.node_states -> t.step_ref -> 'paused' is not null) offset 0)
    order by t.woken_time limit $2 for update skip locked
),
again as (
    update eec_workflow_timer t set woken_time = null from lost l
    where t.tenant_id = l.tenant_id and t.run_id = l.run_id and t.kind = l.kind and t.step_ref = l.step_ref and t.item_index = l.item_index
)
select count(*)::int from lost;

-- name: sweep_starts
-- Runs born since $1 that never started and that no wake-up names. Tenant after tenant, since the index leads with it; a probe each, since most have a state.
with recursive tenants as (
    (select tenant_id from eec_workflow_run_start order by tenant_id limit 1)
    union all
    select (select s.tenant_id from eec_workflow_run_start s where s.tenant_id > t.tenant_id order by s.tenant_id limit 1)
    from tenants t where t.tenant_id is not null
),
lost as (
    select s.tenant_id, s.run_id from tenants t
    cross join lateral (
        select b.tenant_id, b.run_id from eec_workflow_run_start b
        where b.tenant_id = t.tenant_id and b.create_time >= $1 and b.create_time < eec_now() - $2::bigint * interval '1 millisecond' offset 0
    ) s
    where not exists (select from eec_workflow_run r where r.tenant_id = s.tenant_id and r.run_id = s.run_id offset 0)
      and not exists (select from eec_workflow_wakeup w where w.run_id = s.run_id and (w.tenant_id = s.tenant_id) is true offset 0)
    limit $3
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_old_starts
-- The same over all runs ever born, page after page.
with page as (
    select s.tenant_id, s.run_id, s.create_time from eec_workflow_run_start s
    where (s.tenant_id, s.run_id) > ($1, $2::uuid) order by s.tenant_id, s.run_id limit $3
),
lost as (
    select p.tenant_id, p.run_id from page p
    where p.create_time < eec_now() - $4::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_run r where r.tenant_id = p.tenant_id and r.run_id = p.run_id offset 0)
      and not exists (select from eec_workflow_wakeup w where w.run_id = p.run_id and (w.tenant_id = p.tenant_id) is true offset 0)
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select (select count(*)::int from lost) as lost, (select count(*)::int from page) as seen,
       (select tenant_id from page order by tenant_id desc, run_id desc limit 1) as last_tenant,
       (select run_id::text from page order by tenant_id desc, run_id desc limit 1) as last_run;

-- name: sweep_stuck
-- Open runs, page after page, that have nothing to wait for: no wake-up, no timer but the run's own time-out, no open attempt, no operator who holds them, and no
-- step that is parked until somebody outside speaks or until children have ended, beside which no other is at work. The count should be 0: each is a bug, and is
-- woken. Attempts are looked for last: a run that is parked behind a wide fan-out has thousands.
with page as (
    select r.tenant_id, r.run_id, r.update_time, r.held from eec_workflow_run r
    where r.end_time is null and (r.tenant_id, r.run_id) > ($1, $2::uuid) order by r.tenant_id, r.run_id limit $3
),
idle as materialized (
    select p.tenant_id, p.run_id from page p
    where not p.held and p.update_time < eec_now() - $4::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = p.run_id and (w.tenant_id = p.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_timer t where t.tenant_id = p.tenant_id and t.run_id = p.run_id and t.kind <> 'run_timeout' offset 0)
),
restless as materialized (
    select i.tenant_id, i.run_id from idle i
    cross join lateral (select r.node_states::jsonb as node_states from eec_workflow_run r where r.tenant_id = i.tenant_id and r.run_id = i.run_id offset 0) n
    where jsonb_path_exists(n.node_states, '$.* ? (@.status == "running")')
       or (not jsonb_path_exists(n.node_states, '$.* ? (@.status == "waiting" && @.waiting.type != "child")')
           and not exists (select from eec_workflow_child c where c.tenant_id = i.tenant_id and c.parent_run_id = i.run_id and c.status is null
                             and not c.detached and c.sync and c.end_time is null offset 0))
),
stuck as (
    select i.tenant_id, i.run_id from restless i
    where not exists (select from eec_workflow_step_attempt a where a.tenant_id = i.tenant_id and a.run_id = i.run_id and a.status = 'open' offset 0)
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from stuck)
select (select count(*)::int from stuck) as stuck, (select count(*)::int from page) as seen,
       (select tenant_id from page order by tenant_id desc, run_id desc limit 1) as last_tenant,
       (select run_id::text from page order by tenant_id desc, run_id desc limit 1) as last_run;

-- name: sweep_children
-- Ends of children that nobody woke their parent for (F5). A pause holds none.
with lost as (
    select distinct c.tenant_id, c.parent_run_id as run_id from eec_workflow_child c
    where c.end_time is not null and c.applied_time is null and c.sync and not c.detached
      and c.end_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = c.parent_run_id and (w.tenant_id = c.tenant_id) is true offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_untold
-- Open children, page after page, whose run has ended although their row does not say so: `tell_ended` makes up for it. Those that are to be redriven are to be open:
-- the redrive tells. Each page says where it ends.
with page as (
    select c.tenant_id, c.parent_run_id, c.step_ref, c.item_index, c.attempt, c.child_run_id from eec_workflow_child c
    where c.status is null and not c.detached and (c.tenant_id, c.parent_run_id, c.step_ref, c.item_index, c.attempt) > ($1, $2::uuid, $3, $4::int, $5::int)
    order by c.tenant_id, c.parent_run_id, c.step_ref, c.item_index, c.attempt limit $6
)
select p.tenant_id, p.parent_run_id::text, p.step_ref, p.item_index, p.attempt,
       exists (select from eec_workflow_run r where r.tenant_id = p.tenant_id and r.run_id = p.child_run_id and r.status not in ('running', 'paused') offset 0)
           and not exists (
               select from eec_workflow_intent i
               where i.tenant_id = p.tenant_id and i.run_id = p.child_run_id and i.status = 'pending' and i.verb = 'redrive'
                 and i.actor = 'run:' || p.parent_run_id offset 0)
           as ended
from page p
order by p.tenant_id, p.parent_run_id, p.step_ref, p.item_index, p.attempt;

-- name: sweep_compensations
-- Runs that have ended and whose compensation is under way with nothing to wait for: no wake-up, no open attempt. Should be 0 too.
with stuck as (
    select r.tenant_id, r.run_id from eec_workflow_run r
    where r.compensation_status = 'running' and r.update_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = r.run_id and (w.tenant_id = r.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_step_attempt a where a.tenant_id = r.tenant_id and a.run_id = r.run_id and a.status = 'open' offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from stuck)
select count(*)::int from stuck;

-- name: sweep_controls
-- Controls that nobody woke a run for. One that asks a run to continue as new waits for the run's end, and so do those that came after it (C6); so does a parent's
-- redrive of a run that is being stopped (C4).
with lost as (
    select distinct i.tenant_id, i.run_id from eec_workflow_intent i
    where i.status = 'pending' and i.create_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = i.run_id and (w.tenant_id = i.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_run r where r.tenant_id = i.tenant_id and r.run_id = i.run_id and r.end_time is null
                        and (r.run_state -> 'stop' -> 'continuation' is not null
                             or (i.verb = 'redrive' and i.actor like 'run:%' and r.run_state -> 'stop' is not null)) offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_lates
-- Late successes that nobody woke a run for (C7).
with lost as (
    select distinct a.tenant_id, a.run_id from eec_workflow_step_attempt a
    where a.stale_outcome = 'succeeded' and a.late_judged_time is null and a.outcome is distinct from 'succeeded'
      and a.stale_time < eec_now() - $1::bigint * interval '1 millisecond' and (a.status <> 'open' or a.report_time is not null)
      and not exists (select from eec_workflow_wakeup w where w.run_id = a.run_id and (w.tenant_id = a.tenant_id) is true offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_signals
-- Signals that nobody woke a run for: their step waits, and nobody holds it, or has ended, or their run has. Others are kept for a step to come (E1).
with lost as (
    select distinct s.tenant_id, s.run_id from eec_workflow_signal s
    cross join lateral (
        select r.end_time, r.status, r.node_states -> s.step_ref as node from eec_workflow_run r where r.tenant_id = s.tenant_id and r.run_id = s.run_id offset 0
    ) n
    where s.status = 'kept' and s.create_time < eec_now() - $1::bigint * interval '1 millisecond'
      and (n.end_time is not null
           or (n.node ->> 'status' not in ('pending', 'running') and n.status <> 'paused' and n.node -> 'paused' is null))
      and not exists (select from eec_workflow_wakeup w where w.run_id = s.run_id and (w.tenant_id = s.tenant_id) is true offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_receipts
-- Events that were received and that nobody woke a run for; what a pause of the run or of the step holds waits for a resume (C2).
with lost as (
    select distinct n.tenant_id, n.run_id from eec_workflow_receipt n
    where n.applied_time is null and n.receive_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = n.run_id and (w.tenant_id = n.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_run r where r.tenant_id = n.tenant_id and r.run_id = n.run_id and r.held
                        and (r.status = 'paused' or r.node_states -> n.step_ref -> 'paused' is not null) offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: sweep_digests
-- Places in digests that nobody woke a run for; what a pause of the run or of the step holds waits for a resume (C2).
with lost as (
    select distinct a.tenant_id, a.run_id from eec_workflow_digest_arrival a
    where a.told_time is null and a.leave_time is null and a.arrive_time < eec_now() - $1::bigint * interval '1 millisecond'
      and not exists (select from eec_workflow_wakeup w where w.run_id = a.run_id and (w.tenant_id = a.tenant_id) is true offset 0)
      and not exists (select from eec_workflow_run r where r.tenant_id = a.tenant_id and r.run_id = a.run_id and r.held
                        and (r.status = 'paused' or r.node_states -> a.step_ref -> 'paused' is not null) offset 0)
    limit $2
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select tenant_id, run_id from lost)
select count(*)::int from lost;

-- name: expire_events
-- Events whose id dedupes no longer and which are kept for nobody; one that counts for a wait that is still open has to stay, since its payload stands nowhere else.
with expired as (
    select e.ctid as row_id from eec_workflow_event e
    where e.dedupe_until <= eec_now() and (e.keep_until is null or e.keep_until <= eec_now())
      and not exists (
          select from eec_workflow_wait w
          join eec_workflow_receipt r on r.tenant_id = w.tenant_id and r.run_id = w.run_id and r.step_ref = w.step_ref and r.attempt = w.attempt
              and r.event_name = e.event_name and r.event_id = e.event_id and r.requirement = w.requirement
          where w.tenant_id = e.tenant_id and w.event_name = e.event_name and w.correlation_key = any(array[e.correlation_key, '']) and w.close_time is null offset 0)
    order by e.dedupe_until limit $1
),
gone as (delete from eec_workflow_event e where e.ctid = any(array(select row_id from expired)) returning 1)
select count(*)::int from gone;

-- name: now
select eec_now();
