-- Fan-out and composition: frozen collections, what inline children have behind them, child runs (rulings F1 to F6).

-- A frozen collection, 100 items per row: a tick that begins children reads the rows of those, whatever the width.
create table eec_workflow_item_page (
    tenant_id       text not null,
    run_id          uuid not null,
    step_ref        text not null,
    attempt         int  not null,                    -- numbers the expansion of the node
    page            int  not null,
    items           json not null,
    primary key (tenant_id, run_id, step_ref, attempt, page)
);

-- What an inline child had behind it when this attempt was made: counters of its retries. Null: nothing.
alter table eec_workflow_step_attempt add column item_state json;

-- Runs that are children of a node of another run: written in the commit that gives birth to them. A run may be watched by more than one node (a reset run takes
-- its source's child over). A child that a redrive takes up again has a second row, for the node's new attempt: the first one says how it had ended.
create table eec_workflow_child (
    tenant_id       text not null,
    parent_run_id   uuid not null,
    step_ref        text not null,
    item_index      int  not null,
    attempt         int  not null,                    -- of the node, whose child it is
    first_run_id    uuid not null,                    -- as it was born
    child_run_id    uuid not null,                    -- as it is now: it follows a continue-as-new
    sync            boolean not null,                 -- the parent waits for it
    checkpoint      text not null default '',         -- what is waited for; empty: its end
    close_policy    text not null check (close_policy in ('request_cancel', 'abandon', 'terminate')),
    detached        boolean not null default false,   -- not told, not closed with the parent
    create_time     timestamptz not null,
    end_time        timestamptz,                      -- when it was told: of its end, or of the checkpoint that was waited for
    status          text,                             -- its end; null: it is open
    checkpoint_status text,                           -- what became of the checkpoint
    error_code      text not null default '',
    error_message   text not null default '',
    applied_time    timestamptz,                      -- the parent's tick has applied it
    primary key (tenant_id, parent_run_id, step_ref, item_index, attempt)
);
create index eec_workflow_child_run on eec_workflow_child (tenant_id, child_run_id);
create index eec_workflow_child_new on eec_workflow_child (tenant_id, parent_run_id, end_time)  -- few: the net reads all of it
    where end_time is not null and applied_time is null and sync and not detached;
create index eec_workflow_child_open on eec_workflow_child (tenant_id, parent_run_id, step_ref, item_index, attempt) where status is null and not detached;

-- A wide fan-out may have more reports than one tick is shown: those that it is shown are the oldest, and no tick reads the others.
drop index eec_workflow_step_attempt_reported;
create index eec_workflow_step_attempt_reported on eec_workflow_step_attempt (tenant_id, run_id, report_time)
    where status = 'open' and report_time is not null;

-- The tree of a run, root first, and the children of one, newest last.
create index eec_workflow_run_start_root on eec_workflow_run_start (tenant_id, root_run_id, create_time, run_id) where parent_run_id is not null;
create index eec_workflow_run_start_parent on eec_workflow_run_start (tenant_id, parent_run_id, create_time, run_id) where parent_run_id is not null;

-- Who started a run: of a successor and of a reset run who started the first (E2: whether somebody may approve what they have started).
alter table eec_workflow_run_start add column if not exists actor text not null default 'anonymous';
