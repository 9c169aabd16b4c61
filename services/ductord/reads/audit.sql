-- The audit trail: who did what, and why (C8). SELECT only, every row found with its tenant.

-- name: list_audit
-- Newest first. Planned with the values at hand: by target, by action, by actor, or all of the tenant's.
--   $1 tenant  $2, $3 the line to go on after  $4 target  $5 action  $6 actor  $7, $8 after and before  $9 limit
select a.audit_id::text, a.at, a.actor, a.action, a.target, a.reason, a.request_id, a.outcome, a.detail::text
from eec_workflow_audit a
where a.tenant_id = $1 and (a.at, a.audit_id) < (coalesce($2::timestamptz, 'infinity'), $3::uuid)
  and ($4::text = '' or a.target = $4) and ($5::text = '' or a.action = $5) and ($6::text = '' or a.actor = $6)
  and ($7::timestamptz is null or a.at > $7) and ($8::timestamptz is null or a.at < $8)
order by a.at desc, a.audit_id desc limit $9;

-- name: audit_of
-- Of one target, oldest first.
select a.audit_id::text, a.at, a.actor, a.action, a.target, a.reason, a.request_id, a.outcome, a.detail::text
from eec_workflow_audit a
where a.tenant_id = $1 and a.target = $2 and (a.at, a.audit_id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)
order by a.at, a.audit_id limit $5;
