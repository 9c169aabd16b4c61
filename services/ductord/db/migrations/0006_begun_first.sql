-- Begun runs go before new ones: however many wait to begin, only so many are open as can be driven. What a build of before inserts counts as begun; its own
-- claims sort what this index gives them until it is gone.
alter table eec_workflow_wakeup add column begins boolean not null default false;  -- the first of a run that was born just now
drop index eec_workflow_wakeup_claim;
create index eec_workflow_wakeup_claim on eec_workflow_wakeup (tenant_id, begins, due_time);
-- By the run alone, so that nothing that looks for a run's wake-ups can take the index of the claim for it (`coordinator/queries.sql`).
drop index eec_workflow_wakeup_run;
create index eec_workflow_wakeup_run on eec_workflow_wakeup (run_id);

-- The list of what is active, in its order. (Only open runs are looked at by it; a build of before gives the time at which it takes a run up.)
alter table eec_workflow_run add column create_time timestamptz not null default eec_now();
update eec_workflow_run r set create_time = s.create_time from eec_workflow_run_start s
where r.end_time is null and s.tenant_id = r.tenant_id and s.run_id = r.run_id;
create index eec_workflow_run_active on eec_workflow_run (tenant_id, create_time, run_id) where end_time is null;
drop index eec_workflow_run_open;  -- made anew last: of indexes that seem equally cheap the planner takes the newest (0005)
create index eec_workflow_run_open on eec_workflow_run (tenant_id, run_id) where end_time is null;

-- An attempt is written four times within moments: half of each page is left for that (2 to 4 of 48 µs, and an eighth of the log of attempts).
alter table eec_workflow_step_attempt set (fillfactor = 50);

-- Vacuum of what is turned over is short and often, and not held up: slowed down, a round took longer than the pause between two, the more so the larger the key of
-- the attempts grew, and with it what was dead at a time (124,000 -> 170,000 rows over ten minutes of 5,100 steps/s).
alter table eec_workflow_wakeup set (autovacuum_vacuum_cost_delay = 0);
alter table eec_workflow_step_attempt set (autovacuum_vacuum_cost_delay = 0);
alter table eec_workflow_run set (autovacuum_vacuum_cost_delay = 0);
