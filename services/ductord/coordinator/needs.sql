-- What a decision turns out to need (`model.needs`). Reads only; the number of the need that asked comes back with each row, counted from 1. `cross join lateral
-- (… offset 0)` is a fenced probe, as in queries.sql.

-- name: load_workflows
-- The version of a family that is asked for, or the newest (0); null columns where there is none.
select x.number::int, d.definition_id::text, v.version_id::text, v.version, v.status, v.manifest ->> 'tier' as tier, v.manifest -> 'input_schema' as input_schema
from unnest($1::text[], $2::text[], $3::int[]) with ordinality as x(tenant_id, family_slug, version, number)
left join eec_workflow_definition d on d.tenant_id = x.tenant_id and d.family_slug = x.family_slug
left join lateral (
    select * from eec_workflow_version n
    where n.tenant_id = d.tenant_id and n.definition_id = d.definition_id and (x.version = 0 or n.version = x.version) order by n.version desc limit 1
) v on true;

-- name: load_pages
select x.number::int, p.items::text
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, attempt, page, number)
join eec_workflow_item_page p on p.tenant_id = x.tenant_id and p.run_id = x.run_id and p.step_ref = x.step_ref and p.attempt = x.attempt and p.page = x.page;

-- name: load_items
-- The latest attempts, up to number $5, of inline children below $4 that have not succeeded.
select x.number::int, a.item_index, a.attempt, a.status, a.started, a.item_state
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, expected, top, number)
cross join lateral (
    select distinct on (i.item_index) i.item_index, i.attempt, i.status, i.start_time is not null as started, i.item_state::text as item_state
    from eec_workflow_step_attempt i
    where i.tenant_id = x.tenant_id and i.run_id = x.run_id and i.step_ref = x.step_ref and i.item_index between 0 and x.expected - 1 and i.kind = 'item'
      and i.attempt <= x.top
    order by i.item_index, i.attempt desc offset 0
) a
where a.status <> 'succeeded'
order by x.number, a.item_index;

-- name: load_kin
-- The child runs of a node as they stand now, of each index that of the latest attempt. Redrivable is what `engine.controls.redriving` says. Of a source ($5) that
-- is open there are none.
select x.number::int, k.item_index, k.child_run_id::text, k.first_run_id::text, coalesce(r.status, 'pending') as status, coalesce(r.redrivable, false) as redrivable,
       r.status is distinct from 'completed' or k.status is not distinct from 'completed' as told
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::bool[]) with ordinality as x(tenant_id, run_id, step_ref, since, ended, number)
cross join lateral (
    select distinct on (c.item_index) c.item_index, c.child_run_id, c.first_run_id, c.status from eec_workflow_child c
    where c.tenant_id = x.tenant_id and c.parent_run_id = x.run_id and c.step_ref = x.step_ref and c.attempt >= x.since
    order by c.item_index, c.attempt desc offset 0
) k
left join lateral (
    select n.status, n.status in ('failed', 'timed_out', 'cancelled') and n.continued_to_run_id is null and n.merged_into_run_id is null
        and n.compensation_status <> 'running'
        and not exists (select from eec_workflow_compensation o where o.tenant_id = n.tenant_id and o.run_id = n.run_id and o.kind = 'compensation' offset 0)
        as redrivable
    from eec_workflow_run n where n.tenant_id = x.tenant_id and n.run_id = k.child_run_id offset 0
) r on true
where not x.ended or exists (
    select from eec_workflow_run p where p.tenant_id = x.tenant_id and p.run_id = x.run_id and p.status not in ('running', 'paused') offset 0
)
order by x.number, k.item_index;

-- name: size_items
-- What the outputs of inline children come to together: nothing of them is read.
select x.number::int, (
    select coalesce(sum(a.output_size) filter (where a.status = 'succeeded' or (a.status = 'open' and a.outcome = 'succeeded')), 0)::bigint from (
        select distinct on (i.item_index) i.status, i.outcome, i.output_size from eec_workflow_step_attempt i
        where i.tenant_id = x.tenant_id and i.run_id = x.run_id and i.step_ref = x.step_ref and i.item_index between 0 and x.expected - 1 and i.kind = 'item'
          and i.attempt <= x.top
        order by i.item_index, i.attempt desc
    ) a
) as size
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, expected, top, number);

-- name: gather_items
-- What inline children came to: the latest attempt of each. Of one that was cancelled there is nothing to tell. A success that is not judged yet may be judged in
-- the very tick that asks.
select x.number::int, a.item_index, a.attempt, a.status, a.outcome, a.error_code, a.error_message,
       case when a.status in ('succeeded', 'open') then a.output::text end as output
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, expected, top, number)
cross join lateral (
    select distinct on (i.item_index) i.* from eec_workflow_step_attempt i
    where i.tenant_id = x.tenant_id and i.run_id = x.run_id and i.step_ref = x.step_ref and i.item_index between 0 and x.expected - 1 and i.kind = 'item'
      and i.attempt <= x.top
    order by i.item_index, i.attempt desc offset 0
) a
where a.status not in ('open', 'cancelled') or (a.status = 'open' and a.outcome = 'succeeded')
order by x.number, a.item_index;

-- name: size_runs
-- What the outputs of child runs come to: of the expression's value its text, of leaf outputs the sizes that their attempts' rows have.
select x.number::int, (
    select coalesce(sum(o.bytes), 0)::bigint
    from (
        select distinct on (c.item_index) c.child_run_id, c.status from eec_workflow_child c
        where c.tenant_id = x.tenant_id and c.parent_run_id = x.run_id and c.step_ref = x.step_ref and c.item_index < x.expected and c.attempt <= x.top
        order by c.item_index, c.attempt desc
    ) k
    cross join lateral (
        select coalesce(octet_length(r.result::text), 0) + coalesce((
            select sum(a.output_size) from jsonb_each_text(r.result_refs) f
            join eec_workflow_step_attempt a on a.tenant_id = r.tenant_id and a.run_id = r.run_id and a.step_ref = f.key and a.item_index = -1
                and a.kind = 'step' and a.attempt = f.value::int
        ), 0) as bytes
        from eec_workflow_run r where r.tenant_id = x.tenant_id and r.run_id = k.child_run_id offset 0
    ) o
    where k.status = 'completed'
) as size
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, expected, top, number);

-- name: gather_runs
-- What child runs came to, as their parent was told: the latest attempt of each that has ended.
select x.number::int, k.item_index, k.attempt, k.child_run_id::text as run_id, k.status, k.error_code, k.error_message, r.result, r.result_refs
from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[]) with ordinality as x(tenant_id, run_id, step_ref, expected, top, number)
cross join lateral (
    select distinct on (c.item_index) c.* from eec_workflow_child c
    where c.tenant_id = x.tenant_id and c.parent_run_id = x.run_id and c.step_ref = x.step_ref and c.item_index < x.expected and c.attempt <= x.top
    order by c.item_index, c.attempt desc offset 0
) k
left join lateral (
    select n.result::text as result, n.result_refs::text as result_refs from eec_workflow_run n
    where n.tenant_id = x.tenant_id and n.run_id = k.child_run_id and k.status = 'completed' offset 0
) r on true
where k.status is not null
order by x.number, k.item_index;
