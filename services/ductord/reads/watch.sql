-- Following runs. SELECT only, every row found with its tenant.

-- name: moved
-- Those of the runs $2 that have made more transitions than $3.
select k.run_id::text, k.seq from unnest($2::uuid[], $3::int[]) k(run_id, seq)
join eec_workflow_run r on r.tenant_id = $1 and r.run_id = k.run_id
where r.record_version > k.seq;

-- name: watch_run
-- A run without its payloads.
select s.run_id::text, coalesce(r.status, 'pending') as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors, coalesce(r.current_step, '') as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq, s.origin::text, s.environment,
       coalesce(r.record_version, 0) as record_version, r.node_states::text, coalesce(r.error_code, '') as error_code,
       coalesce(r.error_message, '') as error_message, coalesce(r.update_time, s.create_time) as update_time
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: transitions_between
select seq, at, events::text from eec_workflow_transition where tenant_id = $1 and run_id = $2 and seq > $3 and seq <= $4 order by seq limit $5;
