-- The recorded facts of a run, for ExportRun. SELECT only, every row found with its tenant. JSON columns are passed on as the texts that they are.

-- name: export_run
select s.run_id::text, s.definition_id::text, s.version_id::text, s.version, s.family_slug, s.create_time, s.subject_type, s.subject_id, s.labels::text,
       s.input::text, s.tier, s.traceparent, s.root_run_id::text, coalesce(s.parent_run_id::text, '') as parent_run_id, s.nesting_depth,
       s.journey_id::text, s.actor, s.context::text, coalesce(s.continued_from_run_id::text, '') as continued_from_run_id, s.inverses::text,
       coalesce(s.reset_from_run_id::text, '') as reset_from_run_id, s.reset_from_seq, s.overrides::text, s.preserved::text,
       s.origin::text, s.event_payload::text, s.environment, s.variables::text, v.manifest::text
from eec_workflow_run_start s
join eec_workflow_version v on v.tenant_id = s.tenant_id and v.version_id = s.version_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: export_transitions
-- In their order, by the key; no more of them than about $4 bytes, the first whatever its size.
select t.seq, t.at, t.events::text
from (
    select h.seq, h.at, h.events, sum(octet_length(h.events::text)) over (order by h.seq) - octet_length(h.events::text) as before
    from (select * from eec_workflow_transition where tenant_id = $1 and run_id = $2 and seq > $3 order by seq limit $5) h
) t
where t.before < $4::bigint order by t.seq;

-- name: export_attempts
-- In the order of their key; no more of them than about $7 bytes of outputs, the first whatever its size. The size and hash of a late success are computed as the
-- coordinator does.
select a.*, left(encode(sha256(convert_to(a.stale_output, 'UTF8')), 'hex'), 16) as stale_hash, octet_length(a.stale_output) as stale_size
from (
    select b.step_ref, b.item_index, b.kind, b.attempt, b.idempotency_key, b.start_time, b.outcome, b.report_time, b.output::text, b.output_size, b.output_hash,
           b.error_code, b.error_message, b.non_retryable, b.retry_after_ms, b.item_state::text, b.stale_outcome, b.stale_time, b.stale_output::text,
           sum(coalesce(b.output_size, 0) + coalesce(octet_length(b.stale_output::text), 0))
               over (order by b.step_ref, b.item_index, b.kind, b.attempt)
           - coalesce(b.output_size, 0) - coalesce(octet_length(b.stale_output::text), 0) as before
    from (
        select * from eec_workflow_step_attempt
        where tenant_id = $1 and run_id = $2 and (step_ref, item_index, kind, attempt) > ($3::text, $4::int, $5::text, $6::int)
        order by step_ref, item_index, kind, attempt limit $8
    ) b
) a
where a.before < $7::bigint order by a.step_ref, a.item_index, a.kind, a.attempt;

-- name: export_controls
select c.request_id, c.verb, c.step_ref, c.body::text, c.reason, c.actor, c.create_time, c.status, c.settle_time
from (
    select i.*, sum(octet_length(i.body::text)) over (order by i.request_id) - octet_length(i.body::text) as before
    from (select * from eec_workflow_intent where tenant_id = $1 and run_id = $2 and request_id > $3 order by request_id limit $5) i
) c
where c.before < $4::bigint order by c.request_id;

-- name: export_signals
-- In the order in which they came; no more of them than about $4 bytes of payloads, the first whatever its size. The transition that dealt with one is the one of
-- that instant: a run is decided once at a time.
select s.number, s.request_id, s.verb, s.step_ref, s.payload::text, s.case_status, s.actor, s.approver_id, s.groups, s.comment, s.create_time,
       (select max(t.seq) from eec_workflow_transition t where t.tenant_id = $1 and t.run_id = $2 and t.at = s.settle_time) as seq
from (
    select g.*, sum(octet_length(g.payload::text)) over (order by g.number) - octet_length(g.payload::text) as before
    from (select * from eec_workflow_signal where tenant_id = $1 and run_id = $2 and number > $3 order by number limit $5) g
) s
where s.before < $4::bigint order by s.number;

-- name: export_receipts
-- Likewise, in the order of their key, with the payloads of their events.
select r.step_ref, r.attempt, r.event_name, r.event_id, r.requirement, r.receive_time, r.payload,
       (select max(t.seq) from eec_workflow_transition t where t.tenant_id = $1 and t.run_id = $2 and t.at = r.applied_time) as seq
from (
    select b.*, e.payload::text as payload,
           sum(coalesce(octet_length(e.payload::text), 0)) over (order by b.step_ref, b.attempt, b.event_name, b.event_id, b.requirement)
           - coalesce(octet_length(e.payload::text), 0) as before
    from (
        select * from eec_workflow_receipt
        where tenant_id = $1 and run_id = $2
          and (step_ref, attempt, event_name, event_id, requirement) > ($3::text, $4::int, $5::text, $6::text, $7::text)
        order by step_ref, attempt, event_name, event_id, requirement limit $9
    ) b
    left join eec_workflow_event e on e.tenant_id = b.tenant_id and e.event_name = b.event_name and e.event_id = b.event_id
) r
where r.before < $8::bigint order by r.step_ref, r.attempt, r.event_name, r.event_id, r.requirement;

-- name: export_children
-- Child runs in the order of their key, with the outputs of those that have completed: the value of the output expression, or leaf outputs by
-- ref. No more of them than about $6 bytes of outputs, the first whatever its size. Sizes are those that a gather counts.
select c.step_ref, c.attempt, c.item_index, c.child_run_id::text as run_id, c.first_run_id::text, c.end_time, c.status, c.checkpoint_status, c.error_code,
       c.error_message, c.size, case when c.told then coalesce(r.result::text, (
           select json_object_agg(f.key, a.output order by f.key collate "C")::text from jsonb_each_text(r.result_refs) f
           join eec_workflow_step_attempt a on a.tenant_id = r.tenant_id and a.run_id = r.run_id and a.step_ref = f.key and a.item_index = -1
               and a.kind = 'step' and a.attempt = f.value::int
           where a.output is not null
       ), case when r.result_refs is not null then '{}' end) end as output
from (
    select b.*, sum(b.size) over (order by b.step_ref, b.attempt, b.item_index) - b.size as before
    from (
        select k.*, coalesce(k.status = 'completed', false) as told, case when k.status = 'completed' then (
            select coalesce(octet_length(n.result::text), 0) + coalesce((
                select sum(a.output_size) from jsonb_each_text(n.result_refs) f
                join eec_workflow_step_attempt a on a.tenant_id = n.tenant_id and a.run_id = n.run_id and a.step_ref = f.key and a.item_index = -1
                    and a.kind = 'step' and a.attempt = f.value::int
            ), 0) from eec_workflow_run n where n.tenant_id = k.tenant_id and n.run_id = k.child_run_id
        ) else 0 end as size
        from (
            select * from eec_workflow_child
            where tenant_id = $1 and parent_run_id = $2 and (step_ref, attempt, item_index) > ($3::text, $4::int, $5::int)
            order by step_ref, attempt, item_index limit $7
        ) k
    ) b
) c
left join eec_workflow_run r on c.told and r.tenant_id = c.tenant_id and r.run_id = c.child_run_id
where c.before < $6::bigint order by c.step_ref, c.attempt, c.item_index;

-- name: export_workflows
-- The versions that children of the run were to run, or would have been: those that a step pins, else those that were the newest of their family at some time of the
-- run's life. No more of them than about $5 bytes of schemas.
select w.*
from (
    select u.family_slug, v.version, v.definition_id::text, v.version_id::text, coalesce(v.manifest ->> 'tier', 'standard') as tier,
           (v.manifest -> 'input_schema')::text as input_schema, v.publish_time, v.archive_time,
           sum(coalesce(octet_length((v.manifest -> 'input_schema')::text), 0)) over (order by u.family_slug, u.version)
           - coalesce(octet_length((v.manifest -> 'input_schema')::text), 0) as before
    from (
        select distinct d.family_slug, v.tenant_id, v.version_id, v.version
        from eec_workflow_run_start s
        left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
        join eec_workflow_version m on m.tenant_id = s.tenant_id and m.version_id = s.version_id
        cross join json_array_elements(m.manifest -> 'steps') as step
        cross join unnest(array['scatter', 'for_each', 'subworkflow']) as kind
        join eec_workflow_definition d on d.tenant_id = s.tenant_id and d.family_slug = step -> kind -> 'workflow' ->> 'family_slug'
        join eec_workflow_version v on v.tenant_id = d.tenant_id and v.definition_id = d.definition_id
        left join eec_workflow_version n on n.tenant_id = v.tenant_id and n.definition_id = v.definition_id and n.version = v.version + 1
        where s.tenant_id = $1 and s.run_id = $2 and (d.family_slug, v.version) > ($3::text, $4::int) and case
            when step -> kind -> 'workflow' ->> 'version' is not null then v.version = (step -> kind -> 'workflow' ->> 'version')::int
            else v.publish_time <= coalesce(r.update_time, eec_now()) and (n.publish_time is null or n.publish_time > s.create_time)
        end
        order by d.family_slug, v.version limit $6
    ) u
    join eec_workflow_version v on v.tenant_id = u.tenant_id and v.version_id = u.version_id
) w
where w.before < $5::bigint order by w.family_slug, w.version;

-- name: export_sources
-- The outputs of other runs that the run's inverses read: of what the runs before it in its chain, or the one that it was reset from, had registered (C5, C6, C7).
select s.run_id, s.step_ref, s.item_index, s.attempt, s.output
from (
    select r.run_id, r.step_ref, r.item_index, r.attempt, o.output,
           sum(octet_length(o.output)) over (order by r.run_id, r.step_ref, r.item_index, r.attempt) - octet_length(o.output) as before
    from (
        select distinct e ->> 'run_id' as run_id, e ->> 'step_ref' as step_ref, coalesce((e ->> 'item_index')::int, -1) as item_index,
               (e ->> 'attempt')::int as attempt
        from eec_workflow_run_start b, jsonb_array_elements(b.inverses) e
        where b.tenant_id = $1 and b.run_id = $2 and coalesce(e ->> 'run_id', '') <> ''
    ) r
    cross join lateral (
        select coalesce(a.output, a.stale_output)::text as output from eec_workflow_step_attempt a
        where a.tenant_id = $1 and a.run_id = r.run_id::uuid and a.step_ref = r.step_ref and a.item_index = r.item_index and a.attempt = r.attempt
          and a.kind = case when r.item_index < 0 then 'step' else 'item' end offset 0
    ) o
    where (r.run_id, r.step_ref, r.item_index, r.attempt) > ($3::text, $4::text, $5::int, $6::int) and o.output is not null
) s
where s.before < $7::bigint order by s.run_id, s.step_ref, s.item_index, s.attempt limit $8;
