-- What the commit writes of child runs (rulings F5, C3 to C6). A row of eec_workflow_child says who waits for whom; it is open until the child has ended.
-- Lock order: runs by id (`lock_attached` adds those that are attached, shared), then open rows of children by their key (`lock_children`). Who ends a child has its
-- run's row; who attaches it waits for that, and looks at the run after; who comes second sees what the first one wrote.

-- name: start_children
-- Runs that are born as children, once each, since their ids are derived: with their row, their labels and a wake-up for the time at which they are to begin. They
-- inherit what their parent was born with, but have VARS of their own definition in its environment (L8), and are one deeper.
with born as (
    insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, subject_type, subject_id,
                                        labels, input, tier, traceparent, root_run_id, parent_run_id, journey_id, actor, nesting_depth, create_time,
                                        environment, variables)
    select p.tenant_id, x.run_id, x.definition_id, x.version_id, x.version, x.family_slug, x.definition_id, p.subject_type, p.subject_id,
           p.labels, x.input::json, x.tier, x.traceparent, p.root_run_id, p.run_id, p.journey_id, p.actor, p.nesting_depth + 1, $17::timestamptz,
           p.environment, coalesce(o.variables, '{}')
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::uuid[], $7::text[], $8::timestamptz[], $9::text[], $10::uuid[], $11::uuid[],
                $12::int[], $13::text[], $14::bool[], $15::text[], $16::text[], $18::text[])
         as x(tenant_id, parent_id, step_ref, item_index, attempt, run_id, input, due_time, family_slug, definition_id, version_id, version, tier, sync,
              checkpoint, close_policy, traceparent)
    join eec_workflow_run_start p on p.tenant_id = x.tenant_id and p.run_id = x.parent_id
    left join eec_workflow_env_override o on o.tenant_id = x.tenant_id and o.definition_id = x.definition_id and o.environment = p.environment
    on conflict do nothing
    returning tenant_id, run_id, labels, create_time
),
labelled as (
    insert into eec_workflow_run_label (tenant_id, label, create_time, run_id)
    select b.tenant_id, l.key || ':' || l.value, b.create_time, b.run_id from born b, jsonb_each_text(b.labels) as l
),
known as (
    insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, checkpoint, close_policy,
                                    create_time)
    select x.tenant_id, x.parent_id, x.step_ref, x.item_index, x.attempt, x.run_id, x.run_id, x.sync, x.checkpoint, x.close_policy, $17::timestamptz
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::uuid[], $14::bool[], $15::text[], $16::text[])
         as x(tenant_id, parent_id, step_ref, item_index, attempt, run_id, sync, checkpoint, close_policy)
    on conflict do nothing
)
insert into eec_workflow_wakeup (tenant_id, run_id, due_time, begins)
select b.tenant_id, b.run_id, coalesce(x.due_time, eec_now()), true
from born b join unnest($6::uuid[], $8::timestamptz[]) as x(run_id, due_time) on x.run_id = b.run_id;

-- name: lock_attached
-- Whoever ends one of these runs, or lets it go on as another, has its row: wait for that, and keep the others as they are until this commit's rows can be seen.
select true
from unnest($1::text[], $2::uuid[]) as x(tenant_id, run_id)
join eec_workflow_run r on r.tenant_id = x.tenant_id and r.run_id = x.run_id
order by r.tenant_id collate "C", r.run_id
for share of r;

-- name: attach_children
-- Child runs that there are get a row for the node's present attempt. What the parent knew of an open one by an older attempt is put away: it is told once.
with older as (
    update eec_workflow_child c set detached = true
    from unnest($1::text[], $2::uuid[], $5::int[], $6::uuid[]) as x(tenant_id, parent_id, attempt, run_id)
    where c.tenant_id = x.tenant_id and c.child_run_id = x.run_id and c.parent_run_id = x.parent_id and c.attempt < x.attempt and c.status is null
)
insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, checkpoint, close_policy, create_time)
select x.tenant_id, x.parent_id, x.step_ref, x.item_index, x.attempt, coalesce(k.first_run_id, x.run_id), x.run_id, true, x.checkpoint, x.close_policy,
       $10::timestamptz
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::uuid[], $7::uuid[], $8::text[], $9::text[])
     as x(tenant_id, parent_id, step_ref, item_index, attempt, run_id, source_id, checkpoint, close_policy)
left join lateral (
    select c.first_run_id from eec_workflow_child c
    where c.tenant_id = x.tenant_id and c.parent_run_id = x.source_id and c.step_ref = x.step_ref and c.item_index = x.item_index and c.child_run_id = x.run_id
    order by c.attempt desc limit 1
) k on true
on conflict do nothing;

-- name: tell_ended
-- What became of runs whose parent has attached them, or was not told of their end by a mistake: a child that has been continued is followed to where it goes on
-- now, and of an end, or of a checkpoint that is waited for, the parent is told at once. How many were told.
with recursive followed as (
    select c.tenant_id, c.parent_run_id, c.step_ref, c.item_index, c.attempt, c.checkpoint, c.child_run_id as run_id, 0 as hops
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) as x(tenant_id, parent_run_id, step_ref, item_index, attempt)
    join eec_workflow_child c on c.tenant_id = x.tenant_id and c.parent_run_id = x.parent_run_id and c.step_ref = x.step_ref and c.item_index = x.item_index
        and c.attempt = x.attempt
    where c.status is null
    union all
    select f.tenant_id, f.parent_run_id, f.step_ref, f.item_index, f.attempt, f.checkpoint, r.continued_to_run_id, f.hops + 1
    from followed f
    cross join lateral (
        select n.continued_to_run_id from eec_workflow_run n
        where n.tenant_id = f.tenant_id and n.run_id = f.run_id and n.continued_to_run_id is not null offset 0
    ) r
),
now_at as (
    select distinct on (tenant_id, parent_run_id, step_ref, item_index, attempt) * from followed
    order by tenant_id, parent_run_id, step_ref, item_index, attempt, hops desc
),
found as (
    select n.*, r.status, r.error_code, r.error_message, k.status as checkpoint_status
    from now_at n
    left join lateral (
        select status, error_code, error_message from eec_workflow_run e
        where e.tenant_id = n.tenant_id and e.run_id = n.run_id and e.status not in ('running', 'paused') offset 0
    ) r on true
    left join lateral (
        select status from eec_workflow_checkpoint p
        where p.tenant_id = n.tenant_id and p.run_id = n.run_id and p.name = n.checkpoint and n.checkpoint <> '' offset 0
    ) k on true
),
told as (
    update eec_workflow_child c
    set child_run_id = f.run_id, status = f.status, checkpoint_status = coalesce(c.checkpoint_status, f.checkpoint_status),
        error_code = coalesce(f.error_code, ''), error_message = coalesce(f.error_message, ''),
        end_time = coalesce(c.end_time, case when f.status is not null or f.checkpoint_status is not null then $6::timestamptz end)
    from found f
    where c.tenant_id = f.tenant_id and c.parent_run_id = f.parent_run_id and c.step_ref = f.step_ref and c.item_index = f.item_index
      and c.attempt = f.attempt and (f.hops > 0 or f.status is not null or f.checkpoint_status is not null)
    returning c.tenant_id, c.parent_run_id, c.end_time is not null and c.applied_time is null and c.sync and not c.detached as told
),
woken as (
    insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, parent_run_id from told where told
)
select count(*)::int from told;

-- name: lock_children
-- The open rows that this commit writes, of runs that end as children ($1, $2) and of runs whose children are let go or handed on ($3, $4), all in one order: a
-- parent and its children meet here.
with written as (
    select k.tenant_id, k.parent_run_id, k.step_ref, k.item_index, k.attempt
    from unnest($1::text[], $2::uuid[]) as x(tenant_id, run_id)
    cross join lateral (
        select * from eec_workflow_child o where o.tenant_id = x.tenant_id and o.child_run_id = x.run_id and o.status is null offset 0
    ) k
    union
    select k.tenant_id, k.parent_run_id, k.step_ref, k.item_index, k.attempt
    from unnest($3::text[], $4::uuid[]) as x(tenant_id, run_id)
    cross join lateral (
        select * from eec_workflow_child o where o.tenant_id = x.tenant_id and o.parent_run_id = x.run_id and o.status is null and not o.detached offset 0
    ) k
)
select count(*)
from (select * from written order by tenant_id collate "C", parent_run_id, step_ref collate "C", item_index, attempt) w
cross join lateral (
    select true from eec_workflow_child c
    where c.tenant_id = w.tenant_id and c.parent_run_id = w.parent_run_id and c.step_ref = w.step_ref and c.item_index = w.item_index
      and c.attempt = w.attempt
    for no key update of c
) l;

-- name: insert_controls
-- A control for each of these children, once, and a wake-up for the time at which it is to be seen to ($8; null: at once).
with sent as (
    insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body_hash, reason, actor, create_time)
    select x.tenant_id, x.run_id, x.request_id, x.verb, '', x.reason, x.actor, $7::timestamptz
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]) as x(tenant_id, run_id, request_id, verb, reason, actor)
    on conflict do nothing
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id, due_time)
select s.tenant_id, s.run_id, coalesce(min(x.due_time), eec_now())
from sent s join unnest($2::uuid[], $8::timestamptz[]) as x(run_id, due_time) on x.run_id = s.run_id
group by s.tenant_id, s.run_id;

-- name: control_children
-- A control for each open child of a node ($3 empty: of all nodes) that is of an attempt before $4 and has the close policy $5 (empty: any), under the same request
-- id each: sent twice, it is there once (SW-01). A child that has been continued since hands it on (SW-03). It comes before what else the tenant's runs have to do:
-- a tree that goes on growing is caught up with.
with sent as (
    insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body_hash, reason, actor, create_time)
    select x.tenant_id, c.child_run_id, x.request_id, x.verb, '', x.reason, 'run:' || x.parent_id, $9::timestamptz
    from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[])
         as x(tenant_id, parent_id, step_ref, attempt, close_policy, request_id, verb, reason)
    cross join lateral (
        select distinct k.child_run_id from eec_workflow_child k
        where k.tenant_id = x.tenant_id and k.parent_run_id = x.parent_id and x.step_ref in ('', k.step_ref) and k.attempt < x.attempt
          and x.close_policy in ('', k.close_policy) and k.status is null and not k.detached offset 0
    ) c
    on conflict do nothing
    returning tenant_id, run_id
)
insert into eec_workflow_wakeup (tenant_id, run_id, due_time) select distinct tenant_id, run_id, eec_now() - interval '1 day' from sent;

-- name: detach_children
-- The open children of a node that are of an attempt before $4 are let go.
update eec_workflow_child c set detached = true
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[]) as x(tenant_id, parent_id, step_ref, attempt)
where c.tenant_id = x.tenant_id and c.parent_run_id = x.parent_id and c.step_ref = x.step_ref and c.attempt < x.attempt
  and c.status is null and not c.detached;

-- name: hand_over_children
-- Open children that nobody waits for become the successor's: it closes them when it ends (C6). Their attempts are numbered up to 0, below those of its own nodes.
with handed as (
    update eec_workflow_child c set detached = true
    from unnest($1::text[], $2::uuid[], $3::uuid[]) as x(tenant_id, parent_id, successor_id)
    where c.tenant_id = x.tenant_id and c.parent_run_id = x.parent_id and c.status is null and not c.detached and (not c.sync or c.end_time is not null)
    returning c.*, x.successor_id
)
insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, checkpoint, close_policy, create_time)
select h.tenant_id, h.successor_id, h.step_ref, h.item_index, h.attempt - m.top, h.first_run_id, h.child_run_id, false, h.checkpoint, h.close_policy,
       h.create_time
from handed h
cross join lateral (
    select max(c.attempt) as top from eec_workflow_child c
    where c.tenant_id = h.tenant_id and c.parent_run_id = h.parent_run_id and c.step_ref = h.step_ref and c.item_index = h.item_index
) m
on conflict do nothing;

-- name: tell_checkpoints
-- What became of a checkpoint is told to whoever waits for it and was told nothing yet. Nobody waits whose own run has ended.
with told as (
    update eec_workflow_child c
    set checkpoint_status = x.status, end_time = $5::timestamptz,
        sync = c.sync and (c.detached or exists (
            select from eec_workflow_run p where p.tenant_id = c.tenant_id and p.run_id = c.parent_run_id and p.status in ('running', 'paused') offset 0))
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) as x(tenant_id, run_id, name, status)
    where c.tenant_id = x.tenant_id and c.child_run_id = x.run_id and c.checkpoint = x.name and c.status is null and c.end_time is null
    returning c.tenant_id, c.parent_run_id, c.sync and not c.detached as told
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, parent_run_id from told where told;

-- name: tell_parents
-- A child has ended: its open rows say how, and whoever waits for it is woken. Rows that say so already stay as they are. Nobody waits whose own run has ended;
-- one that ends in this very moment is woken, and takes it. Whose redrive its parent has asked for since is told nothing yet: it goes on, or the refusal tells. ($7, $8:
-- controls that this commit settles; they are pending for no other.)
with told as (
    update eec_workflow_child c
    set status = x.status, error_code = x.error_code, error_message = x.error_message, end_time = coalesce(c.end_time, $6::timestamptz),
        sync = c.sync and (c.end_time is not null or c.detached or exists (
            select from eec_workflow_run p where p.tenant_id = c.tenant_id and p.run_id = c.parent_run_id and p.status in ('running', 'paused') offset 0))
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[]) as x(tenant_id, run_id, status, error_code, error_message)
    where c.tenant_id = x.tenant_id and c.child_run_id = x.run_id and c.status is null
      and (c.detached or not exists (
          select from eec_workflow_intent i
          where i.tenant_id = c.tenant_id and i.run_id = c.child_run_id and i.status = 'pending' and i.verb = 'redrive' and i.actor = 'run:' || c.parent_run_id
            and not exists (select from unnest($7::uuid[], $8::text[]) as d(run_id, request_id) where d.run_id = i.run_id and d.request_id = i.request_id)
      ))
    returning c.tenant_id, c.parent_run_id, c.applied_time is null and c.sync and not c.detached as told
)
insert into eec_workflow_wakeup (tenant_id, run_id) select distinct tenant_id, parent_run_id from told where told;

-- name: pass_children_on
-- A child goes on as another run: whoever waited for it waits for that one (F5).
update eec_workflow_child c set child_run_id = x.successor_id
from unnest($1::text[], $2::uuid[], $3::uuid[]) as x(tenant_id, run_id, successor_id)
where c.tenant_id = x.tenant_id and c.child_run_id = x.run_id and c.status is null;

-- name: take_children
-- What ticks were shown of children and applied. In the order of the key: their ends are written already, but for those that were told of a checkpoint.
update eec_workflow_child c set applied_time = $4::timestamptz
from (
    select k.tenant_id, k.parent_run_id, k.step_ref, k.item_index, k.attempt
    from unnest($1::text[], $2::uuid[], $3::uuid[]) as x(tenant_id, parent_id, run_id)
    join eec_workflow_child k on k.tenant_id = x.tenant_id and k.child_run_id = x.run_id and k.parent_run_id = x.parent_id
    where k.end_time is not null and k.applied_time is null
    order by k.tenant_id collate "C", k.parent_run_id, k.step_ref collate "C", k.item_index, k.attempt
    for no key update of k
) t
where c.tenant_id = t.tenant_id and c.parent_run_id = t.parent_run_id and c.step_ref = t.step_ref and c.item_index = t.item_index
  and c.attempt = t.attempt;

-- name: adopt_children
-- What a reset run keeps of finished fan-outs whose children were runs: how these had ended by the point at which its history was cut (C5).
insert into eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt, first_run_id, child_run_id, sync, checkpoint, close_policy, detached,
                                create_time, end_time, status, checkpoint_status, error_code, error_message, applied_time)
select c.tenant_id, x.run_id, c.step_ref, c.item_index, c.attempt, c.first_run_id, c.child_run_id, c.sync, c.checkpoint, c.close_policy, c.detached,
       c.create_time, c.end_time, c.status, c.checkpoint_status, c.error_code, c.error_message, c.applied_time
from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::int[]) as x(tenant_id, run_id, source_id, step_ref, attempt)
join eec_workflow_child c on c.tenant_id = x.tenant_id and c.parent_run_id = x.source_id and c.step_ref = x.step_ref and c.attempt <= x.attempt
where c.status is not null
on conflict do nothing;
