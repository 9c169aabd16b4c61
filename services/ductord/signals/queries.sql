-- The signals service's statements: word for steps, external events and what they did. Every row is found with its tenant. A run is never written here: a
-- signal, a receipt or a birth and a wake-up are all there is, so it works while every coordinator is down.
-- Lock order: the id of an event, its keys, waits by id, the runs that it starts by id.

-- name: load_manifest
-- Of a version, whose manifest never changes: read once per process.
select format_version, engine_level, manifest::text from eec_workflow_version where tenant_id = $1 and version_id = $2;

-- name: load_run
select s.version_id::text, r.status, r.record_version, r.format_version, r.engine_level, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors,
       r.start_time, r.end_time, eec_now() as now
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
where s.tenant_id = $1 and s.run_id = $2;

-- name: lock_signals
-- Signals of one run are accepted one by one: two with the same request id never race, the limit on kept ones is exact, and times follow the order of commits.
-- It is not the lock under which the run is ticked, so a signal never waits for a tick.
select pg_advisory_xact_lock(('x' || left(encode(sha256(convert_to('ductor.signal:' || $1::uuid::text, 'UTF8')), 'hex'), 16))::bit(64)::bigint);

-- name: load_for_signal
-- As load_run, with who started it, the signal of that request id, if there is one, and how many are kept.
select s.version_id::text, r.status, r.record_version, r.format_version, r.engine_level, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors,
       r.start_time, r.end_time, eec_now() as now, s.actor, g.verb as known_verb, g.body_hash as known_hash, g.actor as known_actor,
       (select count(*) from eec_workflow_signal k where k.tenant_id = $1 and k.run_id = $2 and k.status = 'kept')::int as kept
from eec_workflow_run_start s
left join eec_workflow_run r on r.tenant_id = s.tenant_id and r.run_id = s.run_id
left join eec_workflow_signal g on g.tenant_id = s.tenant_id and g.run_id = s.run_id and g.request_id = $3
where s.tenant_id = $1 and s.run_id = $2;

-- name: insert_kept
-- The signal, the wake-up that brings a tick to it, and a hint.
with told as (
    insert into eec_workflow_signal (tenant_id, run_id, request_id, verb, step_ref, case_status, actor, approver_id, groups, comment, body_hash, call_id, payload)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::text::json)
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) values ($1, $2))
select eec_notify('ductor_wakeup');

-- name: insert_ignored
-- One whose step had ended: its name is remembered, and that it changed nothing. What it carried is not.
insert into eec_workflow_signal (tenant_id, run_id, request_id, verb, step_ref, case_status, actor, approver_id, groups, comment, body_hash, call_id, status,
                                 settle_time, outcome_message)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'ignored', eec_now(), $13);

-- name: lock_event
-- Publications of one event happen one by one, so that the later ones see what the first has done.
select pg_advisory_xact_lock(('x' || left(encode(sha256(convert_to('ductor.event_id:' || json_build_array($1::text, $2::text, $3::text)::text, 'UTF8')),
                                                 'hex'), 16))::bit(64)::bigint);

-- name: lock_keys
-- An event that may be kept and a wait that opens must not miss each other: see eec_event_lock_key. First the name, then the key.
select pg_advisory_xact_lock_shared(eec_event_lock_key($1, $2, null)), pg_advisory_xact_lock_shared(eec_event_lock_key($1, $2, $3));

-- name: look_event
-- Whether the event was published before; the open waits that its name and key match, held open until this transaction ends: a row that was closed in the
-- meantime is not among them; and the live triggers that its name matches, each once, with a mark of what VARS hold in this environment:
-- the transaction that wrote it, for the text may be large and all triggers of a definition have the same. A wait for any key has the empty
-- one, so all are found by two look-ups in one index; a trigger is found by one per pattern, of which there is one unless wildcards are allowed.
--   $5 patterns  $6 environment
with known as (
    select e.publish_time from eec_workflow_event e
    where e.tenant_id = $1 and e.event_name = $2 and e.event_id = $4 and e.dedupe_until > eec_now()
),
open as (
    select w.run_id, w.step_ref, w.attempt, w.requirement, w.filter
    from eec_workflow_wait w
    where w.tenant_id = $1 and w.event_name = $2 and w.correlation_key = any(array[$3::text, '']) and (w.any_key or w.correlation_key = $3)
      and w.close_time is null and not exists (select from known)
    order by w.run_id, w.step_ref collate "C", w.attempt, w.requirement collate "C"
    for share
),
live as (
    select distinct on (t.definition_id, t.trigger_id) t.definition_id, t.trigger_id, t.family_slug, t.version_id, t.version,
           coalesce((select o.xmin::text from eec_workflow_env_override o
                     where o.tenant_id = $1 and o.definition_id = t.definition_id and o.environment = $6), '') as overlay
    from eec_workflow_event_trigger t
    where t.tenant_id = $1 and t.pattern = any($5::text[]) and not exists (select from known)
    order by t.definition_id, t.trigger_id
)
select eec_now() as now, k.publish_time, f.*
from (values (1)) as one(row)
left join known k on true
left join (
    select o.run_id::text, o.step_ref, o.attempt, o.requirement, o.filter, null as definition_id, null as trigger_id, null as family_slug, null as version_id,
           null::int as version, null as overlay
    from open o
    union all
    select null, null, null, null, null, l.definition_id::text, l.trigger_id, l.family_slug, l.version_id::text, l.version, l.overlay
    from live l
) f on true;

-- name: load_overlays
-- What VARS hold in an environment, by definition, each with its mark.
select o.definition_id::text, o.xmin::text as overlay, o.variables::text from eec_workflow_env_override o
where o.tenant_id = $1 and o.definition_id = any($2::uuid[]) and o.environment = $3;

-- name: insert_event
-- The receipts of an event (a wait for one event that has one already takes no second, see eec_workflow_receipt_single), the event itself if it did
-- something or is kept ($7: how long, only if it matched no wait), and the wake-ups of the runs that wait.
--   $8 to $11 the waits  $12 whether it started a run
with received as (
    insert into eec_workflow_receipt (tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement, receive_time)
    select $1, w.run_id, w.step_ref, w.attempt, $2, $4, w.requirement, $6
    from unnest($8::uuid[], $9::text[], $10::int[], $11::text[]) as w(run_id, step_ref, attempt, requirement)
    on conflict do nothing
    returning run_id, step_ref, attempt
),
counted as (select count(*)::int as matched from (select distinct run_id, step_ref, attempt from received) waits),
published as (
    insert into eec_workflow_event (tenant_id, event_name, correlation_key, event_id, payload, publish_time, keep_until, dedupe_until, matched)
    select $1, $2, $3, $4, $5::text::json, $6, case when c.matched = 0 and $7 > interval '0' then $6 + $7::interval end, $6 + interval '24 hours', c.matched
    from counted c where c.matched > 0 or $7 > interval '0' or $12::bool
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id) select distinct $1, run_id from received)
select c.matched, case when c.matched > 0 then eec_notify('ductor_wakeup') end from counted c;

-- name: count_sets
-- Open event sets that wait for an event of that name, and how many of them for another key; for one run also how many have closed.
select count(distinct (w.run_id, w.step_ref, w.attempt)) filter (where w.close_time is null)::int as candidates,
       count(distinct (w.run_id, w.step_ref, w.attempt)) filter (where w.close_time is null and not w.any_key and w.correlation_key <> $3)::int as elsewhere,
       count(distinct (w.run_id, w.step_ref, w.attempt)) filter (where w.close_time is not null)::int as closed
from eec_workflow_wait w
where w.tenant_id = $1 and w.event_name = $2 and w.event_set and (w.close_time is null or w.run_id = $4::uuid) and ($4::uuid is null or w.run_id = $4::uuid);

-- name: matching_sets
-- The patterns of open event sets that the name and the key match, and whether the event has come to them, or at all, before.
select w.run_id::text, w.step_ref, w.attempt, w.filter,
       exists (select from eec_workflow_event e
               where e.tenant_id = $1 and e.event_name = $2 and e.event_id = $5 and e.dedupe_until > eec_now())
       or exists (select from eec_workflow_receipt r
                  where r.tenant_id = $1 and r.run_id = w.run_id and r.step_ref = w.step_ref and r.attempt = w.attempt and r.event_name = $2 and r.event_id = $5)
       as received
from eec_workflow_wait w
where w.tenant_id = $1 and w.event_name = $2 and w.correlation_key = any(array[$3::text, '']) and (w.any_key or w.correlation_key = $3)
  and w.close_time is null and w.event_set and ($4::uuid is null or w.run_id = $4::uuid)
order by w.run_id, w.step_ref, w.attempt, w.requirement;

-- name: list_receipts
-- Of the step's last wait, oldest first.
--   $4 to $7 the row to go on after  $8 limit
select r.event_id, r.event_name, r.requirement, r.receive_time
from eec_workflow_receipt r
where r.tenant_id = $1 and r.run_id = $2 and r.step_ref = $3
  and r.attempt = (select max(w.attempt) from eec_workflow_wait w where w.tenant_id = $1 and w.run_id = $2 and w.step_ref = $3)
  and (r.receive_time, r.event_name, r.event_id, r.requirement) > (coalesce($4::timestamptz, '-infinity'), $5::text, $6::text, $7::text)
order by r.receive_time, r.event_name, r.event_id, r.requirement limit $8;

-- name: now
select eec_now();
