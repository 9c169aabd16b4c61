-- Environment overrides (L8): what VARS hold in an environment instead of the definition's defaults. Written behind the family's lock, so that the names are
-- judged by the versions that there are.

-- name: declared
-- The variables that the draft declares, and those of the newest version, archived or not.
select distinct k.name
from (
    select document -> 'variables' as variables from eec_workflow_draft where tenant_id = $1 and definition_id = $2
    union all
    select v.document -> 'variables'
    from eec_workflow_definition f
    join eec_workflow_version v on v.tenant_id = f.tenant_id and v.definition_id = f.definition_id and v.version = f.latest_version
    where f.tenant_id = $1 and f.definition_id = $2
) d
cross join lateral json_object_keys(case when json_typeof(d.variables) = 'object' then d.variables else '{}' end) as k(name);

-- name: put_override
insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables, updated_by, update_time)
values ($1, $2, $3, $4::json, $5, eec_now())
on conflict (tenant_id, definition_id, environment) do update
set variables = excluded.variables, updated_by = excluded.updated_by, update_time = excluded.update_time
returning environment, variables::text, updated_by, update_time;

-- name: list_overrides
-- $3 the environment to go on after, $4 how many, $5 how many bytes of values; what is beyond them comes without its values, though never the first.
select environment, case when place = 1 or bytes <= $5 then variables::text end as variables, updated_by, update_time
from (
    select p.*, row_number() over (order by environment) as place, sum(octet_length(variables::text)) over (order by environment) as bytes
    from (
        select environment, variables, updated_by, update_time from eec_workflow_env_override
        where tenant_id = $1 and definition_id = $2 and environment > $3 order by environment limit $4
    ) p
) p
order by environment;

-- name: delete_override
delete from eec_workflow_env_override where tenant_id = $1 and definition_id = $2 and environment = $3 returning environment;
