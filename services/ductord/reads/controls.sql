-- The controls of a run as points in its timeline: accepted, and settled (C1). SELECT only, every row found with its tenant.

-- name: list_control_points
-- Each control at most twice, by time. Those of one run are few, and are found by the key. What it carries of users' payloads is not shown: of a reset's inputs
-- their steps, of a successor's context nothing.
--   $1 tenant  $2 run  $3 to $5 the point to go on after  $6 limit
select p.at, p.phase, p.request_id, p.verb, p.step_ref, p.reason, p.actor, p.status, p.outcome_code, p.outcome_message, p.result::text,
       (p.body::jsonb - '{seed,overrides}'::text[])::text as asked,
       array(select jsonb_object_keys(coalesce(p.body::jsonb -> 'overrides', '{}')) order by 1) as overridden
from (
    select i.create_time as at, 0 as phase, i.* from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2
    union all
    select i.settle_time, 1, i.* from eec_workflow_intent i where i.tenant_id = $1 and i.run_id = $2 and i.settle_time is not null
) p
where (p.at, p.phase, p.request_id) > (coalesce($3::timestamptz, '-infinity'), $4::int, $5::text)
order by p.at, p.phase, p.request_id limit $6;
