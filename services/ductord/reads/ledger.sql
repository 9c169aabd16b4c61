-- The compensation ledger: what is owed, or was, entry by entry (C7). SELECT only, every row found with its tenant.

-- name: list_compensations
-- The entry that changed last comes first. Planned with the values at hand: what is still open by its partial index, one run's by the key, all by the listing's.
--   $1 tenant  $2 to $4 the row to go on after  $5 status  $6 family  $7 run  $8 limit
select c.run_id::text, c.position, c.step_ref, c.item_index, c.block, c.number, c.action, c.status, c.attempt, c.error_code, c.error_message, c.update_time,
       c.family_slug, c.source_attempt, c.source_run_id::text
from eec_workflow_compensation c
where c.tenant_id = $1 and (c.update_time, c.run_id, c.position) < (coalesce($2::timestamptz, 'infinity'), $3::uuid, $4::int)
  and ($5::text = '' or c.status = $5) and ($6::text = '' or c.family_slug = $6) and ($7::uuid is null or c.run_id = $7)
order by c.update_time desc, c.run_id desc, c.position desc limit $8;

-- name: ledger_of_run
-- In the order in which it is worked off.
select c.run_id::text, c.position, c.step_ref, c.item_index, c.block, c.number, c.action, c.status, c.attempt, c.error_code, c.error_message, c.update_time,
       c.family_slug, c.source_attempt, c.source_run_id::text
from eec_workflow_compensation c
where c.tenant_id = $1 and c.run_id = $2 order by c.position limit $3;
