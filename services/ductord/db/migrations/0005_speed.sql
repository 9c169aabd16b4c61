-- What makes the hot path cheaper. A build of before goes on driving runs; what it cannot do is said where it is.

-- Of indexes that seem equally cheap, as all do while a table is empty, the planner takes the one that was made last. So that is the key: a plan that was made then
-- looks a row up, where by an index that has the run at its end it would walk the whole tenant. (Rebuilds the keys: some seconds per million rows.)
alter table eec_workflow_run_start drop constraint eec_workflow_run_start_pkey, add primary key (tenant_id, run_id);
alter table eec_workflow_compensation drop constraint eec_workflow_compensation_pkey, add primary key (tenant_id, run_id, position);
alter table eec_workflow_digest_arrival drop constraint eec_workflow_digest_arrival_pkey, add primary key (tenant_id, run_id, step_ref, attempt);

-- A lock per run: 64 bits of the id's own hash, with a seed that is a name space (IL-06). It was SHA-256 in hex, and took four fifths of the claim; where both
-- are in use for a moment, the version of the run still keeps one run with one tick.
create or replace function eec_run_lock_key(run_id uuid) returns bigint language sql immutable parallel safe as
$$ select uuid_hash_extended(run_id, 7238801326714549614) $$;  -- 'duct.run'

-- A run's state is written whole by each tick and read as text: as jsonb it was parsed and built anew each time, and that was nearly half of what the update cost
-- (12 µs of a backend's time per row of ten nodes, as json 6). What looks into it (nets, the tree of a run) casts. One net of a build of before does not: it
-- wakes no idle run as long as both are in use. (Rewrites the table.)
alter table eec_workflow_run
    alter column node_states drop default, alter column node_states type json using node_states::json, alter column node_states set default '{}',
    alter column run_state drop default, alter column run_state type json using run_state::json, alter column run_state set default '{}';
