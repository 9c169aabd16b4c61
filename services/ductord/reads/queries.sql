-- The reads service's statements: SELECT only, every row found with its tenant. A run is its start row and, once the coordinator has taken it up, its state.

-- The lists share their first parameters, their columns and their order (newest first; the run id breaks ties) and differ in what drives them. A filter that
-- is not given is '' or null; this service's connections plan with the values at hand, so such a filter costs nothing and one that is given can choose an index.
--   $1 tenant  $2, $3 the row to go on after  $4 family  $5, $6 subject type and id  $7, $8 created after and before  $9 has errors  $10 limit
--   $11 compensation status, `none` also for a run without a state  $12 status  $13 labels

-- name: list_runs
-- Driven by the family's, the subject's or the plain listing index, or by a partial index of states that are rare.
select s.run_id::text, coalesce(r.status, 'pending') as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors, coalesce(r.current_step, '') as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq,
       s.origin::text, s.environment
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and (s.create_time, s.run_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and ($4::text = '' or s.family_slug = $4) and ($5::text = '' or s.subject_type = $5) and ($6::text = '' or s.subject_id = $6)
  and ($7::timestamptz is null or s.create_time > $7) and ($8::timestamptz is null or s.create_time < $8)
  and ($9::bool is distinct from true or r.has_errors) and ($9::bool is distinct from false or r.has_errors is not true)
  and ($11::text = '' or r.compensation_status = $11 or ($11 = 'none' and r.run_id is null)) and ($12::text = '' or r.status = $12)
order by s.create_time desc, s.run_id desc limit $10;

-- name: list_runs_labelled
-- Driven by the first label, whose rows are in the order of the list; the other labels are looked up on the start row. Status `active`: not terminal.
select s.run_id::text, coalesce(r.status, 'pending') as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors, coalesce(r.current_step, '') as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq,
       s.origin::text, s.environment
from eec_workflow_run_label l
join eec_workflow_run_start s on s.tenant_id = l.tenant_id and s.run_id = l.run_id
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where l.tenant_id = $1 and l.label = ($13::text[])[1] and (l.create_time, l.run_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and (cardinality($13::text[]) = 1 or not exists (select from unnest(($13::text[])[2:]) as other
       where s.labels ->> split_part(other, ':', 1) is distinct from substr(other, strpos(other, ':') + 1)))
  and ($4::text = '' or s.family_slug = $4) and ($5::text = '' or s.subject_type = $5) and ($6::text = '' or s.subject_id = $6)
  and ($7::timestamptz is null or l.create_time > $7) and ($8::timestamptz is null or l.create_time < $8)
  and ($9::bool is distinct from true or r.has_errors) and ($9::bool is distinct from false or r.has_errors is not true)
  and ($11::text = '' or coalesce(r.compensation_status, 'none') = $11)
  and ($12::text = '' or ($12 = 'active' and r.end_time is null) or r.status = $12 or ($12 = 'pending' and r.run_id is null))
order by l.create_time desc, l.run_id desc limit $10;

-- name: list_runs_pending
-- A run without a state always has a wake-up: they are written together, and the tick that takes the last one writes the state in the same transaction. So the
-- wake-ups drive this list, and not the absence of a state among all runs that ever were; fenced, since a planner that believes in more of them than there are
-- would walk the whole listing.
with waiting as materialized (select distinct w.run_id from eec_workflow_wakeup w where w.tenant_id = $1),
fresh as materialized (
    select w.run_id from waiting w where not exists (select from eec_workflow_run r where r.tenant_id = $1 and r.run_id = w.run_id offset 0)
)
select s.run_id::text, 'pending' as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, null::timestamptz as start_time, null::timestamptz as end_time, false as has_errors, '' as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       'none' as compensation_status, '' as close_reason,
       s.continued_from_run_id::text, null::text as continued_to_run_id, null::text as merged_into_run_id, s.reset_from_run_id::text, s.reset_from_seq,
       s.origin::text, s.environment
from fresh f
cross join lateral (select * from eec_workflow_run_start b where b.tenant_id = $1 and b.run_id = f.run_id offset 0) s
where (s.create_time, s.run_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and ($4::text = '' or s.family_slug = $4) and ($5::text = '' or s.subject_type = $5) and ($6::text = '' or s.subject_id = $6)
  and ($7::timestamptz is null or s.create_time > $7) and ($8::timestamptz is null or s.create_time < $8)
  and $9::bool is distinct from true and $11::text in ('', 'none')
order by s.create_time desc, s.run_id desc limit $10;

-- name: list_runs_open
-- Runs that have a state and are not terminal, by the partial index of these, which has the order of the list: neither the runs that wait to begin nor all that
-- ever were are looked at.
select s.run_id::text, r.status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, r.create_time, r.start_time, r.end_time, r.has_errors, r.current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       r.compensation_status, r.close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq,
       s.origin::text, s.environment
from eec_workflow_run r
cross join lateral (select * from eec_workflow_run_start b where b.tenant_id = $1 and b.run_id = r.run_id offset 0) s
where r.tenant_id = $1 and r.end_time is null and (r.create_time, r.run_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and ($4::text = '' or s.family_slug = $4) and ($5::text = '' or s.subject_type = $5) and ($6::text = '' or s.subject_id = $6)
  and ($7::timestamptz is null or r.create_time > $7) and ($8::timestamptz is null or r.create_time < $8)
  and ($9::bool is null or r.has_errors = $9) and ($11::text = '' or r.compensation_status = $11) and ($12::text = '' or r.status = $12)
order by r.create_time desc, r.run_id desc limit $10;

-- name: list_runs_kin
-- The children of one run ($14), all runs below a root ($15), the runs of a journey beside its first ($16), each by its index, or the first run of a journey, by its
-- key ($17); the other filters of `list_runs_labelled`.
select s.run_id::text, coalesce(r.status, 'pending') as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors, coalesce(r.current_step, '') as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq,
       s.origin::text, s.environment
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and (s.create_time, s.run_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and ($14::uuid is null or s.parent_run_id = $14) and ($15::uuid is null or (s.root_run_id = $15 and s.parent_run_id is not null))
  and ($16::uuid is null or (s.journey_id = $16 and s.journey_id <> s.run_id)) and ($17::uuid is null or (s.run_id = $17 and s.journey_id = s.run_id))
  and ($13::text[] = '{}' or not exists (select from unnest($13::text[]) as label
       where s.labels ->> split_part(label, ':', 1) is distinct from substr(label, strpos(label, ':') + 1)))
  and ($4::text = '' or s.family_slug = $4) and ($5::text = '' or s.subject_type = $5) and ($6::text = '' or s.subject_id = $6)
  and ($7::timestamptz is null or s.create_time > $7) and ($8::timestamptz is null or s.create_time < $8)
  and ($9::bool is distinct from true or r.has_errors) and ($9::bool is distinct from false or r.has_errors is not true)
  and ($11::text = '' or coalesce(r.compensation_status, 'none') = $11)
  and ($12::text = '' or ($12 = 'active' and r.end_time is null) or r.status = $12 or ($12 = 'pending' and r.run_id is null))
order by s.create_time desc, s.run_id desc limit $10;

-- name: get_run
select s.run_id::text, coalesce(r.status, 'pending') as status, s.family_slug, s.definition_id::text, s.version, s.version_id::text, s.subject_type,
       s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors, coalesce(r.current_step, '') as current_step,
       s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason,
       s.continued_from_run_id::text, r.continued_to_run_id::text, r.merged_into_run_id::text, s.reset_from_run_id::text, s.reset_from_seq, s.origin::text, s.environment,
       s.idempotency_key, s.input::text,
       coalesce(r.record_version, 0) as record_version, r.node_states::text, r.run_state::text, r.result::text, r.result_refs::text,
       q.error, q.ticks, q.since, q.retry_time, c.step_ref as parent_step_ref, c.item_index as parent_item_index
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
left join eec_workflow_quarantine q on q.tenant_id = s.tenant_id and q.run_id = s.run_id
left join lateral (select c.step_ref, c.item_index from eec_workflow_child c
                   where c.tenant_id = s.tenant_id and c.child_run_id = s.run_id and s.parent_run_id is not null
                   order by c.parent_run_id = s.parent_run_id desc, c.attempt desc limit 1) c on true
where s.tenant_id = $1 and s.run_id = $2;

-- name: has_run
select exists (select from eec_workflow_run_start where tenant_id = $1 and run_id = $2);

-- name: last_successor
-- The end of the chain of successors that begins with $2, at most $3 generations further (C6): one index probe each.
with recursive chain (run_id, generation) as (
    select $2::uuid, 0
    union all
    select r.continued_to_run_id, c.generation + 1
    from chain c
    join eec_workflow_run r on r.tenant_id = $1 and r.run_id = c.run_id
    where r.continued_to_run_id is not null and c.generation < $3::int
)
select run_id::text from chain order by generation desc limit 1;

-- name: get_nodes
select s.version_id::text, r.node_states::text
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: leaders_of
-- Who leads these digest windows.
select window_id::text, leader_run_id::text from eec_workflow_digest where tenant_id = $1 and window_id = any($2::uuid[]);

-- name: load_manifest
-- Of a version, whose manifest never changes: read once per process.
select manifest::text from eec_workflow_version where tenant_id = $1 and version_id = $2;

-- name: load_outputs
-- Each from the row of the attempt that made it.
select a.step_ref, a.output::text
from unnest($3::text[], $4::int[]) as c(step_ref, attempt)
join eec_workflow_step_attempt a on a.tenant_id = $1 and a.run_id = $2 and a.step_ref = c.step_ref and a.item_index = -1 and a.kind = 'step'
    and a.attempt = c.attempt
where a.output is not null;

-- name: first_starts
-- When a worker first took up each of the steps.
select a.step_ref, min(a.start_time) as start_time
from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = any($3::text[]) and a.item_index = -1 and a.kind = 'step'
group by a.step_ref;

-- name: load_input
select a.input::text from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3 and a.item_index = -1 and a.kind = 'step' and a.attempt = $4;

-- name: latest_attempts
select a.step_ref, a.kind, a.item_index, a.attempt, a.status, a.outcome, a.create_time, a.start_time, a.report_time, a.worker_id, a.queue, a.idempotency_key,
       a.error_code, a.error_message, a.stale_outcome, a.stale_time, a.stale_error_code, a.stale_error_message
from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.step_ref = $3
order by a.create_time desc, a.item_index desc, a.kind desc, a.attempt desc limit $4;

-- name: list_attempts
-- Oldest first. Outputs are sent as long as their sum stays within $10; what is beyond is not even read, and starts the next page.
--   $3 step ref, '' for all  $4 to $8 the row to go on after  $9 limit
with page as (
    select * from eec_workflow_step_attempt a
    where a.tenant_id = $1 and a.run_id = $2 and ($3::text = '' or a.step_ref = $3)
      and (a.create_time, a.step_ref, a.item_index, a.kind, a.attempt) > (coalesce($4::timestamptz, '-infinity'), $5::text, $6::int, $7::text, $8::int)
    order by a.create_time, a.step_ref, a.item_index, a.kind, a.attempt limit $9
)
select a.step_ref, a.kind, a.item_index, a.attempt, a.status, a.outcome, a.create_time, a.start_time, a.report_time, a.worker_id, a.queue,
       a.idempotency_key, a.error_code, a.error_message, a.stale_outcome, a.stale_time, a.stale_error_code, a.stale_error_message, a.output_size,
       case when sum(coalesce(a.output_size, 0)) over (order by a.create_time, a.step_ref, a.item_index, a.kind, a.attempt rows unbounded preceding)
                 <= $10::bigint then a.output::text end as output
from page a
order by a.create_time, a.step_ref, a.item_index, a.kind, a.attempt;

-- name: list_transitions
select seq, at, events::text from eec_workflow_transition where tenant_id = $1 and run_id = $2 and seq >= $3 order by seq limit $4;

-- name: now
select eec_now();
