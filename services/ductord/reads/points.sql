-- What was asked of a run and what somebody told its steps, as points in its timeline: accepted, and settled (C1, E1). SELECT only, every row found with its tenant.

-- name: list_points
-- Each control and each signal at most twice, by time. Those of one run are few, and are found by the key. What they carry of users' payloads is not shown: of a
-- reset's inputs their steps, of a successor's context and of a signal's payload nothing. Phases: -1 a signal and 0 a control accepted, 1 a control and 2 a signal
-- settled; with them in the key a signal and a control may have one request id.
--   $1 tenant  $2 run  $3 to $5 the point to go on after  $6 limit
select p.*
from (
    select i.create_time as at, 0 as phase, i.request_id, i.verb, i.step_ref, i.reason, i.actor, i.status, '' as code, '' as message, '{}' as result,
           (i.body::jsonb - '{seed,overrides}'::text[])::text as asked,
           array(select jsonb_object_keys(coalesce(i.body::jsonb -> 'overrides', '{}')) order by 1) as overridden, '' as approver_id, '' as case_status
    from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2
    union all
    select i.settle_time, 1, i.request_id, i.verb, i.step_ref, '', i.actor, i.status, i.outcome_code, i.outcome_message, i.result::text, '{}', '{}', '', ''
    from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2 and i.settle_time is not null
    union all
    select s.create_time, -1, s.request_id, s.verb, s.step_ref, s.comment, s.actor, s.status, '', '', '{}', '{}', '{}', s.approver_id, s.case_status
    from eec_workflow_signal s where s.tenant_id = $1 and s.run_id = $2
    union all
    select s.settle_time, 2, s.request_id, s.verb, s.step_ref, '', s.actor, s.status, '', s.outcome_message, '{}', '{}', '{}', '', ''
    from eec_workflow_signal s where s.tenant_id = $1 and s.run_id = $2 and s.settle_time is not null
) p
where (p.at, p.phase, p.request_id) > (coalesce($3::timestamptz, '-infinity'), $4::int, $5::text)
order by p.at, p.phase, p.request_id limit $6;
