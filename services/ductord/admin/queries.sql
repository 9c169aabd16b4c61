-- The admin service's statements. Every row is found with its tenant.

-- name: release_policy
select p.mode, p.live_release_ids, p.updated_by, p.update_time, eec_now() as now
from (values (1)) as one(row) left join eec_workflow_release_policy p on p.tenant_id = $1;

-- name: set_release_policy
-- With its line in the audit trail, in one statement.
with written as (
    insert into eec_workflow_release_policy (tenant_id, mode, live_release_ids, updated_by, update_time) values ($1, $2, $3::text[], $4, eec_now())
    on conflict (tenant_id) do update
    set mode = excluded.mode, live_release_ids = excluded.live_release_ids, updated_by = excluded.updated_by, update_time = excluded.update_time
    returning mode, live_release_ids, updated_by, update_time
),
told as (
    insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, reason, request_id, outcome, detail)
    values ($1, $5, $4, 'set_release_policy', 'tenant:' || $1, $6, $7, 'applied', jsonb_build_object('mode', $2::text, 'live_release_ids', $3::text[]))
    on conflict do nothing
)
select mode, live_release_ids, updated_by, update_time, eec_now() as now from written;

-- name: list_keys
-- Newest first, after a place in that order; $2: of one status only, empty for all.
select k.*, eec_now() as now
from eec_workflow_api_key k
where k.tenant_id = $1
  and ($3::timestamptz is null or (k.create_time, k.key_id) < ($3, $4::uuid))
  and ($2::text = '' or $2 = case
        when k.revoke_time is not null then 'revoked'
        when k.expire_time <= eec_now() then 'expired'
        else 'active' end)
order by k.create_time desc, k.key_id desc
limit $5;
