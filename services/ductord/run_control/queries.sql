-- The run control service's statements: intents of operators, what became of them, and runs as they are stored. Every row is found with its tenant.
-- A run is never written here: an intent and a wake-up are all that a control is, so it works while every coordinator is down.

-- name: load_manifest
-- Of a version, whose manifest never changes: read once per process.
select format_version, engine_level, manifest::text from eec_workflow_version where tenant_id = $1 and version_id = $2;

-- name: load_run
select s.version_id::text, r.status, r.record_version, r.format_version, r.engine_level, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors,
       r.start_time, r.end_time, q.run_id is not null as quarantined, eec_now() as now
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
left join eec_workflow_quarantine q on q.tenant_id = s.tenant_id and q.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: lock_intents
-- Controls of one run are accepted one by one: two with the same request id never race, the limit on pending ones is exact, and times follow the order of commits.
-- It is not the lock under which the run is ticked, so a control never waits for a tick.
select pg_advisory_xact_lock(('x' || left(encode(sha256(convert_to('ductor.intent:' || $1::uuid::text, 'UTF8')), 'hex'), 16))::bit(64)::bigint);

-- name: load_for_control
-- As load_run, with the intent of that request id, if there is one, and what else is pending.
select s.version_id::text, r.status, r.record_version, r.format_version, r.engine_level, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors,
       r.start_time, r.end_time, q.run_id is not null as quarantined, eec_now() as now,
       i.verb as known_verb, i.body_hash as known_hash, i.status as known_status, i.create_time as known_time, i.result::text as known_result,
       p.pending, p.continuing
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
left join eec_workflow_quarantine q on q.tenant_id = s.tenant_id and q.run_id = s.run_id
left join eec_workflow_intent i on i.tenant_id = s.tenant_id and i.run_id = s.run_id and i.request_id = $3
cross join lateral (
    select count(*)::int as pending, (array_agg(o.request_id order by o.create_time, o.request_id) filter (where o.verb = 'continue_as_new'))[1] as continuing
    from eec_workflow_intent o where o.tenant_id = $1 and o.run_id = $2 and o.status = 'pending'
) p
where s.tenant_id = $1 and s.run_id = $2;

-- name: load_intent
select verb as known_verb, body_hash as known_hash, status as known_status, create_time as known_time, result::text as known_result
from eec_workflow_intent where tenant_id = $1 and run_id = $2 and request_id = $3;

-- name: context_size
select octet_length(context::text) as bytes from eec_workflow_run_start where tenant_id = $1 and run_id = $2;

-- name: load_context
select context::text from eec_workflow_run_start where tenant_id = $1 and run_id = $2;

-- name: insert_intent
-- The intent, the wake-up that brings a tick to it, and a hint. Somebody's word comes before what else the tenant's runs have to do, however much that is.
with told as (
    insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, step_ref, body, body_hash, reason, actor, call_id)
    values ($1, $2, $3, $4, $5, $6::text::json, $7, $8, $9, $10)
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id, due_time) values ($1, $2, eec_now() - interval '1 day'))
select eec_notify('ductor_wakeup');

-- name: insert_applied
-- The same for a control that has done all it does once the run is woken, with its line in the audit trail: no tick will settle it.
with told as (
    insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, step_ref, body, body_hash, reason, actor, call_id, status, settle_time,
                                     outcome_message)
    values ($1, $2, $3, $4, $5, $6::text::json, $7, $8, $9, $10, 'applied', eec_now(), $11)
),
written as (
    insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, reason, request_id, outcome, detail)
    values ($1, $12::uuid, $9, $4, 'run:' || $2::uuid::text, $8, $3, 'applied', jsonb_build_object('message', $11::text))
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id, due_time) values ($1, $2, eec_now() - interval '1 day'))
select eec_notify('ductor_wakeup');

-- name: get_operation
-- An operation of a run that there is; without the operation its columns are null.
select s.run_id::text, i.request_id, i.verb, i.status, i.step_ref, i.reason, i.actor, i.create_time, i.settle_time, i.outcome_code, i.outcome_message,
       i.result::text as result, eec_now() as now
from eec_workflow_run_start s
left join eec_workflow_intent i on i.tenant_id = s.tenant_id and i.run_id = s.run_id and i.request_id = $3
where s.tenant_id = $1 and s.run_id = $2;

-- name: settled_operations
-- One look for all calls of a tenant that wait.
select i.run_id::text, i.request_id
from unnest($2::uuid[], $3::text[]) as w(run_id, request_id)
join eec_workflow_intent i on i.tenant_id = $1 and i.run_id = w.run_id and i.request_id = w.request_id
where i.status <> 'pending';

-- name: pending_operations
select i.run_id::text, i.request_id, i.verb, i.status, i.step_ref, i.reason, i.actor, i.create_time, i.settle_time, i.outcome_code, i.outcome_message,
       i.result::text as result
from eec_workflow_intent i
where i.tenant_id = $1 and i.run_id = $2 and i.status = 'pending'
order by i.create_time, i.request_id limit $3;

-- name: list_attempts
-- Oldest first. Outputs are sent as long as their sum stays within $10; what is beyond is not even read, and starts the next page.
--   $3 step ref, '' for all  $4 to $8 the row to go on after  $9 limit  $11 item index, null for all
with page as (
    select * from eec_workflow_step_attempt a
    where a.tenant_id = $1 and a.run_id = $2 and ($3::text = '' or a.step_ref = $3) and ($11::int is null or a.item_index = $11)
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
-- A stretch of the history, which only ever grows.
select seq, at, events::text from eec_workflow_transition where tenant_id = $1 and run_id = $2 and seq > $3 and seq <= $4 order by seq;

-- name: load_redrive
-- What a redrive that was applied did to the nodes: the event that names it. The clock of a tick is read when it claims, so its time may be a moment before that of
-- a control that it found when it loaded.
select t.events::text
from eec_workflow_transition t
where t.tenant_id = $1 and t.run_id = $2 and t.at >= $4::timestamptz - interval '10 minutes'
  and exists (select from json_array_elements(t.events) e where e ->> 'type' = 'run_redriven' and e ->> 'request_id' = $3)
order by t.seq limit 1;

-- name: load_snapshot
-- As load_run, with everything that a summary shows, why the run was set aside, and its context.
select s.run_id::text, r.status, s.family_slug, s.definition_id::text, s.version, s.version_id::text,
       s.subject_type, s.subject_id, s.create_time, r.start_time, r.end_time, coalesce(r.has_errors, false) as has_errors,
       coalesce(r.current_step, '') as current_step, s.root_run_id::text, s.parent_run_id::text, s.nesting_depth, s.journey_id::text, s.labels::text, s.tier, s.origin::text, s.environment,
       coalesce(r.compensation_status, 'none') as compensation_status, coalesce(r.close_reason, '') as close_reason, r.continued_to_run_id::text,
       r.merged_into_run_id::text, s.continued_from_run_id::text, s.reset_from_run_id::text, s.reset_from_seq,
       r.record_version, r.format_version, r.engine_level, r.node_states::text, r.edge_states, r.run_state::text, s.context::text,
       q.run_id is not null as quarantined, q.error, q.ticks, q.since, q.retry_time, eec_now() as now
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
left join eec_workflow_quarantine q on q.tenant_id = s.tenant_id and q.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: list_timers
select kind, step_ref, due_time from eec_workflow_timer where tenant_id = $1 and run_id = $2 order by due_time, kind, step_ref, item_index;

-- name: open_attempts
-- Without a verdict, oldest first.
select a.step_ref, a.kind, a.item_index, a.attempt, a.status, a.outcome, a.create_time, a.start_time, a.report_time, a.worker_id, a.queue,
       a.idempotency_key, a.error_code, a.error_message, a.stale_outcome, a.stale_time, a.stale_error_code, a.stale_error_message
from eec_workflow_step_attempt a
where a.tenant_id = $1 and a.run_id = $2 and a.status = 'open'
order by a.create_time, a.step_ref, a.item_index, a.kind, a.attempt limit $3;

-- name: ledger
-- In the order in which it is worked off.
select c.run_id::text, c.position, c.step_ref, c.item_index, c.block, c.number, c.action, c.status, c.attempt, c.error_code, c.error_message, c.update_time,
       c.family_slug, c.source_attempt, c.source_run_id::text
from eec_workflow_compensation c
where c.tenant_id = $1 and c.run_id = $2 order by c.position limit $3;

-- name: count_untaken
-- Signals that no step of the run had taken by transition $3: a run that is reset to it is told them again (C5).
select count(*)::int
from eec_workflow_transition t
join eec_workflow_signal s on s.tenant_id = t.tenant_id and s.run_id = t.run_id and (s.settle_time is null or s.settle_time > t.at)
where t.tenant_id = $1 and t.run_id = $2 and t.seq = $3;

-- name: leaders_of
-- Who leads these digest windows.
select window_id::text, leader_run_id::text from eec_workflow_digest where tenant_id = $1 and window_id = any($2::uuid[]);

-- name: load_kin
-- The child runs of a run's steps as they stand, of each step and index that of the latest attempt.
select k.step_ref, k.item_index, k.child_run_id::text, k.first_run_id::text, coalesce(r.status, 'pending') as status
from (
    select distinct on (c.step_ref, c.item_index) c.* from eec_workflow_child c
    where c.tenant_id = $1 and c.parent_run_id = $2 and c.attempt > 0 order by c.step_ref, c.item_index, c.attempt desc
) k
left join eec_workflow_run r on r.tenant_id = k.tenant_id and r.run_id = k.child_run_id
order by k.step_ref, k.item_index;
