-- The coordinator's statements. Lock order, everywhere: wake-ups, keys of events and of digests, attempts, waits, runs by id, children, timers, records. Every hot statement takes arrays.
-- `cross join lateral (… offset 0)` fences a probe per array element: left free, the planner believes a small partial index to be empty and walks the array
-- once per row of it (measured: 60 ms instead of 2 for 500 runs).

-- A wake-up is found by its run alone (`(… tenant …) is true` is for no index): the table seems empty whenever it is vacuumed between two ticks, and an index that
-- begins with the tenant is then as cheap as any, until the dead rows of the whole tenant are read for every run (measured: 40 to 100 ms per claim, not 3).

-- name: claim_runs
-- Due wake-ups, oldest first, tenants in turn (a loose index scan finds the tenants); of a tenant's runs those that have begun come before new ones, which are
-- sure of one place in sixteen: so only as many are open as can be driven, however many wait to begin, and nobody waits for ever. More are looked at than are
-- taken, so that a second coordinator passes over what the first one holds and finds work behind it. A try-lock per run, held to the end of the transaction,
-- keeps two coordinators off one run; the wake-ups of the runs we got are deleted here, so those that arrive from now on are claimed next. They are never
-- updated, so their place (ctid) names them.
with recursive tenants as (
    (select tenant_id from eec_workflow_wakeup order by tenant_id limit 1)
    union all
    select (select w.tenant_id from eec_workflow_wakeup w where w.tenant_id > t.tenant_id order by w.tenant_id limit 1)
    from tenants t where t.tenant_id is not null
),
share as (select greatest(3 * $1::int / greatest(count(*), 1), 8)::int as each from tenants where tenant_id is not null),
begun as materialized (
    select t.tenant_id, o.run_id, o.due_time, o.turn from tenants t cross join share s cross join lateral (
        select w.run_id, w.due_time, row_number() over (order by w.due_time) as turn
        from (select run_id, due_time from eec_workflow_wakeup
              where tenant_id = t.tenant_id and not begins and due_time <= eec_now() order by due_time limit s.each) w
    ) o
),
fresh as materialized (
    select t.tenant_id, o.run_id, o.due_time, 15 * o.turn as turn from tenants t cross join share s cross join lateral (
        select w.run_id, w.due_time, row_number() over (order by w.due_time) as turn
        from (select run_id, due_time from eec_workflow_wakeup
              where tenant_id = t.tenant_id and begins and due_time <= eec_now() order by due_time
              limit greatest(s.each - (select count(*) from begun b where b.tenant_id = t.tenant_id), s.each / 8)) w
    ) o
),
due as materialized (
    select w.tenant_id, w.run_id from (select * from begun union all select * from fresh) w
    group by w.tenant_id, w.run_id order by min(w.turn), min(w.due_time)
),
locked as materialized (
    select tenant_id, run_id from due where pg_try_advisory_xact_lock(eec_run_lock_key(run_id)) limit $1::int
),
-- What another tick served between our look and its release of the lock is not there any more: that run has nothing to do.
served as (
    delete from eec_workflow_wakeup w where w.ctid = any (array(
        select d.row_id from locked l
        cross join lateral (select o.ctid as row_id, o.due_time from eec_workflow_wakeup o where o.run_id = l.run_id and (o.tenant_id = l.tenant_id) is true offset 0) d
        where d.due_time <= eec_now()
    ))
    returning w.tenant_id, w.run_id
)
select distinct tenant_id, run_id::text, eec_now() as now from served order by run_id;

-- name: claim_given
-- The same for named runs: a batch that failed is bisected.
with locked as materialized (
    select tenant_id, run_id from unnest($1::text[], $2::uuid[]) as g(tenant_id, run_id)
    where pg_try_advisory_xact_lock(eec_run_lock_key(run_id))
),
served as (
    delete from eec_workflow_wakeup w where w.ctid = any (array(
        select d.row_id from locked l
        cross join lateral (select o.ctid as row_id, o.due_time from eec_workflow_wakeup o where o.run_id = l.run_id and (o.tenant_id = l.tenant_id) is true offset 0) d
        where d.due_time <= eec_now()
    ))
)
select tenant_id, run_id::text, eec_now() as now from locked order by run_id;

-- name: claim_alone
-- One run that has a tick to itself: its wake-ups are served with it, those in the future too, which were there in case that nobody came to it.
with locked as materialized (
    select tenant_id, run_id from unnest($1::text[], $2::uuid[]) as g(tenant_id, run_id)
    where pg_try_advisory_xact_lock(eec_run_lock_key(run_id))
),
served as (
    delete from eec_workflow_wakeup w using locked l where w.run_id = l.run_id and (w.tenant_id = l.tenant_id) is true
)
select tenant_id, run_id::text, eec_now() as now from locked;

-- name: load_runs
-- Start and state of the claimed runs. What the caller's cache knows ($3: record_version, 0: the start alone, null: nothing) is neither looked up nor sent again,
-- nor are payloads of more than $4 bytes sent along. `controlled`, `late`, `signalled`, `received`, `placed` and `childed` say whether there is anything of that kind at
-- all, `timer_due` when the first timer is due: probes of tiny indexes, so that the common tick needs no statement more.
select c.tenant_id, c.run_id::text, s.*, r.record_version, r.format_version, r.engine_level, n.*,
       q.ticks as quarantine_ticks, i.found is not null as controlled, l.found is not null as late, g.found is not null as signalled,
       e.found is not null as received, d.found is not null as placed, k.found is not null as childed, t.due_time as timer_due
from unnest($1::text[], $2::uuid[], $3::int[]) as c(tenant_id, run_id, known)
left join lateral (
    select b.definition_id::text, b.version_id::text, b.version, b.family_slug, b.create_time, b.subject_type, b.subject_id, b.tier, b.traceparent,
           b.root_run_id::text, b.parent_run_id::text, b.nesting_depth, b.journey_id::text, b.actor, b.continued_from_run_id::text,
           b.reset_from_run_id::text, b.reset_from_seq, b.labels::text, b.inverses::text, b.preserved::text, b.origin::text, b.environment,
           octet_length(b.input::text) as input_bytes, octet_length(b.context::text) as context_bytes, octet_length(b.overrides::text) as overrides_bytes,
           octet_length(b.event_payload::text) as event_bytes, octet_length(b.variables::text) as variables_bytes,
           case when octet_length(b.input::text) <= $4::int then b.input::text end as input,
           case when octet_length(b.context::text) <= $4::int then b.context::text end as context,
           case when octet_length(b.overrides::text) <= $4::int then b.overrides::text end as overrides,
           case when octet_length(b.event_payload::text) <= $4::int then b.event_payload::text end as event,
           case when octet_length(b.variables::text) <= $4::int then b.variables::text end as variables
    from eec_workflow_run_start b where c.known is null and b.tenant_id = c.tenant_id and b.run_id = c.run_id offset 0
) s on true
left join eec_workflow_run r on r.tenant_id = c.tenant_id and r.run_id = c.run_id
left join lateral (
    select r.status, r.has_errors, r.start_time, r.end_time, r.node_states::text, r.edge_states, r.run_state::text
    where r.record_version is distinct from c.known offset 0
) n on true
left join eec_workflow_quarantine q on q.tenant_id = c.tenant_id and q.run_id = c.run_id
left join lateral (
    select true as found from eec_workflow_intent p where p.tenant_id = c.tenant_id and p.run_id = c.run_id and p.status = 'pending' limit 1
) i on true
left join lateral (
    select true as found from eec_workflow_step_attempt a
    where a.tenant_id = c.tenant_id and a.run_id = c.run_id and a.stale_outcome = 'succeeded' and a.late_judged_time is null
      and a.outcome is distinct from 'succeeded' limit 1
) l on true
left join lateral (
    select true as found from eec_workflow_signal n where n.tenant_id = c.tenant_id and n.run_id = c.run_id and n.status = 'kept' limit 1
) g on true
left join lateral (
    select true as found from eec_workflow_receipt n where n.tenant_id = c.tenant_id and n.run_id = c.run_id and n.applied_time is null limit 1
) e on true
left join lateral (
    select true as found from eec_workflow_digest_arrival a
    where a.tenant_id = c.tenant_id and a.run_id = c.run_id and a.told_time is null and a.leave_time is null limit 1
) d on true
left join lateral (
    select true as found from eec_workflow_child n
    where n.tenant_id = c.tenant_id and n.parent_run_id = c.run_id and n.end_time is not null and n.applied_time is null and n.sync and not n.detached limit 1
) k on true
left join lateral (
    select m.due_time from eec_workflow_timer m where m.tenant_id = c.tenant_id and m.run_id = c.run_id order by m.due_time limit 1
) t on true
where c.known is not null or s.version_id is not null;

-- name: load_large
-- Large payloads of starts: those that a tick reads.
select c.run_id::text, c.name, case c.name when 'input' then s.input::text when 'context' then s.context::text when 'event' then s.event_payload::text
           when 'variables' then s.variables::text else s.overrides::text end as payload
from unnest($1::text[], $2::uuid[], $3::text[]) as c(tenant_id, run_id, name)
cross join lateral (
    select input, context, overrides, event_payload, variables from eec_workflow_run_start b where b.tenant_id = c.tenant_id and b.run_id = c.run_id offset 0
) s;

-- name: load_manifests
select tenant_id, version_id::text, format_version, engine_level, manifest_hash, manifest::text
from eec_workflow_version
where (tenant_id, version_id) in (select * from unnest($1::text[], $2::uuid[]));

-- name: update_runs
-- What is null of a state is as in most: a run that goes on, without errors (`decided.sparse`).
-- The guard of the whole commit: who lost the race is not in RETURNING, and nothing else of that run is written. A new state and the transition that led to it are
-- one statement, here and in the two that follow. A decision for an open run never matches a terminal row (SW-05); that is said by status, because `end_time is
-- null` would let the planner walk the index of open runs once per row.
with won as (
    update eec_workflow_run r
    set status = coalesce(x.status, 'running'), record_version = x.known + 1, node_states = x.node_states::json, edge_states = x.edge_states,
        run_state = x.run_state::json, current_step = x.current_step, has_errors = coalesce(x.has_errors, false),
        error_code = coalesce(x.error_code, ''), error_message = coalesce(x.error_message, ''),
        result = x.result::json, result_refs = x.result_refs::jsonb, update_time = $14::timestamptz, end_time = x.end_time
    from unnest($1::text[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bool[], $10::text[], $11::text[],
                $12::text[], $13::text[], $15::timestamptz[], $16::text[])
         as x(tenant_id, run_id, known, status, node_states, edge_states, run_state, current_step, has_errors, error_code, error_message, result, result_refs,
              end_time, events)
    where r.tenant_id = x.tenant_id and r.run_id = x.run_id and r.record_version = x.known and r.status in ('running', 'paused')
    returning r.tenant_id, r.run_id, r.record_version, x.events
),
told as (
    insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)
    select tenant_id, run_id, record_version, $14::timestamptz, events::json from won
)
select run_id::text from won;

-- name: update_ended_runs
-- The same for decisions about runs that have ended: compensation moves and the result stays (`keeps`), or a redrive takes the run up again. Never matches an open
-- row.
with won as (
    update eec_workflow_run r
    set status = coalesce(x.status, 'running'), record_version = x.known + 1, node_states = x.node_states::json, edge_states = x.edge_states,
        run_state = x.run_state::json, current_step = x.current_step, has_errors = coalesce(x.has_errors, false),
        error_code = coalesce(x.error_code, ''), error_message = coalesce(x.error_message, ''),
        result = case when x.keeps then r.result else x.result::json end, result_refs = case when x.keeps then r.result_refs else x.result_refs::jsonb end,
        update_time = $14::timestamptz, end_time = x.end_time
    from unnest($1::text[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bool[], $10::text[], $11::text[],
                $12::text[], $13::text[], $15::timestamptz[], $16::bool[], $17::text[])
         as x(tenant_id, run_id, known, status, node_states, edge_states, run_state, current_step, has_errors, error_code, error_message, result, result_refs,
              end_time, keeps, events)
    where r.tenant_id = x.tenant_id and r.run_id = x.run_id and r.record_version = x.known and r.status not in ('running', 'paused')
    returning r.tenant_id, r.run_id, r.record_version, x.events
),
told as (
    insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)
    select tenant_id, run_id, record_version, $14::timestamptz, events::json from won
)
select run_id::text from won;

-- name: reopen_fires
-- A run that a redrive takes up again is active again in its schedule (T2). What was seen of its end is forgotten; whoever notes that end now is waited for.
update eec_workflow_schedule_fire f set end_time = null
from unnest($1::text[], $2::uuid[]) as x(tenant_id, run_id)
join eec_workflow_run_start s on s.tenant_id = x.tenant_id and s.run_id = x.run_id
where f.tenant_id = x.tenant_id and f.schedule_id = (s.origin ->> 'schedule_id')::uuid and f.nominal_time = (s.origin ->> 'nominal_time')::timestamptz
  and f.kind = 'fire' and coalesce(f.tail_run_id, f.run_id) = x.run_id;

-- name: insert_runs
-- A reset run begins behind the transitions that it adopts ($3: how many).
with x as (
    select * from unnest($1::text[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bool[], $10::text[], $11::text[],
                         $12::text[], $13::text[], $15::timestamptz[], $16::uuid[], $17::int[], $18::int[], $19::timestamptz[], $20::text[], $21::timestamptz[])
         as x(tenant_id, run_id, known, status, node_states, edge_states, run_state, current_step, has_errors, error_code, error_message, result, result_refs,
              end_time, version_id, format_version, engine_level, start_time, events, create_time)
),
won as (
    insert into eec_workflow_run (tenant_id, run_id, record_version, status, node_states, edge_states, run_state, current_step, has_errors, error_code,
                                  error_message, result, result_refs, update_time, end_time, version_id, format_version, engine_level, start_time,
                                  create_time)
    select x.tenant_id, x.run_id, x.known + 1, coalesce(x.status, 'running'), x.node_states::json, x.edge_states, x.run_state::json, x.current_step,
           coalesce(x.has_errors, false), coalesce(x.error_code, ''), coalesce(x.error_message, ''), x.result::json, x.result_refs::jsonb, $14::timestamptz, x.end_time, x.version_id, x.format_version, x.engine_level, x.start_time,
           x.create_time
    from x
    on conflict (tenant_id, run_id) do nothing
    returning tenant_id, run_id, record_version
),
told as (
    insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)
    select w.tenant_id, w.run_id, w.record_version, $14::timestamptz, x.events::json from won w join x on x.run_id = w.run_id and x.tenant_id = w.tenant_id
)
select run_id::text from won;

-- name: mark_runs
-- What of a run changes seldom, and only for those of which it has changed.
update eec_workflow_run r
set compensation_status = x.compensation_status, close_reason = x.close_reason, continued_to_run_id = x.continued_to_run_id, held = x.held,
    merged_into_run_id = x.merged_into_run_id
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::bool[], $7::uuid[])
     as x(tenant_id, run_id, compensation_status, close_reason, continued_to_run_id, held, merged_into_run_id)
where r.tenant_id = x.tenant_id and r.run_id = x.run_id;

-- name: set_timers
-- A timer that is due when it is set wakes its run here: the watch looks for what comes due, not for what long was (PG-05).
with stored as (
    insert into eec_workflow_timer (tenant_id, run_id, kind, step_ref, item_index, due_time, woken_time)
    select x.tenant_id, x.run_id, x.kind, x.step_ref, x.item_index, x.due_time, case when x.due_time <= eec_now() then eec_now() end
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::int[], $6::timestamptz[]) as x(tenant_id, run_id, kind, step_ref, item_index, due_time)
    on conflict (tenant_id, run_id, kind, step_ref, item_index) do update set due_time = excluded.due_time, woken_time = excluded.woken_time
    returning tenant_id, run_id, woken_time
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from stored where woken_time is not null;

-- name: clear_timers
-- An empty step_ref with no kind clears all timers of the run (it ended); otherwise those of the step, or of one kind.
delete from eec_workflow_timer t
using unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) as x(tenant_id, run_id, step_ref, kind)
where t.tenant_id = x.tenant_id and t.run_id = x.run_id
  and ((x.step_ref = '' and x.kind = '') or (t.step_ref = x.step_ref and (x.kind = '' or t.kind = x.kind)));

-- name: clear_checkpoints
-- A checkpoint that was told to be unreachable is possible again (C4).
delete from eec_workflow_checkpoint k using unnest($1::text[], $2::uuid[], $3::text[]) as x(tenant_id, run_id, name)
where k.tenant_id = x.tenant_id and k.run_id = x.run_id and k.name = x.name and k.status = 'unreachable';

-- name: insert_checkpoints
insert into eec_workflow_checkpoint (tenant_id, run_id, name, status, at, refs)
select x.tenant_id, x.run_id, x.name, x.status, $6::timestamptz, x.refs::jsonb
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[]) as x(tenant_id, run_id, name, status, refs)
on conflict do nothing;

-- name: insert_wakeups
-- For runs that lost the race (`delay_ms` 0: at once) or were put off. A put-off run has one wake-up in the future: those that were there are replaced, else
-- every further wake-up of it would found one more row that is put off for ever. The caller holds the runs' locks.
with replaced as (
    delete from eec_workflow_wakeup w where w.ctid = any (array(
        select d.row_id from unnest($1::text[], $2::uuid[], $3::bigint[]) as x(tenant_id, run_id, delay_ms)
        cross join lateral (select o.ctid as row_id, o.due_time from eec_workflow_wakeup o where o.run_id = x.run_id and (o.tenant_id = x.tenant_id) is true offset 0) d
        where x.delay_ms > 0 and d.due_time > eec_now()
    ))
)
insert into eec_workflow_wakeup (tenant_id, run_id, due_time)
select x.tenant_id, x.run_id, eec_now() + x.delay_ms * interval '1 millisecond'
from unnest($1::text[], $2::uuid[], $3::bigint[]) as x(tenant_id, run_id, delay_ms);

-- name: set_quarantine
-- One more tick of the run failed: remember why, retry later (1 s doubling to 5 min).
insert into eec_workflow_quarantine as q (tenant_id, run_id, error, ticks, since, retry_time)
select x.tenant_id, x.run_id, x.error, 1, eec_now(), eec_now() + interval '1 second'
from unnest($1::text[], $2::uuid[], $3::text[]) as x(tenant_id, run_id, error)
on conflict (tenant_id, run_id) do update
set error = excluded.error, ticks = q.ticks + 1, retry_time = eec_now() + least(interval '1 second' * 2 ^ least(q.ticks, 9), interval '5 minutes')
returning q.tenant_id, q.run_id::text, (extract(epoch from q.retry_time - eec_now()) * 1000)::bigint as delay_ms, q.ticks;

-- name: clear_quarantine
delete from eec_workflow_quarantine q using unnest($1::text[], $2::uuid[]) as x(tenant_id, run_id)
where q.tenant_id = x.tenant_id and q.run_id = x.run_id;
