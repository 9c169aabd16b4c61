-- The trigger service's statements: what an id stands for, the birth of runs, checkpoints that callers wait for. Every row is found with its tenant.
-- A run is never written here: a start row and a wake-up are all that a birth is, so it works while every coordinator is down.

-- name: resolve
-- What the given id stands for (D1), read afresh for every call, so that a publish or an archiving counts at once: a version by its own id, or the newest
-- version of a definition (numbers have no gaps and version rows stay). A definition that was never published has no version. Beside it the releases that may
-- start runs (T4), null where any caller may: in the same snapshot, so that a policy counts for every call that begins after it was set.
select found.*, eec_now() as now,
       (select p.live_release_ids from eec_workflow_release_policy p where p.tenant_id = $1 and p.mode = 'required') as live_release_ids
from (
    select v.definition_id::text, v.version_id::text, v.version, v.status
    from eec_workflow_version v where v.tenant_id = $1 and v.version_id = $2
    union all
    select d.definition_id::text, v.version_id::text, v.version, v.status
    from eec_workflow_definition d
    left join eec_workflow_version v on v.tenant_id = d.tenant_id and v.definition_id = d.definition_id and v.version = d.latest_version
    where d.tenant_id = $1 and d.definition_id = $2
) found;

-- name: find_keys
-- Which of the keys were used with this id before (T1), and what became of the runs.
select s.idempotency_key, s.run_id::text, s.request_hash, s.version_id::text, coalesce(r.status, 'pending') as status, eec_now() as now
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and s.given_definition_id = $2 and s.idempotency_key = any($3::text[]);

-- name: insert_starts
-- The birth of up to a batch of runs, with their labels and wake-ups and one hint. A key that is being used by a transaction under way is waited for; rows come
-- in the order of their keys, so that two batches with the same keys wait in one direction only. Who lost is not in the answer and is looked up again.
with born as (
    insert into eec_workflow_run_start (tenant_id, definition_id, version_id, version, family_slug, given_definition_id, traceparent, run_id, root_run_id,
                                        journey_id, idempotency_key, request_hash, subject_type, subject_id, labels, input, tier, actor, environment,
                                        variables)
    select $1, $2, $3, $4, $5, $6, $7, x.run_id, x.run_id, x.run_id, x.idempotency_key, x.request_hash, x.subject_type, x.subject_id, x.labels::jsonb,
           x.input::json, x.tier, $16, $17, coalesce((select o.variables from eec_workflow_env_override o
                                                      where o.tenant_id = $1 and o.definition_id = $2 and o.environment = $17), '{}')
    from unnest($8::uuid[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
         as x(run_id, idempotency_key, request_hash, subject_type, subject_id, labels, input, tier)
    on conflict do nothing
    returning run_id, labels, create_time
),
labelled as (
    insert into eec_workflow_run_label (tenant_id, label, create_time, run_id)
    select $1, l.key || ':' || l.value, b.create_time, b.run_id from born b, jsonb_each_text(b.labels) as l
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id, begins) select $1, run_id, true from born)
select (select array_agg(run_id::text) from born) as born, (select eec_notify('ductor_wakeup'))::text as hint;

-- name: ended_checkpoints
-- One look for all calls of a tenant that wait (G9). The tick that ends a checkpoint or a run writes both in one transaction, so one snapshot cannot show a run
-- that ended without its checkpoint.
select w.run_id::text, w.name, c.status, c.refs::text, coalesce(r.status, 'pending') as run_status
from unnest($2::uuid[], $3::text[]) as w(run_id, name)
left join eec_workflow_checkpoint c on c.tenant_id = $1 and c.run_id = w.run_id and c.name = w.name
left join eec_workflow_run r on r.tenant_id = $1 and r.run_id = w.run_id
where c.status is not null or r.end_time is not null;

-- name: after_wait
-- The run's status, and the outputs behind a checkpoint, each from the row of the attempt that made it; what does not fit a reply is not sent at all. There is
-- always a row.
with held as (
    select a.step_ref, a.attempt, sum(coalesce(a.output_size, length(a.output::text))) over () as bytes
    from unnest($3::text[], $4::int[]) as c(step_ref, attempt)
    join eec_workflow_step_attempt a on a.tenant_id = $1 and a.run_id = $2 and a.step_ref = c.step_ref and a.item_index = -1 and a.kind = 'step'
        and a.attempt = c.attempt
)
select coalesce((select status from eec_workflow_run where tenant_id = $1 and run_id = $2), 'pending') as status, eec_now() as now,
       h.step_ref, h.bytes::bigint, h.output
from (values (1)) as always left join (
    select h.step_ref, h.bytes, case when h.bytes <= $5::bigint then a.output::text end as output
    from held h
    join eec_workflow_step_attempt a on a.tenant_id = $1 and a.run_id = $2 and a.step_ref = h.step_ref and a.item_index = -1 and a.kind = 'step'
        and a.attempt = h.attempt
) h on true;

-- name: now
select eec_now();
