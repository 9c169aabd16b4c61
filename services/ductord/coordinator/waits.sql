-- What the commit reads and writes of waits for external events (E3). Lock order: keys of events, then waits in the order of their key; who publishes keeps to it too.

-- name: lock_keys
-- Whoever keeps an event for waits to come holds the lock of its key, shared, until it has looked for waits; whoever opens a wait looks for kept events only once
-- nobody is at it. A pattern for any key ($3 null) has a lock of its own. In one order, the one in which publishing takes them: those for any key first.
select pg_advisory_xact_lock(k.key)
from (
    select distinct x.correlation_key is not null as keyed, eec_event_lock_key(x.tenant_id, x.event_name, x.correlation_key) as key
    from unnest($1::text[], $2::text[], $3::text[]) as x(tenant_id, event_name, correlation_key) order by keyed, key offset 0
) k;

-- name: lock_waits
-- From here on nobody adds a receipt to these waits: publishing locks them too, and looks again whether they are open.
select true
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
join eec_workflow_wait w on w.tenant_id = x.tenant_id and w.run_id = x.run_id and w.step_ref = x.step_ref and w.attempt = x.attempt
order by w.tenant_id collate "C", w.run_id, w.step_ref collate "C", w.attempt, w.requirement collate "C"
for update of w;

-- name: receipts_of
-- What the locked waits have received and no tick has applied.
select r.run_id::text, r.step_ref, r.attempt, r.event_name, r.event_id, r.requirement
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
cross join lateral (
    select * from eec_workflow_receipt n
    where n.tenant_id = x.tenant_id and n.run_id = x.run_id and n.step_ref = x.step_ref and n.attempt = x.attempt and n.applied_time is null offset 0
) r;

-- name: take_receipts
update eec_workflow_receipt r
set applied_time = $8
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[])
     as x(tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement)
where r.tenant_id = x.tenant_id and r.run_id = x.run_id and r.step_ref = x.step_ref and r.attempt = x.attempt and r.event_name = x.event_name
  and r.event_id = x.event_id and r.requirement = x.requirement and r.applied_time is null;

-- name: close_waits
-- What a wait has received and its end left over is put away with it: its tick was shown it.
with closed as (
    update eec_workflow_wait w
    set close_time = $5
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
    where w.tenant_id = x.tenant_id and w.run_id = x.run_id and w.step_ref = x.step_ref and w.attempt = x.attempt and w.close_time is null
)
update eec_workflow_receipt r
set applied_time = $5
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
where r.tenant_id = x.tenant_id and r.run_id = x.run_id and r.step_ref = x.step_ref and r.attempt = x.attempt and r.applied_time is null;

-- name: open_waits
insert into eec_workflow_wait (tenant_id, run_id, step_ref, attempt, requirement, event_name, correlation_key, any_key, filter, event_set, open_time)
select x.tenant_id, x.run_id, x.step_ref, x.attempt, x.requirement, x.event_name, x.correlation_key, x.any_key, x.filter, x.event_set, $11::timestamptz
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bool[], $9::text[], $10::bool[])
     as x(tenant_id, run_id, step_ref, attempt, requirement, event_name, correlation_key, any_key, filter, event_set);

-- name: kept_events
-- Events that are kept for waits to come, by the place of the pattern that they fit, oldest first; with the payload where a filter reads it. The event that started
-- the run is not for its own waits (E4).
select x.place::int, e.event_name, e.event_id, e.correlation_key, e.publish_time, case when x.filtered then e.payload::text end as payload
from unnest($1::text[], $2::text[], $3::text[], $4::bool[], $5::bool[], $8::text[]) with ordinality
     as x(tenant_id, event_name, correlation_key, any_key, filtered, own_event_id, place)
cross join lateral (
    select * from eec_workflow_event k
    where k.tenant_id = x.tenant_id and k.event_name = x.event_name and (x.any_key or k.correlation_key = x.correlation_key)
      and k.keep_until is not null and k.keep_until > $6::timestamptz and k.event_id is distinct from x.own_event_id
    order by k.publish_time, k.event_id limit $7::int offset 0
) e
order by x.place, e.publish_time, e.event_id;

-- name: receive_kept
-- Receipts for kept events, and a wake-up for each run that got one.
with received as (
    insert into eec_workflow_receipt (tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement, receive_time)
    select x.tenant_id, x.run_id, x.step_ref, x.attempt, x.event_name, x.event_id, x.requirement, $8::timestamptz
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[])
         as x(tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement)
    on conflict do nothing
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from received;
