-- The runs below a run, level by level. SELECT only, every row found with its tenant.

-- name: children_of
-- The child runs of the runs $2, the latest per child, in the order of $2, step and index; with the counters of their own child runs, which stand in their nodes. Those
-- that a run was handed over by its predecessor have attempts below 1 and are others than its own.
select c.parent_run_id::text, c.step_ref, c.item_index, c.child_run_id::text, c.detached, coalesce(r.status, 'pending') as status, s.family_slug, s.version,
       s.create_time, r.start_time, r.end_time, coalesce(r.error_code, '') as error_code, coalesce(r.error_message, '') as error_message,
       k.expected, k.open, k.succeeded, k.failed, k.cancelled
from unnest($2::uuid[]) with ordinality as p(run_id, position)
cross join lateral (
    select distinct on (c.step_ref, c.item_index, least(c.attempt, 1)) c.parent_run_id, c.step_ref, c.item_index, c.child_run_id, c.detached
    from eec_workflow_child c where c.tenant_id = $1 and c.parent_run_id = p.run_id
    order by c.step_ref, c.item_index, least(c.attempt, 1) desc, c.attempt desc limit $3) c
join eec_workflow_run_start s on s.tenant_id = $1 and s.run_id = c.child_run_id
left join eec_workflow_run r on r.tenant_id = $1 and r.run_id = c.child_run_id
cross join lateral (
    select coalesce(sum((n.value -> 'fan' -> 'expected')::int), 0)::int as expected, coalesce(sum((n.value -> 'fan' -> 'open')::int), 0)::int as open,
           coalesce(sum((n.value -> 'fan' -> 'succeeded')::int), 0)::int as succeeded, coalesce(sum((n.value -> 'fan' -> 'failed')::int), 0)::int as failed,
           coalesce(sum((n.value -> 'fan' -> 'cancelled')::int), 0)::int as cancelled
    from jsonb_each(r.node_states::jsonb) n where n.value -> 'fan' ? 'definition_id') k
order by p.position, c.step_ref, c.item_index limit $3;
