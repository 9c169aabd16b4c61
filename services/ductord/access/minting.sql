-- Keys are made, replaced and ended: admin's login alone may. Every row is found with its tenant.

-- name: lock_keys
-- Who makes keys of one tenant does so one after the other: the count and the name are judged before the row is there.
select pg_advisory_xact_lock(hashtextextended('api_keys:' || $1, 0));

-- name: about_names
-- What is judged before a key is made: the time, how many are not revoked and not replaced, and who has the name. A key in its last days after a rotation
-- still has it; one that was made by this very request has not taken it from itself.
select eec_now() as now,
       (select count(*) from eec_workflow_api_key where tenant_id = $1 and revoke_time is null and rotated_to is null) as kept,
       (select key_id from eec_workflow_api_key
        where tenant_id = $1 and name = $2 and key_id <> $3 and revoke_time is null and (rotated_to is null or expire_time > eec_now())
        order by rotated_to is not null, create_time desc, key_id limit 1) as taken_by;

-- name: insert_key
-- A repeated transaction finds the key that it has made.
insert into eec_workflow_api_key (tenant_id, key_id, name, secret_hash, scopes, groups, acts_for_others, created_by, expire_time, rotated_from)
values ($1, $2, $3, $4, $5::text[], $6::text[], $7, $8, $9, $10)
on conflict (tenant_id, key_id) do nothing;

-- name: load_key
select *, eec_now() as now from eec_workflow_api_key where tenant_id = $1 and key_id = $2;

-- name: load_key_for_update
select *, eec_now() as now from eec_workflow_api_key where tenant_id = $1 and key_id = $2 for update;

-- name: load_named
-- The key that has the name and has not been replaced.
select *, eec_now() as now from eec_workflow_api_key where tenant_id = $1 and name = $2 and revoke_time is null and rotated_to is null;

-- name: replace_key
-- An end that it had earlier stays.
update eec_workflow_api_key
set rotated_to = $3, expire_time = least(expire_time, eec_now() + make_interval(secs => $4))
where tenant_id = $1 and key_id = $2;

-- name: revoke_key
update eec_workflow_api_key set revoke_time = eec_now(), revoked_by = $3 where tenant_id = $1 and key_id = $2 and revoke_time is null;

-- name: tell
-- What was done to a key, in the audit trail.
insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, reason, request_id, outcome, detail)
values ($1, $2, $3, $4, 'api_key:' || $5::uuid::text, $6, $7, 'applied', $8::jsonb)
on conflict do nothing;
