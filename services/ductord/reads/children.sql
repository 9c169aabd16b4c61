-- The children of a node that fans out. SELECT only, every row found with its tenant.

-- The two lists share their parameters, their order (by index) and the words of `status`: running, succeeded, failed, cancelled. What has not begun, or is to begin
-- anew, has no row that counts: those indexes are the caller's to tell. Outputs are sent as long as their sum stays within $8; what is beyond is not even read.
--   $1 tenant  $2 run  $3 step ref  $4, $5 first and last index  $6 status, '' for all  $7 indexes that are to begin anew, as a multirange
--   $8 bytes of outputs  $9 limit  $10 the indexes that failed; null: all that ended otherwise than well

-- name: list_items
-- Inline children, each by its latest attempt; and of child runs those that could not even be born, which have such a row too.
with latest as (
    select * from (
        select a.item_index, a.attempt, a.due_time, a.report_time, a.end_time, a.error_code, a.error_message, a.output_size, a.output,
               case when a.status = 'open' then 'running' when a.status in ('succeeded', 'cancelled') then a.status
                    when $10::int[] is null or a.item_index = any($10::int[]) then 'failed' else 'cancelled' end as status,
               min(a.start_time) over child as start_time, row_number() over (child order by a.attempt desc) as place
        from eec_workflow_step_attempt a
        where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.kind = 'item' and a.item_index between $4::int and $5::int
        window child as (partition by a.item_index)
    ) a
    where a.place = 1 and ($6::text = '' or a.status = $6) and not a.item_index <@ $7::int4multirange
      and not exists (select from eec_workflow_child c where c.tenant_id = $1 and c.parent_run_id = $2 and c.step_ref = $3 and c.item_index = a.item_index
                      and c.attempt >= a.attempt)
    order by a.item_index limit $9
)
select l.item_index, l.attempt, l.status, l.due_time, l.start_time, coalesce(l.report_time, l.end_time) as end_time, l.error_code, l.error_message, l.output_size,
       case when l.status = 'succeeded' and sum(case when l.status = 'succeeded' then coalesce(l.output_size, 0) else 0 end) over (order by l.item_index) <= $8::bigint
            then l.output::text end as output
from latest l order by l.item_index;

-- name: list_child_runs
-- Child runs, each as the latest attempt of its node has it: what its node has been told of it (`applied_time`) counts. $11: the node has ended, and $12: has children
-- that it let go, which go their own way; without, what it had open was given up. One of an earlier attempt than $13, the node's own, has not begun anew: it was
-- found to have succeeded (F4).
with latest as (
    select * from (
        select distinct on (c.item_index) c.item_index, c.attempt, c.child_run_id, c.end_time, c.error_code, c.error_message,
               coalesce(r.status, 'pending') as run_status, r.start_time, r.result_refs, r.result,
               case when c.checkpoint <> '' and c.checkpoint_status is distinct from 'reached' and c.end_time is not null then 'checkpoint_unreachable' when c.status <> 'completed' then 'child_' || c.status else '' end as code,
               case when c.attempt < $13::int then 'succeeded' when c.item_index = any($10::int[]) then 'failed'
                    when c.applied_time is not null and case when c.checkpoint = '' then c.status = 'completed' else c.checkpoint_status = 'reached' end then 'succeeded'
                    when c.applied_time is not null then case when $10::int[] is null then 'failed' else 'cancelled' end
                    when not $11::bool then 'running'
                    when not $12::bool then 'cancelled'
                    when r.status in ('completed', 'cancelled', 'failed') then replace(r.status, 'completed', 'succeeded')
                    when r.end_time is not null then 'failed' else 'running' end as status
        from eec_workflow_child c
        left join eec_workflow_run r on r.tenant_id = c.tenant_id and r.run_id = c.child_run_id
        where c.tenant_id = $1 and c.parent_run_id = $2 and c.step_ref = $3 and c.item_index between $4::int and $5::int
        order by c.item_index, c.attempt desc
    ) c
    where ($6::text = '' or c.status = $6) and not c.item_index <@ $7::int4multirange
      and not exists (select from eec_workflow_step_attempt a where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.item_index = c.item_index
                      and a.kind = 'item' and a.attempt > c.attempt)
    order by c.item_index limit $9
)
select l.item_index, l.attempt, l.child_run_id::text, l.status, l.code, l.error_code, l.error_message, l.end_time, l.run_status, l.start_time,
       l.result_refs::text, octet_length(l.result::text) as output_size,
       case when l.status = 'succeeded' and sum(coalesce(octet_length(l.result::text), 0)) over (order by l.item_index) <= $8::bigint then l.result::text end as output
from latest l order by l.item_index;

-- name: told_of_failures
-- The transitions that tell of a child that failed, or of a fan-out that begins or goes on.
select events::text from eec_workflow_transition
where tenant_id = $1 and run_id = $2 and events::text ~ '"(child_failed|fan_expanded|fan_resumed)"' order by seq;

-- name: item_attempts
-- Of one inline child, newest first.
select a.step_ref, a.kind, a.item_index, a.attempt, a.status, a.outcome, a.create_time, a.start_time, a.report_time, a.worker_id, a.queue, a.idempotency_key,
       a.error_code, a.error_message, a.stale_outcome, a.stale_time, a.stale_error_code, a.stale_error_message
from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.item_index = $4 and a.kind = 'item'
order by a.attempt desc limit $5;

-- name: item_payloads
select a.input::text, a.output::text from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.item_index = $4 and a.kind = 'item' and a.attempt = $5;

-- name: run_payloads
select s.input::text, r.result::text, r.result_refs::text
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;
