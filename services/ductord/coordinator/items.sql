-- What the commit writes of inline children by step, and of what they are made from (rulings F1, F2). Their single attempts are written like any others
-- (attempts.sql); locks are taken there (`lock_attempts`), in the order of the key.

-- name: record_items
-- Frozen collections, by page.
insert into eec_workflow_item_page (tenant_id, run_id, step_ref, attempt, page, items)
select x.tenant_id, x.run_id, x.step_ref, x.attempt, x.page, x.items::json
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::text[]) as x(tenant_id, run_id, step_ref, attempt, page, items)
on conflict do nothing;

-- name: cancel_items
-- All open inline children of a step are asked to stop: as `request_cancels`.
with asked as (
    update eec_workflow_step_attempt a
    set cancel_requested_time = $4, report_time = case when a.lease_secret is null then $4 else a.report_time end,
        outcome = case when a.lease_secret is null then 'revoked' else a.outcome end
    from unnest($1::text[], $2::uuid[], $3::text[]) as x(tenant_id, run_id, step_ref)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.kind = 'item' and a.status = 'open'
      and a.report_time is null and a.cancel_requested_time is null
    returning a.tenant_id, a.run_id, a.outcome
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from asked where outcome = 'revoked';

-- name: close_items
-- A verdict over all open inline children of a step. A success that an earlier holder of a lease had brought is a late one now: its run looks at it next (C7).
with closed as (
    update eec_workflow_step_attempt a
    set status = x.status, end_time = $5
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) as x(tenant_id, run_id, step_ref, status)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.kind = 'item' and a.status = 'open'
    returning a.tenant_id, a.run_id, a.stale_outcome, a.late_judged_time, a.outcome
)
insert into eec_workflow_wakeup (tenant_id, run_id)
select distinct tenant_id, run_id from closed where stale_outcome = 'succeeded' and late_judged_time is null and outcome is distinct from 'succeeded';

-- name: record_item_faults
-- Why a child failed for good, in the row of its last attempt. One that could not be made, because its args did not evaluate, gets a row that is born a failure.
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time, traceparent,
                                       create_time, status, end_time, outcome, report_time, error_code, error_message, non_retryable)
select x.tenant_id, x.run_id, x.step_ref, x.item_index, 'item', x.attempt, x.tier, '', '', 'null', '', $9::timestamptz, x.traceparent,
       $9::timestamptz, 'failed', $9::timestamptz, 'failed', $9::timestamptz, x.error_code, x.error_message, true
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[], $10::text[])
     as x(tenant_id, run_id, step_ref, item_index, attempt, tier, error_code, error_message, traceparent)
on conflict (tenant_id, run_id, step_ref, item_index, kind, attempt) do update set error_code = excluded.error_code, error_message = excluded.error_message;

-- name: adopt_items
-- The rows of inline children that a reset run keeps for a gather to come: of each the latest attempt by the point at which its history was cut (C5).
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, item_index, kind, attempt, tier, queue, action, input, idempotency_key, due_time, timeout_ms,
                                       heartbeat_timeout_ms, traceparent, create_time, status, end_time, worker_id, start_time, outcome, report_time,
                                       output, output_size, output_hash, error_code, error_message, non_retryable, item_state)
select a.tenant_id, x.run_id, a.step_ref, a.item_index, a.kind, a.attempt, a.tier, a.queue, a.action, a.input, a.idempotency_key,
       coalesce(a.held_due_time, a.due_time), a.timeout_ms, a.heartbeat_timeout_ms, a.traceparent, a.create_time, a.status, coalesce(a.end_time, $6), a.worker_id,
       a.start_time, a.outcome, coalesce(a.report_time, $6), a.output, a.output_size, a.output_hash, a.error_code, a.error_message, a.non_retryable, a.item_state
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::int[]) as x(tenant_id, run_id, source_id, step_ref, attempt)
cross join lateral (
    select distinct on (i.item_index) i.* from eec_workflow_step_attempt i
    where i.tenant_id = x.tenant_id and i.run_id = x.source_id and i.step_ref = x.step_ref and i.kind = 'item' and i.attempt <= x.attempt and i.status <> 'open'
    order by i.item_index, i.attempt desc offset 0
) a
on conflict do nothing;
