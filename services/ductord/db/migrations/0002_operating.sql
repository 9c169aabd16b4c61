-- Operating a run: controls as intent rows, the compensation ledger, successors and reset runs. Additive: a build of before goes on working.

-- A control, named by (run, request id): immutable but for what became of it (ruling C1). Edges insert it, the coordinator settles it.
create table eec_workflow_intent (
    tenant_id       text not null,
    run_id          uuid not null,
    request_id      text not null,
    verb            text not null,
    step_ref        text not null default '',
    body            json not null default '{}',
    body_hash       text not null,                    -- of verb, step, body and reason: the same request id with another is a mismatch
    reason          text not null default '',
    actor           text not null,
    call_id         text not null default '',         -- the server's id of the call that brought it
    create_time     timestamptz not null default eec_now(),
    status          text not null default 'pending' check (status in ('pending', 'applied', 'rejected')),
    settle_time     timestamptz,
    outcome_code    text not null default '',
    outcome_message text not null default '',
    result          jsonb not null default '{}',
    primary key (tenant_id, run_id, request_id)
);
create index eec_workflow_intent_pending on eec_workflow_intent (tenant_id, run_id) where status = 'pending';  -- few: the net reads all of it

-- The compensation ledger: inverse and final actions that are owed, or were (ruling C7). A projection of the run's state, for questions over runs.
create table eec_workflow_compensation (
    tenant_id       text not null,
    run_id          uuid not null,
    position        int  not null,
    family_slug     text not null,
    step_ref        text not null,
    item_index      int  not null default -1,
    kind            text not null check (kind in ('compensation', 'finally')),
    block           text not null check (block in ('on_failure', 'on_cancel', 'finally')),
    number          int  not null,
    action          text not null,
    status          text not null check (status in ('owed', 'running', 'done', 'failed', 'ignored', 'manual_repair')),
    attempt         int  not null default 0,
    source_attempt  int  not null default 0,
    source_run_id   uuid,
    error_code      text not null default '',
    error_message   text not null default '',
    create_time     timestamptz not null,
    update_time     timestamptz not null,
    primary key (tenant_id, run_id, position)
);
create index eec_workflow_compensation_listing on eec_workflow_compensation (tenant_id, update_time, run_id, position);
create index eec_workflow_compensation_open on eec_workflow_compensation (tenant_id, status, update_time, run_id, position)
    where status in ('owed', 'running', 'failed', 'manual_repair');

alter table eec_workflow_run
    add column compensation_status  text not null default 'none'
        check (compensation_status in ('none', 'running', 'done', 'failed', 'manual_repair')),
    add column close_reason         text not null default '',
    add column continued_to_run_id  uuid,
    add column held                 boolean not null default false;   -- an operator holds the run or a node of it: it may wait for a control alone
create index eec_workflow_run_compensating on eec_workflow_run (tenant_id, run_id) where compensation_status = 'running';
create index eec_workflow_run_compensation on eec_workflow_run (tenant_id, compensation_status, run_id) where compensation_status <> 'none';

-- Successors and reset runs are born by the coordinator, with what they carry on.
alter table eec_workflow_run_start
    add column context              json not null default '{}',
    add column inverses             jsonb not null default '[]',
    add column continued_from_run_id uuid,
    add column reset_from_run_id    uuid,
    add column reset_from_seq       int not null default 0,
    add column overrides            json not null default '{}',
    add column preserved            jsonb not null default '{}';
create index eec_workflow_run_start_reset on eec_workflow_run_start (tenant_id, reset_from_run_id) where reset_from_run_id is not null;

-- A held task waits at infinity; its own time is kept beside it, also where a worker has it: it is then not handed out again. A late success is shown to the
-- coordinator once. (One that says again what counted before is none.)
alter table eec_workflow_step_attempt
    add column held_due_time        timestamptz,
    add column late_judged_time     timestamptz;
create index eec_workflow_step_attempt_late on eec_workflow_step_attempt (tenant_id, run_id)  -- few: the net reads all of it
    where stale_outcome = 'succeeded' and late_judged_time is null and outcome is distinct from 'succeeded';

-- The audit trail can be read by tenant, by what was done and by whom.
alter table eec_workflow_audit add column outcome text not null default '';
create index eec_workflow_audit_listing on eec_workflow_audit (tenant_id, at, audit_id);
create index eec_workflow_audit_action on eec_workflow_audit (tenant_id, action, at, audit_id);
create index eec_workflow_audit_actor on eec_workflow_audit (tenant_id, actor, at, audit_id);

alter table eec_workflow_intent set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
