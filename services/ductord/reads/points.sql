-- What was asked of a run, what somebody told its steps, and its child runs, as points in its timeline: accepted and settled, started and ended (C1, E1, F5). SELECT
-- only, every row found with its tenant.

-- name: list_points
-- Each control, signal and child run at most twice, by time, found by the key of its run. What they carry of users' payloads is not shown: of a
-- reset's inputs their steps, of a successor's context and of a signal's payload nothing. Phases: -1 a signal and 0 a control accepted, 1 a control and 2 a signal
-- settled; with them in the key a signal and a control may have one request id. -2 a child run ended, 3 one started: named by step, index and attempt.
--   $1 tenant  $2 run  $3 to $5 the point to go on after  $6 limit
select p.*
from (
    select i.create_time as at, 0 as phase, i.request_id, i.verb, i.step_ref, i.reason, i.actor, i.status, '' as code, '' as message, '{}' as result,
           (i.body::jsonb - '{seed,overrides}'::text[])::text as asked,
           array(select jsonb_object_keys(coalesce(i.body::jsonb -> 'overrides', '{}')) order by 1) as overridden, '' as approver_id, '' as case_status,
           '' as child_run_id, 0 as item_index, 0 as attempt
    from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2
    union all
    select i.settle_time, 1, i.request_id, i.verb, i.step_ref, '', i.actor, i.status, i.outcome_code, i.outcome_message, i.result::text, '{}', '{}', '', '', '', 0, 0
    from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2 and i.settle_time is not null
    union all
    select s.create_time, -1, s.request_id, s.verb, s.step_ref, s.comment, s.actor, s.status, '', '', '{}', '{}', '{}', s.approver_id, s.case_status, '', 0, 0
    from eec_workflow_signal s where s.tenant_id = $1 and s.run_id = $2
    union all
    select s.settle_time, 2, s.request_id, s.verb, s.step_ref, '', s.actor, s.status, '', s.outcome_message, '{}', '{}', '{}', '', '', '', 0, 0
    from eec_workflow_signal s where s.tenant_id = $1 and s.run_id = $2 and s.settle_time is not null
    union all
    select c.create_time, 3, concat_ws(':', c.step_ref, c.item_index, c.attempt), '', c.step_ref, '', '', '', '', '', '{}', '{}', '{}', '', '',
           c.first_run_id::text, c.item_index, c.attempt
    from eec_workflow_child c where c.tenant_id = $1 and c.parent_run_id = $2
    union all
    select c.end_time, -2, concat_ws(':', c.step_ref, c.item_index, c.attempt), '', c.step_ref, '', '', coalesce(c.status, c.checkpoint_status), c.error_code,
           c.error_message, '{}', '{}', '{}', '', '', c.child_run_id::text, c.item_index, c.attempt
    from eec_workflow_child c where c.tenant_id = $1 and c.parent_run_id = $2 and c.end_time is not null
) p
where (p.at, p.phase, p.request_id) > (coalesce($3::timestamptz, '-infinity'), $4::int, $5::text)
order by p.at, p.phase, p.request_id limit $6;
