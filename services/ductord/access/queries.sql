-- Keys: found with their tenant, like every other row. A tenant's session sees no other's.

-- name: look_up
-- What a caller is judged by; the database's clock says whether the time of a key is over.
select name, secret_hash, scopes, groups, acts_for_others, revoke_time is not null as revoked, extract(epoch from expire_time - eec_now())::float8 as left_s
from eec_workflow_api_key
where tenant_id = $1 and key_id = $2;

-- name: touch
-- To within a minute, and by one of the processes that have served the key in that minute.
update eec_workflow_api_key
set last_use_time = eec_now()
where tenant_id = $1 and key_id = any($2::uuid[]) and (last_use_time is null or last_use_time < eec_now() - interval '50 seconds');

-- name: tell_refused
-- Lines of the audit trail about attempts that were refused, each standing for as many as it says.
insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, outcome, detail)
select $1, x.audit_id, x.actor, 'authenticate', 'api_key:' || x.key_id, 'refused', jsonb_build_object('reason', x.reason, 'count', x.count, 'peer', x.peer)
from unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::int[], $7::text[]) as x(audit_id, actor, key_id, reason, count, peer)
on conflict do nothing;
