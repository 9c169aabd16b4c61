-- The children of a node that fans out. SELECT only, every row found with its tenant.

-- The two lists share their first parameters and their order (by index). What has not begun, or is to begin anew, has no row that counts: those indexes are the
-- caller's to tell. Outputs are sent as long as their sum stays within $8; what is beyond is not even read.
--   $1 tenant  $2 run  $3 step ref  $4, $5 first and last index  $6 statuses, none for all  $7 indexes that are to begin anew, as a multirange
--   $8 bytes of outputs  $9 limit

-- name: list_items
-- Inline children, each by its latest attempt; and of child runs those that could not even be born, which have such a row too.
with latest as (
    select * from (
        select a.item_index, a.attempt, a.status, a.due_time, a.report_time, a.end_time, a.error_code, a.error_message, a.output_size, a.output,
               min(a.start_time) over child as start_time, row_number() over (child order by a.attempt desc) as place
        from eec_workflow_step_attempt a
        where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.kind = 'item' and a.item_index between $4::int and $5::int
        window child as (partition by a.item_index)
    ) a
    where a.place = 1 and (cardinality($6::text[]) = 0 or a.status = any($6::text[])) and not a.item_index <@ $7::int4multirange
      and not exists (select from eec_workflow_child c where c.tenant_id = $1 and c.parent_run_id = $2 and c.step_ref = $3 and c.item_index = a.item_index
                      and c.attempt >= a.attempt)
    order by a.item_index limit $9
)
select l.item_index, l.attempt, l.status, l.due_time, l.start_time, coalesce(l.report_time, l.end_time) as end_time, l.error_code, l.error_message, l.output_size,
       case when l.status = 'succeeded' and sum(case when l.status = 'succeeded' then coalesce(l.output_size, 0) else 0 end) over (order by l.item_index) <= $8::bigint
            then l.output::text end as output
from latest l order by l.item_index;

-- name: list_child_runs
-- Child runs, each as its node's latest attempt has it. `outcome`: what became of it, or `open`.
with latest as (
    select * from (
        select distinct on (c.item_index) c.item_index, c.attempt, c.child_run_id, c.create_time, c.end_time, c.error_code, c.error_message,
               case when c.checkpoint_status = 'reached' or c.status = 'completed' then 'succeeded' when c.end_time is null then 'open'
                    when c.status in ('cancelled', 'terminated') then c.status else 'failed' end as outcome,
               case when c.checkpoint_status = 'unreachable' then 'checkpoint_unreachable' when c.end_time is not null and c.status <> 'completed'
                    then 'child_' || c.status else '' end as code
        from eec_workflow_child c
        where c.tenant_id = $1 and c.parent_run_id = $2 and c.step_ref = $3 and c.item_index between $4::int and $5::int
        order by c.item_index, c.attempt desc
    ) c
    where (cardinality($6::text[]) = 0 or c.outcome = any($6::text[])) and not c.item_index <@ $7::int4multirange
      and not exists (select from eec_workflow_step_attempt a where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.item_index = c.item_index
                      and a.kind = 'item' and a.attempt > c.attempt)
    order by c.item_index limit $9
)
select l.item_index, l.attempt, l.child_run_id::text, l.outcome, l.code, l.error_code, l.error_message, l.end_time, coalesce(r.status, 'pending') as run_status,
       r.start_time, r.result_refs::text, octet_length(r.result::text) as output_size,
       case when l.outcome = 'succeeded' and sum(coalesce(octet_length(r.result::text), 0)) over (order by l.item_index) <= $8::bigint
            then r.result::text end as output
from latest l
left join eec_workflow_run r on r.tenant_id = $1 and r.run_id = l.child_run_id
order by l.item_index;

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
