-- What the commit writes beside the runs and their attempts: what became of controls, the compensation ledger, the audit trail, and runs that are born of runs.
-- All of it hangs on the versioned update of the run that decided it, and names its rows by what they are about: written twice, it is there once.

-- name: settle_controls
-- What became of controls, and a line each in the audit trail, exactly once (C1, C8): a control that is not pending any more is passed over with its line.
with settled as (
    update eec_workflow_intent i
    set status = x.status, settle_time = $9, outcome_code = x.code, outcome_message = x.message, result = x.result::jsonb
    from unnest($1::text[], $2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[])
         as x(tenant_id, run_id, request_id, audit_id, status, code, message, result)
    where i.tenant_id = x.tenant_id and i.run_id = x.run_id and i.request_id = x.request_id and i.status = 'pending'
    returning i.tenant_id, x.audit_id, i.actor, i.verb, i.run_id, i.reason, i.request_id, i.step_ref, i.result, i.outcome_code, i.outcome_message, i.status
)
insert into eec_workflow_audit (tenant_id, audit_id, at, actor, action, target, reason, request_id, outcome, detail)
select s.tenant_id, s.audit_id, $9, s.actor, s.verb, 'run:' || s.run_id, s.reason, s.request_id, s.status,
       s.result || jsonb_strip_nulls(jsonb_build_object(
           'step_ref', nullif(s.step_ref, ''), 'code', nullif(s.outcome_code, ''), 'message', nullif(s.outcome_message, '')))
from settled s
on conflict do nothing;

-- name: forward_controls
-- Controls that came too late for a run that goes on as a successor are the successor's, under the same request id (G8).
with forwarded as (
    insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, step_ref, body, body_hash, reason, actor, call_id, create_time)
    select i.tenant_id, x.successor_id, i.request_id, i.verb, i.step_ref, i.body, i.body_hash, i.reason, i.actor, i.call_id, i.create_time
    from unnest($1::text[], $2::uuid[], $3::text[], $4::uuid[]) as x(tenant_id, run_id, request_id, successor_id)
    join eec_workflow_intent i on i.tenant_id = x.tenant_id and i.run_id = x.run_id and i.request_id = x.request_id
    on conflict do nothing
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id, due_time) select distinct tenant_id, run_id, eec_now() - interval '1 day' from forwarded;

-- name: settle_signals
-- What became of signals (E1), and a line in the audit trail for those that decided something ($7), exactly once (C8).
with settled as (
    update eec_workflow_signal s
    set status = x.status, settle_time = $8, outcome_message = x.message
    from unnest($1::text[], $2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::bool[])
         as x(tenant_id, run_id, request_id, audit_id, status, message, decided)
    where s.tenant_id = x.tenant_id and s.run_id = x.run_id and s.request_id = x.request_id and s.status = 'kept'
    returning s.tenant_id, x.audit_id, s.actor, s.verb, s.run_id, s.comment, s.request_id, s.status, s.step_ref, s.approver_id, s.outcome_message, x.decided
)
insert into eec_workflow_audit (tenant_id, audit_id, at, actor, action, target, reason, request_id, outcome, detail)
select s.tenant_id, s.audit_id, $8, s.actor, s.verb, 'run:' || s.run_id, s.comment, s.request_id, s.status,
       jsonb_strip_nulls(jsonb_build_object(
           'step_ref', s.step_ref, 'approver_id', nullif(s.approver_id, ''), 'message', nullif(s.outcome_message, '')))
from settled s where s.decided
on conflict do nothing;

-- name: forward_signals
-- Signals that no step of a run has consumed are its successor's, in their order and under their request ids (C6).
with forwarded as (
    insert into eec_workflow_signal (tenant_id, run_id, request_id, verb, step_ref, payload, case_status, actor, approver_id, groups, comment, body_hash,
                                     call_id, create_time)
    select s.tenant_id, x.successor_id, s.request_id, s.verb, s.step_ref, s.payload, s.case_status, s.actor, s.approver_id, s.groups, s.comment, s.body_hash,
           s.call_id, s.create_time
    from unnest($1::text[], $2::uuid[], $3::text[], $4::uuid[]) as x(tenant_id, run_id, request_id, successor_id)
    join eec_workflow_signal s on s.tenant_id = x.tenant_id and s.run_id = x.run_id and s.request_id = x.request_id
    order by s.create_time, s.number
    on conflict do nothing
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from forwarded;

-- name: insert_audit
insert into eec_workflow_audit (tenant_id, audit_id, at, actor, action, target, outcome, detail)
select x.tenant_id, x.audit_id, $7, 'system', x.action, x.target, x.outcome, x.detail::jsonb
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]) as x(tenant_id, audit_id, action, target, outcome, detail)
on conflict do nothing;

-- name: record_inverses
insert into eec_workflow_compensation (tenant_id, run_id, position, family_slug, step_ref, item_index, kind, block, number, action, status, attempt,
                                       source_attempt, source_run_id, error_code, error_message, create_time, update_time)
select x.tenant_id, x.run_id, x.position, x.family_slug, x.step_ref, x.item_index, x.kind, x.block, x.number, x.action, x.status, x.attempt,
       x.source_attempt, x.source_run_id, x.error_code, x.error_message, $17, $17
from unnest($1::text[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[], $9::int[], $10::text[], $11::text[],
            $12::int[], $13::int[], $14::uuid[], $15::text[], $16::text[])
     as x(tenant_id, run_id, position, family_slug, step_ref, item_index, kind, block, number, action, status, attempt, source_attempt, source_run_id,
          error_code, error_message)
on conflict (tenant_id, run_id, position) do update
set status = excluded.status, attempt = excluded.attempt, source_attempt = excluded.source_attempt, error_code = excluded.error_code,
    error_message = excluded.error_message, update_time = excluded.update_time;

-- name: start_runs
-- Runs that are born of runs, once each, since their ids are derived: the same version, input, subject and labels. A successor stands where its predecessor stood
-- (C6); a reset run ($6 > 0) is a root of its own with its source's context and the overrides of the control that asked for it (C5).
with born as (
    insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, subject_type, subject_id,
                                        labels, input, tier, traceparent, root_run_id, parent_run_id, journey_id, actor, nesting_depth, create_time, context,
                                        inverses, continued_from_run_id, reset_from_run_id, reset_from_seq, overrides, preserved, origin, event_payload,
                                        environment, variables)
    select s.tenant_id, x.run_id, s.definition_id, s.version_id, s.version, s.family_slug, s.given_definition_id, s.subject_type, s.subject_id,
           s.labels, s.input, s.tier, s.traceparent, case when x.seq > 0 then x.run_id else s.root_run_id end,
           case when x.seq > 0 then null else s.parent_run_id end, s.journey_id, s.actor, case when x.seq > 0 then 0 else s.nesting_depth end, $9,
           case when x.seq > 0 then s.context else x.context::json end, x.inverses::jsonb, case when x.seq > 0 then null else s.run_id end,
           case when x.seq > 0 then s.run_id end, x.seq, coalesce(i.body -> 'overrides', '{}'), x.preserved::jsonb, s.origin, s.event_payload,
           s.environment, s.variables
    from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[])
         with ordinality as x(tenant_id, source_id, run_id, context, inverses, seq, overrides_of, preserved, number)
    join eec_workflow_run_start s on s.tenant_id = x.tenant_id and s.run_id = x.source_id
    left join eec_workflow_intent i on i.tenant_id = x.tenant_id and i.run_id = x.source_id and i.request_id = x.overrides_of and x.overrides_of <> ''
    order by x.number
    on conflict do nothing
    returning tenant_id, run_id, labels, create_time
),
labelled as (
    insert into eec_workflow_run_label (tenant_id, label, create_time, run_id)
    select b.tenant_id, l.key || ':' || l.value, b.create_time, b.run_id from born b, jsonb_each_text(b.labels) as l
)
insert into eec_workflow_wakeup (tenant_id, run_id, begins) select tenant_id, run_id, true from born;

-- name: reapply_signals
-- What no step of the source had taken by the transition that a reset run begins behind is told to the new run again, in the order in which it came (C5).
insert into eec_workflow_signal (tenant_id, run_id, request_id, verb, step_ref, payload, case_status, actor, approver_id, groups, comment, body_hash,
                                 call_id, create_time)
select s.tenant_id, x.run_id, s.request_id, s.verb, s.step_ref, s.payload, s.case_status, s.actor, s.approver_id, s.groups, s.comment, s.body_hash,
       s.call_id, s.create_time
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[]) as x(tenant_id, source_id, run_id, seq)
join eec_workflow_transition t on t.tenant_id = x.tenant_id and t.run_id = x.source_id and t.seq = x.seq
join eec_workflow_signal s on s.tenant_id = x.tenant_id and s.run_id = x.source_id and (s.settle_time is null or s.settle_time > t.at)
order by s.create_time, s.number
on conflict do nothing;

-- name: adopt_transitions
-- A reset run's own history begins with what it adopts, so that it folds like any other (C5).
insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)
select x.tenant_id, x.run_id, t.seq, t.at, t.events
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[]) as x(tenant_id, run_id, source_id, seq)
join eec_workflow_transition t on t.tenant_id = x.tenant_id and t.run_id = x.source_id and t.seq <= x.seq;

-- name: adopt_checkpoints
-- Checkpoints that were reached by then stay reached; whoever waits for the run finds them. Their outputs are adopted too.
insert into eec_workflow_checkpoint (tenant_id, run_id, name, status, at, refs)
select x.tenant_id, x.run_id, k.name, k.status, k.at, k.refs
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[]) as x(tenant_id, run_id, source_id, name)
join eec_workflow_checkpoint k on k.tenant_id = x.tenant_id and k.run_id = x.source_id and k.name = x.name and k.status = 'reached'
returning tenant_id, run_id::text, refs::text;

-- name: adopt_attempts
-- The rows that hold the outputs which a reset run keeps: as successes that have been judged, leased by nobody. A success that came too late counts as the output
-- that an inverse reads.
insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, timeout_ms,
                                       heartbeat_timeout_ms, traceparent, create_time, status, end_time, worker_id, start_time, outcome, report_time,
                                       output, output_size, output_hash)
select a.tenant_id, x.run_id, a.step_ref, a.attempt, a.tier, a.queue, a.action, a.input, a.idempotency_key, coalesce(a.held_due_time, a.due_time),
       a.timeout_ms, a.heartbeat_timeout_ms, a.traceparent, a.create_time, 'succeeded', coalesce(a.end_time, $6), a.worker_id, a.start_time, 'succeeded',
       coalesce(a.report_time, a.stale_time, $6), coalesce(a.output, a.stale_output),
       coalesce(a.output_size, octet_length(a.stale_output::text)), coalesce(a.output_hash, '')
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::int[]) as x(tenant_id, run_id, source_id, step_ref, attempt)
join eec_workflow_step_attempt a on a.tenant_id = x.tenant_id and a.run_id = x.source_id and a.step_ref = x.step_ref and a.item_index = -1
    and a.kind = 'step' and a.attempt = x.attempt
on conflict do nothing;
