-- What the commit reads and writes of digests (E5). Everything about one key happens under the lock of that key, which commits take, after the keys of events and
-- before all else, in one order: so batches that meet in many windows wait for each other and never in a circle.

-- name: lock_keys
-- A run that joins names its key ($6); for one that is in a window, or was, the window does.
select pg_advisory_xact_lock(k.lock)
from (
    select distinct eec_digest_lock_key(x.tenant_id, x.family_slug, x.step_ref, coalesce(x.key, w.key)) as lock
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[]) as x(tenant_id, run_id, step_ref, attempt, family_slug, key)
    left join lateral (
        select d.key from (
            select tenant_id, window_id from eec_workflow_digest_arrival
            where tenant_id = x.tenant_id and run_id = x.run_id and step_ref = x.step_ref and attempt = x.attempt offset 0
        ) a join eec_workflow_digest d on d.tenant_id = a.tenant_id and d.window_id = a.window_id
        where x.key is null offset 0
    ) w on true
    where x.key is not null or w.key is not null
    order by lock offset 0
) k;

-- name: places_of
-- Where runs stand, now that their keys are locked.
select x.run_id::text, x.step_ref, x.attempt, a.place, a.window_id::text
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
cross join lateral (
    select place, window_id from eec_workflow_digest_arrival n
    where n.tenant_id = x.tenant_id and n.run_id = x.run_id and n.step_ref = x.step_ref and n.attempt = x.attempt and n.leave_time is null offset 0
) a;

-- name: members_of
-- The runs whose events count in these windows.
select x.window_id::text, a.run_id::text
from unnest($1::text[], $2::uuid[]) as x(tenant_id, window_id)
cross join lateral (
    select distinct on (coalesce(nullif(n.dedupe, ''), n.run_id::text)) n.run_id from eec_workflow_digest_arrival n
    where n.tenant_id = x.tenant_id and n.window_id = x.window_id and n.leave_time is null
    order by coalesce(nullif(n.dedupe, ''), n.run_id::text), n.arrive_time, n.run_id offset 0
) a;

-- name: take_places
-- A place that has become another one meanwhile is told again.
update eec_workflow_digest_arrival a
set told_time = $6
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[]) as x(tenant_id, run_id, step_ref, attempt, place)
where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.attempt = x.attempt and a.place = x.place and a.told_time is null;

-- name: leave
-- Arrivals are taken back; the windows that they were in.
with gone as (
    update eec_workflow_digest_arrival a
    set leave_time = $5, told_time = coalesce(a.told_time, $5)
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, run_id, step_ref, attempt)
    where a.tenant_id = x.tenant_id and a.run_id = x.run_id and a.step_ref = x.step_ref and a.attempt = x.attempt and a.leave_time is null
    returning a.tenant_id, a.window_id
)
select distinct tenant_id, window_id::text from gone where window_id is not null;

-- name: promote
-- Windows whose leader has left are led by the next one, which is told so and woken; one that nobody is left in is over.
with headless as materialized (
    select w.tenant_id, w.window_id, w.close_time, n.run_id, n.step_ref, n.attempt
    from unnest($1::text[], $2::uuid[]) as x(tenant_id, window_id)
    join eec_workflow_digest w on w.tenant_id = x.tenant_id and w.window_id = x.window_id and w.flush_time is null
    left join lateral (
        select m.run_id, m.step_ref, m.attempt from eec_workflow_digest_arrival m
        where m.tenant_id = w.tenant_id and m.window_id = w.window_id and m.leave_time is null order by m.arrive_time, m.run_id limit 1
    ) n on true
    where not exists (select from eec_workflow_digest_arrival l
                      where l.tenant_id = w.tenant_id and l.window_id = w.window_id and l.run_id = w.leader_run_id and l.leave_time is null)
),
led as (
    update eec_workflow_digest w
    set leader_run_id = coalesce(h.run_id, w.leader_run_id), close_time = case when h.run_id is null then coalesce(w.close_time, $3) else w.close_time end,
        flush_time = case when h.run_id is null then $3 end
    from headless h where w.tenant_id = h.tenant_id and w.window_id = h.window_id
),
told as (
    update eec_workflow_digest_arrival a
    set place = case when h.close_time is null then 'leads' else 'closed' end, told_time = null
    from headless h where a.tenant_id = h.tenant_id and a.run_id = h.run_id and a.step_ref = h.step_ref and a.attempt = h.attempt
    returning a.tenant_id, a.run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from told;

-- name: close
-- Nobody joins these windows any more; their leaders are told and woken.
with closed as (
    update eec_workflow_digest w
    set close_time = $3
    from unnest($1::text[], $2::uuid[]) as x(tenant_id, window_id)
    where w.tenant_id = x.tenant_id and w.window_id = x.window_id and w.close_time is null
    returning w.tenant_id, w.window_id, w.leader_run_id
),
told as (
    update eec_workflow_digest_arrival a
    set place = 'closed', told_time = null
    from closed c where a.tenant_id = c.tenant_id and a.window_id = c.window_id and a.run_id = c.leader_run_id and a.leave_time is null
    returning a.tenant_id, a.run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from told;

-- name: flush
-- The leaders have gone on: the others are told that they are merged, and woken. Of mode backoff it is remembered when that was.
with flushed as (
    update eec_workflow_digest w
    set flush_time = $3
    from unnest($1::text[], $2::uuid[]) as x(tenant_id, window_id)
    where w.tenant_id = x.tenant_id and w.window_id = x.window_id and w.flush_time is null
    returning w.tenant_id, w.window_id, w.leader_run_id, w.family_slug, w.step_ref, w.key, w.mode
),
told as (
    update eec_workflow_digest_arrival a
    set place = 'merged', told_time = null
    from flushed f where a.tenant_id = f.tenant_id and a.window_id = f.window_id and a.run_id <> f.leader_run_id and a.leave_time is null
    returning a.tenant_id, a.run_id
),
remembered as (
    insert into eec_workflow_digest_last as l (tenant_id, family_slug, step_ref, key, last_time)
    select distinct tenant_id, family_slug, step_ref, key, $3::timestamptz from flushed where mode = 'backoff'
    on conflict (tenant_id, family_slug, step_ref, key) do update set last_time = greatest(l.last_time, excluded.last_time)
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from told;

-- name: keys
-- What there is of each key: the open window with the number of its events and those of the dedupe keys ($5) that it knows, and when something passed or was
-- flushed last.
select x.place::int, w.window_id::text, w.max_events, w.size, w.known, l.last_time
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality as x(tenant_id, family_slug, step_ref, key, place)
left join lateral (
    select d.window_id, d.max_events, m.size, m.known
    from eec_workflow_digest d
    cross join lateral (
        select count(distinct coalesce(nullif(a.dedupe, ''), a.run_id::text))::int as size,
               coalesce(array_agg(a.dedupe) filter (where a.dedupe = any($5::text[])), '{}') as known
        from eec_workflow_digest_arrival a where a.tenant_id = d.tenant_id and a.window_id = d.window_id and a.leave_time is null
    ) m
    where d.tenant_id = x.tenant_id and d.family_slug = x.family_slug and d.step_ref = x.step_ref and d.key = x.key and d.close_time is null offset 0
) w on true
left join eec_workflow_digest_last l on l.tenant_id = x.tenant_id and l.family_slug = x.family_slug and l.step_ref = x.step_ref and l.key = x.key;

-- name: open
insert into eec_workflow_digest (tenant_id, window_id, family_slug, step_ref, key, leader_run_id, mode, max_events, open_time, due_time)
select x.tenant_id, x.window_id, x.family_slug, x.step_ref, x.key, x.run_id, x.mode, x.max_events, $10::timestamptz, x.due_time
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::int[], $9::timestamptz[])
     as x(tenant_id, window_id, family_slug, step_ref, key, run_id, mode, max_events, due_time);

-- name: arrive
-- Every run that has arrived is woken, to be told its place.
with arrived as (
    insert into eec_workflow_digest_arrival (tenant_id, run_id, step_ref, attempt, window_id, dedupe, arrive_time, place)
    select x.tenant_id, x.run_id, x.step_ref, x.attempt, x.window_id, x.dedupe, $8::timestamptz, x.place
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::uuid[], $6::text[], $7::text[])
         as x(tenant_id, run_id, step_ref, attempt, window_id, dedupe, place)
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, run_id from arrived;

-- name: pass
-- Something passed just now.
insert into eec_workflow_digest_last as l (tenant_id, family_slug, step_ref, key, last_time)
select distinct x.tenant_id, x.family_slug, x.step_ref, x.key, $5::timestamptz
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as x(tenant_id, family_slug, step_ref, key)
on conflict (tenant_id, family_slug, step_ref, key) do update set last_time = greatest(l.last_time, excluded.last_time);

-- name: load_places
-- What runs have not taken yet of their places in windows, and of a run that passes its own arrival. `since`: the last of what happened to the run and the window.
select a.tenant_id, a.run_id::text, a.step_ref, a.attempt, a.place, a.window_id::text, a.arrive_time, w.due_time, w.leader_run_id::text, a.size,
       greatest(a.arrive_time, w.close_time, w.flush_time) as since
from unnest($1::text[], $2::uuid[]) as c(tenant_id, run_id)
cross join lateral (
    select n.*, case when n.place = 'passes' then (select octet_length(s.input::text) from eec_workflow_run_start s
                                                   where s.tenant_id = n.tenant_id and s.run_id = n.run_id) end as size
    from eec_workflow_digest_arrival n
    where n.tenant_id = c.tenant_id and n.run_id = c.run_id and n.told_time is null and n.leave_time is null offset 0
) a
left join eec_workflow_digest w on w.tenant_id = a.tenant_id and w.window_id = a.window_id
order by a.run_id, a.step_ref, a.attempt;

-- name: load_arrivals
-- What closed windows have collected, in the order of arrival; of arrivals with one dedupe key the first.
select x.window_id::text, a.run_id::text, a.arrive_time, octet_length(s.input::text) as size
from unnest($1::text[], $2::uuid[]) as x(tenant_id, window_id)
cross join lateral (
    select distinct on (coalesce(nullif(n.dedupe, ''), n.run_id::text)) n.run_id, n.arrive_time from eec_workflow_digest_arrival n
    where n.tenant_id = x.tenant_id and n.window_id = x.window_id and n.leave_time is null
    order by coalesce(nullif(n.dedupe, ''), n.run_id::text), n.arrive_time, n.run_id offset 0
) a
join eec_workflow_run_start s on s.tenant_id = x.tenant_id and s.run_id = a.run_id
order by x.window_id, a.arrive_time, a.run_id;
