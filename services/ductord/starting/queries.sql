-- The statements of those that give birth to runs. Every row is found with its tenant.

-- name: load_manifest
-- Of a version, whose manifest never changes: read once per process.
select manifest::text from eec_workflow_version where tenant_id = $1 and version_id = $2;

-- name: load_manifests
-- The same for several.
select v.version_id::text, v.manifest::text from eec_workflow_version v where v.tenant_id = $1 and v.version_id = any($2::uuid[]);

-- name: override
-- What VARS hold in an environment instead of the defaults (L8).
select variables::text from eec_workflow_env_override where tenant_id = $1 and definition_id = $2 and environment = $3;

-- name: insert_starts
-- The birth of runs whose ids are derived, so that a second try gives birth to none; with their wake-ups. Whoever inserts one waits for a transaction under way
-- that does; the rows come in the order of their ids, so that two batches wait in one direction only. It gives the ids of those that were born here.
--   $1 tenant  $2 run ids  $3 to $6 definition, version id, version, family  $7 inputs  $8 tiers  $9 origins  $10 VARS of the environment  $11 environment
--   $12 traceparent  $13 actors  $14 payloads of events that are not the inputs
with born as (
    insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, root_run_id, journey_id, input, tier,
                                        origin, event_payload, variables, environment, traceparent, actor)
    select $1, x.run_id, x.definition_id, x.version_id, x.version, x.family_slug, x.definition_id, x.run_id, x.run_id, x.input::json, x.tier, x.origin::json,
           x.event_payload::json, x.variables::json, $11, $12, x.actor
    from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $13::text[], $14::text[])
         as x(run_id, definition_id, version_id, version, family_slug, input, tier, origin, variables, actor, event_payload)
    order by x.run_id
    on conflict do nothing
    returning run_id
),
woken as (insert into eec_workflow_wakeup (tenant_id, run_id, begins) select $1, run_id, true from born)
select array(select run_id::text from born) as born, case when exists (select from born) then eec_notify('ductor_wakeup') end as hint;
