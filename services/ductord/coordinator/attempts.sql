-- What the commit writes of attempts. Whoever locks rows that others may be writing does so in the order of their key: dispatch's batches, and `lock_attempts`.
-- What is null in a column of attempts is what it is for most: the index and the kind of a step's own attempt, a success, a task that is due now (`decided.sparse`).

-- name: lock_attempts
-- Locks the open attempts of these runs, all of a commit's in one statement and in the order of their key, and says how they stand now. Only where attempts end, are
-- asked to stop, or are held that nobody has reported on: a lease or a report that slipped in since the load is then seen, and the run's tick is repeated. Of
-- inline children, of which a run may have thousands at work, only those that were reported on, unless the commit is about all of them ($3).
-- Dispatch's statements lock in the same order, which is that of its sorted batches (hence "C"), or skip what is locked; whoever comes later finds the attempt
-- closed.
select a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, true as open, a.start_time is not null as taken, a.report_time is not null as reported
from unnest($1::text[], $2::uuid[], $3::bool[]) as c(tenant_id, run_id, items)
join eec_workflow_step_attempt a on a.tenant_id = c.tenant_id and a.run_id = c.run_id
where a.status = 'open' and (c.items or a.kind <> 'item' or a.report_time is not null)
order by a.tenant_id collate "C", a.run_id, a.step_ref collate "C", a.item_index, a.kind collate "C", a.attempt
for update of a;

-- name: lock_attempts_and_lates
-- The same for a commit that judges late successes too: reports that come late lock those rows by the batch, closed as they are.
select a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, a.status = 'open' as open, a.start_time is not null as taken,
       a.report_time is not null as reported
from unnest($1::text[], $2::uuid[], $3::bool[]) as c(tenant_id, run_id, items)
join eec_workflow_step_attempt a on a.tenant_id = c.tenant_id and a.run_id = c.run_id
where (a.status = 'open' and (c.items or a.kind <> 'item' or a.report_time is not null))
   or (a.stale_outcome = 'succeeded' and a.late_judged_time is null and a.outcome is distinct from 'succeeded')
order by a.tenant_id collate "C", a.run_id, a.step_ref collate "C", a.item_index, a.kind collate "C", a.attempt
for update of a;

-- name: close_attempts
update eec_workflow_step_attempt a
set status = coalesce(x.status, 'succeeded'), end_time = $8
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[], $7::text[]) as x(tenant_id, run_id, step_ref, item_index, kind, attempt, status)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = coalesce(x.item_index, -1) and a.kind = coalesce(x.kind, 'step')
  and a.attempt = x.attempt and a.status = 'open';

-- name: close_lates
-- A late success was judged: it is not shown again (C7).
update eec_workflow_step_attempt a
set late_judged_time = $7
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[]) as x(tenant_id, run_id, step_ref, item_index, kind, attempt)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = coalesce(x.item_index, -1) and a.kind = coalesce(x.kind, 'step')
  and a.attempt = x.attempt and a.late_judged_time is null;

-- name: wake_lates
-- A verdict over an attempt that nobody reported on makes a success late which an earlier holder of the lease had brought: its run looks at it next (C7).
insert into eec_workflow_wakeup (tenant_id, run_id)
select distinct a.tenant_id, a.run_id
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[]) as x(tenant_id, run_id, step_ref, item_index, kind, attempt)
join eec_workflow_step_attempt a on a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = coalesce(x.item_index, -1)
    and a.kind = coalesce(x.kind, 'step') and a.attempt = x.attempt
where a.stale_outcome = 'succeeded' and a.late_judged_time is null and a.outcome is distinct from 'succeeded';

-- name: insert_attempts
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time,
                                       queue_deadline, check_time, timeout_ms, heartbeat_timeout_ms, traceparent, create_time, item_state)
select x.tenant_id, x.run_id, x.step_ref, coalesce(x.item_index, -1), coalesce(x.kind, 'step'), x.attempt, coalesce(x.tier, 'standard'),
       x.queue, x.action, x.input::json, x.idempotency_key, coalesce(x.due_time, $17::timestamptz), x.queue_deadline, x.queue_deadline, x.timeout_ms, x.heartbeat_timeout_ms, coalesce(x.traceparent, ''), $17::timestamptz, x.item_state::json
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
            $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::bigint[], $16::text[], $18::text[])
     as x(tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time, queue_deadline, timeout_ms,
          heartbeat_timeout_ms, traceparent, item_state);

-- name: insert_retries
-- A retry reuses the rendered input of the attempt before, and gets its last heartbeat details (A1, A5).
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time,
                                       queue_deadline, check_time, timeout_ms, heartbeat_timeout_ms, traceparent, previous_details, create_time, item_state)
select p.tenant_id, p.run_id, p.step_ref, p.item_index, p.kind, x.attempt, p.tier, x.queue, x.action, p.input, x.idempotency_key, x.due_time,
       x.queue_deadline, x.queue_deadline, x.timeout_ms, x.heartbeat_timeout_ms, x.traceparent, coalesce(p.heartbeat_details, p.previous_details), $16::timestamptz,
       x.item_state::json
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[], $7::int[], $8::text[], $9::text[], $10::text[],
            $11::timestamptz[], $12::timestamptz[], $13::bigint[], $14::bigint[], $15::text[], $17::text[])
     as x(tenant_id, run_id, step_ref, item_index, kind, attempt, retry_of, queue, action, idempotency_key, due_time, queue_deadline, timeout_ms,
          heartbeat_timeout_ms, traceparent, item_state)
join eec_workflow_step_attempt p on p.tenant_id = x.tenant_id and p.run_id = x.run_id and p.step_ref = x.step_ref and p.item_index = coalesce(x.item_index, -1)
    and p.kind = coalesce(x.kind, 'step') and p.attempt = x.retry_of;

-- name: hold_attempts
-- Tasks that were queued on hold a moment ago, in this very transaction: as `hold_tasks`, by their key.
update eec_workflow_step_attempt a
set held_due_time = a.due_time, due_time = 'infinity', check_time = null
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[]) as x(tenant_id, run_id, step_ref, item_index, kind, attempt)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = coalesce(x.item_index, -1) and a.kind = coalesce(x.kind, 'step')
  and a.attempt = x.attempt;

-- name: request_cancels
-- A leased attempt is told at its next heartbeat. One that nobody works on is revoked at once: there is nobody to wait for, and its run is woken to judge it.
with asked as (
    update eec_workflow_step_attempt a
    set cancel_requested_time = $7, report_time = case when a.lease_secret is null then $7 else a.report_time end,
        outcome = case when a.lease_secret is null then 'revoked' else a.outcome end
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::int[]) as x(tenant_id, run_id, step_ref, item_index, kind, attempt)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.item_index = coalesce(x.item_index, -1) and a.kind = coalesce(x.kind, 'step')
      and a.attempt = x.attempt and a.status = 'open' and a.report_time is null and a.cancel_requested_time is null
    returning a.tenant_id, a.run_id, a.outcome
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from asked where outcome = 'revoked';

-- name: hold_tasks
-- Tasks of a step, or with an empty step_ref of the whole run, are handed out no more (C2): they wait at infinity, with their own time beside it, and have no
-- limit until they are released. One that a worker has goes on; it is marked, so that it is not handed out again should dispatch undo its lease.
update eec_workflow_step_attempt a
set held_due_time = a.due_time,
    due_time = case when a.lease_secret is null then 'infinity' else a.due_time end,
    check_time = case when a.lease_secret is null then null else a.check_time end
from unnest($1::text[], $2::uuid[], $3::text[]) as x(tenant_id, run_id, step_ref)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and x.step_ref in ('', a.step_ref) and a.kind in ('step', 'item') and a.status = 'open'
  and a.report_time is null and a.held_due_time is null;

-- name: release_tasks
-- Held tasks go again, at their own time or at once, except those of the steps in `still_held`; their time in the queue begins anew. Never due in the past: dispatch
-- looks no further back than it has to.
update eec_workflow_step_attempt a
set due_time = case when a.lease_secret is null then greatest(a.held_due_time, $5) else a.due_time end,
    queue_deadline = greatest(a.held_due_time, $5) + (a.queue_deadline - a.held_due_time),
    check_time = case when a.lease_secret is null then greatest(a.held_due_time, $5) + (a.queue_deadline - a.held_due_time) else a.check_time end,
    held_due_time = null
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) as x(tenant_id, run_id, step_ref, still_held)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and x.step_ref in ('', a.step_ref) and a.kind in ('step', 'item') and a.status = 'open'
  and a.report_time is null and a.held_due_time is not null and not (x.still_held::jsonb ? a.step_ref);

-- name: insert_outputs
-- The output of a step that nobody worked for: the row of an attempt that is born a success, leased by nobody, so that an output lives where every output lives.
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, traceparent, create_time,
                                       status, end_time, start_time, outcome, report_time, output, output_size, output_hash)
select x.tenant_id, x.run_id, x.step_ref, x.attempt, x.tier, '', x.action, 'null', '', x.begin_time, x.traceparent, $12::timestamptz, 'succeeded',
       $12::timestamptz, x.begin_time, 'succeeded', $12::timestamptz, x.output::json, x.output_size, x.output_hash
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::timestamptz[], $8::text[], $9::text[], $10::int[], $11::text[])
     as x(tenant_id, run_id, step_ref, attempt, tier, action, begin_time, traceparent, output, output_size, output_hash);
