-- What reached a run between two ticks, and what its expressions read. Reads only, one statement per kind for the whole batch, by arrays; each `cross join
-- lateral (… offset 0)` is a fenced probe, as in queries.sql.

-- name: load_reports
-- The inbox of attempts: reported and not yet judged, of each run the oldest $4. Drained by «not yet applied», never by «id above the last». Outputs of more than
-- $3 bytes stay where they are, and those of inline children in any case: most are never read by a tick, and a batch of them would fill the memory.
select a.tenant_id, a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, a.outcome, a.report_time, a.start_time,
       case when a.kind = 'item' or a.output_size > $3::int then null else a.output::text end as output,
       a.kind = 'item' or coalesce(a.output_size > $3::int, false) as output_left,
       a.output_size, a.output_hash, a.error_code, a.error_message, a.non_retryable, a.retry_after_ms, a.item_state::text
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select * from eec_workflow_step_attempt r
    where r.tenant_id = c.tenant_id and r.run_id = c.run_id and r.status = 'open' and r.report_time is not null
    order by r.report_time limit $4::int offset 0
) a
order by a.report_time, a.step_ref, a.item_index, a.attempt;

-- name: load_children
-- What became of child runs and no tick has applied (F5), of each run the oldest $3.
select c.run_id::text, k.step_ref, k.attempt, k.item_index, k.child_run_id::text, k.end_time, k.status, k.checkpoint_status, k.error_code, k.error_message
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select * from eec_workflow_child n
    where n.tenant_id = c.tenant_id and n.parent_run_id = c.run_id and n.end_time is not null and n.applied_time is null and n.sync and not n.detached
    order by n.end_time limit $3::int offset 0
) k
order by k.end_time, k.child_run_id;

-- name: load_timers
select t.tenant_id, t.run_id::text, t.kind, t.step_ref, t.item_index, t.due_time
from unnest($1::text[], $2::uuid[], $3::timestamptz[]) as c(tenant_id, run_id, until)
cross join lateral (
    select * from eec_workflow_timer d where d.tenant_id = c.tenant_id and d.run_id = c.run_id and d.due_time <= c.until offset 0
) t
order by t.due_time, t.kind, t.step_ref;

-- name: load_outputs
-- Outputs that ready steps read, each from the row of the attempt that produced it.
select c.run_id::text, a.step_ref, a.attempt, a.output::text
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as c(tenant_id, run_id, step_ref, attempt)
cross join lateral (
    select step_ref, attempt, output from eec_workflow_step_attempt o
    where o.tenant_id = c.tenant_id and o.run_id = c.run_id and o.step_ref = c.step_ref and o.item_index = -1 and o.kind = 'step'
      and o.attempt = c.attempt offset 0
) a;

-- name: load_controls
-- Pending controls in the order of their creation (C1), no more of a run than $3, and of those no more than about $4 bytes: what is left waits for the next tick.
select i.tenant_id, i.run_id::text, i.request_id, i.verb, i.step_ref, i.body::text, i.reason, i.actor, i.create_time, i.pending
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select p.*, row_number() over (order by p.create_time, p.request_id) as place,
           sum(octet_length(p.body::text)) over (order by p.create_time, p.request_id) - octet_length(p.body::text) as bytes,
           count(*) over () as pending
    from eec_workflow_intent p
    where p.tenant_id = c.tenant_id and p.run_id = c.run_id and p.status = 'pending' offset 0
) i
where i.place <= $3::int and i.bytes <= $4::bigint
order by i.create_time, i.request_id;

-- name: load_lates
-- Successes that came when their attempt had been judged otherwise, or is about to be (A4, C7).
select a.tenant_id, a.run_id::text, a.step_ref, a.item_index, a.kind, a.attempt, a.idempotency_key, a.stale_time,
       octet_length(a.stale_output::text) as output_size, left(encode(sha256(convert_to(a.stale_output::text, 'UTF8')), 'hex'), 16) as output_hash
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select * from eec_workflow_step_attempt s
    where s.tenant_id = c.tenant_id and s.run_id = c.run_id and s.stale_outcome = 'succeeded' and s.late_judged_time is null
      and s.outcome is distinct from 'succeeded' and (s.status <> 'open' or s.report_time is not null) offset 0
) a
order by a.stale_time, a.step_ref, a.item_index, a.attempt;

-- name: load_signals
-- Signals that no step has consumed, in the order in which they came (E1), no more of a run than $3: the door lets no more in. Their payloads stay where they are.
select g.tenant_id, g.run_id::text, g.request_id, g.verb, g.step_ref, g.create_time, g.actor, g.approver_id, g.groups, g.comment, g.case_status
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select * from eec_workflow_signal s
    where s.tenant_id = c.tenant_id and s.run_id = c.run_id and s.status = 'kept' order by s.create_time, s.number limit $3::int offset 0
) g
order by g.create_time, g.number;

-- name: load_receipts
-- External events that open waits have received and no tick has applied (E3), oldest first, no more of a run than $3: what is left waits for the next tick.
-- In the order in which a replay sorts them (hence "C").
select r.tenant_id, r.run_id::text, r.step_ref, r.attempt, r.event_name, r.event_id, r.requirement, r.receive_time, r.number = $3::int as last
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select *, row_number() over (
        order by n.receive_time, n.event_id collate "C", n.event_name collate "C", n.step_ref collate "C", n.attempt, n.requirement collate "C"
    ) as number
    from eec_workflow_receipt n
    where n.tenant_id = c.tenant_id and n.run_id = c.run_id and n.applied_time is null
    order by number limit $3::int offset 0
) r
order by r.receive_time, r.number;

-- name: load_signal_payloads
select c.run_id::text, c.request_id, s.payload
from unnest($1::text[], $2::uuid[], $3::text[]) as c(tenant_id, run_id, request_id)
cross join lateral (
    select payload::text from eec_workflow_signal g where g.tenant_id = c.tenant_id and g.run_id = c.run_id and g.request_id = c.request_id offset 0
) s;

-- name: load_event_payloads
-- Of events that waits have received: a day later the id may name another event, so it is the last one that was published by then.
select c.tenant_id, c.event_name, c.event_id, c.receive_time, e.payload
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) as c(tenant_id, event_name, event_id, receive_time)
cross join lateral (
    select payload::text from eec_workflow_event p
    where p.tenant_id = c.tenant_id and p.event_name = c.event_name and p.event_id = c.event_id and p.publish_time <= c.receive_time
    order by p.publish_time desc limit 1
) e;

-- name: load_inputs
-- What runs were triggered with that arrived in a digest.
select c.run_id::text, s.input
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select input::text from eec_workflow_run_start b where b.tenant_id = c.tenant_id and b.run_id = c.run_id offset 0
) s;

-- name: load_started
-- Steps whose open attempt a worker has taken. Not locked: the commit looks again (`lock_attempts`).
select c.run_id::text, a.step_ref
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select s.step_ref from eec_workflow_step_attempt s
    where s.tenant_id = c.tenant_id and s.run_id = c.run_id and s.status = 'open' and s.kind = 'step' and s.start_time is not null offset 0
) a;

-- name: load_sources
-- Outputs that inverses read (C7): of a success that counted or of one that came too late, in this run or in one that it continues.
select c.run_id::text, c.step_ref, c.item_index, c.attempt, a.output
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) as c(tenant_id, run_id, step_ref, item_index, attempt)
cross join lateral (
    select coalesce(o.output, o.stale_output)::text as output from eec_workflow_step_attempt o
    where o.tenant_id = c.tenant_id and o.run_id = c.run_id and o.step_ref = c.step_ref and o.item_index = c.item_index
      and o.kind = case when c.item_index < 0 then 'step' else 'item' end and o.attempt = c.attempt offset 0
) a;

-- name: load_histories
-- Histories from the first transition to the one that a reset names (C5).
select c.run_id::text, t.seq, t.at, t.events::text
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[]) as c(tenant_id, run_id, source_run_id, seq)
cross join lateral (
    select h.seq, h.at, h.events from eec_workflow_transition h
    where h.tenant_id = c.tenant_id and h.run_id = c.source_run_id and h.seq <= c.seq offset 0
) t
order by c.run_id, t.seq;
