-- Dispatch's statements. It writes lease and result columns of attempts and appends wake-ups; column grants hold it to that.
-- An attempt row is the task: one dispatch, one attempt number, at most one lease. All limits are judged by eec_now(), never by a process's clock.
-- «Leasable» is written out in each statement exactly as in the claim index, so that the partial index serves it.

-- name: claim
-- Lease up to $4 due tasks of the queues $1 and actions $2 (of tenant $3, null: of all tenants), in fair order, at most $8 bytes of payload.
-- Fair order: within a tier tenants take turns, starting after the tier's cursor ($6); among tiers the next to finish in virtual time
-- ($5 + place / weight) goes first, so that weights hold within one claim and, by the carried $5, over many small ones.
-- Cost follows what is taken, not the backlog: per (tier, queue, action) a loose index scan hops from tenant to tenant, at most $7 of them, and reads a
-- few tasks of each from the front. Where a walk was cut at $7 its last tenant is the tier's horizon: nothing beyond it is taken now (else the tenants
-- that the cut walk did not reach would be passed over), and the caller goes on from there.
-- The lock is taken row by row in order, skipping rows that another dispatcher holds; more candidates are read than wanted so that two find different ones.
-- The caller brings the secrets ($13, 16 random bytes for each): the server's own would be a third of the whole cost.
-- Nothing that came due before $12 is looked at: those index entries are dead, and as long as some old snapshot is open nobody may remove them (PG-05).
-- `front` says how far that mark may go: to the oldest candidate, since of every tenant the oldest tasks are among the candidates.
-- The first row says what the queue looked like, the others are the tasks. `cut`: of some tenant there may be more than its share of the candidates. `next_due_ms`,
-- when nothing is due: how long until something will be.
with recursive
tier as (
    select t.tier, t.weight, t.pass, t.cursor
    from unnest(array['critical', 'standard', 'bulk'], array[8, 3, 1]::float8[], $5::float8[], $6::text[]) as t(tier, weight, pass, cursor)
),
walk as (
    select t.tier, t.weight, t.pass, q.queue, c.action, t.cursor, f.tenant_id, f.wrapped, 1 as seen
    from tier t
    cross join unnest($1::text[]) as q(queue)
    cross join unnest($2::text[]) as c(action)
    cross join lateral (
        (select $3::text as tenant_id, false as wrapped where $3::text is not null)
        union all
        (select a.tenant_id, false from eec_workflow_step_attempt a
         where $3::text is null and a.queue = q.queue and a.action = c.action and a.tier = t.tier and a.tenant_id > t.cursor
           and a.due_time >= $12 and a.status = 'open' and a.report_time is null and a.lease_secret is null
         order by a.tenant_id limit 1)
        union all
        (select a.tenant_id, true from eec_workflow_step_attempt a
         where $3::text is null and a.queue = q.queue and a.action = c.action and a.tier = t.tier and a.tenant_id <= t.cursor
           and a.due_time >= $12 and a.status = 'open' and a.report_time is null and a.lease_secret is null
         order by a.tenant_id limit 1)
        limit 1
    ) f
    union all
    select w.tier, w.weight, w.pass, w.queue, w.action, w.cursor, n.tenant_id, n.wrapped, w.seen + 1
    from walk w
    cross join lateral (
        (select a.tenant_id, w.wrapped from eec_workflow_step_attempt a
         where a.queue = w.queue and a.action = w.action and a.tier = w.tier and a.tenant_id > w.tenant_id
           and a.due_time >= $12 and a.status = 'open' and a.report_time is null and a.lease_secret is null
           and (not w.wrapped or a.tenant_id <= w.cursor)
         order by a.tenant_id limit 1)
        union all
        (select a.tenant_id, true from eec_workflow_step_attempt a
         where not w.wrapped and a.queue = w.queue and a.action = w.action and a.tier = w.tier and a.tenant_id <= w.cursor
           and a.due_time >= $12 and a.status = 'open' and a.report_time is null and a.lease_secret is null
         order by a.tenant_id limit 1)
        limit 1
    ) n
    where $3::text is null and w.seen < $7
),
horizon as (
    select distinct on (w.tier) w.tier, w.wrapped, w.tenant_id from walk w
    where w.seen = $7 and $3::text is null order by w.tier, w.wrapped, w.tenant_id
),
share as (
    select w.tier, 2 * $4 / count(distinct w.tenant_id) + 1 as tasks from walk w group by w.tier
),
candidate as (
    select w.tier, w.weight, w.pass, w.wrapped, w.tenant_id, a.row_id, a.due_time,
           row_number() over (partition by w.tier, w.tenant_id order by a.due_time) as turn, s.tasks as share
    from walk w
    join share s on s.tier = w.tier
    left join horizon h on h.tier = w.tier
    cross join lateral (
        select a.ctid as row_id, a.due_time from eec_workflow_step_attempt a
        where a.queue = w.queue and a.action = w.action and a.tier = w.tier and a.tenant_id = w.tenant_id and a.due_time <= eec_now()
          and a.due_time >= $12 and a.status = 'open' and a.report_time is null and a.lease_secret is null and a.cancel_requested_time is null and a.held_due_time is null
        order by a.due_time limit s.tasks
    ) a
    where h.tier is null or (w.wrapped, w.tenant_id) <= (h.wrapped, h.tenant_id)
),
placed as (
    select c.*, row_number() over (partition by c.tier order by c.turn, c.wrapped, c.tenant_id) as place from candidate c
),
ordered as materialized (
    select p.row_id, p.tier, p.tenant_id, p.due_time, p.turn >= p.share as cut, row_number() over (order by p.pass + p.place / p.weight, p.weight desc) as number from placed p
),
locked as materialized (
    select o.number, o.tier, o.tenant_id, l.row_id, l.input, l.previous_details
    from (select * from ordered order by number) o
    cross join lateral (
        select a.ctid as row_id, a.input, a.previous_details from eec_workflow_step_attempt a
        where a.ctid = o.row_id and a.status = 'open' and a.report_time is null and a.lease_secret is null and a.held_due_time is null
        for update skip locked
    ) l
    limit $4
),
-- Two sums: the stored size first, which is never more than the true one and unpacks nothing.
fitting as (
    select f.*, sum(octet_length(f.input::text) + coalesce(octet_length(f.previous_details::text), 0) + 1024) over (order by f.number rows unbounded preceding) as bytes
    from (
        select l.*, row_number() over number as place,
               sum(pg_column_size(l.input) + coalesce(pg_column_size(l.previous_details), 0)) over number as stored_bytes
        from locked l window number as (order by l.number rows unbounded preceding)
    ) f
    where f.stored_bytes <= $8::bigint or f.place = 1
),
taken as materialized (
    select f.place, f.tier, f.tenant_id, f.row_id from fitting f where f.bytes <= $8::bigint or f.place = 1
),
claimed as (
    update eec_workflow_step_attempt a
    set lease_secret = encode(substr($13::bytea, 16 * t.place::int - 15, 16), 'hex'), worker_id = $9, poll_id = $10, start_time = eec_now(),
        lease_expire_time = eec_now() + $11::bigint * interval '1 millisecond',
        deadline_time = eec_now() + least(a.timeout_ms, 31536000000) * interval '1 millisecond',
        check_time = eec_now() + least($11::bigint, a.timeout_ms, a.heartbeat_timeout_ms) * interval '1 millisecond'
    from taken t
    where a.ctid = t.row_id and a.lease_secret is null and a.held_due_time is null
    returning a.tenant_id, a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, a.lease_secret, a.tier, a.queue, a.action, a.input::text as input,
              a.idempotency_key, a.previous_details::text as previous_details, a.traceparent, a.heartbeat_timeout_ms,
              least(a.timeout_ms, 2147483647) as remaining_ms, (extract(epoch from eec_now() - a.due_time) * 1000)::bigint as waited_ms
),
seen as (
    select array(select distinct o.tier from ordered o) as tiers,
           array(select (select t.tenant_id from taken t where t.tier = r.tier order by t.place desc limit 1) from tier r) as last_served,
           array(select h.tenant_id from tier r left join horizon h on h.tier = r.tier) as horizons,
           (select count(*) from ordered)::int as candidates, coalesce((select bool_or(o.cut) from ordered o), false) as cut, eec_now() as now,
           coalesce((select min(o.due_time) from ordered o), eec_now()) as front,
           case when not exists (select from ordered) then (
               select (extract(epoch from least(min(n.due_time), eec_now() + interval '1 hour') - eec_now()) * 1000)::int
               from walk w cross join lateral (
                   select a.due_time from eec_workflow_step_attempt a
                   where a.queue = w.queue and a.action = w.action and a.tier = w.tier and a.tenant_id = w.tenant_id and a.due_time > eec_now()
                     and a.status = 'open' and a.report_time is null and a.lease_secret is null
                   order by a.due_time limit 1
               ) n
           ) end as next_due_ms
)
select c.*, s.*
from seen s full join claimed c on false
order by array_position(array['critical', 'standard', 'bulk'], c.tier) nulls first, c.waited_ms desc;

-- name: due
-- Which of the waiting filters have work: rows of (filter number, queue, action, tenant or null). One statement for all of them, a few index probes each.
select eec_now() as now, array(
    select distinct f.number
    from unnest($1::int[], $2::text[], $3::text[], $4::text[]) as f(number, queue, action, tenant_id)
    cross join unnest(array['critical', 'standard', 'bulk']) as t(tier)
    where exists (
        select from eec_workflow_step_attempt a
        where a.queue = f.queue and a.action = f.action and a.tier = t.tier and (f.tenant_id is null or a.tenant_id = f.tenant_id)
          and a.due_time <= eec_now() and a.status = 'open' and a.report_time is null and a.lease_secret is null and a.held_due_time is null
    )
) as numbers;

-- name: redeliver
-- The reply to poll $1 was lost: its leases that are still held, each under a new secret (whoever might have got the old one is fenced) and renewed.
update eec_workflow_step_attempt a
set lease_secret = replace(gen_random_uuid()::text, '-', ''), lease_expire_time = eec_now() + $4::bigint * interval '1 millisecond',
    check_time = least(eec_now() + $4::bigint * interval '1 millisecond', a.deadline_time,
                       coalesce(a.heartbeat_time, a.start_time) + a.heartbeat_timeout_ms * interval '1 millisecond')
where a.poll_id = $1 and a.worker_id = $2 and a.status = 'open' and a.report_time is null and ($3::text is null or a.tenant_id = $3)
  and (a.deadline_time is null or a.deadline_time > eec_now())
returning a.tenant_id, a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, a.lease_secret, a.tier, a.queue, a.action, a.input::text as input,
          a.idempotency_key, a.previous_details::text as previous_details, a.traceparent, a.heartbeat_timeout_ms,
          least(extract(epoch from a.deadline_time - eec_now()) * 1000, 2147483647)::bigint as remaining_ms, 0::bigint as waited_ms, eec_now() as now;

-- name: give_back
-- Leases that never left this process (the poller went away before the reply) are undone: nobody has seen their secrets. A task that was put on hold meanwhile has
-- no limit until it is released.
with returned as (
    update eec_workflow_step_attempt a
    set lease_secret = null, worker_id = null, poll_id = null, start_time = null, lease_expire_time = null, deadline_time = null,
        check_time = case when a.held_due_time is null then a.queue_deadline end
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[], $7::text[])
         as x(tenant_id, run_id, step_ref, item_index, kind, attempt, lease_secret)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = x.item_index and a.kind = x.kind
      and a.attempt = x.attempt and a.lease_secret = x.lease_secret and a.status = 'open' and a.report_time is null
    returning 1
),
hint as (select eec_notify('ductor_task') from returned limit 1)
select (select count(*) from returned)::int, (select count(*) from hint)::int;

-- name: complete
-- First writer wins: a report counts where the attempt is open, unreported and leased under this secret. Past its deadline the outcome is `timed_out` and
-- what the worker brought is kept as stale (A3, A4). One wake-up per run and one hint, in the same transaction (the time hangs on the hint,
-- since what nobody asks for is not done). Rows that do not come back are for `settle`.
-- The caller sorts by key, so that two batches lock in one order. An array may be left empty whose values are all null. The first row tells the time; `place` is
-- a report's in the arrays, from 1.
with accepted as (
    update eec_workflow_step_attempt a
    set report_time = eec_now(),
        outcome = case when a.deadline_time <= eec_now() then 'timed_out' else x.outcome end,
        output = case when a.deadline_time <= eec_now() then null else x.output::json end,
        output_size = case when a.deadline_time <= eec_now() then null else x.output_size end,
        output_hash = case when a.deadline_time <= eec_now() then null else x.output_hash end,
        error_code = case when a.deadline_time <= eec_now() then null else x.error_code end,
        error_message = case when a.deadline_time <= eec_now() then null else x.error_message end,
        non_retryable = coalesce(x.non_retryable, false) and a.deadline_time > eec_now() is not false,
        retry_after_ms = case when a.deadline_time <= eec_now() then null else x.retry_after_ms end,
        stale_time = case when a.deadline_time <= eec_now() then eec_now() end,
        stale_outcome = case when a.deadline_time <= eec_now() then x.outcome end,
        stale_output = case when a.deadline_time <= eec_now() then x.output::json end,
        stale_error_code = case when a.deadline_time <= eec_now() then x.error_code end,
        stale_error_message = case when a.deadline_time <= eec_now() then x.error_message end
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[], $10::int[],
                $11::text[], $12::text[], $13::text[], $14::bool[], $15::bigint[]) with ordinality
         as x(tenant_id, run_id, step_ref, item_index, kind, attempt, lease_secret, outcome, output, output_size,
              output_hash, error_code, error_message, non_retryable, retry_after_ms, place)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = x.item_index and a.kind = x.kind
      and a.attempt = x.attempt and a.lease_secret = x.lease_secret and a.status = 'open' and a.report_time is null
    returning x.place, a.outcome, a.tenant_id, a.run_id, (extract(epoch from eec_now() - a.start_time) * 1000)::bigint as ran_ms
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select distinct a.tenant_id, a.run_id from accepted a),
hint as (select eec_notify('ductor_wakeup') from accepted limit 1)
select a.place, a.outcome, a.ran_ms, s.now
from (select case when (select count(*) from hint) >= 0 then eec_now() end as now) s full join accepted a on false
order by a.place nulls first;

-- name: settle
-- Reports that did not count, told apart: `repeated` says again what was accepted; anything else came too late, and the first such report is kept. A success that is
-- kept where the outcome is another wakes its run: what it did may have to be undone (C7). Rows that do not come back have no such attempt.
with x as (
    select * from unnest($1::int[], $2::text[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::int[], $8::text[], $9::text[], $10::text[],
                         $11::text[], $12::text[], $13::text[])
         as x(number, tenant_id, run_id, step_ref, item_index, kind, attempt, lease_secret, outcome, output, output_hash, error_code, error_message)
),
judged as materialized (
    select x.number, a.report_time is not null and a.lease_secret = x.lease_secret and a.outcome = x.outcome
                     and a.output_hash is not distinct from x.output_hash and a.error_code is not distinct from x.error_code as repeated
    from x join eec_workflow_step_attempt a on a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref
        and a.item_index = x.item_index and a.kind = x.kind and a.attempt = x.attempt
),
kept as (
    update eec_workflow_step_attempt a
    set stale_time = eec_now(), stale_outcome = x.outcome, stale_output = x.output::json, stale_error_code = x.error_code,
        stale_error_message = x.error_message
    from x join judged j on j.number = x.number and j.repeated is not true
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = x.item_index and a.kind = x.kind
      and a.attempt = x.attempt and a.stale_time is null and (a.status <> 'open' or a.report_time is not null or a.lease_secret <> x.lease_secret)
    returning x.number, a.tenant_id, a.run_id,
              a.stale_outcome = 'succeeded' and a.outcome is distinct from 'succeeded' and (a.status <> 'open' or a.report_time is not null) as late
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select distinct k.tenant_id, k.run_id from kept k where k.late),
hint as (select eec_notify('ductor_wakeup') from kept k where k.late limit 1)
select j.number, coalesce(j.repeated, false) as repeated, exists (select from kept k where k.number = j.number) as kept, eec_now() as now,
       (select count(*) from hint)::int as hinted
from judged j;

-- name: heartbeat
-- Renew leases that are still held; details are progress and feed the heartbeat time-out (A5). Rows that do not come back are lost leases.
update eec_workflow_step_attempt a
set lease_expire_time = eec_now() + $10::bigint * interval '1 millisecond',
    heartbeat_time = case when x.details is null then a.heartbeat_time else eec_now() end,
    heartbeat_details = coalesce(x.details::json, a.heartbeat_details),
    check_time = least(eec_now() + $10::bigint * interval '1 millisecond', a.deadline_time,
                       case when x.details is null then coalesce(a.heartbeat_time, a.start_time) else eec_now() end
                           + a.heartbeat_timeout_ms * interval '1 millisecond')
from unnest($1::int[], $2::text[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::int[], $8::text[], $9::text[])
     as x(number, tenant_id, run_id, step_ref, item_index, kind, attempt, lease_secret, details)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = x.item_index and a.kind = x.kind
  and a.attempt = x.attempt and a.lease_secret = x.lease_secret and a.status = 'open' and a.report_time is null
returning x.number, a.cancel_requested_time is not null as cancel, eec_now() as now;

-- name: describe_waiting
-- Tasks without a lease per queue and tier, of tenant $1 (null: of all), in the queues $2 (empty: in all). A loose index scan over (queue, action, tier), at
-- most $3 of them; in each at most $4 tasks are counted, so that the cost is bounded whatever the backlog.
with recursive walk as (
    (select a.queue, a.action, a.tier, 1 as seen from eec_workflow_step_attempt a
     where a.status = 'open' and a.report_time is null and a.lease_secret is null
     order by a.queue, a.action, a.tier limit 1)
    union all
    select n.queue, n.action, n.tier, w.seen + 1 from walk w cross join lateral (
        select a.queue, a.action, a.tier from eec_workflow_step_attempt a
        where (a.queue, a.action, a.tier) > (w.queue, w.action, w.tier) and a.status = 'open' and a.report_time is null and a.lease_secret is null
        order by a.queue, a.action, a.tier limit 1
    ) n
    where w.seen < $3
)
select w.queue, w.tier, sum(c.ready)::int as ready, sum(c.delayed)::int as delayed, min(c.oldest) as oldest
from walk w cross join lateral (
    select count(*) filter (where d.due_time <= eec_now()) as ready, count(*) filter (where d.due_time > eec_now()) as delayed,
           min(d.due_time) filter (where d.due_time <= eec_now()) as oldest
    from (
        select a.due_time from eec_workflow_step_attempt a
        where a.queue = w.queue and a.action = w.action and a.tier = w.tier and ($1::text is null or a.tenant_id = $1)
          and a.status = 'open' and a.report_time is null and a.lease_secret is null
        limit $4
    ) d
) c
where cardinality($2::text[]) = 0 or w.queue = any ($2::text[])
group by w.queue, w.tier
having sum(c.ready) + sum(c.delayed) > 0;

-- name: describe_leased
-- Live leases per queue and tier, counted from the rows themselves (a slot that leaks heals when its lease ends); at most $3 rows are looked at.
select l.queue, l.tier, count(*)::int as leased
from (
    select a.queue, a.tier, a.tenant_id from eec_workflow_step_attempt a
    where a.status = 'open' and a.report_time is null and a.check_time is not null and a.lease_secret is not null limit $3
) l
where ($1::text is null or l.tenant_id = $1) and (cardinality($2::text[]) = 0 or l.queue = any ($2::text[]))
group by l.queue, l.tier;

-- name: now
select eec_now();
